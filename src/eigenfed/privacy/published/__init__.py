"""The papers' mechanisms as printed, with the truth beside each: for science, by name only.

===================  =========================================  ==================================
value                source                                     what holds
===================  =========================================  ==================================
SuLQ                 000 section 3.3, of Blum et al.            its claim, at moderate epsilon
ModSuLQ              000 eq. 6, and 8 or 17 without symmetry    its claim, with far too much noise
StreamingModSuLQ     000 eq. 7, Alg. 1 to 3, Lemma 2            as above; Lemma 2.2 as printed: no
AnalyzeGauss         002 reference 17, of Dwork et al.          its claim, below about epsilon 8
DPdisPCA             002 Alg. 1                                 more than it claims, soon
NoisyFedPower        004 Alg. 2 and 3, Theorems 4 and 7         nothing, but for single steps
===================  =========================================  ==================================

None is a way to protect anybody: `eigenfed.Privacy` is. A site whose policy wants sound mechanisms
refuses every operation of these.
"""

from eigenfed.privacy.published.dpdispca import AnalyzeGauss, DPdisPCA
from eigenfed.privacy.published.fedpower import NoisyFedPower
from eigenfed.privacy.published.sulq import ModSuLQ, StreamingModSuLQ, SuLQ
from eigenfed.privacy.published.truth import CovarianceNoise, Published, Truth

__all__ = [
    "AnalyzeGauss",
    "CovarianceNoise",
    "DPdisPCA",
    "ModSuLQ",
    "NoisyFedPower",
    "Published",
    "StreamingModSuLQ",
    "SuLQ",
    "Truth",
]
