"""Marked values at the sites, and a look at everything that leaves them."""

import logging
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import EigenfedError
from eigenfed.privacy.ledger.ledger import Budget, Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Call, Protocol, drive, plain_sum
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.covariance import ScatterRequest
from eigenfed.protocol.exact.frame import FramedRequest
from eigenfed.protocol.exact.frame_rows import prepare_rows
from eigenfed.protocol.exact.moments import MomentsRequest, collect_moments
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.gate.script import either
from eigenfed.protocol.messages import Message
from eigenfed.protocol.method import Method, registered
from eigenfed.protocol.operations import Answer, Op, Request, State, Terms, op
from eigenfed.protocol.private.private_site import RowsRequest, TotalRequest
from eigenfed.protocol.secure.aggregation import SecureSum
from eigenfed.protocol.study import Study
from federation import Testing, coordinated, gate, opened, study_of
from secured import secured

MARK = 12345.678901
D, K = 11, 3
ROWS = {"a": 37, "b": 41, "c": 53}


@dataclass(frozen=True, eq=False)
class Leaked:
    """What no operation may send."""

    values: Array


class RowRequest(FramedRequest):
    """Request for a row."""

    op, reply = "leaking_row", Leaked


class ScoresRequest(FramedRequest):
    """Request for scores."""

    op, reply = "leaking_scores", Leaked


class SizesRequest(FramedRequest):
    """Request for one number for each row."""

    op, reply = "leaking_sizes", Leaked


class FailingRequest(FramedRequest):
    """Request for what fails."""

    op, reply = "failing", Leaked


@op(Release("a row", "d", Leaves.EXACT, Reveals.MEANS))
def leaking_row(source: Source, request: RowRequest, state: State, terms: Terms) -> Answer[Leaked]:
    """Send a row, as no operation may."""
    return Answer(Leaked(source.X[0]), state)


@op(Release("scores", "n", Leaves.EXACT, Reveals.MEANS))
def leaking_scores(
    source: Source, request: ScoresRequest, state: State, terms: Terms
) -> Answer[Leaked]:
    """Send a vector of the rows' side, as no operation may."""
    view, _, state = prepare_rows(source, state)
    return Answer(Leaked(view.multiply(np.eye(D)[:, :1])[:5]), state)


@op(Release("sizes", "n", Leaves.EXACT, Reveals.MEANS))
def leaking_sizes(
    source: Source, request: SizesRequest, state: State, terms: Terms
) -> Answer[Leaked]:
    """Send one number for each row, as no operation may."""
    return Answer(Leaked(np.linalg.norm(source.X, axis=1)), state)


@op(Release("nothing", "0", Leaves.EXACT, Reveals.COUNTS))
def failing(source: Source, request: FailingRequest, state: State, terms: Terms) -> Answer[Leaked]:
    """Fail with an error that numpy words."""
    raise np.linalg.LinAlgError(f"row {source.X[0].tolist()} is singular")


LEAKS: tuple[Op[Any, Any], ...] = (leaking_row, leaking_scores, leaking_sizes)


class Leaking(Testing):
    """Operations as they must not be."""

    name = "leaking"
    ops = (*LEAKS, failing)
    asked = either(*(leak.name for leak in ops))


@pytest.fixture(autouse=True)
def methods() -> Iterator[None]:
    with registered(Leaking):
        yield


@dataclass
class Tapped:
    """A site and all bytes to and from it."""

    site: Site
    asked: list[bytes] = field(default_factory=list)
    replied: list[bytes] = field(default_factory=list)

    def answer(self, data: bytes) -> bytes:
        reply = self.site.answer(data)
        self.asked.append(data)
        self.replied.append(reply)
        return reply


def tables() -> dict[str, Array]:
    """Rows in which the first feature of the first row is marked, at every site."""
    rng = np.random.default_rng(0)
    made = {}
    for name, n in ROWS.items():
        X = rng.standard_normal((n, D)) * np.arange(1, D + 1)
        X[0, 0] = MARK
        made[name] = X
    return made


def tapped(wire: str = "float64", policy: Policy | None = None) -> dict[str, Tapped]:
    return {name: Tapped(gate(name, X, policy=policy, wire=wire)) for name, X in tables().items()}


def study(method: Method | str, **settings: Any) -> Study:
    return study_of(ROWS, K, method, tol=1e-10, max_rounds=20, **settings)


def whole(sites: dict[str, Tapped], **settings: Any) -> tuple[Decomposition, Decomposition]:
    """Subspace iteration with its certificate, and the covariance: two runs at the same sites."""
    found, exact = (
        drive(coordinated(of, seed=1), opened(sites, of))
        for of in (study("subspace", **settings), study("covariance", **settings))
    )
    return found, exact


