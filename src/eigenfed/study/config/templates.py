"""Commented files for a new study, written from the JSON schemas of the models.

::

    study.toml               all sites read and approve it
    sites/north/site.toml    for north only: its folder is sent to north and stays there
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from eigenfed.data.safe_files import write_at_once
from eigenfed.errors import DataError, InputError
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.study.config.fields import NAME_PATTERN, Schema, TomlTable, get_example, get_schema
from eigenfed.study.config.site_file import SiteFile
from eigenfed.study.config.study_file import StudyFile
from eigenfed.study.config.toml_errors import validate
from eigenfed.study.config.toml_text import Document, KeyPath, format_value

TABLES: dict[str, type[TomlTable]] = {"study": StudyFile, "site": SiteFile}
"""The models of the two kinds of files."""

_WIDTH = 96
_MIN_ROWS = 10
_ROWS, _FEATURES = 1000, 120


@dataclass(frozen=True)
class Started:
    """The files that were written.

    Attributes
    ----------
    study : Path
    sites : dict of str to Path
    """

    study: Path
    sites: dict[str, Path]


def schema_of(kind: str) -> Schema:
    """Return the JSON schema (draft 2020-12) of study or site files.

    It describes each key by itself; which keys cannot be combined is checked when a file is read.

    Parameters
    ----------
    kind : {"study", "site"}

    Examples
    --------
    >>> schema_of("study")["properties"]["quorum"]["minimum"]
    1
    """
    return get_schema(TABLES[kind])


def start_study(
    folder: Path,
    *,
    sites: Sequence[str],
    components: int,
    privacy: Privacy | None = None,
    force: bool = False,
) -> Started:
    """Write commented files for a new study.

    Parameters
    ----------
    folder : Path
        Created if it does not exist.
    sites : sequence of str
    components : int
    privacy : Privacy, optional
    force : bool, default=False
        Replace existing files.

    Raises
    ------
    InputError
        If the arguments break a rule of the files, or a file exists. Nothing is written then.

    Examples
    --------
    >>> import tempfile
    >>> from eigenfed.study.config import read_study
    >>> with tempfile.TemporaryDirectory() as home:
    ...     started = start_study(Path(home, "heart"), sites=["a", "b"], components=2)
    ...     study = read_study(started.study)
    >>> study.name, study.sites, study.components
    ('heart', ('a', 'b'), 2)
    """
    own = {site: folder / "sites" / site / "site.toml" for site in sites}
    texts = {folder / "study.toml": _fill_study(folder, sites, components, privacy)}
    texts |= {path: _fill_site(site, privacy) for site, path in own.items()}
    existing = [path for path in texts if path.exists()]
    if existing and not force:
        raise InputError(
            f"{existing[0]} exists, and nothing is overwritten. Name another folder, or pass "
            "--force to replace it."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        is_private = path in own.values()
        path.parent.mkdir(mode=0o700 if is_private else 0o777, parents=True, exist_ok=True)
        # Half a file may be read as a whole one, with fewer limits than it was to have.
        write_at_once(path, text.encode("utf-8"), mode=0o600 if is_private else 0o666)
    return Started(folder / "study.toml", own)


def fill_template(schema: Schema, values: Mapping[str, Any], examples: Mapping[str, Any]) -> str:
    """Write a file with every key that it may have and what each is for.

    Parameters
    ----------
    schema : dict
        JSON schema of the file.
    values : mapping of str to value
        By dotted key. Keys that are not here are written as comments, with an example.
    examples : mapping of str to value
        Better examples than those of the schema, for some keys.

    Examples
    --------
    >>> key = {"description": "Whether it is on.", "default": False, "examples": [True]}
    >>> schema = {"description": "All of it.", "properties": {"on": key}}
    >>> print(fill_template(schema, {}, {}), end="")
    # All of it.
    <BLANKLINE>
    # Whether it is on. Default: false.
    # on = true
    """
    return "\n".join(_format_table(schema, values, examples, ())) + "\n"


def _format_table(
    schema: Schema, values: Mapping[str, Any], examples: Mapping[str, Any], above: KeyPath
) -> Iterator[str]:
    yield from _format_comment(schema["description"])
    if above:
        header = ".".join(above)
        is_used = any(name.startswith(f"{header}.") for name in values)
        yield f"[{header}]" if is_used else f"# [{header}]"
    for name, inner in schema["properties"].items():
        key = (*above, name)
        yield ""
        if "properties" in inner:
            yield ""
            yield from _format_table(inner, values, examples, key)
            continue
        note = " Required." if name in schema.get("required", ()) else ""
        if "default" in inner:
            note = f" Default: {format_value(inner['default'])}."
        yield from _format_comment(inner["description"] + note)
        dotted = ".".join(key)
        if dotted in values:
            yield f"{name} = {format_value(values[dotted])}"
        else:
            yield f"# {name} = {format_value(examples.get(dotted, get_example(inner)))}"


def _format_comment(text: str) -> list[str]:
    return [f"# {line}" for line in wrap(text, _WIDTH)]


def _fill_study(
    folder: Path, sites: Sequence[str], components: int, privacy: Privacy | None
) -> str:
    name = folder.resolve().name
    values = {
        "name": name if re.fullmatch(NAME_PATTERN, name) else "study",
        "sites": list(sites),
        "components": components,
        "method": "auto",
        "center": True,
        "scale": False,
        "secure": False,
        "features": "same",
        "by_site": privacy is None,
    }
    if privacy is not None:
        values |= {"privacy.epsilon": privacy.epsilon, "privacy.delta": privacy.delta}
    examples = {
        "quorum": len(sites),
        "expected.rows": dict.fromkeys(sites, _ROWS),
        "expected.features": _FEATURES,
    }
    return _fill_checked("study", values, examples)


def _fill_site(name: str, privacy: Privacy | None) -> str:
    values = {
        "name": name,
        "data": f"{name}.csv",
        "ledger": f"{name}.ledger",
        "dataset": "data",
        "share_scores": False,
        "policy.min_rows": _MIN_ROWS,
    }
    if privacy is not None:
        values |= {
            "policy.budget.epsilon": privacy.epsilon,
            "policy.budget.delta": privacy.delta,
        }
    return _fill_checked("site", values, {})


def _fill_checked(kind: str, values: Mapping[str, Any], examples: Mapping[str, Any]) -> str:
    """Write a file as text, and refuse arguments with which it would break a rule."""
    text = fill_template(schema_of(kind), values, examples)
    try:
        validate(TABLES[kind], Document(Path(f"{kind}.toml"), tomllib.loads(text)))
    except DataError as error:
        raise InputError(str(error)) from None
    return text
