"""Genotypes of sites on different machines, matched to the variants of a study."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from eigenfed.data.source import Source
from eigenfed.errors import ProtocolError, SiteLost
from eigenfed.study.config import read_study
from eigenfed.study.network.approvals import find_approved
from eigenfed.study.network.results_sent import read_sent_files
from eigenfed.study.rehearsal import read_rehearsal
from eigenfed.study.results.result_folder import write_result
from genotype_files import draw_genotypes, write_plink
from network_parties import NAMES
from network_runs import Network
from secured import fixed_keys

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

    def __init__(
        self, home: Path, *, secure: bool = True, steps: str = "", study: str = ""
    ) -> None:
        self.terms = TERMS if secure else TERMS.replace("secure = true", "secure = false")
        self.terms = self.terms.replace('"maf:0.05"', f'"maf:0.05"{steps}')
        rng = np.random.default_rng(1)
        people = rng.permutation(draw_genotypes(rng, (120, 120, 120), VARIANTS))
        self.copies = np.array_split(people, 3)
        super().__init__(home, method="krylov", study=study)

    def write_rows(self, folder: Path, name: str) -> str:
        """Write a .bed file, and the variants of the study beside the study file."""
        copies, alleles = self.copies[NAMES.index(name)], [("A", "G")] * VARIANTS
        write_plink(folder.parent / "coordinator" / "variants.bed", copies).unlink()
        if name == "south":
            copies, alleles = (2 - copies).astype(np.int8), [("G", "A")] * VARIANTS
        write_plink(folder / "rows.bed", copies, alleles=alleles)
        return "rows.bed"

    def lose_after(self, site: str, count: int) -> None:
        """Lose a site once it has answered some messages."""
        asked = []

        def carry(name: str, answer: Callable[[bytes], bytes], data: bytes) -> bytes:
            asked.append(name)
            if name == site and asked.count(name) > count:
                raise ConnectionError
            return answer(data)

        self.carry = carry


def test_genotypes_between_machines_give_what_their_rehearsal_gives(tmp_path: Path) -> None:
    home = tmp_path / "home"
    network = GenotypeNetwork(home)
    coordinator = network.coordinator()
    run = coordinator.run(NAMES)
    out = tmp_path / "result"
    variants, selected = network.parties.study.read_variants(), run.estimator.selected_features_
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
        assert (folder / "variances.csv").read_bytes() == (out / "variances.csv").read_bytes()
        assert not (folder / "loadings.csv").exists()
        own = folder / "scores" / f"{name}.plink1.eigenvec"
        lengths += np.square(np.loadtxt(own, usecols=(2, 3))).sum(axis=0)
    assert lengths == pytest.approx(1.0, abs=1e-3), "unit vectors over all sites together"
    files = [home / name / "site.toml" for name in NAMES]
    rehearsal = read_rehearsal(home / "coordinator" / "study.toml", files)
    together = rehearsal.estimator()
    with fixed_keys(network.identities):
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


OPENED_AND_COUNTED = 2


def test_without_a_site_that_is_lost_the_variants_are_filtered_again(tmp_path: Path) -> None:
    network = GenotypeNetwork(tmp_path, secure=False, steps=', "ld:9:0.1"', study="quorum = 2\n")
    network.lose_after("south", OPENED_AND_COUNTED)
    run = network.run()
    assert run.sites == ("island", "north")
    files = [tmp_path / name / "site.toml" for name in run.sites]
    rehearsal = read_rehearsal(tmp_path / "coordinator" / "study.toml", files)
    together = rehearsal.estimator()
    rehearsal.fit(together)
    found = run.estimator
    assert found.preparation_.attrition == together.preparation_.attrition
    assert found.preparation_.attrition[-1].removed > 0
    assert found.preparation_.attrition[1].removed == 0, "two sites have every variant"
    assert found.components_.tobytes() == together.components_.tobytes()


@pytest.mark.parametrize("lost_after", [OPENED_AND_COUNTED + 6, OPENED_AND_COUNTED + 14])
def test_a_secure_sum_over_fewer_sites_is_not_opened_after_counting(
    tmp_path: Path, lost_after: int
) -> None:
    network = GenotypeNetwork(tmp_path, steps=', "ld:9:0.1"')
    network.lose_after("south", lost_after)
    with pytest.raises(SiteLost, match="south"):
        network.run()
    network.carry = lambda name, answer, data: answer(data)
    run = network.run()
    assert run.resumed
    assert run.sites == tuple(sorted(NAMES))
    assert run.estimator.n_samples_ == sum(len(part) for part in network.copies)


@pytest.mark.parametrize("sums", [1, 2])
def test_sums_over_other_people_than_were_counted_are_refused(
    tmp_path: Path, sums: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = GenotypeNetwork(tmp_path, secure=False, steps=', "ld:9:0.1"')
    weighed: list[Source] = []

    def weigh_later(source: Source) -> float:
        """Return the number of people, one less at each site after the first sums."""
        weighed.append(source)
        return float(source.n - (len(weighed) > sums * len(NAMES)))

    monkeypatch.setattr(Source, "total_weight", property(weigh_later))
    with pytest.raises(ProtocolError, match=r"360 people were counted, and a later sum is over 35"):
        network.run()
