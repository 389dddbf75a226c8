"""The base class of the steps that prepare rows, and the checks of their options."""

import math
from abc import ABC
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from eigenfed.errors import InputError


@dataclass(frozen=True)
class PrepareStep(ABC):
    """A step in the preparation of rows.

    Attributes
    ----------
    name : str
        Name in study files and on the command line.
    summary : str
        What it does, in one line.
    federated : bool
        Whether it needs figures about the rows of all sites, and so rounds of the protocol.
    counts : bool
        Whether it is meant for entries of at least 0.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    federated: ClassVar[bool] = False
    counts: ClassVar[bool] = False

    @property
    def text(self) -> str:
        """The step as text, for example ``"select:2000:variance"``.

        Options after the first are left out if they have their defaults.
        """
        values = [getattr(self, field.name) for field in fields(self)]
        defaults = [field.default for field in fields(self)]
        while len(values) > 1 and values[-1] == defaults[len(values) - 1]:
            values.pop()
        return ":".join([self.name, *(_write(value) for value in values)])

    @property
    def options(self) -> dict[str, Any]:
        """All options by name."""
        return asdict(self)

    @property
    def needs_counts(self) -> bool:
        """Whether entries must be at least 0."""
        return self.counts


def _write(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)


def check_number(
    step: PrepareStep, option: str, example: float, *, most: float | None = None
) -> None:
    """Refuse what is not a positive finite number, or above `most`, and keep it as a float."""
    value = getattr(step, option)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    largest = 1e100 if most is None else most
    if not is_number or not 1e-100 < value <= largest or not math.isfinite(value):
        rule = "a positive number" if most is None else f"a number above 0 and at most {most:g}"
        raise make_option_error(step, option, rule, example)
    object.__setattr__(step, option, float(value))


def make_option_error(step: PrepareStep, option: str, rule: str, example: Any) -> InputError:
    """Return the error about an option of a step."""
    value = getattr(step, option)
    return InputError(
        f"{option}={value!r} of the step {step.name!r} must be {rule}",
        remedy=f"For example, {example!r}.",
    )
