"""The streaming methods that Federated PCA is compared with, as their papers print them.

None of them centres: rows are taken as given. All share `partial_fit` and `components_`.
"""

from eigenfed.baselines.frequent_directions import FrequentDirections
from eigenfed.baselines.grouse import Grouse
from eigenfed.baselines.power_stream import PowerStream
from eigenfed.baselines.spirit import Spirit

__all__ = ["FrequentDirections", "Grouse", "PowerStream", "Spirit"]
