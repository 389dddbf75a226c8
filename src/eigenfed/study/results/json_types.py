"""Values as the types that JSON has."""

import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np


def to_json_types(value: Any) -> Any:
    """Convert a value to types that JSON has: None for NaN and infinity, lists for arrays.

    Examples
    --------
    >>> import numpy as np
    >>> to_json_types({"a": np.array([1.0, np.nan]), "b": float("inf"), "c": np.int64(3)})
    {'a': [1.0, None], 'b': None, 'c': 3}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return to_json_types(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): to_json_types(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return to_json_types(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        entries = sorted(value) if isinstance(value, set | frozenset) else value
        return [to_json_types(entry) for entry in entries]
    return None if isinstance(value, float) and not math.isfinite(value) else value
