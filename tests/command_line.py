"""The program as a test calls it, and files that serve as sites."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner, Result

from eigenfed.arrays import Array
from eigenfed.cli.main import cli

FEATURES = ("age", "bmi", "hdl", "ldl", "sbp", "dbp")


def eigenfed(*arguments: object, given: str | bytes | None = None) -> Result:
    """Run the program in this process."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], input=given)


def answer(*arguments: object, given: str | None = None) -> dict[str, Any]:
    """Run it with --json, see that it is done, and read the one object it prints."""
    run = eigenfed(*arguments, "--json", given=given)
    assert run.exit_code == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def rows(n: int = 900, seed: int = 0) -> Array:
    """Rows with three clear directions."""
    spread = np.array([9.0, 5.0, 3.0, 1.0, 1.0, 1.0])
    around: Array = np.random.default_rng(seed).standard_normal((n, 6)) * spread + 50
    return around


def as_npy(folder: Path, table: Array, names: tuple[str, ...]) -> list[Path]:
    """Cut rows into a .npy file for each name."""
    paths = [folder / f"{name}.npy" for name in names]
    for path, part in zip(paths, np.array_split(table, len(names)), strict=True):
        np.save(path, part)
    return paths


def as_csv(path: Path, table: Array, names: tuple[str, ...] = FEATURES) -> Path:
    """Write rows with names of features, to the last bit."""
    lines = [",".join(names), *(",".join(map(repr, row)) for row in table.tolist())]
    path.write_text("\n".join(lines) + "\n")
    return path


def without_sign(components: Array) -> Array:
    """Turn each row so that its largest entry is positive."""
    peaks = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
    turned: Array = components * np.sign(peaks)
    return turned
