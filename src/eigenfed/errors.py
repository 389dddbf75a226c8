"""What can go wrong, by who must act, and how it is put into words.

::

    EigenfedError                      exit code
    ├── InputError (also ValueError)   2  an argument breaks a rule: the caller fixes the call
    ├── DataError  (also ValueError)   1  a file or message is not what it must be
    ├── ProtocolError                  1  a federated run went wrong
    │   ├── SiteLost                   1  a site did not answer in time
    │   └── SiteRefused            1 / 3  a site answered with a code: it cannot, or may not
    └── PrivacyError                   3  privacy or secure aggregation forbids it
        └── Refusal                1 / 3  a site's ledger or gate does not let a release happen
            └── BudgetExceeded         3  the budget does not allow the spend

A message is one sentence or two that name the argument, the rule, the value and the remedy. The
same error reads ``n_components=9 must be ...`` in Python, ``-k 9 must be ...`` on the command line
and ``components = 9 must be ...`` of a study file: where a message mentions an argument it holds an
`Argument`, a `Name` or a `Pass` instead of text, and a `Wording` says what to call it.
"""

from dataclasses import dataclass
from numbers import Integral
from typing import Protocol, Self

FAILED, USAGE, REFUSED = 1, 2, 3

FAULTS = frozenset({"aborted", "malformed", "restarted", "no_identity", "ledger", "stopped"})
"""Codes with which a site or a ledger says that it cannot, not that it may not."""


class Wording:
    """How messages mention arguments: here, as Python does."""

    def name(self, name: str) -> str:
        """Return what an argument is called."""
        return name

    def setting(self, name: str, value: object) -> str:
        """Return an argument with its value."""
        return f"{name}={shown(value)}"

    def passing(self, name: str, value: object) -> str:
        """Return, in lower case, the advice to give an argument a value."""
        return f"pass {self.setting(name, value)}"

    def aside(self, text: str) -> str:
        """Return what is of use to those who write Python only."""
        return text


PYTHON = Wording()


class Reference(Protocol):
    """A part of a message that reads differently where arguments have other names."""

    def worded(self, wording: Wording) -> str:
        """Return the part as text."""


Part = str | Reference
Parts = Part | tuple[Part, ...]


@dataclass(frozen=True)
class Argument:
    """An argument and the value that it was given.

    Examples
    --------
    >>> Argument("n_components", 9).worded(PYTHON)
    'n_components=9'
    """

    name: str
    value: object

    def worded(self, wording: Wording) -> str:
        """Return the argument with its value."""
        return wording.setting(self.name, self.value)


@dataclass(frozen=True)
class Name:
    """An argument, whatever its value.

    Examples
    --------
    >>> Name("n_components").worded(PYTHON)
    'n_components'
    """

    name: str

    def worded(self, wording: Wording) -> str:
        """Return the name."""
        return wording.name(self.name)


@dataclass(frozen=True)
class Pass:
    """The advice to give an argument a value; the value ``...`` stands for one of the reader's.

    Examples
    --------
    >>> Pass("scale", False).worded(PYTHON)
    'pass scale=False'
    """

    name: str
    value: object

    def worded(self, wording: Wording) -> str:
        """Return the advice, in lower case."""
        return wording.passing(self.name, self.value)


@dataclass(frozen=True)
class Aside:
    """Advice that makes sense in Python only."""

    text: str

    def worded(self, wording: Wording) -> str:
        """Return the text, or nothing."""
        return wording.aside(self.text)


def shown(value: object) -> str:
    """Return a value as it is written in Python.

    Examples
    --------
    >>> shown("power"), shown(0.5), shown([...])
    ("'power'", '0.5', '[...]')
    """
    if value is ...:
        return "..."
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    # The type is of interest where it may be what is wrong, and an integer's of numpy is not.
    return str(value) if isinstance(value, Integral) else repr(value)


