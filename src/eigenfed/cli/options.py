"""How help teaches: by lines that can be copied.

Options that several commands have, and what they stand for.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from eigenfed.privacy.guarantee import Privacy
    from eigenfed.protocol.method import Method


_AS_IS = "\b"
"""Alone on a line, it keeps click from filling the paragraph below anew."""


def example(*lines: str) -> str:
    """Return lines that ``--help`` shows below everything else, as they are.

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
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW = click.Path(path_type=Path)

components: _Decorator = click.option(
    "-k", "k", type=click.IntRange(min=1), required=True, help="Number of components."
)
epsilon: _Decorator = click.option(
    "--epsilon", type=float, help="Differential privacy: the guarantee for all that is released."
)
delta: _Decorator = click.option(
    "--delta", type=float, help="Goes with --epsilon; below one over the number of rows."
)
clip: _Decorator = click.option(
    "--clip",
    type=float,
    help="With --epsilon: a bound on the norm of rows that is public; found privately without it.",
)
colluders: _Decorator = click.option(
    "--colluders",
    type=click.IntRange(min=0),
    help="With --epsilon: how many sites may collude with the coordinator.",
)
dropouts: _Decorator = click.option(
    "--dropouts",
    type=click.IntRange(min=0),
    help="With --epsilon: how many sites may be lost from a sum.",
)
count: _Decorator = click.option(
    "--count",
    type=click.Choice(COUNTS),
    help="With --epsilon: whether the number of rows is public, or found with noise.  "
    "[default: public]",
)
trust: _Decorator = click.option(
    "--trust",
    type=click.Choice(TRUSTS),
    help="With --epsilon: who sees what before noise.  [default: secure_sum]",
)
secure: _Decorator = click.option(
    "--secure", is_flag=True, help="Let nothing leave a site but inside secure sums."
)
scale: _Decorator = click.option(
    "--scale", is_flag=True, help="Divide features by their deviation over all sites."
)
force: _Decorator = click.option(
    "--force", is_flag=True, help="Replace what an earlier run wrote there."
)
write_back: _Decorator = click.option(
    "--write-back",
    is_flag=True,
    help="Write scores and components into the .h5ad files: obsm, varm and uns of anndata.",
)
seed: _Decorator = click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), help="For public random starts, never for noise."
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


def method_option(default: str | None = None) -> _Decorator:
    """Return the options about methods: ``--method``, ``--option`` and ``--list-methods``."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (_list_methods, _option, _method(default)):
            command = option(command)
        return command

    return decorated


def _method(default: str | None) -> _Decorator:
    shown = f"  [default: {default or 'auto'}]"
    return click.option(
        "--method",
        type=MethodName(),
        default=default,
        help=f"How components are found: a name that --list-methods lists, or auto.{shown}",
    )


_option: _Decorator = click.option(
    "--option",
    "method_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the method; once for each.",
)


def _print_methods(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(methods_text())
        context.exit()


_list_methods: _Decorator = click.option(
    "--list-methods",
    "list_methods",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_methods,
    help="List the methods with their options, and exit.",
)


class MethodName(click.ParamType[str]):
    """The name of a method or "auto", checked when it is given: the registry takes long to load."""

    name = "method"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name."""
        from eigenfed.protocol.method import AUTO, all_methods

        names = (AUTO, *all_methods())
        if value not in names:
            self.fail(f"{value!r} is not one of {', '.join(map(repr, names))}.", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete a name."""
        from eigenfed.protocol.method import AUTO, all_methods

        found = {AUTO: "the cheapest"} | {n: cls.summary for n, cls in all_methods().items()}
        return [
            CompletionItem(name, help=summary)
            for name, summary in found.items()
            if name.startswith(incomplete)
        ]


def methods_text() -> str:
    """Write a line for each method, and one for each of its options with its default."""
    from eigenfed.protocol.method import all_methods, option_defaults

    lines = []
    for name, method in all_methods().items():
        lines.append(f"{name:<12}{method.summary}")
        defaults = option_defaults(method)
        lines += [f"{'':<12}  --option {option}={value}" for option, value in defaults.items()]
    return "\n".join(lines)


def method_of(name: str | None, given: tuple[str, ...]) -> "Method | str":
    """Return the method that ``--method`` and ``--option`` ask for.

    Parameters
    ----------
    name : str or None
        None is "auto".
    given : tuple of str
        Each ``key=value``.
    """
    from eigenfed.errors import InputError
    from eigenfed.protocol.method import AUTO, all_methods, method_named, option_types, read_option

    name = name or AUTO
    if name == AUTO:
        if given:
            raise click.UsageError(
                f"--option {given[0]} is one of a method, and none is named. Pass --method."
            )
        return AUTO
    cls, options = all_methods()[name], {}
    for text in given:
        option, sign, value = text.partition("=")
        if not sign or option not in option_types(cls):
            there = ", ".join(option_types(cls)) or "none"
            raise click.UsageError(
                f"--option {text} must be KEY=VALUE with an option of {name}, which has {there}. "
                "See --list-methods."
            )
        if option in options:
            raise click.UsageError(f"--option {option} is given twice. Pass it once.")
        options[option] = read_option(cls, option, value)
    try:
        return method_named(name, options)
    except InputError as error:
        fault = str(error)
    raise click.UsageError(f"--option of {name}: {fault}")


def privacy_of(epsilon: float | None, delta: float | None, **terms: Any) -> "Privacy | None":
    """Return the privacy that options ask for, or None.

    Parameters
    ----------
    epsilon, delta : float or None
        Both or neither.
    **terms
        Further terms of `Privacy`; those that are None keep their defaults.
    """
    given = {name: value for name, value in terms.items() if value is not None}
    if epsilon is None:
        if delta is not None or given:
            name = "delta" if delta is not None else next(iter(given))
            raise click.UsageError(f"--{name} goes with --epsilon only. Pass --epsilon 1, say.")
        return None
    if delta is None:
        raise click.UsageError("--epsilon needs --delta. Pass --delta 1e-6, say.")
    from eigenfed.privacy.guarantee import Privacy

    return Privacy(epsilon, delta, **given)


def site_names(files: tuple[Path, ...]) -> dict[str, Path]:
    """Name each site after its file, without the suffix.

    Examples
    --------
    >>> site_names((Path("data/north.npy"), Path("data/south.csv.gz")))
    {'north': PosixPath('data/north.npy'), 'south': PosixPath('data/south.csv.gz')}
    """
    named: dict[str, Path] = {}
    for path in files:
        name = (path.with_suffix("") if path.suffix == ".gz" else path).stem
        if name in named:
            raise click.UsageError(
                f"{named[name]} and {path} both name the site {name!r}, and each site is one file. "
                "Rename one of them."
            )
        named[name] = path
    return named


def check_new(path: Path, *, force: bool) -> None:
    """Refuse to overwrite a file."""
    if path.is_dir() or (path.exists() and not force):
        remedy = "" if path.is_dir() else ", or pass --force"
        raise click.UsageError(
            f"{path} is there, and nothing is overwritten. Name another file{remedy}."
        )
    if not path.parent.is_dir():
        raise click.UsageError(f"{path.parent} is no folder. Make it first.")
