"""Options that several commands have, and what they stand for."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli.answers import option_rules

if TYPE_CHECKING:
    from eigenfed.privacy.terms import Privacy

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

METHODS = ("auto", "covariance", "krylov", "randomized", "subspace", "power", "merge")
TRUSTS = ("secure_sum", "local", "central")
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
tolerate: _Decorator = click.option(
    "--tolerate",
    type=click.IntRange(min=0),
    help="With --epsilon: how many sites may drop out or collude.",
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
    from eigenfed.privacy.terms import Privacy

    with option_rules():
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
