"""The comparators of the papers, small and readable, as they print them.

None of them centres: rows are taken as given. The streaming ones share `partial_fit` and
`components_`; the others take the tables of all sites.
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
