"""A method that only this module knows of works wherever a method can be named."""

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eigenfed
from command_line import answer, as_csv, rows
from command_line import eigenfed as call
from eigenfed import FederatedPCA
from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError, PrivacyError
from eigenfed.linalg.checks import check_count
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.core import Call, Protocol
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.frame import FramedRequest
from eigenfed.protocol.exact.frame_rows import prepare_rows
from eigenfed.protocol.exact.spectrum import decompose_covariance
from eigenfed.protocol.gate.script import Script, repeat
from eigenfed.protocol.method import Cost, Method, Run, Shape, all_methods, product_s, registered
from eigenfed.protocol.operations import Answer, Limits, State, Terms, check_integer, op
from eigenfed.protocol.study import Study
from eigenfed.report.html import write_pages
from eigenfed.report.model import read_report
from eigenfed.report.repeat import write_command, write_python
from eigenfed.study.planning.forecast import Question, forecast
from methods import check_against_pooled

SITES = ("island", "north", "south")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ToyReply:
    """Columns of a scatter."""

    columns: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ToyRequest(FramedRequest):
    """Request for a block of columns of the scatter, the one after the last."""

    first: int

    op, reply = "toy_columns", ToyReply

    def check(self, terms: Terms, state: State) -> None:
        super().check(terms, state)
        check_integer("first", self.first, 0, terms.d - 1)

    def own_directions(self, terms: Terms, state: State) -> int:
        return len(axes(terms, self.first).T)

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        return {"columns": limits.most}


def axes(terms: Terms, first: int) -> Array:
    """Return the axes of the features in a block, as columns."""
    method = terms.study.chosen
    assert isinstance(method, Toy)
    return np.eye(terms.d)[:, first : first + method.block]


