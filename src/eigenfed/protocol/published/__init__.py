"""The papers' mechanisms as printed, each with its true guarantee: for research, by name only.

================  =============================================  ================================
class             source                                         what holds
================  =============================================  ================================
SuLQ              Blum et al. 2005, [Grammenos2020] section 3.3  its claim, at moderate epsilon
ModSuLQ           [Grammenos2020] eq. 6; eq. 8 or 17             its claim, with excessive noise
StreamingModSuLQ  [Grammenos2020] eq. 7, Alg. 1-3, Lemma 2       the same; not Lemma 2.2 as printed
AnalyzeGauss      Dwork et al. 2014, cited by [Imtiaz2018]       its claim, below about epsilon 8
DPdisPCA          [Imtiaz2018] Alg. 1                            a larger epsilon than claimed
NoisyFedPower     [Guo2024] Alg. 2 and 3, Theorems 4 and 7       nothing, except for single steps
================  =============================================  ================================

None of them is meant to protect data: use `eigenfed.Privacy` for that. A site whose policy requires
proven mechanisms refuses all their operations.

- `sulq`: [Grammenos2020]: `SuLQ`, `ModSuLQ`, `StreamingModSuLQ`.
- `dpdispca`: [Imtiaz2018]: `AnalyzeGauss`, `DPdisPCA`.
- `fedpower`: [Guo2024]: `NoisyFedPower`.
- `mechanism`: the base of the mechanisms, and the run of a trusted curator.
- `bounded`: rows of bounded norm, which every mechanism starts with.
- `continuous_noise`: Gaussian noise in floating point.
- `published_pca`: the script of a site and the run of a study, for any mechanism.
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
