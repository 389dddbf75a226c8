"""Messages of the library in the words of study and site files: keys instead of arguments."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from eigenfed.errors import DataError, InputError, PrivacyError, Refusal, Wording
from eigenfed.protocol.method import Method
from eigenfed.study.toml import toml

_OF_CHOICE = {
    "columns": "list the features to take in the study",
    "id_column": "write id_column in the site's file",
}
"""Advice about keys with a value that is the reader's to choose."""


@dataclass(frozen=True)
class KeyWording(Wording):
    """Mentions keys.

    Attributes
    ----------
    keys : mapping of str to str
        The key that stands for an argument; others have the name of theirs.

    Examples
    --------
    >>> from eigenfed.errors import Argument, Name
    >>> lower = ("Lower ", Name("n_components"), ".")
    >>> error = InputError(Argument("n_components", 9), " must be at most 8", remedy=lower)
    >>> error.worded(STUDY_KEYS)
    'components = 9 must be at most 8. Lower components.'
    """

    keys: Mapping[str, str] = field(default_factory=dict)

    def name(self, name: str) -> str:
        """Return the key."""
        return self.keys.get(name, name)

    def setting(self, name: str, value: object) -> str:
        """Return a line of the file.

        Examples
        --------
        >>> STUDY_KEYS.setting("method", "krylov"), STUDY_KEYS.setting("delta", 0.5)
        ('method = "krylov"', 'privacy.delta = 0.5')
        """
        if isinstance(value, Method):
            value = {"name": value.name, **value.options}
        return f"{self.name(name)} = {toml(value)}"

    def passing(self, name: str, value: object) -> str:
        """Return the advice to write a line, or to leave one out.

        Examples
        --------
        >>> STUDY_KEYS.passing("scale", False), STUDY_KEYS.passing("id_column", None)
        ('write scale = false', 'leave id_column out')
        """
        if value in (..., [...]) and name in _OF_CHOICE:
            return _OF_CHOICE[name]
        if value is None:
            return f"leave {self.name(name)} out"
        return f"write {self.setting(name, value)}"

    def aside(self, text: str) -> str:
        """Leave it out."""
        return ""


TABLE_KEYS = KeyWording()
"""For what is said of one table of a file, by the names within it."""

STUDY_KEYS = KeyWording(
    {"n_components": "components", "random_state": "seed"}
    | {
        name: f"privacy.{name}"
        for name in (
            *("epsilon", "delta", "relation", "clip", "trust"),
            *("colluders", "dropouts", "count", "shares"),
        )
    }
)
"""For what is said of a whole study."""


@contextmanager
def speaking_of_keys(about: str) -> Iterator[None]:
    """Let errors that pass speak of keys, after `about`: what breaks a rule is then in a file."""
    try:
        yield
    except Refusal:
        raise
    except PrivacyError as error:
        raise PrivacyError(about + error.worded(STUDY_KEYS)) from error
    except (InputError, DataError) as error:
        raise DataError(about + error.worded(STUDY_KEYS)) from error
