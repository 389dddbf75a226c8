"""For a fleet of devices: three sensors stream their rows, and their summaries merge into one PCA.

Batches have random sizes, and no rows are stored. The data are simulated.
"""

import numpy as np
from sklearn.decomposition import PCA, IncrementalPCA

from eigenfed import StreamingPCA, Summary
from eigenfed.arrays import Array
from eigenfed.linalg.orthonormal import sines

CHANNELS, K, EXTRA = 300, 5, 20
ROWS = {"harbour": 4013, "ridge": 2511, "valley": 977}


def draw_readings(rng: np.random.Generator) -> dict[str, Array]:
    """Draw rows for each sensor, with the same covariance and different means."""
    basis = np.linalg.qr(rng.standard_normal((CHANNELS, CHANNELS)))[0]
    spread = 1.0 / np.arange(1, CHANNELS + 1)
    return {
        name: (rng.standard_normal((n, CHANNELS)) * spread) @ basis.T
        + 0.05 * rng.standard_normal(CHANNELS)
        for name, n in ROWS.items()
    }


def stream(rows: Array, rng: np.random.Generator) -> tuple[bytes, int]:
    """Stream one sensor's rows in batches of 1 to 200; return its summary and their number."""
    pca = StreamingPCA(K, memory="low_rank", oversample=EXTRA)
    start = batches = 0
    while start < len(rows):
        size = int(rng.integers(1, 201))
        pca.partial_fit(rows[start : start + size])
        start, batches = start + size, batches + 1
    return pca.summary_.to_bytes(), batches


def main() -> None:
    """Run the three sensors and print the comparison."""
    rng = np.random.default_rng(7)
    sensors = draw_readings(rng)
    merged = StreamingPCA(K, oversample=EXTRA)
    print("three sensors, one PCA, no pooled rows\n")
    print(f"{'sensor':<10}{'rows':>7}{'batches':>9}{'its rows':>12}{'sent once':>12}")
    for name, rows in sensors.items():
        sent, batches = stream(rows, rng)
        merged.merge(Summary.from_bytes(sent))
        sizes = f"{rows.nbytes / 1e6:>9.1f} MB{len(sent) / 1e3:>9.1f} kB"
        print(f"{name:<10}{len(rows):>7}{batches:>9}{sizes}")

    pooled = np.vstack(list(sensors.values()))
    exact = PCA(K).fit(pooled)
    print(f"\nagainst the PCA of all {len(pooled)} rows in one place, {K} components")
    print(f"{'':<34}{'largest angle':>15}{'variance kept':>16}{'rows pooled':>13}")
    for label, fitted, needs_pool in (
        ("merged summaries (eigenfed)", merged, "no"),
        ("IncrementalPCA on all rows", IncrementalPCA(K, batch_size=100).fit(pooled), "yes"),
        ("PCA of the largest sensor alone", PCA(K).fit(sensors["harbour"]), "no"),
    ):
        angle = np.degrees(np.arcsin(sines(fitted.components_, exact.components_)[0]))
        kept = variance(pooled, fitted.components_) / variance(pooled, exact.components_)
        print(f"{label:<34}{angle:>11.4f} deg{100 * kept:>15.5f}%{needs_pool:>13}")

    print("\nvariance by component, merged / pooled")
    both = zip(merged.explained_variance_, exact.explained_variance_, strict=True)
    for i, (ours, theirs) in enumerate(both, start=1):
        print(f"  PC{i}   {ours:.6f} / {theirs:.6f}   off by {abs(ours / theirs - 1):.1e}")
    bound = np.degrees(np.arcsin(min(merged.summary_.sine_bound(K), 1.0)))
    print(f"\nfrom the summary alone: the angle is at most {bound:.2f} degrees; no row was needed.")


def variance(rows: Array, components: Array) -> float:
    """Return the sum of squares of the centred rows along the components."""
    return float(np.sum(((rows - rows.mean(axis=0)) @ components.T) ** 2))


if __name__ == "__main__":
    main()
