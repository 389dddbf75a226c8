"""The mean of a site's own rows as a sum of two parts, which holds more digits than one number.

One number holds the mean of rows far from zero too roughly, and a constant feature would seem to
vary. So the first part is an entry of the feature, and the second the mean of what is left when it
is subtracted. Features that some sparse row lacks are not far from zero, and have one part.
"""

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.source import Source
from eigenfed.linalg.row_sums import sum_by_feature, sum_rows


def split_own_mean(source: Source) -> tuple[Array, Array | None]:
    """Return two parts of the mean of the observed entries, (d,) each; None if one is enough.

    Examples
    --------
    >>> mean, rest = split_own_mean(Source.of(np.array([[1e16, 0.1], [1e16 + 2.0, 0.1]])))
    >>> mean, rest
    (array([1.e+16, 1.e-01]), array([1., 0.]))
    """
    totals = source.totals()
    mean, divisor = totals.mean, totals.divisor
    if isinstance(source.X, Genotypes) or not totals.n > 0.0:
        return mean, None
    if not source.is_sparse:
        return _split_dense(source, mean, divisor)
    if source.complete_features is None:
        return mean, None
    return _split_sparse(source, mean, divisor, source.complete_features)


def _split_dense(source: Source, mean: Array, divisor: Array) -> tuple[Array, Array]:
    d = source.d
    origin, heaviest, rest = mean, np.zeros(d), np.zeros(d)
    for rows, weights in source.blocks():
        # Of the heaviest row, since others may lie far from the mean.
        by_entry = np.ones((len(rows), 1)) if weights is None else weights[:, None]
        by_entry = by_entry * ~np.isnan(rows) if source.has_missing else by_entry
        found = by_entry.argmax(axis=0)
        held = by_entry[found, np.arange(by_entry.shape[1])]
        origin = np.where(held > heaviest, rows[found, np.arange(d)], origin)
        heaviest = np.maximum(held, heaviest)
    for rows, weights in source.blocks():
        away = rows - origin
        if source.has_missing:
            away[np.isnan(away)] = 0.0
        rest += sum_rows(away, weights)
    return origin, rest / divisor


def _split_sparse(
    source: Source, mean: Array, divisor: Array, complete: npt.NDArray[np.bool_]
) -> tuple[Array, Array]:
    heaviest = 0 if source.weights is None else int(source.weights.argmax())
    row = source.X[heaviest : heaviest + 1]
    known = complete[row.indices] & ~np.isnan(row.data)
    origin, rest = mean.copy(), np.zeros(source.d)
    origin[row.indices[known]] = row.data[known]
    for values, columns, by_entry in source.entries():
        away = values - origin[columns]
        away[np.isnan(away)] = 0.0
        held = away if by_entry is None else by_entry * away
        rest += sum_by_feature(columns, held, source.d)
    return origin, np.where(complete, rest / divisor, 0.0)
