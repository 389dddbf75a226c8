"""The audit of a lying coordinator: what it finds, and what it must find."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from command_line import answer
from command_line import eigenfed as run
from eigenfed import SiteRefused
from eigenfed.arrays import Array
from eigenfed.audit.hostile_coordinator import attack_site
from eigenfed.audit.lies import generate_lies
from eigenfed.audit.stand_in_rows import compare_guess, simulate_rows
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.loci import Loci
from eigenfed.data.prepared import Prepared
from eigenfed.data.prepared_rows import Preparation
from eigenfed.data.source import Source
from eigenfed.data.steps import as_steps
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.ledger import Budget
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.revealed_products import RevealedProducts
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.protocol.study import Study, open_message

SITES = ("a", "b", "c")


def rows(n: int = 300, d: int = 20) -> Array:
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, d)) * np.geomspace(5.0, 0.5, d) + 3.0


def test_a_study_that_sends_the_covariance_tells_all_of_it() -> None:
    found = attack_site(Study(SITES, 2, "covariance"), "a", Source.of(rows()), Policy())
    assert found.agreed.rank_fraction == found.greedy.rank_fraction == 1.0
    assert found.agreed.error == 0.0
    assert found.differing == 0
    assert found.lies == found.refused + found.answered + found.aborted > 200


def test_a_greedy_coordinator_gets_more_than_an_honest_one() -> None:
    study = Study(SITES, 2, "krylov", tol=1e-1)
    found = attack_site(study, "a", Source.of(rows(d=80)), Policy())
    assert found.agreed.rank_fraction < found.greedy.rank_fraction
    assert found.agreed.error is not None
    assert found.greedy.error is not None
    assert found.greedy.error < found.agreed.error


def test_a_limit_on_directions_stops_a_greedy_coordinator() -> None:
    policy = Policy(max_rank_fraction=0.5)
    study = Study(SITES, 2, "krylov", tol=1e-2)
    found = attack_site(study, "a", Source.of(rows()), policy)
    assert found.greedy.refused == "leakage"
    assert found.greedy.rank_fraction <= 0.5
    assert found.greedy.error is not None
    assert found.greedy.error > 0.01


def test_what_is_learnt_of_prepared_rows_is_about_the_selected_features() -> None:
    counts = np.random.default_rng(0).poisson(np.geomspace(40.0, 0.5, 20), (60, 20)).astype(float)
    steps = as_steps(["select:8", "log1p", "standardize:2"])
    study = Study(SITES, 2, "krylov", prepare=steps)
    found = attack_site(study, "a", Source.of(counts), Policy())
    assert (found.agreed.refused, found.differing) == ("", 0)
    assert found.greedy.rank_fraction == 1.0
    assert found.greedy.error is not None
    assert found.greedy.error < 1e-9


@pytest.mark.parametrize(
    ("study", "policy"),
    [
        (Study(SITES, 2, "krylov", secure=True), Policy(secure_only=True)),
        (
            Study(SITES, 2, "covariance", privacy=Privacy(9.0, 1e-4, clip=9.0, trust="local")),
            Policy(budget=Budget(9.0, 1e-4)),
        ),
    ],
)
def test_secure_and_private_studies_are_lied_to_as_well(study: Study, policy: Policy) -> None:
    found = attack_site(study, "a", Source.of(rows(60, 5)), policy)
    assert found.differing == 0
    assert found.answered > 0
    if study.privacy is not None:
        assert found.greedy.rank_fraction == 0.0
        assert found.greedy.error is None


def test_a_site_that_does_not_take_part_is_not_attacked() -> None:
    with pytest.raises(SiteRefused, match="no_budget"):
        attack_site(
            Study(SITES, 2, "covariance", privacy=Privacy(1.0, 1e-4)),
            "a",
            Source.of(rows()),
            Policy(),
        )


def test_the_attack_finds_a_site_whose_answers_depend_on_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gate that refuses by what is in the rows is what the audit is there for."""
    from eigenfed.protocol.gate.gate import Site
    from eigenfed.protocol.messages import Message

    honest = Site.answer

    def leaky(site: Site, data: bytes, *, intact: bool = False) -> bytes:
        reply = honest(site, data, intact=intact)
        if Message.from_bytes(reply, "reply", "refusal").label == "script":
            code = "script" if float(site._source.X[1, 0]) > 0 else "invalid"
            return Message("refusal", "", -1, code, {}).to_bytes()
        return reply

    monkeypatch.setattr(Site, "answer", leaky)
    table = np.abs(rows())
    found = attack_site(Study(SITES, 2, "covariance"), "a", Source.of(table), Policy())
    assert found.differing > 0


