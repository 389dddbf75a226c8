"""What can go wrong, by who must act.

::

    EigenfedError
    ├── InputError (also ValueError)   an argument breaks a rule: the caller mends the call
    └── DataError  (also ValueError)   a file or message is not what it claims: fetch it again

A message is one sentence or two that name the argument, the rule, the value and the remedy.
"""


class EigenfedError(Exception):
    """Any error that eigenfed raises on purpose.

    Examples
    --------
    >>> from eigenfed import EigenfedError, Summary
    >>> try:
    ...     Summary.empty(d=3, rank=0)
    ... except EigenfedError as error:
    ...     print(error)
    rank=0 must be a whole number of at least 1. Ask for one direction or more.
    """


class InputError(EigenfedError, ValueError):
    """An argument breaks a rule of the function it was given to."""


class DataError(EigenfedError, ValueError):
    """Bytes that were read are corrupt, cut short, foreign or of another version."""
