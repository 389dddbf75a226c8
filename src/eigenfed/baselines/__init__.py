"""The methods that the papers compare with, small and readable, as published.

None of them centres: rows are taken as given. The streaming ones share `partial_fit` and
`components_`; the others take the tables of all sites.

- `averaging`: `uda`, `wda` and `dr_svd`, one round each; `guo`, one component at a time.
- `frequent_directions`: `FrequentDirections`, a matrix sketch with a deterministic error bound.
- `grouse`: `Grouse`, rank-one steps on the Grassmannian, also with missing entries.
- `power_stream`: `PowerStream`, the streaming block power method.
- `spirit`: `Spirit`, projection approximation with an adaptive number of components.
- `tracker`: the interface of the streaming methods, and their checks.
"""

from eigenfed.baselines.averaging import dr_svd, guo, uda, wda
from eigenfed.baselines.frequent_directions import FrequentDirections
from eigenfed.baselines.grouse import Grouse
from eigenfed.baselines.power_stream import PowerStream
from eigenfed.baselines.spirit import Spirit

__all__ = [
    "FrequentDirections",
    "Grouse",
    "PowerStream",
    "Spirit",
    "dr_svd",
    "guo",
    "uda",
    "wda",
]
