"""The papers' mechanisms as printed, with the truth beside each: for science, by name only.

================  ===========================================  ==================================
value             source                                       what holds
================  ===========================================  ==================================
SuLQ              [Grammenos2020] section 3.3, of Blum et al.  its claim, at moderate epsilon
ModSuLQ           [Grammenos2020] eq. 6; eq. 8 or 17           its claim, with far too much noise
StreamingModSuLQ  [Grammenos2020] eq. 7, Alg. 1-3, Lemma 2     as above; Lemma 2.2 as printed: no
AnalyzeGauss      Dwork et al., as cited by [Imtiaz2018]       its claim, below about epsilon 8
DPdisPCA          [Imtiaz2018] Alg. 1                          more than it claims, soon
NoisyFedPower     [Guo2024] Alg. 2 and 3, Theorems 4 and 7     nothing, except for single steps
================  ===========================================  ==================================

None is a way to protect anybody: `eigenfed.Privacy` is. A site whose policy wants sound mechanisms
refuses every operation of these.
"""

from eigenfed.privacy.published_claims import Truth
from eigenfed.protocol.published.dpdispca import AnalyzeGauss, DPdisPCA
from eigenfed.protocol.published.fedpower import NoisyFedPower
from eigenfed.protocol.published.sulq import ModSuLQ, StreamingModSuLQ, SuLQ

__all__ = [
    "AnalyzeGauss",
    "DPdisPCA",
    "ModSuLQ",
    "NoisyFedPower",
    "StreamingModSuLQ",
    "SuLQ",
    "Truth",
]
