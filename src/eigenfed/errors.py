"""Exceptions, the exit codes they map to, and how their messages are worded.

::

    EigenfedError                      exit code
    ├── InputError (also ValueError)   2  an argument breaks a rule: the caller fixes the call
    ├── DataError  (also ValueError)   1  a file or message is not what it must be
    ├── ProtocolError                  1  a federated run went wrong
    │   ├── SiteLost                   1  a site did not answer in time
    │   └── SiteRefused            1 / 3  a site answered with a code: a fault, or a refusal
    └── PrivacyError                   3  privacy or secure aggregation forbids it
        └── Refusal                1 / 3  a site's ledger or gate refuses a release
            └── BudgetExceeded         3  the privacy budget does not allow the spend

A message is one or two sentences that name the argument, the rule, the value and the remedy. The
same error reads ``n_components=9 must be ...`` in Python, ``-k 9 must be ...`` on the command line
and ``components = 9 must be ...`` for a study file. To make that possible, a message refers to an
argument by an `Argument`, `Name` or `Pass` object instead of text, and a `Wording` renders it.
"""

from dataclasses import dataclass
from numbers import Integral
from typing import Protocol, Self

FAILED, USAGE, REFUSED, NOISE = 1, 2, 3, 4

FAULTS = frozenset({"aborted", "malformed", "restarted", "no_identity", "ledger", "stopped"})
"""Codes for faults (exit code 1); every other code of a site or a ledger is a refusal (3)."""


class Wording:
    """How a message refers to arguments; this base class writes them as Python code."""

    def name(self, name: str) -> str:
        """Return the name of an argument."""
        return name

    def setting(self, name: str, value: object) -> str:
        """Return an argument with its value."""
        return f"{name}={shown(value)}"

    def passing(self, name: str, value: object) -> str:
        """Return the advice to pass a value for an argument, beginning in lower case."""
        return f"pass {self.setting(name, value)}"

    def aside(self, text: str) -> str:
        """Return advice that applies to Python only; other wordings leave it out."""
        return text


PYTHON = Wording()


class Reference(Protocol):
    """A part of a message whose text depends on the `Wording`."""

    def worded(self, wording: Wording) -> str:
        """Render the part as text."""


Part = str | Reference
Parts = Part | tuple[Part, ...]


@dataclass(frozen=True)
class Argument:
    """An argument and the value it was given.

    Examples
    --------
    >>> Argument("n_components", 9).worded(PYTHON)
    'n_components=9'
    """

    name: str
    value: object

    def worded(self, wording: Wording) -> str:
        """Render the argument with its value."""
        return wording.setting(self.name, self.value)


@dataclass(frozen=True)
class Name:
    """An argument, without its value.

    Examples
    --------
    >>> Name("n_components").worded(PYTHON)
    'n_components'
    """

    name: str

    def worded(self, wording: Wording) -> str:
        """Render the name."""
        return wording.name(self.name)


@dataclass(frozen=True)
class Pass:
    """The advice to pass a value for an argument; ``...`` is a value of the reader's choice.

    Examples
    --------
    >>> Pass("scale", False).worded(PYTHON)
    'pass scale=False'
    """

    name: str
    value: object

    def worded(self, wording: Wording) -> str:
        """Render the advice, beginning in lower case."""
        return wording.passing(self.name, self.value)


@dataclass(frozen=True)
class Aside:
    """Advice that applies to Python only."""

    text: str

    def worded(self, wording: Wording) -> str:
        """Render the text, or nothing outside Python."""
        return wording.aside(self.text)


def shown(value: object) -> str:
    """Format a value as Python source.

    Examples
    --------
    >>> shown("power"), shown(0.5), shown([...])
    ("'power'", '0.5', '[...]')
    """
    if value is ...:
        return "..."
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    # repr shows a wrong type ('9' for 9), but numpy's np.int64(9) is noise: integers print as such.
    return str(value) if isinstance(value, Integral) else repr(value)


