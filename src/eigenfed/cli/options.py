"""Options that several commands share, and the values that they are turned into."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli.option_types import MethodName, Numbers, Real

if TYPE_CHECKING:
    from eigenfed.linalg.summary import Summary
    from eigenfed.privacy.privacy_terms import Privacy
    from eigenfed.protocol.method import Method

_AS_IS = "\b"
"""Alone on a line, it keeps click from rewrapping the paragraph below."""


def example(*lines: str) -> str:
    """Return the examples that ``--help`` shows last, without rewrapping.

    Examples
    --------
    >>> print(example("eigenfed demo").partition("Example")[2])
    :
      eigenfed demo
    """
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join([_AS_IS, title, *(f"  {line}" for line in lines)])


_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

TRUSTS = ("secure_sum", "local", "central")
COUNTS = ("public", "private")
MISSING = ("mean", "public", "drop")


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW = click.Path(path_type=Path)

components: _Decorator = click.option(
    "-k", "k", type=click.IntRange(min=1), required=True, help="Number of components."
)
loadings: _Decorator = click.option(
    "--loadings",
    type=NEW,
    metavar="CSV",
    help="Write the loadings of the components to this csv file, a line for each feature.",
)
epsilon: _Decorator = click.option(
    "--epsilon",
    type=float,
    help="Release differentially private results, with this epsilon for the whole run; requires "
    "--delta.",
)
delta: _Decorator = click.option(
    "--delta",
    type=float,
    help="Delta of the privacy guarantee, below 1/n for n rows; requires --epsilon.",
)
clip: _Decorator = click.option(
    "--clip",
    type=float,
    help="With --epsilon: public bound to which the norm of rows is clipped. Without it, a bound "
    "is estimated privately, from a part of the budget.",
)
colluders: _Decorator = click.option(
    "--colluders",
    type=click.IntRange(min=0),
    help="With --epsilon: number of sites that may collude with the coordinator.  [default: 0]",
)
dropouts: _Decorator = click.option(
    "--dropouts",
    type=click.IntRange(min=0),
    help="With --epsilon: number of sites that may drop out of a sum.  [default: 0]",
)
count: _Decorator = click.option(
    "--count",
    type=click.Choice(COUNTS),
    help="With --epsilon: whether the number of rows is public, or released with noise.  "
    "[default: public]",
)
if_missing: _Decorator = click.option(
    "--if-missing",
    type=click.Choice(MISSING),
    help="With --epsilon: replace missing entries by the private mean or by --public-center, or "
    "leave rows with missing entries out (drop), which requires --count private.  [default: mean]",
)
public_center: _Decorator = click.option(
    "--public-center",
    type=Numbers(),
    help="With --epsilon: rough level of the features, known without the rows: one number for all, "
    "or one for each, separated by commas.",
)
public_scale: _Decorator = click.option(
    "--public-scale",
    type=Numbers(),
    help="With --epsilon: public numbers by which the features are divided, in place of --scale; "
    "one for all, or one for each.",
)
trust: _Decorator = click.option(
    "--trust",
    type=click.Choice(TRUSTS),
    help="With --epsilon: where noise is added: by all sites inside secure aggregation, by each "
    "site on its own, or by a trusted coordinator.  [default: secure_sum]",
)
_TERMS = {
    "epsilon": epsilon,
    "delta": delta,
    "clip": clip,
    "colluders": colluders,
    "dropouts": dropouts,
    "count": count,
    "if_missing": if_missing,
    "public_center": public_center,
    "public_scale": public_scale,
    "trust": trust,
}


def privacy_terms(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add all options of a privacy guarantee, passed on as the dict ``terms``."""

    @functools.wraps(function)
    def call(**given: Any) -> Any:
        terms = {name: given.pop(name) for name in _TERMS}
        return function(terms=terms, **given)

    command: Callable[..., Any] = call
    for option in reversed(_TERMS.values()):
        command = option(command)
    return command


