"""Types of the values that options take."""

import math
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    TextType = click.ParamType[str]
    CountType = click.ParamType[int | float | str]
else:
    TextType = CountType = click.ParamType  # subscriptable only since click 8.4


class Numbers(TextType):
    """A number, or several separated by commas."""

    name = "NUMBER[,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a float or a tuple of floats."""
        if not isinstance(value, str):
            return value
        try:
            numbers = tuple(float(part) for part in value.split(","))
        except ValueError:
            self.fail("must be a number, or numbers separated by commas.", param, ctx)
        return numbers if len(numbers) > 1 else numbers[0]


class Real(click.FloatRange):
    """A finite number in a range: NaN and infinity are in every range of click."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class ComponentCount(CountType):
    """A number of components, a fraction of the variance, "all" or "auto"."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | float | str:
        """Read an integer from 1, a number between 0 and 1, or a word."""
        if value in ("all", "auto"):
            return str(value)
        for kind in (int, float):
            try:
                number = kind(value)
            except ValueError:
                continue
            if number >= 1 if kind is int else 0.0 < number < 1.0:
                return number
        self.fail(
            f"{value!r} must be an integer of at least 1, a fraction of the variance between 0 "
            "and 1, 'all' or 'auto'.",
            param,
            ctx,
        )


class MethodName(TextType):
    """The name of a method, or "auto".

    A `click.Choice` would load the registry, which is slow, for every ``--help``.
    """

    name = "method"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the name against the registry."""
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

        summaries = {AUTO: "the cheapest"} | {n: cls.summary for n, cls in all_methods().items()}
        return [
            CompletionItem(name, help=summary)
            for name, summary in summaries.items()
            if name.startswith(incomplete)
        ]
