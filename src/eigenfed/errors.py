"""What can go wrong, by who must act.

::

    EigenfedError
    ├── InputError (also ValueError)   an argument breaks a rule: the caller mends the call
    ├── DataError  (also ValueError)   a file or message is not what it claims: fetch it again
    └── ProtocolError                  a federated run went wrong
        ├── SiteLost                   a site did not answer in time
        └── SiteRefused                a site answered no: its policy or its data forbid the ask

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
    """

    def __init__(self, site: str, code: str, op: str, round_: int, why: str = "") -> None:
        self.site = site
        self.code = code
        super().__init__(
            f"Site {site!r} refused {op!r} in round {round_} with the code {code!r}. "
            f"{why or 'Its own log says why.'} Ask the people there."
        )