@op(Release("columns of the scatter", "d x block", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def toy_columns(
    source: Source, request: ToyRequest, state: State, terms: Terms
) -> Answer[ToyReply]:
    view, frame, state = prepare_rows(source, state)
    basis = axes(terms, request.first)
    images = view.product(basis)
    return Answer(ToyReply(columns=images), state, frame.answered(basis, images))


@dataclass(frozen=True, repr=False)
class Toy(Method):
    """The covariance, a few columns at a time."""

    name: ClassVar[str] = "toy"
    summary: ClassVar[str] = "the covariance, a few columns a round"
    ops = (toy_columns,)

    block: int = 4

    def __post_init__(self) -> None:
        check_count("block", self.block, "Ask for one column or more.")

    def rounds(self, d: int) -> int:
        return -(-d // self.block)

    def script(self, study: Study, d: int) -> Script:
        return repeat("toy_columns", self.rounds(d), self.rounds(d))

    def run(self, run: Run) -> Protocol[Decomposition]:
        blocks = []
        for first in range(0, run.d, self.block):
            reply = yield from run.total(Call(ToyRequest(first=first, **run.frame())))
            blocks.append(reply.columns)
        matrix = np.hstack(blocks) / run.moments.divisor
        rounding = run.d * float(np.max(run.total.error(run.moments.most))) / run.moments.divisor
        return decompose_covariance(
            (matrix + matrix.T) / 2,
            run.k,
            mean=run.moments.mean,
            scale=run.moments.scale,
            n=run.moments.n,
            tol=run.tol,
            rounding=rounding,
        )

    def cost(self, shape: Shape) -> Cost:
        d = shape.features
        wide = shape.column_bytes(self.block)
        return Cost(
            self.rounds(d),
            d,
            float(d) * d,
            2.0 * wide,
            shape.square_bytes,
            product_s(shape, d, self.rounds(d)),
            1e-9 * d**3,
        )


@pytest.fixture(autouse=True)
def toy() -> Iterator[None]:
    with registered(Toy):
        yield
    assert "toy" not in all_methods()


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    parts = np.array_split(rows(), 3)
    return [as_csv(tmp_path / f"{s}.csv", part) for s, part in zip(SITES, parts, strict=True)]


def tables(seed: int = 0, n: int = 120, d: int = 7) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 0.6 ** np.arange(d) + rng.standard_normal(d)
    return dict(zip(SITES, np.array_split(X, 3), strict=True))


def test_it_is_listed() -> None:
    assert eigenfed.methods()["toy"] == Toy.summary
    assert (
        f"toy         {Toy.summary}\n              --option block=4\n"
        in call("fit", "--list-methods").stdout
    )


@given(
    seed=st.integers(0, 10**6), d=st.integers(2, 12), block=st.integers(1, 9), secure=st.booleans()
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_result_is_that_of_all_rows_in_one_place(
    seed: int, d: int, block: int, secure: bool
) -> None:
    check_against_pooled(Toy(block=block), tables(seed, d=d), 2, secure=secure)


def test_the_estimator_takes_it_by_name_and_with_options() -> None:
    named = FederatedPCA(2, method="toy").fit_sites(tables())
    assert (named.method_, named.n_rounds_, named.leakage_.rank_fraction) == ("toy", 3, 1.0)
    assert FederatedPCA(2, method=Toy(block=2)).fit_sites(tables()).n_rounds_ == 5
    with pytest.raises(PrivacyError, match="method='toy' cannot be made private"):
        FederatedPCA(2, method="toy", privacy=eigenfed.Privacy(1.0, 1e-6)).fit_sites(tables())
    with pytest.raises(InputError, match="'merge', 'toy'"):
        FederatedPCA(2, method="top").fit_sites(tables())


def test_a_site_may_keep_out_of_it() -> None:
    policy = eigenfed.Policy(methods=frozenset({"covariance"}))
    pca = FederatedPCA(2, method="toy")
    with pytest.raises(eigenfed.SiteRefused, match="'method'"):
        pca.fit_sites(tables(), policies={"north": policy})
    limit = eigenfed.Policy(max_rank_fraction=0.5)
    with pytest.raises(eigenfed.SiteRefused, match="'leakage'"):
        pca.fit_sites(tables(), policies={"north": limit})


def test_the_command_line_takes_it(files: list[Path], tmp_path: Path) -> None:
    words = ("-k", 2, "--method", "toy", "--option", "block=2", "-o", tmp_path / "out")
    facts = answer("fit", *files, *words)
    assert (facts["method"], facts["rounds"], facts["asked"]["options"]) == ("toy", 5, {"block": 2})
    run = call("fit", *files, "-k", 2, "--method", "toy", "--option", "width=2")
    assert run.exit_code == 2
    assert "with KEY one of the options of toy: block" in run.stderr
    run = call("fit", *files, "-k", 2, "--method", "toy", "--option", "block=0")
    assert run.exit_code == 2
    assert "block=0 must be" in run.stderr


@pytest.mark.parametrize("secure", [False, True])
def test_a_plan_forecasts_it(secure: bool) -> None:
    sites = tables()
    pca = FederatedPCA(2, method=Toy(block=3), secure=secure).fit_sites(sites)
    question = Question(
        {name: len(part) for name, part in sites.items()}, 7, 2, Toy(block=3), secure=secure
    )
    found = forecast(question)
    assert found.method == Toy(block=3)
    for case in found.cases:
        assert case.traffic.rounds == pca.n_rounds_
        assert case.traffic.all_bytes == pytest.approx(pca.bytes_up_ + pca.bytes_down_, rel=0.05)
        assert case.coordinator_bytes == 8 * 7**2
    words = ("plan", "--rows", "40,40,40", "--features", 7, "-k", 2, "--method", "toy")
    told = answer(*words, "--option", "block=3", *(["--secure"] if secure else []))
    assert (told["method"], told["options"]) == ("toy", {"block": 3})
    assert told["rounds"] == [pca.n_rounds_] * 2


def test_a_study_file_names_it(files: list[Path], tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    text = f'name = "heart"\nsites = {json.dumps(SITES)}\ncomponents = 2\n'
    study.write_text(text + '[method]\nname = "toy"\nblock = 5\n')
    own = []
    for name in SITES:
        own.append(tmp_path / f"{name}.toml")
        own[-1].write_text(
            f'name = "{name}"\ndata = "{name}.csv"\n[policy]\nmin_rows = 2\nmethods = ["toy"]\n'
        )
    facts = answer("fit", "--study", study, *own)
    assert (facts["method"], facts["rounds"]) == ("toy", 3)
    told = answer("plan", study, "--rows", "300,300,300", "--features", 6)
    assert (told["method"], told["options"], len(told["digest"])) == ("toy", {"block": 5}, 64)
    study.write_text(text + '[method]\nname = "toy"\nwidth = 5\n')
    run = call("plan", study)
    assert run.exit_code == 1
    assert "The method 'toy' has no option 'width'. It has block." in run.stderr
    schema = json.dumps(answer("init", "--schema", "study"))
    assert Toy.summary in schema


def test_a_report_tells_how_to_repeat_it(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("-k", 2, "--method", "toy", "--option", "block=5")
    answer("fit", *files, *words, "-o", tmp_path / "out")
    facts = read_report(tmp_path / "out").facts
    line = write_command(facts)
    assert line is not None
    program, verb, *rest = shlex.split(line)
    again = [tmp_path / word if word.endswith(".csv") else word for word in rest]
    again[-1] = tmp_path / "again"
    assert (program, verb, again[4:]) == (
        "eigenfed",
        "fit",
        [*map(str, words[1:]), "-o", again[-1]],
    )
    assert call(verb, *again).exit_code == 0
    assert read_report(tmp_path / "again").facts["asked"] == facts["asked"]
    monkeypatch.setitem(sys.modules, Toy.__module__, sys.modules[__name__])
    scope: dict[str, Any] = {}
    exec(write_python(facts).rpartition("\n")[0], scope)
    assert scope["pca"].method == Toy(block=5)
    pages = write_pages(tmp_path / "again")
    assert f"toy with block = 5: {Toy.summary} (requested by name)" in pages.shared.read_text()
