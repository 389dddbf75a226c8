"""For a researcher: algorithms as printed in the papers, and as corrected here.

Handwritten digits at ten sites, one digit at each: the sites differ in their means, which shows
what some papers leave out. Only scikit-learn's own data are used.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from eigenfed import FederatedPCA, Merge, Power, StreamingPCA, Subspace
from eigenfed.arrays import Array
from eigenfed.baselines import FrequentDirections, PowerStream, dr_svd, uda, wda
from eigenfed.linalg.orthonormal import sines
from eigenfed.protocol.published import AnalyzeGauss, DPdisPCA, SuLQ

K = 5


def main() -> None:
    """Print the angle between each result and the pooled PCA, and which privacy claims hold."""
    X, digit = load_digits(return_X_y=True)
    sites = {f"site {d}": X[digit == d] for d in range(10)}
    exact = PCA(K).fit(X).components_
    print(f"{len(X)} digits at {len(sites)} sites, {K} components\n")
    print(f"{'federated':<46}{'rounds':>8}{'angle to pooled':>18}")
    for name, method in (
        ("krylov", "krylov"),
        ("subspace iteration, started by a merge", Subspace(start="merge")),
        ("FedPower, four steps, as printed", Power(local_steps=4, decay=False)),
        ("FedPower, four steps that fall to one", Power(local_steps=4)),
        ("merge of directions alone, as printed", Merge(weighting="none")),
        ("merge with variances and means", Merge()),
    ):
        pca = FederatedPCA(K, method=method, certify=False, random_state=0).fit_sites(sites)
        print(f"{name:<46}{pca.n_rounds_:>8}{degrees(pca.components_, exact):>18}")
    compare_averages([rows - rows.mean(axis=0) for rows in sites.values()], exact)
    compare_streams(np.random.default_rng(0).permutation(X - X.mean(axis=0)), exact)
    compare_claims(*X.shape)


def compare_averages(parts: list[Array], exact: Array) -> None:
    """Print the one-shot comparators, for sites that centre by their own means."""
    print("\none-shot comparators, each site about its own mean")
    for name, found in (
        ("UDA, projections averaged", uda(parts, K)),
        ("WDA, covariances of rank k averaged", wda(parts, K)),
        ("DR-SVD, a joint sketch", dr_svd(parts, K, rng=np.random.default_rng(0))),
    ):
        print(f"{name:<54}{degrees(found, exact):>18}")


def compare_streams(rows: Array, exact: Array) -> None:
    """Print streams of all rows, centred beforehand for those that cannot."""
    print("\nstreams, one pass")
    for name, stream in (
        ("Frequent Directions", FrequentDirections(K, sketch_size=10)),
        ("streaming power method", PowerStream(K, random_state=0)),
        ("StreamingPCA", StreamingPCA(K, memory="low_rank", oversample=K)),
    ):
        print(f"{name:<54}{degrees(stream.partial_fit(rows).components_, exact):>18}")


def compare_claims(n: int, d: int) -> None:
    """Print the claimed and the true epsilon of published mechanisms."""
    print("\nclaimed: epsilon 2 at delta 1e-5, for rows of norm 1")
    for mechanism in (SuLQ, AnalyzeGauss, DPdisPCA):
        truth = mechanism(2.0, 1e-5, clip=1.0).truth([n], d, k=K, center=False)
        verdict = f"{'holds' if truth.holds else 'does not hold':<16}"
        print(f"{mechanism.__name__:<20}{verdict}true epsilon {truth.true_epsilon:.2f}")


def degrees(components: Array, exact: Array) -> str:
    """Format the largest angle between two subspaces."""
    return f"{np.degrees(np.arcsin(sines(components, exact)[0])):.1e} deg"


if __name__ == "__main__":
    main()
