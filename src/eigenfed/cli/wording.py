"""Messages of the library in the words of the command line: options instead of arguments."""

import re

_WORDS = (
    (r"Pass secure=False", "Drop --secure"),
    (r", or name them in groups", ""),
    (r"(?i)\bpass center=True", "drop --no-center"),
    (r"\bcolumns=\[\.\.\.\]", "--column NAME --column NAME ..."),
    (r"\bid_column='([^']+)'", r"--id-column \1"),
    (r"\bid_column=(?:'')?", "--id-column NAME"),
    (r"\bn_components=(\S+)", r"-k \1"),
    (r"\bn_components\b", "-k"),
    (r"\brandom_state\b", "--seed"),
    (r"\bsecure=True", "--secure"),
    (r"(?i)\bpass scale=False", "drop --scale"),
    (r"\bscale=True", "--scale"),
    (r"\bmethod='(\w+)' or '(\w+)'", r"--method \1 or \2"),
    (r"\bcenter=False", "--no-center"),
    (r"\b(method|features|trust)='(\w+)'", r"--\1 \2"),
    (r"\b(a public|[Ll]ower|[Rr]aise) (clip|delta|epsilon)\b", r"\1 --\2"),
    (r"\b(epsilon|delta|clip|tolerate|trials|size|rank)=(-?[\w.+]+(?:-\d+)?)", r"--\1 \2"),
)


def in_options(text: str) -> str:
    """Put options for the arguments that a message names.

    Examples
    --------
    >>> in_options("n_components=40 must be at most 30. Lower n_components.")
    '-k 40 must be at most 30. Lower -k.'
    >>> in_options("delta=1e-05 must be below 1/n. Lower delta.")
    '--delta 1e-05 must be below 1/n. Lower --delta.'
    """
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text
