"""The site's half of a method's script: which operations may come, in which order, how often.

A `Script` is a value that knows what may come next. Stepping over an operation gives the script of
what may follow, or None where the operation has no place: a gate that steps through a script
admits nothing else.

>>> script = sequence("moments", repeat("product", 1, 3), optional("remainder"))
>>> after = script.after("moments")
>>> after.after("remainder") is None
True
>>> after.after("product").after("remainder").after("product") is None
True
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass


class Script(ABC):
    """What may be asked of a site from here on."""

    @property
    @abstractmethod
    def may_end(self) -> bool:
        """Whether nothing more needs to come."""

    @abstractmethod
    def after(self, op: str) -> "Script | None":
        """Return what may follow an operation; None where it may not come now."""


@dataclass(frozen=True)
class _End(Script):
    """Nothing more."""

    @property
    def may_end(self) -> bool:
        return True

    def after(self, op: str) -> Script | None:
        return None


@dataclass(frozen=True)
class _Once(Script):
    op: str

    @property
    def may_end(self) -> bool:
        return False

    def after(self, op: str) -> Script | None:
        return _END if op == self.op else None


@dataclass(frozen=True)
class _Then(Script):
    """One script, then another."""

    first: Script
    second: Script

    @property
    def may_end(self) -> bool:
        return self.first.may_end and self.second.may_end

    def after(self, op: str) -> Script | None:
        inside = self.first.after(op)
        begun = None if inside is None else _then(inside, self.second)
        skipped = self.second.after(op) if self.first.may_end else None
        return _either(begun, skipped)


@dataclass(frozen=True)
class _Either(Script):
    """One script or another."""

    one: Script
    other: Script

    @property
    def may_end(self) -> bool:
        return self.one.may_end or self.other.may_end

    def after(self, op: str) -> Script | None:
        return _either(self.one.after(op), self.other.after(op))


@dataclass(frozen=True)
class _Repeat(Script):
    """A script several times over."""

    inner: Script
    least: int
    most: int

    @property
    def may_end(self) -> bool:
        return self.least <= 0 or self.inner.may_end

    def after(self, op: str) -> Script | None:
        inside = self.inner.after(op) if self.most > 0 else None
        if inside is None:
            return None
        return _then(inside, _Repeat(self.inner, self.least - 1, self.most - 1))


_END = _End()


def _then(first: Script, second: Script) -> Script:
    if first is _END or second is _END:
        return second if first is _END else first
    return _Then(first, second)


def _either(one: Script | None, other: Script | None) -> Script | None:
    if one is None or other is None or one == other:
        return other if one is None else one
    return _Either(one, other)


def _of(part: "Script | str") -> Script:
    return _Once(part) if isinstance(part, str) else part


def sequence(*parts: Script | str) -> Script:
    """Return scripts, or operations, one after the other."""
    script: Script = _END
    for part in reversed(parts):
        script = _then(_of(part), script)
    return script


def either(*parts: Script | str) -> Script:
    """Return a script that is one of several."""
    script = _of(parts[0])
    for part in parts[1:]:
        script = _Either(script, _of(part))
    return script


def repeat(part: Script | str, least: int, most: int) -> Script:
    """Return a script, or an operation, from `least` to `most` times."""
    return _Repeat(_of(part), least, most)


def optional(part: Script | str) -> Script:
    """Return a script, or an operation, once or not at all."""
    return repeat(part, 0, 1)
