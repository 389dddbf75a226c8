"""Genotypes of sites on different machines, matched to the variants of a study."""

from pathlib import Path

import numpy as np
import pytest

from eigenfed.study.config import read_study
from eigenfed.study.network.approvals import find_approved
from eigenfed.study.network.coordinator_run import read_study_variants
from eigenfed.study.network.results_sent import read_sent_files
from eigenfed.study.rehearsal import read_rehearsal
from eigenfed.study.results.result_folder import write_result
from genotype_files import draw_genotypes, write_plink
from network_parties import NAMES
from network_runs import Network

pytest.importorskip("numba", reason="eigenfed[genotypes] is not installed")

VARIANTS = 60
TERMS = """\
name = "heart"
sites = ["north", "south", "island"]
components = 2
seed = 7
secure = true
scale = "genotype"
manifest = "variants.bim"
prepare = ["matched", "maf:0.05"]
"""


class GenotypeNetwork(Network):
    """Three sites with genotypes; one of them counts the other allele of each variant."""

    terms = TERMS

    def __init__(self, home: Path) -> None:
        rng = np.random.default_rng(1)
        people = rng.permutation(draw_genotypes(rng, (120, 120, 120), VARIANTS))
        self.copies = np.array_split(people, 3)
        super().__init__(home, method="krylov")

    def write_rows(self, folder: Path, name: str) -> str:
        """Write a .bed file, and the variants of the study beside the study file."""
        copies, alleles = self.copies[NAMES.index(name)], [("A", "G")] * VARIANTS
        write_plink(folder.parent / "coordinator" / "variants.bed", copies).unlink()
        if name == "south":
            copies, alleles = (2 - copies).astype(np.int8), [("G", "A")] * VARIANTS
        write_plink(folder / "rows.bed", copies, alleles=alleles)
        return "rows.bed"


def test_genotypes_between_machines_give_what_their_rehearsal_gives(tmp_path: Path) -> None:
    home = tmp_path / "home"
    network = GenotypeNetwork(home)
    coordinator = network.coordinator()
    run = coordinator.run(NAMES)
    out = tmp_path / "result"
    variants, selected = (
        read_study_variants(network.parties.study),
        run.estimator.selected_features_,
    )
    assert variants is not None
    assert selected is not None
    chosen = variants.take(selected)
    write_result(out, run.estimator, sites=run.sites, study="heart", variants=chosen)
    assert coordinator.finish(run, read_sent_files(out)) == {}
    eigenvalues = (out / "components.eigenval").read_text()
    lengths = np.zeros(2)
    for name, site in network.sites.items():
        (folder,) = site.results
        assert (folder / "components.eigenval").read_text() == eigenvalues
        own = folder / "scores" / f"{name}.plink1.eigenvec"
        lengths += np.square(np.loadtxt(own, usecols=(2, 3))).sum(axis=0)
    assert lengths == pytest.approx(1.0, abs=1e-3), "unit vectors over all sites together"
    files = [home / name / "site.toml" for name in NAMES]
    rehearsal = read_rehearsal(home / "coordinator" / "study.toml", files)
    together = rehearsal.estimator()
    rehearsal.fit(together)
    found = run.estimator
    assert found.components_.tobytes() == together.components_.tobytes()
    assert (found.settings_["scale"], found.settings_["stop"]) == ("genotype", "separated")


def test_an_approved_copy_keeps_the_variants_of_its_study(tmp_path: Path) -> None:
    network = GenotypeNetwork(tmp_path)
    study = read_study(tmp_path / "coordinator" / "study.toml")
    digest = study.study.digest
    (tmp_path / "coordinator" / "variants.bim").unlink()
    found = find_approved(network.parties.site("north"), digest)
    assert found is not None
    assert found.matches_variants
    assert found.features == study.features
