"""``eigenfed demo``: a whole study on data it makes."""

import math
from pathlib import Path
from typing import Any

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Voice, answering
from eigenfed.cli.tables import columns, degrees
from eigenfed.report.wording import size

_METHODS = ("covariance", "krylov", "merge")


@click.command(
    epilog=example(
        "eigenfed demo -o eigenfed-demo",
    ),
    short_help="Run a whole study on data it makes.",
)
@click.option(
    "-o",
    "--out",
    type=options.NEW,
    default="eigenfed-demo",
    show_default=True,
    help="Folder to write the result to.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=11,
    show_default=True,
    help="For the made-up rows, and public random starts.",
)
@options.force
@answering
def demo(voice: Voice, out: Path, seed: int, force: bool) -> CommandResult:
    """Let three made-up hospitals compute one PCA, and compare it with the pooled one.

    They have unequal numbers of rows, levels of their own and missing entries. No row leaves any
    of them. The result folder is that of eigenfed fit.
    """
    import numpy as np

    from eigenfed.estimators.federated import FederatedPCA
    from eigenfed.report.html import write_pages
    from eigenfed.study.demo_data import (
        K,
        apart,
        averaged_components,
        pooled_components,
        records,
    )
    from eigenfed.study.results.result_folder import check_free, write_result
    from eigenfed.study.scores import Projected

    check_free(out, force=force)
    hospitals = records(np.random.default_rng(seed))
    pooled = pooled_components(hospitals)
    runs = {}
    for method in _METHODS:
        voice.say(f"Running {method} over {', '.join(sorted(hospitals))}.")
        pca = FederatedPCA(K, method=method, random_state=seed)
        runs[method] = pca.fit_sites(hospitals, by_site=True)
    ours = runs["covariance"]
    scores = {name: Projected(ours.transform(rows), None) for name, rows in hospitals.items()}
    facts = write_result(out, ours, sites=hospitals, rows=scores, force=force)
    pages = write_pages(out)
    found = {
        method: {
            "rounds": pca.n_rounds_,
            "bytes_up": pca.bytes_up_,
            "angle": apart(pca.components_, pooled),
            "angle_bound": None if pca.certificate_ is None else pca.certificate_.angle_bound,
            **pca.leakage_._asdict(),
        }
        for method, pca in runs.items()
    }
    averaged = apart(averaged_components(hospitals), pooled)
    data = {"folder": str(out), "methods": found, "averaged_angle": averaged, "result": facts}
    data["report"] = str(pages.shared)
    return CommandResult(data, _page(data))


def _page(data: dict[str, Any]) -> str:
    rows = [("method", "rounds", "sent up", "angle to pooled", "certified bound", "leakage")]
    rows += [
        (
            method,
            str(found["rounds"]),
            size(found["bytes_up"]),
            degrees(found["angle"]),
            _bound(found["angle_bound"]),
            f"{found['rank_fraction']:.2f} / {found['variance_fraction']:.2f}",
        )
        for method, found in data["methods"].items()
    ]
    rows.append(("local PCAs averaged", "1", "", degrees(data["averaged_angle"]), "none", ""))
    result = data["result"]
    return "\n".join(
        [
            f"{len(result['sites'])} hospitals, {result['n']} rows x {result['d']} features, "
            f"{result['k']} components; no row left a hospital",
            "",
            columns(rows),
            "",
            "leakage: share of the directions, and of the variance, that the most open hospital "
            "has answered about",
            f"result: {data['folder']} (look at result.json, run.jsonl and scores/)",
            f"report: {data['report']}",
        ]
    )


def _bound(angle: float | None) -> str:
    return degrees(angle) if angle is not None and math.isfinite(angle) else "none"
