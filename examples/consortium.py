"""For a consortium: a shared study file, a site file for each site, and what sites refuse.

Three hospitals rehearse on simulated rows. The island requires secure aggregation, which the first
study does not use. Then all set a privacy budget, which can be spent once. docs/study.md does the
same from the command line. All output goes to a new folder.
"""

import tempfile
from pathlib import Path

import numpy as np

from eigenfed import EigenfedError
from eigenfed.privacy.ledger.events import Kind
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.report.html import write_pages
from eigenfed.study.rehearsal import read_rehearsal
from eigenfed.study.results.result_folder import write_result

ROWS = {"island": 400, "north": 5000, "south": 3000}
FEATURES = ["age", "bmi", "systolic", "diastolic", "hdl", "ldl", "glucose"]

SITE = 'name = "{0}"\ndata = "{0}.csv"\nledger = "{0}.ledger"\ndataset = "{1}"\n[policy]\n{2}'
CAREFUL = "min_rows = 100\nsecure_only = true\n"
LEVEL = "epsilon = 1.0\ndelta = 1e-6\n"
BUDGET = f"[policy.budget]\n{LEVEL}"

STUDY = 'name = "{}"\nsites = ["island", "north", "south"]\ncomponents = 2\n'
AMENDMENTS = {"open": "", "secure": "secure = true\n", "private": f"[privacy]\n{LEVEL}"}


def main() -> None:
    """Run the studies, one amendment after the other, and print the outcomes."""
    folder = Path(tempfile.mkdtemp(prefix="consortium-", dir="."))
    site_files = [write_site(folder, name) for name in sorted(ROWS)]
    for name in (*AMENDMENTS, "private"):
        if name == "private":  # on other rows: exact sums of the first rows have left
            for path in site_files:
                path.write_text(SITE.format(path.parent.name, "visits", CAREFUL + BUDGET))
        study = folder / f"{name}.toml"
        study.write_text(STUDY.format(name) + AMENDMENTS[name])
        print(f"\n{study.name}: {' '.join(AMENDMENTS[name].split()) or 'exact'}")
        try:
            run(study, site_files, folder / f"{name}-result")
        except EigenfedError as error:
            print(f"  refused: {error}")
    for name in sorted(ROWS):
        with Ledger(folder / name / f"{name}.ledger", readonly=True) as ledger:
            left = sum(event.kind is Kind.REPLIED for event in ledger.events)
            totals = [f"{rows}: {ledger.totals(rows).text}" for rows in ledger.datasets]
            print(f"{name}: {left} replies left", *totals, sep="\n  ")
    print(f"\nall output is in {folder}: see private-result/report.html")


def run(study: Path, site_files: list[Path], out: Path) -> None:
    """Rehearse a study with the files of all of its sites, and write its report."""
    rehearsal = read_rehearsal(study, site_files)
    pca = rehearsal.estimator()
    ledgers = rehearsal.fit(pca).ledgers
    write_result(out, pca, sites=rehearsal.records, ledgers=ledgers)
    ratios = ", ".join(f"{ratio:.0%}" for ratio in pca.explained_variance_ratio_)
    print(f"  {pca.n_samples_} rows, {pca.n_rounds_} rounds, components explain {ratios}")
    print(f"  report: {write_pages(out).shared.relative_to(out.parent)}")


def write_site(folder: Path, name: str) -> Path:
    """Write the rows, the site file and the ledger of a site."""
    mix = np.random.default_rng(0).normal(size=(7, 7)) * 0.5 ** np.arange(7)
    rows = np.random.default_rng(ROWS[name]).normal(size=(ROWS[name], 7)) @ mix.T * 10 + 100
    (home := folder / name).mkdir()
    np.savetxt(home / f"{name}.csv", rows, "%.1f", ",", header=",".join(FEATURES), comments="")
    terms = CAREFUL if name == "island" else "min_rows = 100\n"
    (home / "site.toml").write_text(SITE.format(name, "rehearsal", terms))
    Ledger(home / f"{name}.ledger", create=True).close()
    return home / "site.toml"


if __name__ == "__main__":
    main()
