"""A study file as a question, a forecast in words, and what is refused."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenfed import Covariance, FederatedPCA, Krylov, Power, Privacy, Randomized
from eigenfed.errors import EigenfedError, InputError
from eigenfed.protocol.method import Method
from eigenfed.study.config import read_study
from eigenfed.study.planning.assumed_spectra import (
    assume_spectra,
    make_geometric_spectrum,
    make_spectrum,
)
from eigenfed.study.planning.forecast import Question, forecast
from eigenfed.study.planning.plan import make_study_question, write_verdict

ROWS = {"north": 3000, "south": 900, "island": 150}
FILE = """
name = "three-hospitals"
sites = ["island", "north", "south"]
components = 4
method = "krylov"
by_site = true
[expected]
rows = { north = 3000, south = 900, island = 150 }
features = 120
latency_ms = 40
bandwidth_mbps = 20
decay = 0.9
"""


def study(folder: Path, text: str = FILE) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


def test_a_study_file_is_a_question(tmp_path: Path) -> None:
    asked = make_study_question(read_study(study(tmp_path)))
    assert asked == Question(
        ROWS,
        120,
        4,
        "krylov",
        by_site=True,
        latency_ms=40.0,
        bandwidth_mbps=20.0,
        decay=0.9,
    )


def test_what_is_passed_replaces_what_the_file_says(tmp_path: Path) -> None:
    file = read_study(study(tmp_path))
    asked = make_study_question(
        file, features=60, spectrum=(5.0, 4.0, 3.0, 2.0), secure=True, method=None
    )
    assert (asked.features, asked.decay, asked.spectrum) == (60, None, (5.0, 4.0, 3.0, 2.0))
    assert (asked.method, asked.secure, asked.by_site) == (Krylov(), True, False)
    assert make_study_question(file, privacy=Privacy(1.0, 1e-6)).by_site is False


@pytest.mark.parametrize("lacking", ["rows", "features"])
def test_what_the_file_does_not_expect_must_be_passed(tmp_path: Path, lacking: str) -> None:
    text = "\n".join(line for line in FILE.splitlines() if not line.startswith(lacking))
    with pytest.raises(InputError, match=f"does not give the number of {lacking}"):
        make_study_question(read_study(study(tmp_path, text)))


def test_every_site_of_the_file_must_have_rows(tmp_path: Path) -> None:
    text = FILE.replace(", island = 150", "")
    with pytest.raises(InputError, match="does not name 'island'"):
        make_study_question(read_study(study(tmp_path, text)))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rows": {}}, "names no site"),
        ({"rows": {"a": 0}}, "at least 1"),
        ({"components": 121}, "n_components=121 must be at most 120"),
        ({"rows": {"a": 3}}, "at most 3"),
        ({"features": 0}, "features=0"),
        ({"method": "magic"}, "method='magic' must be one of"),
        ({"decay": 1.5}, "decay=1.5"),
        ({"decay": 0.5, "spectrum": (1.0,) * 9}, "both define"),
        ({"spectrum": (3.0, 2.0)}, "spectrum must have at least 4"),
        ({"secure": True, "method": "merge"}, "needs replies of single sites"),
        ({"secure": True, "rows": {"a": 50, "b": 50}}, "3 sites at least"),
        ({"privacy": Privacy(1.0, 0.1)}, "delta=0.1 must be below"),
        ({"privacy": Privacy(1.0, 1e-6), "method": "krylov"}, "cannot be made private"),
        ({"privacy": Privacy(1.0, 1e-6), "scale": True, "method": "power"}, "method='covariance'"),
    ],
)
def test_what_a_fit_would_refuse_is_refused(wrong: dict[str, Any], words: str) -> None:
    asked: dict[str, Any] = {"rows": ROWS, "features": 120, "components": 4} | wrong
    with pytest.raises(EigenfedError, match=words):
        forecast(Question(**asked))


@pytest.mark.parametrize(
    ("method", "rounds"),
    [(Power(local_steps=1), False), (Covariance(precision="single"), True), (Randomized(4), True)],
)
def test_options_of_a_method_are_forecast(method: Method, rounds: bool) -> None:
    """Rounds are compared where they do not hang on the random start."""
    rng = np.random.default_rng(0)
    tables = {name: rng.standard_normal((n, 40)) * 0.7 ** np.arange(40) for name, n in ROWS.items()}
    pca = FederatedPCA(3, method=method, random_state=0).fit_sites(tables)
    found = forecast(Question(ROWS, 40, 3, method, decay=0.49))
    (case,) = found.cases
    assert found.method == method
    assert abs(case.traffic.rounds - pca.n_rounds_) <= (0 if rounds else 2)
    assert case.traffic.all_bytes == pytest.approx(pca.bytes_up_ + pca.bytes_down_, rel=0.05)


def test_many_features_are_forecast_without_many_numbers() -> None:
    tracemalloc.start()
    found = forecast(Question(ROWS, 10_000_000, 4, decay=0.9))
    assert tracemalloc.get_traced_memory()[1] < 500e6
    tracemalloc.stop()
    assert found.method == Krylov()
    products = found.cases[0].traffic.rounds - 1
    assert found.cases[0].traffic.up == pytest.approx((8 * products + 2) * 8e7, rel=0.01)


def test_a_message_that_would_not_pass_is_told() -> None:
    found = forecast(Question(ROWS, 100_000, 4, "covariance"))
    assert "a message would have 40 GB, and the limit is" in write_verdict(found)
    assert "limit" not in write_verdict(forecast(Question(ROWS, 2000, 4, "covariance")))


def test_the_verdict_is_against_noise_where_noise_is_all() -> None:
    rows = {"a": 2000, "b": 2000, "c": 1000}
    found = forecast(Question(rows, 100_000, 4, privacy=Privacy(1.0, 1e-6), decay=0.98))
    (case,) = found.cases
    assert case.kept is not None
    assert case.kept.ratio is not None
    assert case.kept.ratio > 10
    said = f"at d=100000 and n=5000 the noise is {case.kept.ratio:.0f} times the signal"
    assert f"Do not use differential privacy here: {said}." in write_verdict(found)


def test_the_verdict_tells_what_noise_leaves() -> None:
    rows = {"a": 20_000, "b": 20_000, "c": 20_000}
    text = write_verdict(forecast(Question(rows, 50, 3, privacy=Privacy(1.0, 1e-6), decay=0.8)))
    assert text.startswith("18 rounds")
    assert "at epsilon 1 the components capture 100% of the variance" in text
    few = {"a": 400, "b": 300, "c": 300}
    privacy = Privacy(1.0, 1e-6)
    near = Question(few, 60, 3, privacy=privacy, decay=0.6, offset=0.0)
    assert "Private: at epsilon 1 the components capture" in write_verdict(forecast(near))
    far = Question(few, 60, 3, privacy=privacy, decay=0.9)
    assert "the first component would be mostly noise" in write_verdict(forecast(far))


def test_the_verdict_on_few_rows_is_the_reason_why_a_run_would_end() -> None:
    rows = {"a": 30, "b": 40, "c": 50}
    text = write_verdict(forecast(Question(rows, 30, 2, privacy=Privacy(1.0, 1e-6))))
    assert "Do not use differential privacy here: the run would fail. 120 rows are" in text


def test_the_link_is_in_the_time_and_in_the_verdict() -> None:
    near, far = (
        forecast(Question(ROWS, 120, 4, decay=0.9, latency_ms=ms, bandwidth_mbps=20.0))
        for ms in (10.0, 1000.0)
    )
    rounds = near.cases[0].traffic.rounds
    assert far.cases[0].seconds - near.cases[0].seconds == pytest.approx(0.99 * rounds)
    assert "s over this network" in write_verdict(far)


def test_spectra_add_up() -> None:
    for spectrum in (
        make_geometric_spectrum(0.9, 40, 40),
        make_geometric_spectrum(1.0, 40, 30),
        make_spectrum((4.0, 2.0, 0.0), 40, 39),
        *assume_spectra(100, 40, 3, 40),
        *assume_spectra(30, 40, 3, 29),
    ):
        values = spectrum.values(40)
        assert values.sum() == pytest.approx(spectrum.trace, rel=0.02)
        assert (values[1:] <= values[:-1]).all()
        assert spectrum.leading(3) == pytest.approx(values[:3].sum())
