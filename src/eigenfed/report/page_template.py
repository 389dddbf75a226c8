"""Pages as HTML: the templates, and the digests that a content security policy names."""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from eigenfed.report.page_elements import Page, Section, format_cell, format_full


def render(page: Page, template: str = "page", script: str = "page") -> str:
    """Return a page as HTML.

    Parameters
    ----------
    page : Page
    template : str, default="page"
        Name of the template.
    script : str, default="page"
        Name of the script, which comes after that of the tooltips.
    """
    return (
        _environment()
        .get_template(f"{template}.html.j2")
        .render(
            page=page,
            policy=Markup(start_policy(script)),
            style=Markup(_asset("page.css")),
            script=Markup(_scripts(script)),
        )
    )


def render_verdicts(page: Page) -> str:
    """Return the verdicts of a page as HTML."""
    return str(_parts().verdicts(page))


def render_section(section: Section) -> str:
    """Return a section of a page as HTML."""
    return str(_parts().section(section))


def start_policy(script: str) -> str:
    """Return the start of a content security policy: no sources but the style and a script."""
    style, code = _digest(_asset("page.css")), _digest(_scripts(script))
    return f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{code}'"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["format_cell"] = format_cell
    environment.filters["format_full"] = format_full
    return environment


@cache
def _parts() -> Any:
    return _environment().get_template("parts.html.j2").module


def _scripts(name: str) -> str:
    return _asset("tips.js") + _asset(f"{name}.js")


@cache
def _asset(name: str) -> str:
    return files("eigenfed.report").joinpath("templates", name).read_text("utf-8")


def _digest(text: str) -> str:
    return b64encode(sha256(text.encode("utf-8")).digest()).decode("ascii")