def numbers_in(data: bytes, wire: str = "float64") -> Iterator[tuple[tuple[int, ...], set[float]]]:
    """Shape and numbers of each array of a reply."""
    for array in Message.from_bytes(data, "reply", "refusal").arrays.values():
        yield array.shape, set(array.astype(wire).ravel().tolist())


def rows_side(X: Array, found: Decomposition, wire: str = "float64") -> set[float]:
    """Everything that belongs to single rows: entries, deviations, scores, lengths."""
    around = (X - found.mean) / found.scale
    scores = around @ found.components.T
    lengths = np.linalg.norm(X, axis=1)
    unit = scores / np.linalg.norm(scores, axis=0)
    secret = np.hstack([X, around, scores, unit, lengths[:, None]])
    return set(secret.astype(wire).ravel().tolist())


def marked(data: bytes) -> bool:
    """Say whether the mark shows, as bytes of either precision and order or as text."""
    forms = [struct.pack(code, MARK) for code in ("<d", ">d", "<f", ">f")]
    forms += [text.encode() for text in (str(MARK), f"{MARK:.6f}", f"{MARK:.3f}", "12345.67")]
    return any(form in data for form in forms)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("wire", ["float64", "float32"])
def test_nothing_of_single_rows_leaves(
    wire: str, scale: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sites = tapped(wire)
    with caplog.at_level(logging.DEBUG):
        found, exact = whole(sites, scale=scale, wire=wire)
    np.testing.assert_allclose(found.variances, exact.variances, rtol=1e-2)
    assert found.certificate is not None
    for name, X in tables().items():
        tap = sites[name]
        assert [line.op for line in tap.site.egress].count("remainder") == 1
        secret = rows_side(X, found, wire)
        for data in (*tap.asked, *tap.replied):
            assert not marked(data)
        for data in tap.replied:
            for shape, numbers in numbers_in(data, wire):
                assert not set(shape) & set(ROWS.values())
                # Two of some thousand numbers of 24 bits may be the same by accident.
                assert len(numbers & secret) <= (1 if wire == "float32" else 0)
        assert not marked(repr(tap.site.egress).encode())
    assert not marked(caplog.text.encode())


def test_row_counts_are_told_from_every_honest_size() -> None:
    honest = {1, K, D, max(K, 8), D - 8, D * (D + 1) // 2}
    assert not honest & set(ROWS.values())


@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: str(leak.name))
def test_the_canary_sees_a_leak(leak: Op[Any, Any]) -> None:
    name, sites, of = leak.name, tapped(), study(Leaking())

    def leaking() -> Protocol[None]:
        moments = yield from collect_moments(plain_sum, of)
        yield Call(leak.request(**moments.frame))

    drive(leaking(), opened(sites, of))
    X = tables()["a"]
    mean = np.vstack(list(tables().values())).mean(axis=0)
    unit = Decomposition(np.eye(1, D), np.ones(1), mean, np.ones(D), 131.0, 1.0, 0)
    ((shape, numbers),) = numbers_in(sites["a"].replied[-1])
    seen = {
        "leaking_row": marked(sites["a"].replied[-1]) and bool(numbers & rows_side(X, unit)),
        "leaking_scores": bool(numbers & rows_side(X, unit)),
        "leaking_sizes": ROWS["a"] in shape and bool(numbers & rows_side(X, unit)),
    }
    assert seen[name]


FRAME: dict[str, Any] = {"mean": np.zeros(D), "scale": np.ones(D)}
HALF = Policy(max_rank_fraction=0.5)


@pytest.mark.parametrize(
    ("method", "request_", "policy", "code"),
    [
        (Leaking(), FailingRequest(**FRAME), None, "aborted"),
        ("krylov", ProductRequest(basis=np.ones((D + 1, 2)), **FRAME), None, "invalid"),
        ("krylov", ProductRequest(basis=np.eye(D)[:, :8], **FRAME), HALF, "leakage"),
        ("krylov", ScatterRequest(**FRAME), None, "script"),
        (
            "krylov",
            ProductRequest(basis=np.eye(D)[:, :8], **FRAME),
            Policy(max_variance_fraction=0.1),
            "aborted",
        ),
    ],
)
def test_errors_carry_no_value_to_the_coordinator(
    method: Method | str, request_: Request[Any], policy: Policy | None, code: str
) -> None:
    sites = tapped(policy=policy)

    def requesting() -> Protocol[None]:
        yield Call(MomentsRequest())
        for tap in sites.values():
            tap.replied.clear()
        yield Call(request_)

    with pytest.raises(EigenfedError, match=code) as caught:
        drive(requesting(), opened(sites, study(method)))
    assert not marked(str(caught.value).encode())
    error: BaseException | None = caught.value
    while error is not None:
        assert not marked(repr(error).encode())
        error = error.__cause__ or error.__context__
    for tap in sites.values():
        assert not any(marked(data) for data in tap.replied)
        assert all(len(data) < 256 for data in tap.replied)


@pytest.mark.parametrize("scale", [False, True])
def test_nothing_of_single_rows_or_sites_leaves_in_secure_sums(
    scale: bool, caplog: pytest.LogCaptureFixture
) -> None:
    federation = secured(tables())
    sites = {name: Tapped(site) for name, site in federation.sites.items()}
    results = []
    with caplog.at_level(logging.DEBUG):
        for method in ("krylov", "covariance"):
            of = study(method, scale=scale, secure=True)
            transport = opened(sites, of)
            total = SecureSum(federation.roster, run=transport.run)
            results.append(drive(coordinated(of, seed=1, total=total), transport))
    found, exact = results
    np.testing.assert_allclose(found.variances, exact.variances, rtol=1e-6)
    for name, X in tables().items():
        tap = sites[name]
        around = (X - found.mean) / found.scale
        own = np.concatenate([X.sum(axis=0), (around.T @ around).ravel(), np.square(around).sum(0)])
        secret = rows_side(X, found) | set(own.tolist())
        assert not any(marked(data) for data in (*tap.asked, *tap.replied))
        for data in tap.replied:
            for shape, numbers in numbers_in(data):
                assert not set(shape) & set(ROWS.values())
                assert not numbers & secret
        assert not marked(repr(tap.site.egress).encode())
    assert not marked(caplog.text.encode())


def test_nothing_of_single_rows_leaves_with_noise_nor_is_put_on_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows within the clip, so that the marked one counts as it is: bytes, log, ledger, names."""
    privacy = Privacy(8.0, 1e-3, trust="local", clip=2 * MARK)
    policy = Policy(budget=Budget(8.0, 1e-3))
    sites = {
        name: Tapped(
            gate(name, X, policy=policy, ledger=Ledger(tmp_path / f"{name}.ledger", create=True))
        )
        for name, X in tables().items()
    }
    of = study_of(ROWS, K, "covariance", tol=1e-9, privacy=privacy)
    with caplog.at_level(logging.DEBUG):
        found = drive(coordinated(of, seed=1), opened(sites, of))
    for name, X in tables().items():
        tap = sites[name]
        assert [line.op for line in tap.site.egress].count("private_scatter") == 1
        secret = rows_side(X, found)
        assert not any(marked(data) for data in (*tap.asked, *tap.replied))
        for data in tap.replied:
            for shape, numbers in numbers_in(data):
                assert not set(shape) & set(ROWS.values())
                assert not numbers & secret
        assert not marked(repr(tap.site.egress).encode())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= len(ROWS)
    for path in files:
        assert not marked(path.read_bytes())
        assert not marked(str(path).encode())
    assert not marked(caplog.text.encode())
    assert found.privacy is not None
    assert not marked(found.privacy.text.encode())


@pytest.mark.parametrize(
    ("spoilt", "code"),
    [("weights", "weights"), ("budget", "budget"), ("grid", "invalid")],
)
def test_refusals_of_private_requests_carry_no_value(
    spoilt: str, code: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    X = tables()["a"]
    weights = np.full(len(X), MARK) if spoilt == "weights" else None
    policy = Policy(budget=Budget(1.0 if spoilt == "budget" else 8.0, 1e-3))
    ledger = Ledger(tmp_path / "ledger", create=True)
    tap = Tapped(gate("a", X, weights=weights, policy=policy, ledger=ledger))
    of = study_of("a", 1, privacy=Privacy(8.0, 1e-3, trust="local", clip=3.0))
    n = 2**62 if spoilt == "grid" else len(X)

    def requesting() -> Protocol[None]:
        yield Call(RowsRequest())
        yield Call(TotalRequest(center=np.zeros(D), radius=3.0, n=n))

    with caplog.at_level(logging.DEBUG), pytest.raises(EigenfedError, match=code) as caught:
        drive(requesting(), opened({"a": tap}, of))
    assert not marked(str(caught.value).encode())
    assert all(len(data) < 512 and not marked(data) for data in tap.replied)
    assert not marked(caplog.text.encode())
    assert not any(marked(path.read_bytes()) for path in tmp_path.rglob("*"))


def test_a_missing_entry_changes_nothing_that_could_be_seen(tmp_path: Path) -> None:
    X = tables()["a"]
    X[1, 1] = np.nan
    ledger = Ledger(tmp_path / "ledger", create=True)
    tap = Tapped(gate("a", X, policy=Policy(budget=Budget(8.0, 1e-3)), ledger=ledger))
    of = study_of("a", 1, privacy=Privacy(8.0, 1e-3, trust="local", clip=3.0))

    def requesting() -> Protocol[None]:
        yield Call(RowsRequest())
        yield Call(TotalRequest(center=np.zeros(D), radius=3.0, n=len(X)))

    drive(requesting(), opened({"a": tap}, of))
    assert [line.op for line in tap.site.egress] == ["rows", "private_total"]
    assert not any(marked(data) for data in tap.replied)
