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
from eigenfed.data.variant_steps import (
    CallRate,
    ExcludeLongRangeLd,
    HardyWeinberg,
    MinorAlleleFrequency,
    PruneLd,
    VariantStep,
)
from eigenfed.protocol.study import GENOTYPE
from eigenfed.report.model import Report
from eigenfed.report.page_elements import PageTable, Section
from eigenfed.report.wording import count, things

_FLAVORS = {
    "variance": "by variance",
    "seurat": "by dispersion among features of similar mean (seurat)",
    "cell_ranger": "by dispersion among features of similar mean (cell_ranger)",
}


_MATCHES = {
    "same": "the same alleles, the same one counted",
    "swapped": "the same alleles, the other one counted: c copies become 2 - c",
    "flipped": "the alleles of the other strand: read as those of the manifest",
    "flip_swapped": "the other strand and the other allele: both",
    "ambiguous": "A and T, or C and G, of which the strand is not known: left out",
    "other_alleles": "other alleles at the same position: left out",
    "duplicate": "several variants of a site match: left out",
    "absent": "no variant of a site at that position: left out",
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
            f"{count(facts['d'])} of {things(before, 'feature')} were selected; features.txt "
            "names them."
        )
    if any(isinstance(step, VariantStep) for step in steps):
        words.append(
            "Variants were filtered by counts of genotypes over all sites, and pruned by sums of "
            "products of neighbouring variants, which left the sites as listed below."
        )
    elif any(step.federated for step in steps):
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
    more = show_variants(facts["prepare"])
    return (Section("preparation", "How the rows were prepared", tuple(words), (table, *more)),)


def show_variants(prepare: dict[str, Any]) -> tuple[PageTable, ...]:
    """Show how many variants each step removed, and how they were matched to the manifest."""
    tables = []
    if prepare.get("attrition"):
        rows = prepare["attrition"]
        tables.append(
            PageTable(
                "attrition-table",
                "Variants removed by each step, in their order",
                ("variants", "removed", "left"),
                tuple((row["step"], count(row["removed"]), count(row["left"])) for row in rows),
            )
        )
    matched = {name: n for name, n in prepare.get("matched", {}).items() if n}
    if set(matched) - {"same"}:
        tables.append(
            PageTable(
                "matched-table",
                "Variants of the manifest by how they were matched, added up over the sites",
                ("match", "what it means", "variants"),
                tuple((name, _MATCHES.get(name, ""), count(n)) for name, n in matched.items()),
            )
        )
    return tuple(tables)


def describe_features(facts: dict[str, Any]) -> str:
    """Return the number of features, and of how many they were selected."""
    prepare, found = facts["prepare"], count(facts["d"])
    if prepare is not None and prepare["features"] != facts["d"]:
        found += f" of {count(prepare['features'])}"
    return found + ("" if facts["named"] else ", without names")


def is_scaled(facts: dict[str, Any]) -> bool:
    """Return whether features have equal variances, by a step or otherwise."""
    prepare = facts.get("prepare")
    last = "" if prepare is None else prepare["steps"][-1]
    return bool(facts["scale"]) or last.startswith(f"{Standardize.name}:")


def describe_scale(facts: dict[str, Any]) -> str:
    """Return in words what features were divided by."""
    if facts["scale"] == GENOTYPE:
        return "yes, by sqrt(2p(1 - p)), with p the allele's frequency over all sites"
    return "yes, by the standard deviation over all rows" if is_scaled(facts) else "no"


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
        case CallRate(least=least):
            return f"keeps variants that are known for at least {least:.6g} of all people"
        case MinorAlleleFrequency(least=least):
            return f"keeps variants whose rarer allele has a frequency of at least {least:.6g}"
        case HardyWeinberg(p=p):
            return f"leaves out variants whose mid-p value of the exact test is below {p:.6g}"
        case ExcludeLongRangeLd(build=build):
            return f"leaves out regions of long-range linkage disequilibrium ({build})"
        case PruneLd(window=window, r2=r2):
            unit = "" if window.endswith("kb") else " variants"
            return f"of variants within {window}{unit} with r^2 above {r2:.6g}, keeps one"
        case _:
            return step.summary


def _place(step: PrepareStep) -> str:
    return "all sites" if step.federated else "each row"