class EigenfedError(Exception):
    """Any error that eigenfed raises on purpose.

    Parameters
    ----------
    *problem : str, Argument, Name, Pass or Aside
        The parts of the sentence that says what is wrong; without a full stop where there is a
        remedy.
    remedy : part or tuple of parts, optional
        The sentence that says what to do.

    Attributes
    ----------
    exit_code : int
        What the command line exits with: 1 if something failed, 2 if it was called wrongly, 3 if
        privacy or a site's policy forbids it.

    Examples
    --------
    >>> from eigenfed import EigenfedError, Summary
    >>> try:
    ...     Summary.empty(d=3, rank=0)
    ... except EigenfedError as error:
    ...     print(error)
    rank=0 must be a whole number of at least 1. Ask for one direction or more.
    >>> remedy = ("Lower ", Name("k"), ".")
    >>> error = InputError(Argument("k", 9), " must be at most 8", remedy=remedy)
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
        """Return the message in the words of a command line or of a file.

        Parameters
        ----------
        wording : Wording

        Examples
        --------
        >>> error = InputError(Argument("scale", 2), " must be True or False", remedy="Pass one.")
        >>> error.worded(PYTHON)
        'scale=2 must be True or False. Pass one.'
        """
        wrong, advice = _text(self._problem, wording), _text(self._remedy, wording)
        return f"{wrong}. {advice}" if advice else wrong

    def prefixed(self, text: str) -> Self:
        """Return the same error with a text before it that says what it is about.

        Examples
        --------
        >>> raise InputError("X holds text.").prefixed("Site 'north': ")
        Traceback (most recent call last):
        eigenfed.errors.InputError: Site 'north': X holds text.
        """
        error = type(self).__new__(type(self))
        vars(error).update(vars(self), _problem=(text, *self._problem))
        error.args = error._problem
        return error

    @property
    def argument(self) -> str | None:
        """The argument that breaks a rule: the first that the message mentions, or None."""
        found = self._subject
        return None if found is None else found.name

    @property
    def value(self) -> object:
        """What that argument was given; None where the message does not tell."""
        found = self._subject
        return found.value if isinstance(found, Argument) else None

    @property
    def rule(self) -> str:
        """What the message says of that argument; all that is wrong where there is none."""
        found = self._subject
        after = 0 if found is None else self._problem.index(found) + 1
        return _text(self._problem[after:], PYTHON).strip()

    @property
    def remedy(self) -> str:
        """What to do; empty where the message does not say it apart."""
        return _text(self._remedy, PYTHON)

    @property
    def _subject(self) -> Argument | Name | None:
        return next((part for part in self._problem if isinstance(part, Argument | Name)), None)


class InputError(EigenfedError, ValueError):
    """An argument breaks a rule of the function it was given to."""

    exit_code = USAGE


class DataError(EigenfedError, ValueError):
    """What was read is damaged, foreign, of another version, or lacks what is asked of it."""


class ProtocolError(EigenfedError):
    """A federated run was asked for something that it cannot do, or its record does not fit."""


class SiteLost(ProtocolError):
    """A site did not answer.

    Attributes
    ----------
    sites : tuple of str
        The sites that are lost, in sorted order.
    """

    def __init__(self, sites: tuple[str, ...], op: str, round_: int) -> None:
        self.sites = sites
        super().__init__(
            f"No answer from {', '.join(sites)} to {op!r} in round {round_}. "
            "Start them again, or run without them."
        )


class SiteRefused(ProtocolError):
    """A site answered with a code instead of a reply; anything more stays in its own log.

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
        self.exit_code = _exit_code_of(code)
        super().__init__(
            f"Site {site!r} refused {op!r} in round {round_} with the code {code!r}. "
            f"{why or 'Its own log says why.'} Ask the people there."
        )


class PrivacyError(EigenfedError):
    """Privacy or secure aggregation forbids what is asked for."""

    exit_code = REFUSED


class Refusal(PrivacyError):
    """A site's ledger or gate does not let a release happen.

    Attributes
    ----------
    code : str
        What may leave the site instead; `eigenfed.protocol.messages` has the meaning of each code.
    recorded : bool
        Whether the ledger has written it down already.
    """

    def __init__(self, code: str, text: str, *, recorded: bool = False) -> None:
        self.code = code
        self.recorded = recorded
        self.exit_code = _exit_code_of(code)
        super().__init__(text)


class BudgetExceeded(Refusal):
    """The data set's budget does not allow a spend."""


def _exit_code_of(code: str) -> int:
    return FAILED if code in FAULTS else REFUSED


def _text(parts: tuple[Part, ...], wording: Wording) -> str:
    text = ""
    for part in parts:
        words = part if isinstance(part, str) else part.worded(wording)
        # Advice may begin a sentence or stand within one.
        begins = isinstance(part, Pass) and (not text or text.endswith(". "))
        text += words[:1].upper() + words[1:] if begins else words
    return text