secure: _Decorator = click.option(
    "--secure/--no-secure",
    "secure",
    default=None,
    help="Use secure aggregation: the coordinator sees sums over all sites only. By default only "
    "to filter variants of genotypes, at three sites or more.",
)
scale: _Decorator = click.option(
    "--scale",
    is_flag=True,
    help="Divide each feature by its standard deviation over all sites.",
)
prepare: _Decorator = click.option(
    "--prepare",
    "prepare",
    multiple=True,
    metavar="STEP",
    help="A step that prepares the rows: normalize:10000, log1p, select:2000 or standardize:10, "
    "for example; for genotypes autosomes, exclude_long_range_ld:GRCh37, call_rate:0.98, maf:0.01, "
    "hwe:1e-6, ld:1000kb:0.1 or matched. May be repeated, in the order of the steps.",
)
CENTERS: dict[str, bool | str] = {"all": True, "site": "site", "none": False}
center: _Decorator = click.option(
    "--center",
    type=click.Choice(tuple(CENTERS)),
    default="all",
    show_default=True,
    help="Subtract the mean of all rows, of the rows of each site, or none.",
)
no_center: _Decorator = click.option(
    "--no-center", "center", flag_value="none", help="The same as --center none."
)
id_column: _Decorator = click.option(
    "--id-column",
    metavar="NAME",
    help="Column of csv, tsv, xlsx and parquet files with the row identifiers, which is not a "
    "feature.",
)
force: _Decorator = click.option(
    "--force", is_flag=True, help="Overwrite the output of an earlier run."
)
write_back: _Decorator = click.option(
    "--write-back",
    is_flag=True,
    help="Write scores and components into the .h5ad files (obsm, varm and uns of AnnData).",
)
tol: _Decorator = click.option(
    "--tol",
    type=Real(0.0, 90.0, min_open=True, max_open=True),
    help="Largest angle of a component to the eigenvector that it approximates, in degrees.  "
    "[default: 0.0001; 0.05 for genotypes]",
)
certify: _Decorator = click.option(
    "--certify",
    type=click.Choice(("auto", "rigorous", "no")),
    default="auto",
    show_default=True,
    help="Bound the angle to the exact components: from the run itself (auto), with more work of "
    "the sites and nothing left to chance where possible (rigorous), or not at all.",
)
seed: _Decorator = click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    help="Seed of the public random start; noise is never seeded.",
)
transport: _Decorator = click.option(
    "--transport",
    type=click.Choice(("local", "processes")),
    help="Whether sites run on threads of this process, or each in a child process.  "
    "[default: local]",
)
transcript: _Decorator = click.option(
    "--transcript",
    type=NEW,
    help="File in which the run is recorded; an interrupted run is resumed from it. It is as "
    "confidential as what the coordinator receives.",
)


