"""Messages of the library in the words of study and site files: keys instead of arguments."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from eigenfed.errors import DataError, InputError

_WORDS = (
    (
        r"Open it with columns=\[\.\.\.\] without them, or with id_column= for one",
        "List the features to take in the study, or write id_column in the site's file for one",
    ),
    (r"\bpass id_column=None", "leave id_column out"),
    (r"\bcolumns=\[\.\.\.\]", "features = [...] in the study"),
    (r"\bid_column=(?:'')?(?=\W|$)", "id_column in the site's file"),
    (r"\bn_components\b", "components"),
    (r"\brandom_state\b", "seed"),
    (r", or name them in groups", ""),
    (r"\b([Ll]ower|[Rr]aise) (clip|delta|epsilon)\b", r"\1 privacy.\2"),
    (r"\b(\w+)=True\b", r"\1 = true"),
    (r"\b(\w+)=False\b", r"\1 = false"),
    (r"\b(\w+)='(\w*)'", r'\1 = "\2"'),
    (r"\b(\w+)=(?=[\w.'\[+-])", r"\1 = "),
)


def in_keys(text: str) -> str:
    """Put keys for the arguments that a message names.

    Examples
    --------
    >>> in_keys("n_components=40 must be at most 30. Lower n_components.")
    'components = 40 must be at most 30. Lower components.'
    >>> in_keys("Bring them everywhere, or pass features='common' to go on.")
    'Bring them everywhere, or pass features = "common" to go on.'
    """
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text


@contextmanager
def speaking_of_keys(about: str = "") -> Iterator[None]:
    """Let errors that pass speak of keys, after `about`; kind and traceback stay what they are."""
    try:
        yield
    except (InputError, DataError) as error:
        error.args = (about + in_keys(str(error)),)
        raise
