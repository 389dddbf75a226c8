"""How help teaches: by lines that can be copied."""

_AS_IS = "\b"
"""Alone on a line, it keeps click from filling the paragraph below anew."""


def example(*lines: str) -> str:
    """Return lines that ``--help`` shows below everything else, as they are.

    Examples
    --------
    >>> print(example("eigenfed demo").partition("Example")[2])
    :
      eigenfed demo
    """
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join([_AS_IS, title, *(f"  {line}" for line in lines)])
