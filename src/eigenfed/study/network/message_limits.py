"""How long the messages of a study can be: both ends read no more.

The limits follow from the study file that each party has itself, and from nothing in a message. A
message is compared with them by its length alone, before any of it is read into memory or stored.
They are rounded up generously, since they protect memory and disk and not the rows: what is in a
message is checked later, field by field.
"""

from eigenfed.data.variant_steps import PruneLd
from eigenfed.errors import InputError
from eigenfed.privacy.release import Reveals
from eigenfed.protocol.component_count import count_per_request, is_open
from eigenfed.protocol.exact.variant_products import TILE_PAIRS
from eigenfed.protocol.method import Method
from eigenfed.protocol.method_registry import list_candidates, list_operations
from eigenfed.protocol.study import Study
from eigenfed.study.config import StudyFile

_NUMBER_BYTES = 8
_VECTORS = 16
"""Vectors with a number for each feature, beside directions: means, scales, counts, bounds."""
_BASE_BYTES = 2 << 20
"""The text of a message, keys and signatures, and the facts of a result."""
_SITE_BYTES = 16 << 10
"""Sealed shares of one site for several sums, and the part of a result about one site."""
_ROUND_BYTES = 1 << 10
"""The part of a result's log about one site in one round."""
_MESSAGES_A_ROUND = 5
"""Rounds of messages that a secure sum takes, with those for keys."""
_TILE_SHIFT = 6
"""Of so many variants, 64, the correlations with all others of their windows fit into a reply."""
_FIRST_ROUNDS = 40
"""Rounds before the first product, and after the last."""


def bound_request(study: StudyFile) -> int:
    r"""Return how many bytes a message to a site can have: a request, or the result.

    Parameters
    ----------
    study : StudyFile
        As the site has approved it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from eigenfed.study.config import read_study
    >>> with tempfile.TemporaryDirectory() as home:
    ...     file = Path(home, "study.toml")
    ...     _ = file.write_text('name = "a"\nsites = ["b"]\ncomponents = 2\nfeatures = ["c"]\n')
    ...     bound_request(read_study(file)) < 1 << 22
    True
    """
    names = _list_features(study)
    text = 2 * sum(len(name.encode()) + 1 for name in names)
    numbers = len(names) * (_count_columns(study.study, len(names)) + _VECTORS)
    return text + _NUMBER_BYTES * numbers + _bound_overhead(study, len(names))


def bound_reply(study: StudyFile, method: Method) -> int:
    """Return how many bytes a reply of a site can have.

    Parameters
    ----------
    study : StudyFile
    method : Method
        The method of the run.
    """
    d = len(_list_features(study))
    asked = study.study.with_method(method)
    numbers = d * (_count_columns(asked, d) + _VECTORS)
    if any(op.release.reveals is Reveals.SCATTER for op in list_operations(asked).values()):
        numbers = max(numbers, d * (d + _VECTORS))
    if any(isinstance(step, PruneLd) for step in asked.prepare):
        numbers = max(numbers, TILE_PAIRS + d)
    return _NUMBER_BYTES * numbers + _bound_overhead(study, d)


def _list_features(study: StudyFile) -> tuple[str, ...]:
    if isinstance(study.features, str):
        raise InputError(f"{study.path}: list the features, or set manifest.")
    return tuple(map(str, study.features))


def _count_columns(study: Study, d: int) -> int:
    """Return the largest number of directions in a message."""
    per_request = count_per_request(study.components, d)
    methods = [study.method] if isinstance(study.method, Method) else list_candidates(study)
    width = max(method.width(per_request, d) for method in methods)
    # Components of which the number is found are at most as many as directions were requested.
    found = study.max_rounds * width if is_open(study.components) else per_request
    return min(max(width, found), d)


def _bound_overhead(study: StudyFile, d: int) -> int:
    sites, rounds = len(study.sites), _FIRST_ROUNDS + _MESSAGES_A_ROUND * study.study.max_rounds
    tiles = d >> _TILE_SHIFT if any(isinstance(step, PruneLd) for step in study.prepare) else 0
    return _BASE_BYTES + sites * (_SITE_BYTES + _ROUND_BYTES * (rounds + tiles))
