"""Scripts: which operations a site admits in a run, in which order and how often.

A `Script` is an immutable value that knows which operations may come next. ``script.after(op)`` is
the script of what may follow `op`, or None if `op` may not come now. The gate steps through the
script of the study's method and admits nothing else, so a coordinator cannot reorder, repeat or
insert requests. Scripts are built like regular expressions, with `sequence`, `either`, `repeat`
and `optional`.

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
    """The operations that a site admits from here on."""

    @property
    @abstractmethod
    def may_end(self) -> bool:
        """Whether the run may end here."""

    @abstractmethod
    def after(self, op: str) -> "Script | None":
        """Return the script that follows an operation; None if it may not come now."""


@dataclass(frozen=True)
class _End(Script):
    """The empty script."""

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
    """Concatenation of two scripts."""

    first: Script
    second: Script

    @property
    def may_end(self) -> bool:
        return self.first.may_end and self.second.may_end

    def after(self, op: str) -> Script | None:
        inside = self.first.after(op)
        # An operation may belong to both: the first script goes on, or it ends here and the
        # second one starts. Both possibilities are kept.
        begun = None if inside is None else _concatenate(inside, self.second)
        skipped = self.second.after(op) if self.first.may_end else None
        return _unite(begun, skipped)


@dataclass(frozen=True)
class _Either(Script):
    """Alternative of two scripts."""

    one: Script
    other: Script

    @property
    def may_end(self) -> bool:
        return self.one.may_end or self.other.may_end

    def after(self, op: str) -> Script | None:
        return _unite(self.one.after(op), self.other.after(op))


@dataclass(frozen=True)
class _Repeat(Script):
    """A script, from `least` to `most` times."""

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
        return _concatenate(inside, _Repeat(self.inner, self.least - 1, self.most - 1))


_END = _End()


def _concatenate(first: Script, second: Script) -> Script:
    if first is _END or second is _END:
        return second if first is _END else first
    return _Then(first, second)


def _unite(one: Script | None, other: Script | None) -> Script | None:
    if one is None or other is None or one == other:
        return other if one is None else one
    return _Either(one, other)


def _as_script(part: "Script | str") -> Script:
    return _Once(part) if isinstance(part, str) else part


def sequence(*parts: Script | str) -> Script:
    """Return the script of several scripts or operations in order."""
    script: Script = _END
    for part in reversed(parts):
        script = _concatenate(_as_script(part), script)
    return script


def either(*parts: Script | str) -> Script:
    """Return the script that is any one of several scripts or operations."""
    script = _as_script(parts[0])
    for part in parts[1:]:
        script = _Either(script, _as_script(part))
    return script


def repeat(part: Script | str, least: int, most: int) -> Script:
    """Return the script of a script or operation, `least` to `most` times."""
    return _Repeat(_as_script(part), least, most)


def optional(part: Script | str) -> Script:
    """Return the script of a script or operation, at most once."""
    return repeat(part, 0, 1)
