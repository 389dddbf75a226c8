"""The lines to repeat a run do repeat it."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import eigenfed
from eigenfed import Covariance, Power, Privacy
from eigenfed.protocol.published import DPdisPCA
from eigenfed.report.model import read_report
from eigenfed.report.repeat import write_command, write_python
from eigenfed.transport import Local
from reports import result, tables

PRIVATE = Privacy(5.0, 1e-3, clip=20.0, colluders=1)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"scale": True, "method": "krylov"},
        {"center": False, "secure": True},
        {"method": "subspace"},
        {"privacy": PRIVATE},
        {"privacy": Privacy(16.0 / 3.0, 1.0 / 1023.0, clip=20.0), "tol": 1.0 / 7.0},
        {"privacy": Privacy(5.0, 1e-3, clip=20.0, dropouts=1, count="private")},
        {"privacy": Privacy(5.0, 1e-3, count="private", if_missing="drop", public_center=-1.5)},
        {"privacy": Privacy(5.0, 1e-3, public_center=[-4.0] * 8, public_scale=0.5)},
        {"method": Power(local_steps=2, decay=False)},
        {"method": Covariance(precision="single")},
    ],
)
def test_the_command_repeats_the_run(tmp_path: Path, settings: dict[str, Any]) -> None:
    private = "privacy" in settings
    sites = tables(("a", "b", "c", "d d"))
    result(tmp_path / "r", sites, k=2, scores=not private, **settings)
    facts = read_report(tmp_path / "r").facts
    line = write_command(facts)
    assert line is not None
    program, *words = shlex.split(line)
    for name, rows in sites.items():
        np.savetxt(
            tmp_path / f"{name}.csv",
            rows,
            delimiter=",",
            header=",".join(f"x{i}" for i in range(8)),
            comments="",
        )
    given = [str(tmp_path / word) if word.endswith(".csv") else word for word in words]
    given[given.index("result")] = str(tmp_path / "again")
    run = eigenfed(*given)
    assert (program, run.exit_code) == ("eigenfed", 0), run.stderr
    again = read_report(tmp_path / "again").facts
    assert again["asked"] == facts["asked"]
    if not private:
        np.testing.assert_allclose(again["eigenvalues"], facts["eigenvalues"], rtol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": Power(local_steps=1), "max_rounds": 80},
        {"stop": "separated", "method": "krylov", "certify": False},
        {"transport": Local(wire="float32")},
        {"privacy": Privacy(5.0, 1e-3, relation="zero_out", clip=20.0, shares={"scree": 0.2})},
        {"privacy": DPdisPCA(2.0, 1e-3)},
    ],
)
def test_what_no_command_can_say_python_can(tmp_path: Path, settings: dict[str, Any]) -> None:
    sites = tables()
    result(tmp_path / "r", sites, k=2, scores="privacy" not in settings, **settings)
    facts = read_report(tmp_path / "r").facts
    assert write_command(facts) is None
    lines = write_python(facts).rpartition("\n")[0]
    scope: dict[str, Any] = {}
    exec(lines, scope)
    pca = scope["pca"].fit_sites(sites)
    for name, value in settings.items():
        assert getattr(pca, name) == value
    if "privacy" not in settings:
        np.testing.assert_allclose(pca.explained_variance_, facts["eigenvalues"], rtol=1e-6)


def test_odd_names_are_quoted(tmp_path: Path) -> None:
    result(tmp_path / "r", tables(("it's", 'a "b"')), k=2, by_site=True)
    facts = read_report(tmp_path / "r").facts
    last = write_python(facts).splitlines()[-1]
    taken: dict[str, Any] = {}

    class Pca:
        def fit_sites(self, sites: dict[str, Any], by_site: bool) -> None:
            taken.update(sites, by_site=by_site)

    exec(last, {"pca": Pca()})
    assert set(taken) == {"it's", 'a "b"', "by_site"}
    line = write_command(facts)
    assert line is not None
    assert shlex.split(line)[2:4] == ['a "b".csv', "it's.csv"]
