"""The shared report for programs: ``run.json``, and custom content for MultiQC.

Neither holds anything about single rows. MultiQC reads files whose names end in ``_mqc.json``.
"""

import json
from dataclasses import asdict
from typing import Any

from eigenfed.report.model import Report
from eigenfed.study.results.json_types import to_json_types

FORMAT = 1


def format_exports(report: Report) -> dict[str, str]:
    """Return the texts of all files, by path inside the result folder."""
    contents = {"run.json": describe_report(report)} | {
        f"multiqc/eigenfed_{name}_mqc.json": content
        for name, content in describe_for_multiqc(report).items()
    }
    return {
        path: json.dumps(to_json_types(content), indent=1, allow_nan=False) + "\n"
        for path, content in contents.items()
    }


def describe_report(report: Report) -> dict[str, Any]:
    """Return the content of the shared page, except for points."""
    kinds = ("components", "loadings", "rounds", "left", "sites")
    return {
        "format": FORMAT,
        "result": report.facts,
        **{kind: [asdict(entry) for entry in getattr(report, kind)] for kind in kinds},
        "replies": {site: [asdict(r) for r in found] for site, found in report.replies.items()},
        "by_site": None if report.by_site is None else asdict(report.by_site),
    }


def describe_for_multiqc(report: Report) -> dict[str, dict[str, Any]]:
    """Return custom content for MultiQC: general statistics, a scree plot and a table of sites."""
    facts = report.facts
    general = {
        "components": facts["k"],
        "rows": facts["n"],
        "sites": len(facts["sites"]),
        "variance": _to_percent(report.components[-1].cumulative),
        "converged": report.converged,
        "rounds": facts["rounds"],
    }
    about = {"parent_id": "eigenfed", "parent_name": "eigenfed", "parent_description": _ABOUT}
    return {
        "general": {
            "id": "eigenfed_general",
            "plot_type": "generalstats",
            "pconfig": [{name: _HEADERS[name]} for name in general],
            "data": {"eigenfed": _drop_unknown(general)},
        },
        "scree": about
        | {
            "id": "eigenfed_scree",
            "section_name": "Scree plot",
            "description": "Variance by component.",
            "plot_type": "linegraph",
            "pconfig": {
                "id": "eigenfed_scree_plot",
                "title": "eigenfed: variance by component",
                "xlab": "component",
                "ylab": "variance",
                "ymin": 0,
            },
            "data": {"eigenfed": {str(c.place): c.variance for c in report.components}},
        },
        "sites": about
        | {
            "id": "eigenfed_sites",
            "section_name": "Sites",
            "description": "Rows and traffic per site.",
            "plot_type": "table",
            "pconfig": {"id": "eigenfed_sites_table", "title": "eigenfed: sites"},
            "headers": {name: {"title": title} for name, title in _COLUMNS.items()},
            "data": {
                site.name: _drop_unknown({name: getattr(site, name) for name in _COLUMNS})
                for site in report.sites
            },
        },
    }


_ABOUT = "Principal component analysis of rows that stayed at their sites."
_COLUMNS = {
    "rows": "Rows",
    "replies": "Replies",
    "bytes_up": "Bytes sent",
    "bytes_down": "Bytes received",
}
_HEADERS: dict[str, dict[str, Any]] = {
    "components": {"title": "Components", "format": "{:,.0f}"},
    "rows": {"title": "Rows", "format": "{:,.0f}"},
    "sites": {"title": "Sites", "format": "{:,.0f}"},
    "variance": {"title": "Variance explained", "suffix": "%", "min": 0, "max": 100},
    "converged": {"title": "Converged", "description": "Number of converged components"},
    "rounds": {"title": "Rounds", "format": "{:,.0f}"},
}


def _to_percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100.0 * fraction


def _drop_unknown(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
