"""JSON that others wrote: no NaN, no number beyond what a machine has, no nesting without end."""

import json
import math
from typing import Any, NoReturn

_MOST_DIGITS = 19


def strict_json(text: str) -> Any:
    """Read a text of JSON.

    Raises
    ------
    ValueError
        If it is none, is nested too deeply, or has NaN, infinity, a whole number of more than 19
        digits or text that is no Unicode.

    Examples
    --------
    >>> strict_json('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    >>> for text in ("NaN", "1e999", "9" * 5000, "[" * 100_000, '"' + chr(92) + 'ud800"'):
    ...     try:
    ...         strict_json(text)
    ...     except ValueError as error:
    ...         print(error)
    a number is not finite
    a number is not finite
    a number is too long
    it is nested too deeply
    a text is no Unicode
    """
    try:
        value = json.loads(text, parse_constant=_refused, parse_float=_finite, parse_int=_whole)
        if "\\u" in text:
            # An escape can stand for half a character, which no file or page can hold.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a text is no Unicode") from None
    return value


def _refused(_: str) -> NoReturn:
    raise ValueError("a number is not finite")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is not finite")
    return number


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > _MOST_DIGITS:
        raise ValueError("a number is too long")
    return int(digits)
