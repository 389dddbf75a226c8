"""``eigenfed demo``: a complete study on generated data."""

import math
from pathlib import Path
from typing import Any

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Console, print_result
from eigenfed.cli.tables import columns, degrees
from eigenfed.report.wording import size

_METHODS = ("covariance", "krylov", "merge")


@click.command(
    epilog=example("eigenfed demo -o eigenfed-demo", "eigenfed demo --gwas -o ancestry"),
    short_help="Run a complete study on generated data.",
)
@click.option(
    "-o",
    "--out",
    type=options.NEW,
    default="eigenfed-demo",
    show_default=True,
    help="Folder for the result and its report.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=11,
    show_default=True,
    help="Seed of the generated rows and of the public random start.",
)
@click.option(
    "--gwas", is_flag=True, help="Use genotypes of three cohorts; needs eigenfed[genotypes]."
)
@options.force
@print_result
def demo(console: Console, out: Path, seed: int, gwas: bool, force: bool) -> CommandResult:
    """Compute one PCA over three simulated hospitals, and compare it with the pooled PCA.

    The hospitals differ in their numbers of rows and in their means, and have missing entries. No
    row leaves a hospital. The result folder is like that of eigenfed fit. With --gwas the sites are
    cohorts with shared ancestry, and the components are those of ancestry.
    """
    if gwas:
        return _show_ancestry(console, out, seed, force)
    import numpy as np

    from eigenfed.estimators.federated import FederatedPCA
    from eigenfed.report.html import write_pages
    from eigenfed.study.demo_data import (
        K,
        average_components,
        largest_angle,
        make_records,
        pool_components,
    )
    from eigenfed.study.results.result_folder import check_free, write_result
    from eigenfed.study.scores import Projected

    check_free(out, force=force)
    hospitals = make_records(np.random.default_rng(seed))
    pooled = pool_components(hospitals)
    runs = {}
    for method in _METHODS:
        console.note(f"Running {method} over {', '.join(sorted(hospitals))}.")
        pca = FederatedPCA(K, method=method, random_state=seed)
        runs[method] = pca.fit_sites(hospitals, by_site=True)
    ours = runs["covariance"]
    scores = {name: Projected(ours.transform(rows), None) for name, rows in hospitals.items()}
    command = ["eigenfed", "demo", "--seed", str(seed)]
    facts = write_result(out, ours, sites=hospitals, rows=scores, command=command, force=force)
    pages = write_pages(out)
    found = {
        method: {
            "rounds": pca.n_rounds_,
            "bytes_up": pca.bytes_up_,
            "angle": largest_angle(pca.components_, pooled),
            "angle_bound": None if pca.certificate_ is None else pca.certificate_.angle_bound,
            **pca.leakage_._asdict(),
        }
        for method, pca in runs.items()
    }
    averaged = largest_angle(average_components(hospitals), pooled)
    data = {"folder": str(out), "methods": found, "averaged_angle": averaged, "result": facts}
    data["report"] = str(pages.shared)
    return CommandResult(data, _format_page(data))


def _show_ancestry(console: Console, out: Path, seed: int, force: bool) -> CommandResult:
    """Find the components of ancestry of three simulated cohorts, by secure aggregation."""
    import numpy as np

    from eigenfed.data.variant_filters import format_attrition
    from eigenfed.estimators.federated import FederatedPCA
    from eigenfed.report.html import write_pages
    from eigenfed.study.demo_genotypes import (
        STEPS,
        K,
        explain_ancestry,
        find_pooled_vectors,
        list_variants,
        simulate_cohorts,
    )
    from eigenfed.study.results.result_folder import check_free, write_result
    from eigenfed.study.scores import Projected

    check_free(out, force=force)
    cohorts = simulate_cohorts(np.random.default_rng(seed))
    files = {name: cohort.open(name) for name, cohort in cohorts.items()}
    for file in files.values():
        for note in file.notes:
            console.note(note)
    console.note(f"Running krylov over {', '.join(cohorts)}, by secure aggregation.")
    pca = FederatedPCA(K, prepare=list(STEPS), random_state=seed)
    pca.fit_sites({name: file.source for name, file in files.items()})
    rows = {
        name: Projected(pca.transform_aligned(file.genotypes), file.row_ids)
        for name, file in files.items()
    }
    kept = pca.selected_features_
    if kept is None:
        kept = np.arange(pca.n_features_in_)
    # Everybody is simulated, so that the shared report may show single people.
    facts = write_result(
        out,
        pca,
        sites=files,
        rows=rows,
        share_scores=list(rows),
        variants=list_variants().take(kept),
        command=["eigenfed", "demo", "--gwas", "--seed", str(seed)],
        force=force,
    )
    pages = write_pages(out)
    clear = int(np.count_nonzero(pca.certificate_.converged)) if pca.certificate_ else 0
    scores = np.concatenate([rows[name].scores for name in cohorts])[:, :clear]
    pooled = find_pooled_vectors(files, kept, clear)
    units = scores / np.linalg.norm(scores, axis=0)
    cosines = np.minimum(np.abs(np.sum(units * pooled, axis=0)), 1.0)
    data: dict[str, Any] = {
        "folder": str(out),
        "report": str(pages.shared),
        "converged": clear,
        "angle": float(np.arccos(cosines).max(initial=0.0)),
        "ancestry": explain_ancestry(cohorts, rows),
        "result": facts,
    }
    return CommandResult(data, _format_ancestry(data, format_attrition(pca.preparation_.attrition)))


def _format_ancestry(data: dict[str, Any], attrition: list[str]) -> str:
    facts = data["result"]
    lines = [
        f"{len(facts['sites'])} cohorts, {facts['n']} people x {facts['d']} variants; no "
        "number about a person left a cohort",
        "",
        *attrition,
        "",
        f"components clear of noise     {data['converged']} of {facts['k']}",
        f"largest angle to the pooled   {degrees(data['angle'])}",
        f"ancestry they explain         {data['ancestry']:.0%} of its variance",
        f"rounds, sent up               {facts['rounds']}, {size(facts['bytes_up'])}",
        "",
        f"covariates: {data['folder']}/scores/<cohort>.eigenvec, for each cohort's own regression",
        f"report: {data['report']}",
    ]
    return "\n".join(lines)


def _format_page(data: dict[str, Any]) -> str:
    rows = [("method", "rounds", "sent up", "angle to pooled", "certified bound", "leakage")]
    rows += [
        (
            method,
            str(found["rounds"]),
            size(found["bytes_up"]),
            degrees(found["angle"]),
            _format_bound(found["angle_bound"]),
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
            "leakage: fractions of the directions and of the variance along which the most exposed "
            "hospital revealed its covariance",
            f"result: {data['folder']} (see result.json, run.jsonl and scores/)",
            f"report: {data['report']}",
        ]
    )


def _format_bound(angle: float | None) -> str:
    return degrees(angle) if angle is not None and math.isfinite(angle) else "none"