def watch(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a live page, as ``watch_port``: None without one, 0 for any free port."""

    @click.option(
        "--watch", is_flag=True, help="Serve a live page to this machine, and print its address."
    )
    @click.option(
        "--watch-port",
        type=click.IntRange(1, 65535),
        help="Port of the live page; a free one by default.",
    )
    @functools.wraps(function)
    def call(*, watch: bool, watch_port: int | None, **given: Any) -> Any:
        if watch_port is not None and not watch:
            raise click.UsageError("--watch-port requires --watch. Add it, or drop the port.")
        if watch and given["once"]:
            raise click.UsageError(
                "--watch shows a command that waits, and --once does not wait. Drop one of them."
            )
        return function(watch_port=(watch_port or 0) if watch else None, **given)

    return call


def method_option(default: str | None = None) -> _Decorator:
    """Add the options ``--method``, ``--option`` and ``--list-methods`` to a command."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (_list_methods, _option, _make_method_option(default)):
            command = option(command)
        return command

    return decorate


def _make_method_option(default: str | None) -> _Decorator:
    shown = f"  [default: {default or 'auto'}]"
    return click.option(
        "--method",
        type=MethodName(),
        default=default,
        help=f"Algorithm: auto, or a name from --list-methods.{shown}",
    )


_option: _Decorator = click.option(
    "--option",
    "method_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the method; may be repeated.",
)


def _print_methods(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(format_methods())
        context.exit()


_list_methods: _Decorator = click.option(
    "--list-methods",
    "list_methods",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_methods,
    help="List the methods and their options, and exit.",
)


def format_methods() -> str:
    """Return a line for each method, and one for each of its options with its default."""
    from eigenfed.protocol.method import all_methods, option_defaults

    lines = []
    for name, method in all_methods().items():
        lines.append(f"{name:<12}{method.summary}")
        defaults = option_defaults(method)
        lines += [f"{'':<12}  --option {option}={value}" for option, value in defaults.items()]
    return "\n".join(lines)


def parse_method(name: str | None, given: tuple[str, ...]) -> "Method | str":
    """Return the method selected by ``--method`` and ``--option``.

    Parameters
    ----------
    name : str or None
        None means "auto".
    given : tuple of str
        Each ``key=value``.
    """
    from eigenfed.errors import InputError
    from eigenfed.protocol.method import AUTO, all_methods, find_method, option_types, read_option

    name = name or AUTO
    if name == AUTO:
        if given:
            raise click.UsageError(f"--option {given[0]} requires a named method. Pass --method.")
        return AUTO
    cls, options = all_methods()[name], {}
    for text in given:
        option, sign, value = text.partition("=")
        if not sign or option not in option_types(cls):
            known = ", ".join(option_types(cls)) or "none"
            raise click.UsageError(
                f"--option {text} must be KEY=VALUE, with KEY one of the options of {name}: "
                f"{known}. See --list-methods."
            )
        if option in options:
            raise click.UsageError(f"--option {option} is given twice. Pass it once.")
        options[option] = read_option(cls, option, value)
    try:
        return find_method(name, options)
    except InputError as error:
        problem = str(error)
    raise click.UsageError(f"--option of {name}: {problem}")


def parse_privacy(epsilon: float | None, delta: float | None, **terms: Any) -> "Privacy | None":
    """Return the privacy guarantee selected by options, or None.

    Parameters
    ----------
    epsilon, delta : float or None
        Both or neither.
    **terms
        Further arguments of `Privacy`; those that are None keep their defaults.
    """
    given = {name: value for name, value in terms.items() if value is not None}
    if epsilon is None:
        if delta is not None or given:
            name = "delta" if delta is not None else next(iter(given))
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} requires --epsilon. Pass --epsilon 1, for example.")
        return None
    if delta is None:
        raise click.UsageError("--epsilon requires --delta. Pass --delta 1e-6, for example.")
    from eigenfed.privacy.privacy_terms import Privacy

    return Privacy(epsilon, delta, **given)


def name_sites(files: tuple[Path, ...]) -> dict[str, Path]:
    """Name each site after its file, without the suffix.

    Examples
    --------
    >>> name_sites((Path("data/north.npy"), Path("data/south.csv.gz")))
    {'north': PosixPath('data/north.npy'), 'south': PosixPath('data/south.csv.gz')}
    """
    named: dict[str, Path] = {}
    for path in files:
        name = (path.with_suffix("") if path.suffix == ".gz" else path).stem
        if named.get(name) == path:
            raise click.UsageError(f"{path} is named twice. Pass each file once.")
        if name in named:
            raise click.UsageError(
                f"{named[name]} and {path} would both be the site {name!r}. Rename one of them."
            )
        named[name] = path
    return named


def read_summary(path: Path) -> "Summary":
    """Read the summary in a file; an error names the file."""
    from eigenfed.errors import DataError
    from eigenfed.linalg.summary import Summary

    try:
        return Summary.from_bytes(path.read_bytes())
    except DataError as error:
        raise error.with_prefix(f"{path}: ") from None


def write_loadings(path: Path | None, summary: "Summary", k: int) -> list[str]:
    """Write the loadings of a summary, if a file is named; return the line of output about it."""
    if path is None:
        return []
    from eigenfed.data.safe_files import write_at_once
    from eigenfed.study.results.csv_tables import format_summary_loadings

    write_at_once(path, format_summary_loadings(summary, k).encode("utf-8"))
    return [f"loadings     {path}"]


def check_new(path: Path, *, force: bool) -> None:
    """Refuse to overwrite a file, or to write where no file can be made.

    What is written replaces whatever has that name, so that a device, a pipe or a link, such as
    /dev/stdout, is refused in any case.
    """
    from eigenfed.data.safe_files import check_writable

    if path.is_dir():
        raise click.UsageError(f"{path} is a folder. Name a file.")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise click.UsageError(f"{path} is a link, a device or a pipe. Name a file.")
    if path.exists() and not force:
        raise click.UsageError(f"{path} exists. Name another file, or pass --force.")
    check_writable(path.parent)
