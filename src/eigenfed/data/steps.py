"""The steps that prepare rows before their components are computed, as values.

A step is a frozen dataclass whose fields are its options. The same step is written
``SelectVariable(2000)`` in Python, ``"select:2000"`` in a study file and ``--prepare select:2000``
on the command line. `eigenfed.data.prepared_rows` applies steps to rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from eigenfed.data.prepare_step import PrepareStep, check_number, make_option_error
from eigenfed.data.variant_steps import VARIANT_STEPS, PruneLd, VariantStep
from eigenfed.errors import Argument, Aside, InputError
from eigenfed.linalg.dispersion import FLAVORS

MOST_STEPS = 16
"""Largest number of steps in a list."""


@dataclass(frozen=True)
class NormalizeCounts(PrepareStep):
    """Divide each row by its total, and multiply it by `target`.

    Every site does this with its own rows: nothing leaves it. The total is over observed entries;
    a row of zeros stays as it is.

    Parameters
    ----------
    target : float, default=1e4
        Total of every row afterwards.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed import FederatedPCA, NormalizeCounts
    >>> counts = np.array([[1.0, 3.0], [20.0, 20.0], [0.0, 5.0]])
    >>> FederatedPCA(1, prepare=[NormalizeCounts(100)]).fit(counts).mean_
    array([25., 75.])
    """

    target: float = 1e4

    name, summary, counts = "normalize", "divide each row by its total, times a target", True

    def __post_init__(self) -> None:
        check_number(self, "target", 1e4)


@dataclass(frozen=True)
class Log1p(PrepareStep):
    """Replace each entry x by log(1 + x), the natural logarithm.

    Every site does this with its own rows: nothing leaves it.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed import FederatedPCA, Log1p
    >>> counts = np.array([[0.0, 1.0], [3.0, 1.0]])
    >>> FederatedPCA(1, prepare=[Log1p()]).fit(counts).mean_.round(3)
    array([0.693, 0.693])
    """

    name, summary, counts = "log1p", "log(1 + x) of each entry", True


@dataclass(frozen=True)
class SelectVariable(PrepareStep):
    """Keep the features that vary most over all sites.

    The sites report sums and sums of squares by feature of their rows as the steps before this one
    have prepared them: two rounds, within secure aggregation if the study uses it.

    Parameters
    ----------
    n_features : int, default=2000
        How many features to keep. If there are no more than that, all are kept.
    flavor : {"seurat", "cell_ranger", "variance"}, default="seurat"
        How features are ranked. "seurat" and "cell_ranger" compare the dispersion (variance over
        mean) of features with similar means, for counts or normalised counts; "variance" ranks by
        variance. Constant features come last, and of equal features the first one is kept.

    Notes
    -----
    scanpy's ``highly_variable_genes`` with the flavor "seurat" takes logarithmised data and
    reverts the logarithm. Here the order of steps says it: put `SelectVariable` before `Log1p` for
    the same features.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed import FederatedPCA, SelectVariable
    >>> X = np.random.default_rng(0).standard_normal((50, 6)) * [1, 5, 1, 1, 4, 1]
    >>> pca = FederatedPCA(2, prepare=[SelectVariable(2, flavor="variance")]).fit(X)
    >>> pca.selected_features_, pca.components_.shape
    (array([1, 4]), (2, 2))
    """

    n_features: int = 2000
    flavor: str = "seurat"

    name, summary, federated = "select", "keep the most variable features", True

    def __post_init__(self) -> None:
        if type(self.n_features) is not int or self.n_features < 1:
            raise make_option_error(self, "n_features", "an integer of at least 1", 2000)
        if self.flavor not in FLAVORS:
            listed = "one of " + ", ".join(map(repr, FLAVORS))
            raise make_option_error(self, "flavor", listed, "seurat")

    @property
    def needs_counts(self) -> bool:
        """Whether entries must be at least 0."""
        return self.flavor != "variance"


@dataclass(frozen=True)
class Standardize(PrepareStep):
    """Subtract the mean, divide by the standard deviation, and clip the result to +-`clip`.

    Mean and standard deviation of each feature are over all sites, and over observed entries. This
    step comes last, and is that of scanpy's ``scale(max_value=clip)`` with ``ddof=1``. To scale
    without a clip, pass ``scale=True`` to the estimator instead.

    Parameters
    ----------
    clip : float, default=10.0
        Largest magnitude of a standardised entry.
    ddof : {0, 1}, default=0
        The variance is the sum of squares divided by n - ddof.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed import FederatedPCA, Standardize
    >>> X = np.random.default_rng(0).standard_normal((50, 3))
    >>> X[0, 0] = 1e6
    >>> pca = FederatedPCA(2, prepare=[Standardize(clip=3)]).fit(X)
    >>> bool(pca.explained_variance_[0] < 3)
    True
    """

    clip: float = 10.0
    ddof: int = 0

    name, summary, federated = "standardize", "standardise features and clip them", True

    def __post_init__(self) -> None:
        check_number(self, "clip", 10.0)
        if type(self.ddof) is not int or self.ddof not in (0, 1):
            raise make_option_error(self, "ddof", "0 or 1", 0)


_ALL: tuple[type[PrepareStep], ...] = (
    NormalizeCounts,
    Log1p,
    SelectVariable,
    Standardize,
    *VARIANT_STEPS,
)
STEPS: dict[str, type[PrepareStep]] = {step.name: step for step in _ALL}
"""All steps by name."""


def as_steps(prepare: Any) -> tuple[PrepareStep, ...]:
    """Return a list of steps, given as values or as text, after checking their order.

    Parameters
    ----------
    prepare : sequence of PrepareStep or str, or None

    Raises
    ------
    InputError
        If an entry is not a step, or steps cannot follow one another.

    Examples
    --------
    >>> as_steps(["normalize:1e4", Log1p(), "select:500"])
    (NormalizeCounts(target=10000.0), Log1p(), SelectVariable(n_features=500, flavor='seurat'))
    """
    if prepare is None:
        return ()
    if isinstance(prepare, str | PrepareStep) or not isinstance(prepare, Sequence):
        raise InputError(
            f"prepare has type {type(prepare).__name__} and must be a list of steps",
            remedy=("Pass a list", Aside(", such as [NormalizeCounts(), 'log1p']"), "."),
        )
    steps = tuple(map(_as_step, prepare))
    _check_order(steps)
    return steps


def _as_step(given: Any) -> PrepareStep:
    if isinstance(given, PrepareStep):
        return given
    if not isinstance(given, str):
        raise InputError(
            f"prepare holds a value of type {type(given).__name__} and must hold steps, as values "
            "or as text",
            remedy="Pass one of them.",
        )
    return parse_step(given)


def parse_step(text: str) -> PrepareStep:
    """Read a step from its name and, after colons, its options in their order.

    Raises
    ------
    InputError
        If there is no such step, or an option is not of its type.

    Examples
    --------
    >>> parse_step("standardize:10")
    Standardize(clip=10.0, ddof=0)
    """
    name, *values = text.split(":")
    cls = STEPS.get(name)
    if cls is None:
        raise InputError(
            Argument("prepare", text),
            " must be the name of a step, and its options after colons. The steps are "
            f"{', '.join(map(repr, STEPS))}",
            remedy="For example, 'select:2000'.",
        )
    names = [field.name for field in fields(cls)]
    if len(values) > len(names):
        takes = f"at most {len(names)} options: {', '.join(names)}" if names else "no options"
        raise InputError(Argument("prepare", text), f" has too many colons: {name!r} takes {takes}")
    kinds = get_type_hints(cls)
    given = {n: _read(kinds[n], value) for n, value in zip(names, values, strict=False)}
    return build_step(name, given)


def build_step(name: str, options: Mapping[str, Any]) -> PrepareStep:
    """Return a step by its name, with options.

    Raises
    ------
    InputError
        If there is no such step or option.
    """
    cls = STEPS.get(name)
    if cls is None or not options.keys() <= {field.name for field in fields(cls)}:
        raise InputError(f"There is no step {name!r} with these options. Use one of {[*STEPS]}.")
    return cls(**options)


def write_steps(steps: Sequence[PrepareStep]) -> list[str]:
    """Return the steps as text, as `as_steps` reads it.

    Examples
    --------
    >>> write_steps([NormalizeCounts(500), Log1p(), SelectVariable(100, "variance")])
    ['normalize:500', 'log1p', 'select:100:variance']
    """
    return [step.text for step in steps]


def count_features(steps: Sequence[PrepareStep], d: int) -> int:
    """Return the number of features that d features become: at most, if variants are filtered."""
    chosen = [step.n_features for step in steps if isinstance(step, SelectVariable)]
    return min([d, *chosen])


def _check_order(steps: tuple[PrepareStep, ...]) -> None:
    if len(steps) > MOST_STEPS:
        raise InputError(f"prepare has {len(steps)} steps and may have {MOST_STEPS}. Drop some.")
    for kind in (SelectVariable, Standardize):
        if sum(isinstance(step, kind) for step in steps) > 1:
            raise InputError(
                f"prepare has the step {kind.name!r} more than once",
                remedy="Keep one of them.",
            )
    if any(isinstance(step, Standardize) for step in steps[:-1]):
        raise InputError(
            "prepare has a step after 'standardize', which must come last",
            remedy="Move it to the end.",
        )
    _check_variant_steps(steps)


def filters_variants(steps: Sequence[PrepareStep]) -> bool:
    """Return whether some step filters the variants of genotypes."""
    return any(isinstance(step, VariantStep) for step in steps)


def _check_variant_steps(steps: tuple[PrepareStep, ...]) -> None:
    if not filters_variants(steps):
        return
    other = next((step for step in steps if not isinstance(step, VariantStep)), None)
    if other is not None:
        raise InputError(
            f"prepare has the step {other.name!r} and steps for the variants of genotypes, which "
            "have no other steps beside them",
            remedy="Drop one or the other.",
        )
    names = [step.name for step in steps]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InputError(
            f"prepare has the step {repeated!r} more than once", remedy="Keep one of them."
        )
    if any(isinstance(step, PruneLd) for step in steps[:-1]):
        raise InputError(
            f"prepare has a step after {PruneLd.name!r}, which must come last",
            remedy="Move it to the end.",
        )


def _read(kind: type[Any], text: str) -> Any:
    """Return text as an option of its type; text that is none is left to the step to refuse."""
    try:
        number = float(text)
    except ValueError:
        return text
    if kind is int:
        return int(number) if number.is_integer() else number
    return number if kind is float else text
