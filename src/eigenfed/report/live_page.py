"""Pages that change while somebody looks at them: the first HTML, and what replaces its parts."""

import json
from dataclasses import dataclass
from typing import Any

from eigenfed.report.page_elements import Code, Page, Section
from eigenfed.report.page_template import render, render_section, render_verdicts, start_policy
from eigenfed.study.results.json_types import to_json_types

_NAME = "live"

LIVE_POLICY = (
    f"{start_policy(_NAME)}; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Content security policy of a live page: it loads nothing, and asks only its own server."""


@dataclass(frozen=True)
class LiveView:
    """What a live page shows at one moment.

    Attributes
    ----------
    page : Page
        Its sections are always the same; their parts change.
    facts : dict
        The same for programs.
    is_over : bool
        Whether nothing will change any more.
    """

    page: Page
    facts: dict[str, Any]
    is_over: bool


def render_live(view: LiveView) -> bytes:
    """Return the page as it is now, with a script that keeps it up to date."""
    return render(view.page, _NAME, _NAME).encode("utf-8")


def render_update(view: LiveView) -> bytes:
    """Return the facts as JSON, and the parts of the page as HTML.

    Examples
    --------
    >>> view = LiveView(Page("Study heart", "no run yet", (), (show_log(()),)), {"n": 1}, False)
    >>> update = json.loads(render_update(view))
    >>> update["over"], update["facts"], sorted(update["page"]["parts"])
    (False, {'n': 1}, ['#log', '.verdicts'])
    """
    page = view.page
    parts = {f"#{section.name}": render_section(section) for section in page.sections}
    shown = {
        "title": page.title,
        "subtitle": page.subtitle,
        "parts": {".verdicts": render_verdicts(page), **parts},
    }
    update = {"over": view.is_over, "facts": view.facts, "page": shown}
    return json.dumps(to_json_types(update), allow_nan=False).encode("utf-8")


def describe_engine(engine: str) -> str:
    """Return how messages travel, in words.

    Examples
    --------
    >>> describe_engine("files"), describe_engine("nvflare")
    ('by files', 'over NVIDIA FLARE')
    """
    return {"nvflare": "over NVIDIA FLARE", "files": "by files"}.get(engine, engine)


def show_log(lines: tuple[str, ...]) -> Section:
    """Show the last lines of a log."""
    text = "\n".join(lines) or "Nothing was logged yet."
    return Section("log", "Log", (), (Code("The last lines", text),))