def test_lies_are_many_and_each_is_another_one() -> None:
    study = Study(SITES, 2, "krylov")
    opening = open_message("run", study, study.method, Identity.generate())
    lies = list(generate_lies(opening))
    assert len({how for how, _ in lies}) == len(lies) > 40
    assert all(data != opening for _, data in lies)


def write_study(folder: Path, policy: str = "min_rows = 10\n") -> tuple[Path, Path]:
    study, site = folder / "study.toml", folder / "a.toml"
    study.write_text('name = "heart"\nsites = ["a", "b"]\ncomponents = 2\nmethod = "krylov"\n')
    site.write_text(f'name = "a"\ndata = "a.npy"\n[policy]\n{policy}')
    np.save(folder / "a.npy", rows())
    return site, study


def test_the_command_tells_on_one_page_what_a_liar_gets(tmp_path: Path) -> None:
    site, study = write_study(tmp_path)
    shown = run("audit", "coordinator", site, study)
    assert shown.exit_code == 0
    assert "Lies: " in shown.stdout
    assert "exactly" in shown.stdout
    assert "max_rank_fraction below 1" in shown.stdout
    assert len(shown.stdout.splitlines()) < 25


def test_the_command_gives_json_and_touches_nothing(tmp_path: Path) -> None:
    site, study = write_study(tmp_path, "min_rows = 10\nmax_rank_fraction = 0.5\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    data = answer("audit", "coordinator", site, study)
    assert data["differing"] == 0
    assert data["greedy"]["refused"] == "leakage"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_site_of_another_study_is_named(tmp_path: Path) -> None:
    site, study = write_study(tmp_path)
    study.write_text(study.read_text().replace('"a"', '"c"'))
    shown = run("audit", "coordinator", site, study)
    assert shown.exit_code == 1
    assert "is not one of the sites" in shown.stderr


def test_an_unapproved_study_is_not_audited_as_if_it_ran(tmp_path: Path) -> None:
    site, study = write_study(tmp_path)
    text = site.read_text()
    site.write_text(text.replace("[policy]", f'approved = ["{"0" * 64}"]\n[policy]'))
    shown = run("audit", "coordinator", site, study)
    assert shown.exit_code == 3
    assert "approved" in shown.stderr


def genotypes(n: int = 60, d: int = 48) -> Source:
    rng = np.random.default_rng(1)
    packed = rng.integers(0, 256, (d, n // 4), dtype=np.uint8)
    packed[packed % 4 == 1] ^= 2
    loci = Loci(np.repeat([1, 2], d // 2), np.arange(d))
    weights = np.ones(n)
    weights[::9] = 0.0
    return Source(replace(Genotypes.of(packed, n), loci=loci), weights)


@pytest.mark.parametrize("secure", [False, True])
def test_a_quality_control_of_genotypes_is_lied_to_as_well(secure: bool) -> None:
    steps = as_steps(["call_rate:0.5", "maf:0.05", "ld:3:0.9"])
    study = Study(SITES, 2, "krylov", prepare=steps, scale="genotype", tol=1.0, secure=secure)
    found = attack_site(study, "a", genotypes(), Policy(min_counted=50))
    assert (found.agreed.refused, found.differing) == ("", 0)
    assert found.lies > (1800 if secure else 600)
    assert found.answered > 0
    assert found.agreed.error is not None
    assert found.greedy.error is not None
    assert found.greedy.error <= found.agreed.error < 0.1
    few = replace(study, secure=False)
    with pytest.raises(SiteRefused, match="few people"):
        attack_site(few, "a", genotypes(), Policy(min_counted=55))


def test_a_guess_of_packed_genotypes_is_compared_as_that_of_decoded_ones() -> None:
    packed = genotypes()
    decoded = replace(packed, X=packed.X[:])
    rng = np.random.default_rng(0)
    for rank in (3, 47):
        basis = np.linalg.qr(rng.standard_normal((48, rank))).Q
        _, count, total = decoded.totals()
        scatter = Prepared(decoded, total / count, np.ones(48)).scatter()
        meter = Meter.empty(48).answered(
            RevealedProducts(basis, scatter @ basis, np.trace(scatter))
        )
        errors = [compare_guess(meter, rows, Preparation()) for rows in (packed, decoded)]
        assert errors[0] == pytest.approx(errors[1], rel=1e-9)
    twin = simulate_rows(packed, 0)
    assert twin.X.shape == packed.X.shape
    assert (twin.X[:] != packed.X[:]).mean() > 0.4
    assert compare_guess(Meter.empty(48), packed, Preparation()) is None