class EigenfedError(Exception):
    """Base class of all errors that eigenfed raises on purpose.

    Parameters
    ----------
    *problem : str, Argument, Name, Pass or Aside
        The parts of the sentence that states the problem, without the final full stop if there
        is a remedy.
    remedy : part or tuple of parts, optional
        The sentence that states what to do.

    Attributes
    ----------
    exit_code : int
        Exit code of the command line: 1 for a failure, 2 for a usage error, 3 if privacy or a
        site's policy forbids the operation.

    Examples
    --------
    >>> remedy = ("Lower ", Name("k"), ".")
    >>> error = InputError(Argument("k", 9), " must be at most 8", remedy=remedy)
    >>> print(error)
    k=9 must be at most 8. Lower k.
    >>> error.argument, error.value, error.rule, error.remedy
    ('k', 9, 'must be at most 8', 'Lower k.')
    """

    exit_code: int = FAILED

    def __init__(self, *problem: Part, remedy: Parts = ()) -> None:
        super().__init__(*problem)
        self._problem = problem
        self._remedy = remedy if isinstance(remedy, tuple) else (remedy,)

    def __str__(self) -> str:
        return self.worded(PYTHON)

    def worded(self, wording: Wording) -> str:
        """Return the message in the terms of Python, the command line or a study file.

        Parameters
        ----------
        wording : Wording

        Examples
        --------
        >>> error = InputError(Argument("scale", 2), " must be True or False", remedy="Pass one.")
        >>> error.worded(PYTHON)
        'scale=2 must be True or False. Pass one.'
        """
        wrong, advice = _render(self._problem, wording), _render(self._remedy, wording)
        return f"{wrong}. {advice}" if advice else wrong

    def with_prefix(self, text: str) -> Self:
        """Return the same error with a text before its message, such as the site it concerns.

        Examples
        --------
        >>> raise InputError("X holds text.").with_prefix("Site 'north': ")
        Traceback (most recent call last):
        eigenfed.errors.InputError: Site 'north': X holds text.
        """
        error = type(self).__new__(type(self))
        vars(error).update(vars(self), _problem=(text, *self._problem))
        error.args = error._problem
        return error

    def with_advice(self, *parts: Part) -> Self:
        """Return the same error with more advice after its remedy.

        Examples
        --------
        >>> raise InputError("X holds text", remedy="Convert it.").with_advice(" Drop it if not.")
        Traceback (most recent call last):
        eigenfed.errors.InputError: X holds text. Convert it. Drop it if not.
        """
        error = type(self).__new__(type(self))
        vars(error).update(vars(self), _remedy=(*self._remedy, *parts))
        error.args = error._problem
        return error

    @property
    def advised(self) -> tuple[str, ...]:
        """Names of the arguments that the remedy advises to pass."""
        return tuple(part.name for part in self._remedy if isinstance(part, Pass))

    @property
    def argument(self) -> str | None:
        """Name of the argument that breaks a rule, the first in the message; None if none is."""
        subject = self._subject
        return None if subject is None else subject.name

    @property
    def value(self) -> object:
        """Value of that argument; None if the message does not include it."""
        subject = self._subject
        return subject.value if isinstance(subject, Argument) else None

    @property
    def rule(self) -> str:
        """The rule that the argument breaks; the whole problem if no argument is named."""
        subject = self._subject
        after = 0 if subject is None else self._problem.index(subject) + 1
        return _render(self._problem[after:], PYTHON).strip()

    @property
    def remedy(self) -> str:
        """The sentence that states what to do; empty if the message has none of its own."""
        return _render(self._remedy, PYTHON)

    @property
    def _subject(self) -> Argument | Name | None:
        return next((part for part in self._problem if isinstance(part, Argument | Name)), None)


class InputError(EigenfedError, ValueError):
    """An argument breaks a rule of the function that it was passed to."""

    exit_code = USAGE


class DataError(EigenfedError, ValueError):
    """A file or message is damaged, of another format or version, or lacks required content."""


class ProtocolError(EigenfedError):
    """A federated run failed: it cannot do what was requested, or a reply does not fit it."""


class SiteLost(ProtocolError):
    """A site did not answer.

    Attributes
    ----------
    sites : tuple of str
        The sites that did not answer, in sorted order.
    round_ : int
        The round that they did not answer in.
    """

    def __init__(self, sites: tuple[str, ...], op: str, round_: int) -> None:
        self.sites, self.round_ = sites, round_
        super().__init__(
            f"No answer from {', '.join(sites)} to {op!r} in round {round_}. "
            "Start them again, or run without them."
        )


class SiteRefused(ProtocolError):
    """A site answered with a code instead of a reply; any detail stays in the site's own log.

    Attributes
    ----------
    site : str
    code : str

    Examples
    --------
    >>> SiteRefused("north", "leakage", "product", 3).exit_code
    3
    >>> SiteRefused("north", "aborted", "product", 3).exit_code
    1
    """

    def __init__(self, site: str, code: str, op: str, round_: int, why: str = "") -> None:
        self.site = site
        self.code = code
        self.exit_code = _exit_code_for(code)
        super().__init__(
            f"Site {site!r} refused {op!r} in round {round_} with the code {code!r}. "
            f"{why or 'The log of the site has the reason.'} Contact the site."
        )


class PrivacyError(EigenfedError):
    """Privacy or secure aggregation forbids what was requested."""

    exit_code = REFUSED


class NoiseWarning(UserWarning):
    """A private result is mostly noise: no component keeps half of its signal."""


class Refusal(PrivacyError):
    """A site's ledger or gate refuses a release.

    Attributes
    ----------
    code : str
        The only part that leaves the site; `eigenfed.protocol.messages` explains each code.
    recorded : bool
        Whether the ledger has recorded the refusal already.
    """

    def __init__(self, code: str, text: str, *, recorded: bool = False) -> None:
        self.code = code
        self.recorded = recorded
        self.exit_code = _exit_code_for(code)
        super().__init__(text)


class BudgetExceeded(Refusal):
    """The privacy budget of the data set does not allow a spend."""


def _exit_code_for(code: str) -> int:
    return FAILED if code in FAULTS else REFUSED


def _render(parts: tuple[Part, ...], wording: Wording) -> str:
    text = ""
    for part in parts:
        words = part if isinstance(part, str) else part.worded(wording)
        # Advice is rendered in lower case, and capitalised here if it begins a sentence.
        begins = isinstance(part, Pass) and (not text or text.endswith(". "))
        text += words[:1].upper() + words[1:] if begins else words
    return text
