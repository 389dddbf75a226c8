"""How the rows were prepared before their components were computed."""

from typing import Any

from eigenfed.data.prepare_step import PrepareStep
from eigenfed.data.steps import (
    Log1p,
    NormalizeCounts,
    SelectVariable,
    Standardize,
    as_steps,
)
from eigenfed.report.model import Report
from eigenfed.report.page_elements import PageTable, Section
from eigenfed.report.wording import things

_FLAVORS = {
    "variance": "by variance",
    "seurat": "by dispersion among features of similar mean (seurat)",
    "cell_ranger": "by dispersion among features of similar mean (cell_ranger)",
}


def show_preparation(report: Report) -> tuple[Section, ...]:
    """Show the steps that prepared the rows; no section if there were none."""
    facts = report.facts
    if facts["prepare"] is None:
        return ()
    steps, before = as_steps(facts["prepare"]["steps"]), facts["prepare"]["features"]
    words = [
        "Rows were prepared by these steps, in this order. Mean, variances and loadings are those "
        "of prepared rows, and eigenfed project prepares new rows alike."
    ]
    if before != facts["d"]:
        words.append(
            f"{facts['d']} of {things(before, 'feature')} were selected; features.txt names them."
        )
    if any(step.federated for step in steps):
        words.append(
            "Steps over all sites use sums and sums of squares by feature, which left the sites as "
            "listed below."
        )
    table = PageTable(
        "preparation-table",
        "Steps",
        ("step", "what it does", "computed from"),
        tuple((step.text, _explain(step), _place(step)) for step in steps),
    )
    return (Section("preparation", "How the rows were prepared", tuple(words), (table,)),)


def is_scaled(facts: dict[str, Any]) -> bool:
    """Return whether features have equal variances, by a step or otherwise."""
    prepare = facts.get("prepare")
    last = "" if prepare is None else prepare["steps"][-1]
    return bool(facts["scale"]) or last.startswith(f"{Standardize.name}:")


def _explain(step: PrepareStep) -> str:
    match step:
        case NormalizeCounts(target=target):
            return f"divides each row by its total, and multiplies it by {target:g}"
        case Log1p():
            return "replaces each entry x by log(1 + x)"
        case SelectVariable(n_features=count, flavor=flavor):
            return f"keeps the {count} features that vary most, {_FLAVORS[flavor]}"
        case Standardize(clip=clip):
            return (
                "subtracts the mean, divides by the standard deviation, and clips entries beyond "
                f"{clip:g} standard deviations"
            )
        case _:
            return step.summary


def _place(step: PrepareStep) -> str:
    return "all sites" if step.federated else "each row"
