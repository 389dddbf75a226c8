"""Where each site's rows lie on the components, and who may be told."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from eigenfed import FederatedPCA, Privacy
from eigenfed.errors import InputError, PrivacyError, SiteRefused
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.exact.by_site import LevelRequest, compare_sites
from eigenfed.protocol.exact.covariance import ScatterRequest
from eigenfed.protocol.exact.moments import MomentsRequest
from federation import Talk, gate, study_of, talk

RNG = np.random.default_rng(3)
X = RNG.standard_normal((400, 8)) * [6, 4, 3, 2, 1, 1, 1, 1]
SITES = {"north": X[:250], "south": X[250:370] + 4.0, "island": X[370:] - 2.0}
METHODS = ["covariance", "factors", "krylov", "randomized", "subspace", "power", "merge"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [False, True])
def test_levels_are_those_of_the_scores(method: str, scale: bool) -> None:
    pca = FederatedPCA(3, method=method, scale=scale, random_state=0)
    pca.fit_sites(SITES, by_site=True)
    assert pca.by_site_ is not None
    for site, level in pca.by_site_.items():
        scores = pca.transform(SITES[site])
        assert level.weight == len(scores)
        np.testing.assert_allclose(level.mean, scores.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(level.square, (scores**2).mean(axis=0), rtol=1e-9)


def test_sparse_rows_and_weights() -> None:
    weights = {site: RNG.uniform(0.5, 2.0, len(rows)) for site, rows in SITES.items()}
    tables = {site: sp.csr_array(rows) for site, rows in SITES.items()}
    pca = FederatedPCA(2, method="krylov", random_state=0)
    pca.fit_sites(tables, sample_weight=weights, by_site=True)
    assert pca.by_site_ is not None
    scores = pca.transform(SITES["south"])
    level = pca.by_site_["south"]
    np.testing.assert_allclose(level.mean, np.average(scores, axis=0, weights=weights["south"]))
    assert level.weight == pytest.approx(weights["south"].sum())


def test_shares_add_up_and_variance_between_sites_is_that_of_anova() -> None:
    pca = FederatedPCA(3).fit_sites(SITES, by_site=True)
    assert pca.by_site_ is not None
    found = compare_sites(pca.by_site_)
    np.testing.assert_allclose(sum(found.contribution.values()), 1.0)
    scores = {site: pca.transform(rows) for site, rows in SITES.items()}
    everything = np.vstack(list(scores.values()))
    between = sum(len(part) * part.mean(axis=0) ** 2 for part in scores.values())
    np.testing.assert_allclose(found.explained, between / (everything**2).sum(axis=0), rtol=1e-9)
    deviation = everything.std(axis=0)
    np.testing.assert_allclose(found.shift["north"], scores["north"].mean(axis=0) / deviation)


def test_a_component_that_only_tells_sites_apart_is_seen() -> None:
    rows = RNG.standard_normal((300, 6))
    far = {"a": rows[:150], "b": rows[150:] + 50.0}
    pca = FederatedPCA(2).fit_sites(far, by_site=True)
    assert pca.by_site_ is not None
    explained = compare_sites(pca.by_site_).explained
    assert explained[0] > 0.99
    assert explained[1] < 0.1


def test_it_costs_one_request_and_no_direction() -> None:
    plain = FederatedPCA(2, method="krylov", random_state=0).fit_sites(SITES)
    asked = FederatedPCA(2, method="krylov", random_state=0).fit_sites(SITES, by_site=True)
    assert plain.by_site_ is None
    assert asked.n_rounds_ == plain.n_rounds_ + 1
    assert asked.leakage_.rank_fraction == plain.leakage_.rank_fraction
    np.testing.assert_array_equal(asked.components_, plain.components_)


@pytest.mark.parametrize(
    ("settings", "error", "why"),
    [
        ({"secure": True}, PrivacyError, "secure=True forbids"),
        ({"privacy": Privacy(1.0, 1e-6)}, PrivacyError, "privacy forbids"),
        ({"split": "features"}, InputError, "by_site=True requires split='samples'"),
    ],
)
def test_it_is_refused_where_single_sites_stay_hidden(
    settings: dict[str, object], error: type[Exception], why: str
) -> None:
    sites = SITES
    if "split" in settings:
        sites = {"a": X[:, :4], "b": X[:, 4:]}
    keys = {site: np.arange(len(rows)) for site, rows in sites.items()}
    given = {"keys": keys} if "split" in settings else {}
    with pytest.raises(error, match=why):
        FederatedPCA(2, **settings).fit_sites(sites, by_site=True, **given)  # type: ignore[arg-type]


def test_a_site_tells_only_in_a_study_that_says_so() -> None:
    talking = talk(gate("a", X), 2, "covariance")
    moments = talking.reply(MomentsRequest())
    talking.reply(ScatterRequest(mean=moments.total / moments.count, scale=np.ones(8)))
    assert talking.code(LevelRequest(basis=np.eye(8)[:, :2])) == "script"


def test_a_site_that_approved_another_study_ends_the_run() -> None:
    agreed = study_of("a", 2, by_site=False)
    site = gate("a", X, approved=frozenset({agreed.digest}))
    assert Talk(site, replace(agreed, by_site=True)).opens() == "unapproved"
    assert Talk(site, agreed).opens() == ""


def test_a_site_that_only_joins_secure_sums_never_tells() -> None:
    with pytest.raises(SiteRefused, match="unmasked"):
        FederatedPCA(2).fit_sites(SITES, by_site=True, policies={"north": Policy(secure_only=True)})
