"""Three hospitals compute one PCA; no row leaves any of them.

Run it with ``make demo``. The data are simulated; no files are read and nothing leaves the machine,
but coordinator and hospitals exchange the same messages as separate machines would.
"""

from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA

from eigenfed import FederatedPCA
from eigenfed.arrays import Array
from eigenfed.baselines import uda
from eigenfed.linalg.orthonormal import sines
from eigenfed.report.html import write_pages
from eigenfed.study.demo_data import FEATURES, ROWS, K, make_records
from eigenfed.study.results.result_folder import write_result
from eigenfed.study.scores import Projected


def main() -> None:
    """Run the study with several methods, and print their results and costs."""
    hospitals = make_records(np.random.default_rng(11))
    pooled = np.vstack([hospitals[name] for name in sorted(hospitals)])
    filled = np.where(np.isnan(pooled), np.nanmean(pooled, axis=0), pooled)
    exact = PCA(K).fit(filled)

    print("eigenfed demo: three hospitals, one PCA, no pooled rows\n")
    for name in sorted(hospitals):
        missing = int(np.isnan(hospitals[name]).sum())
        print(f"  {name:<8}{len(hospitals[name]):>6} rows x {FEATURES}, {missing} entries missing")

    heads = f"{'rounds':>8}{'sent up':>11}{'angle to pooled':>18}{'bound':>14}{'leakage':>16}"
    print(f"\n{'':<26}{heads}")
    for method, secure in (
        ("covariance", False),
        ("covariance", True),
        ("krylov", False),
        ("krylov", True),
        ("merge", False),
    ):
        ours = FederatedPCA(K, method=method, secure=secure, random_state=0).fit_sites(hospitals)
        grade = ours.certificate_
        if grade is None:
            raise SystemExit("certify=True must give a certificate")
        angle = degrees(np.arcsin(sines(ours.components_, exact.components_)[0]))
        leaked = f"{ours.leakage_.rank_fraction:.2f} / {ours.leakage_.variance_fraction:.2f}"
        print(
            f"{method + ', secure' * secure:<26}{ours.n_rounds_:>8}"
            f"{ours.bytes_up_ / 1e3:>8.0f} kB{angle:>18}"
            f"{degrees(grade.angle_bound):>14}{leaked:>16}"
        )
    averaged = uda([part - np.nanmean(part, axis=0) for part in split(filled)], K)
    angle = degrees(np.arcsin(sines(averaged, exact.components_)[0]))
    print(f"{'averaging local PCAs':<26}{'1':>8}{'':>11}{angle:>18}{'none':>14}")
    print("\nleakage: fractions of directions / variance that the most exposed hospital revealed")

    ours = FederatedPCA(K).fit_sites(hospitals, by_site=True)
    print(f"\nmethod='auto' chose {ours.method_!r}: {ours.reason_}")
    print("variance by component, federated / pooled")
    for i, (a, b) in enumerate(
        zip(ours.explained_variance_, exact.explained_variance_, strict=True), start=1
    ):
        print(f"  PC{i}   {a:.9f} / {b:.9f}")
    print(f"\nreport: {write_report(ours, hospitals)}")


def write_report(pca: FederatedPCA, hospitals: dict[str, Array]) -> Path:
    """Write the result and its pages below build/, replacing earlier ones."""
    folder = Path("build", "three-hospitals")
    folder.parent.mkdir(exist_ok=True)
    rows = {name: Projected(pca.transform(table), None) for name, table in hospitals.items()}
    write_result(folder, pca, sites=hospitals, rows=rows, force=True)
    return write_pages(folder).shared


def split(rows: Array) -> list[Array]:
    """Cut the pooled rows back into hospitals."""
    edges = np.cumsum([ROWS[name] for name in sorted(ROWS)])[:-1]
    return np.split(rows, edges)


def degrees(angle: float) -> str:
    """Format an angle in degrees; "none" if there is no bound."""
    return f"{np.degrees(angle):.1e} deg" if np.isfinite(angle) else "none"


if __name__ == "__main__":
    main()
