"""Every field of every request of every method, changed in every way: the rows must not show."""

from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.audit.hostile_coordinator import repeat_lies
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import Message
from eigenfed.protocol.method import all_methods, find_method
from eigenfed.protocol.published import AnalyzeGauss, DPdisPCA, NoisyFedPower, StreamingModSuLQ
from eigenfed.protocol.study import Study
from hostile import sites_of, walk

N, D, K = 18, 5, 2
SITES = ("a", "b", "c")
NEVER = 1e-300

PLAIN: dict[str, dict[str, Any]] = {name: {"method": name} for name in all_methods()} | {
    "single precision": {"method": find_method("covariance", {"precision": "single"})},
    "scaled": {"method": "krylov", "scale": True, "by_site": True},
    "bare": {"method": "covariance", "center": False, "by_site": True},
    "gram-schmidt": {
        "method": find_method(
            "subspace", {"start": "merge", "orthonormalise": "each", "by": "gram_schmidt"}
        )
    },
    "sampled": {
        "method": find_method(
            "power", {"local_steps": 2, "participation": "scheme2", "sites_per_round": 3}
        )
    },
    "factors": {"method": "factors"},
    "features": {"method": "krylov", "split": "features"},
    "own means": {"method": "merge", "center": "site", "scale": True, "by_site": True},
    "fraction": {"method": "krylov", "components": 0.9, "center": "site"},
    "prepared": {
        "method": "krylov",
        "prepare": ["normalize:6", "select:3:variance", "log1p", "standardize:1"],
    },
}
SECURE: dict[str, dict[str, Any]] = {
    "covariance": {"method": "covariance", "secure": True},
    "krylov": {"method": "krylov", "secure": True},
    "randomized": {"method": find_method("randomized", {"iterations": 2}), "secure": True},
    "scaled": {"method": "covariance", "secure": True, "scale": True},
    "subspace": {"method": "subspace", "secure": True, "max_rounds": 2},
    "own means": {"method": "covariance", "secure": True, "center": "site"},
    "power": {"method": find_method("power", {"local_steps": 1}), "secure": True},
    "prepared": {
        "method": "covariance",
        "secure": True,
        "prepare": ["select:3:variance", "standardize:1"],
    },
}
PRIVATE: dict[str, dict[str, Any]] = {
    "local": {
        "method": "covariance",
        "privacy": Privacy(9.0, 1e-3, trust="local"),
        "prepare": ["log1p"],
    },
    "central power": {
        "method": "power",
        "privacy": Privacy(9.0, 1e-3, trust="central", clip=3.0),
    },
    "secure": {"method": "covariance", "privacy": Privacy(90.0, 1e-3, clip=3.0, count="private")},
    "public levels": {
        "method": "power",
        "privacy": Privacy(
            *(90.0, 1e-3),
            trust="local",
            count="private",
            if_missing="drop",
            public_center=1.0,
            public_scale=2.0,
        ),
    },
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "AnalyzeGauss": {"privacy": AnalyzeGauss(1.0, 1e-3)},
    "DPdisPCA": {"privacy": DPdisPCA(1.0, 1e-3, clip=2.0)},
    "NoisyFedPower": {"privacy": NoisyFedPower(1.0, 1e-3, iterations=3, local_steps=2)},
    "StreamingModSuLQ": {"privacy": StreamingModSuLQ(1.0, 1e-2, batch=9)},
}
GROUPS = {"plain": PLAIN, "secure": SECURE, "private": PRIVATE, "published": PUBLISHED}
LEAST = {"plain": 6_500, "secure": 9_000, "private": 4_000, "published": 1_900}
"""Different lies to be told to each group: more than twenty thousand in all, each of them twice."""


def study_of(group: str, name: str) -> Study:
    settings = {"components": K, "tol": NEVER, "max_rounds": 3} | GROUPS[group][name]
    return Study(SITES, **settings)


def rows(seed: int, study: Study) -> dict[str, Array]:
    """Rows for each site: those of the first are wholly different for another seed.

    They are smaller, but for one entry: what a site declares of its largest entry is known, and
    larger rows would not fit the bounds of secure sums that follow from it.
    """
    rng = np.random.default_rng(seed)
    n = 60 if isinstance(study.privacy, Privacy) else N
    scale = np.array([3.0, 2.0, 1.0, 0.7, 0.5])
    tables = {name: np.random.default_rng(7).standard_normal((n, D)) * scale for name in SITES}
    own = rng.permutation(scale / seed) * rng.uniform(-1.5, 1.5, (n, D))
    own[0] = 0.0
    own[0, 0] = 6.0
    return tables | {"a": own}


def check_counted(site: Site, asked: Message, reply: Message) -> None:
    """See to it that whatever is answered was counted or paid for."""
    if asked.kind == "open":
        assert not reply.arrays
        return
    left, meter = site.egress[-1], site.meter
    told = {
        "directions": bool(meter.pending or meter.settled_basis.shape[1]),
        "scatter": meter.whole,
        "diagonal": meter.diagonal,
        "means": meter.means,
        "counts": meter.numbers > 0,
        "bound": meter.numbers > 0,
        "remainder": meter.remainders > 0,
        "range": meter.numbers > 0,
        "noise": site.spent > 0,
        "size": True,
        "nothing": True,
    }
    published = left.release.leaves.value == "as published"
    assert site.spent > 0 if published else told[left.release.reveals.value], left.op


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites that never tire of refusing."""
    monkeypatch.setattr("eigenfed.protocol.gate.gate._log.disabled", True)
    monkeypatch.setattr("eigenfed.protocol.gate.gate._MOST_REFUSALS", 10**9)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("group", GROUPS)
def test_what_is_seen_of_a_site_does_not_depend_on_its_rows(group: str) -> None:
    lies = 0
    for name in GROUPS[group]:
        study = study_of(group, name)
        steps = walk(rows(1, study), study, "a", check_counted)
        other = sites_of(rows(2, study), study)["a"]
        for step, lie, outcome in repeat_lies(steps, other):
            lies += 1
            # What fails once rows are touched ends the run: nothing else may differ.
            if "aborted" not in (lie.outcome.code, outcome.code):
                assert lie.outcome == outcome, (name, step.op, lie.how)
    assert lies >= LEAST[group]
