"""Events keep their names, fields and bytes for ever; nothing else is read as one."""

import json
import math
from dataclasses import fields
from typing import Any

import pytest

from eigenfed.errors import DataError, InputError
from eigenfed.privacy.ledger import events
from eigenfed.privacy.ledger.entries import Budget, Declared, ReplyKey
from eigenfed.privacy.ledger.events import (
    BEFORE_FIRST,
    Aborted,
    Budgeted,
    Event,
    Kind,
    Opened,
    Refused,
    RefusedMore,
    Released,
    Replied,
    RunOpened,
    Spent,
    Summarised,
    Summed,
    Unsound,
    Upgraded,
    What,
    chain_hash,
)

KEY = ReplyKey("cohort", "run 1", 4, "scatter", ask_digest="5d41", roster_digest="402a")
WHEN = "2026-11-15T12:00:00+00:00"
KEY_BYTES = (
    b'"key":{"ask_digest":"5d41","dataset":"cohort","op":"scatter","roster_digest":"402a",'
    b'"round":4,"run":"run 1"}'
)
WHEN_BYTES = b'"when":"2026-11-15T12:00:00+00:00"}'

GOLDEN: dict[Kind, tuple[What, bytes]] = {
    Kind.OPENED: (
        Opened(1, "00ff"),
        b'{"kind":"opened","ledger":"00ff","number":7,"version":1,' + WHEN_BYTES,
    ),
    Kind.UPGRADED: (
        Upgraded(2),
        b'{"kind":"upgraded","number":7,"version":2,' + WHEN_BYTES,
    ),
    Kind.BUDGETED: (
        Budgeted("cohort", Budget(1, 1e-6, "zero_out")),
        b'{"budget":{"delta":1e-06,"epsilon":1.0,"relation":"zero_out"},"dataset":"cohort",'
        b'"kind":"budgeted","number":7,' + WHEN_BYTES,
    ),
    Kind.SPENT: (
        Spent(KEY, 0.25, 1, 4.0, "replace_one", "gaussian"),
        b"{" + KEY_BYTES + b',"kind":"spent","mechanism":"gaussian","mu":0.25,'
        b'"number":7,"relation":"replace_one","sd":4.0,"sensitivity":1.0,' + WHEN_BYTES,
    ),
    Kind.UNSOUND: (
        Unsound(KEY, "fedpower"),
        b"{" + KEY_BYTES + b',"kind":"unsound","mechanism":"fedpower","number":7,' + WHEN_BYTES,
    ),
    Kind.REPLIED: (
        Replied(
            KEY,
            Declared("scatter", "d x d", "noised", "noise"),
            {"scatter": (2, 2), "rows": ()},
            128,
            "9a0b",
            6,
            0.25,
            None,
        ),
        b'{"digest":"9a0b",' + KEY_BYTES + b',"kind":"replied","meter":null,"mu":0.25,"number":7,'
        b'"release":{"kind":"scatter","leaves":"noised","reveals":"noise","shape":"d x d"},'
        b'"sent_bytes":128,"shapes":{"rows":[],"scatter":[2,2]},"spend":6,' + WHEN_BYTES,
    ),
    Kind.REFUSED: (
        Refused(KEY, "budget"),
        b'{"code":"budget",' + KEY_BYTES + b',"kind":"refused","number":7,' + WHEN_BYTES,
    ),
    Kind.REFUSED_MORE: (
        RefusedMore("cohort", "run 1"),
        b'{"dataset":"cohort","kind":"refused_more","number":7,"run":"run 1",' + WHEN_BYTES,
    ),
    Kind.RUN_OPENED: (
        RunOpened("cohort", "run 1", "9f86", "d75a"),
        b'{"coordinator":"d75a","dataset":"cohort","kind":"run_opened","number":7,"run":"run 1",'
        b'"study":"9f86",' + WHEN_BYTES,
    ),
    Kind.ABORTED: (
        Aborted("cohort", "run 1", 4, "scatter"),
        b'{"dataset":"cohort","kind":"aborted","number":7,"op":"scatter","round":4,"run":"run 1",'
        + WHEN_BYTES,
    ),
    Kind.RELEASED: (
        Released("cohort", "a full disk"),
        b'{"by":"a full disk","dataset":"cohort","kind":"released","number":7,' + WHEN_BYTES,
    ),
    Kind.SUMMARISED: (
        Summarised("cohort", "run 1", "9f86", 2, 40, "b94d"),
        b'{"dataset":"cohort","digest":"b94d","kind":"summarised","number":7,"run":"run 1",'
        b'"study":"9f86","version":2,"weight":40.0,' + WHEN_BYTES,
    ),
    Kind.SUMMED: (
        Summed(KEY, frozenset({"zürich", "bonn"})),
        b"{"
        + KEY_BYTES
        + b',"kind":"summed","number":7,"sites":["bonn","z\\u00fcrich"],'
        + WHEN_BYTES,
    ),
}


def test_the_kinds_are_these_and_no_others() -> None:
    names = ["opened", "upgraded", "budgeted", "spent", "unsound", "replied", "refused"]
    names += ["refused_more", "summed", "run_opened", "aborted", "released", "summarised"]
    assert [kind.value for kind in Kind] == names
    assert GOLDEN.keys() == set(Kind)


@pytest.mark.parametrize("kind", Kind)
def test_an_event_is_written_and_read_byte_for_byte(kind: Kind) -> None:
    what, body = GOLDEN[kind]
    event = Event(7, WHEN, what)
    assert event.kind is kind
    assert event.to_bytes() == body
    assert Event.from_bytes(body) == event


def test_the_hash_covers_the_event_and_the_one_before() -> None:
    body = GOLDEN[Kind.REFUSED][1]
    first = chain_hash(BEFORE_FIRST, body)
    assert first.hex() == "b0c748e0bd3932af7936aee2f85a8bb2acaa787dc42c93dd39f4e497074201f3"
    assert len({first, chain_hash(first, body), chain_hash(BEFORE_FIRST, body + b" ")}) == 3


def test_the_table_names_every_kind_and_field() -> None:
    table = events.__doc__ or ""
    for kind, (what, _) in GOLDEN.items():
        assert f"\n{kind.value} " in table
        assert all(field.name in table for field in fields(what))


def changed(original: Kind, **new: object) -> bytes:
    record = json.loads(GOLDEN[original][1]) | new
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'"spent"',
        b"\xff\xfe",
        changed(Kind.SPENT, kind="granted"),
        changed(Kind.SPENT, mu=-1.0),
        changed(Kind.SPENT, mu="0.25"),
        changed(Kind.SPENT, mu=1),
        changed(Kind.SPENT, sd=0.001),
        changed(Kind.SPENT, relation="add_one"),
        changed(Kind.SPENT, note="?"),
        changed(Kind.SPENT, key={"run": "run 1"}),
        changed(Kind.SPENT, key=None),
        changed(Kind.BUDGETED, budget={"epsilon": 0.0, "delta": 1e-6, "relation": "zero_out"}),
        changed(Kind.REPLIED, sent_bytes=-1),
        changed(Kind.REPLIED, shapes=[1, 2]),
        changed(Kind.ABORTED, round=-1),
        changed(Kind.ABORTED, round_=4),
        changed(Kind.UPGRADED, version=1),
        changed(Kind.SUMMED, sites=[]),
        changed(Kind.SUMMED, sites=["zürich", "bonn"]),
        GOLDEN[Kind.SPENT][1] + b"\n",
        GOLDEN[Kind.SPENT][1].replace(b'"mu":0.25', b'"mu":0.250'),
        GOLDEN[Kind.SPENT][1].replace(b'"mu":0.25', b'"mu":NaN'),
    ],
)
def test_what_is_not_written_by_this_release_is_not_read(data: bytes) -> None:
    with pytest.raises(DataError, match="not as this release writes it"):
        Event.from_bytes(data)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -0.5, True, "1", None])
@pytest.mark.parametrize("name", ["mu", "sensitivity", "sd"])
def test_a_spend_takes_finite_numbers_above_zero(name: str, value: Any) -> None:
    terms: dict[str, Any] = {"mu": 1.0, "sensitivity": 1.0, "sd": 1.0} | {name: value}
    with pytest.raises(InputError, match=f"^{name}=.* must be a finite number above 0"):
        Spent(KEY, terms["mu"], terms["sensitivity"], terms["sd"], "replace_one", "gaussian")


def test_a_spend_cannot_claim_less_than_its_noise_gives() -> None:
    Spent(KEY, 0.25 * (1 - 1e-12), 1.0, 4.0, "replace_one", "gaussian")
    Spent(KEY, 0.3, 1.0, 4.0, "replace_one", "gaussian")
    with pytest.raises(InputError, match=r"mu=0\.2 must be at least sensitivity / sd = 0\.25"):
        Spent(KEY, 0.2, 1.0, 4.0, "replace_one", "gaussian")


@pytest.mark.parametrize("value", ["", "x" * 201, "a\nb", "a\x1b[2J", "\ud800", None, 3])
@pytest.mark.parametrize("name", ["dataset", "run", "op", "ask_digest", "roster_digest"])
def test_names_are_short_and_printable(name: str, value: Any) -> None:
    given: dict[str, Any] = {"dataset": "d", "run": "r", "op": "o", "ask_digest": "a"}
    if (name, value) == ("roster_digest", ""):
        assert ReplyKey(**given, round_=0, roster_digest="").roster_digest == ""
        return
    with pytest.raises(InputError, match=f"^{name}"):
        ReplyKey(**(given | {name: value}), round_=0)


@pytest.mark.parametrize("value", [-1, 0.5, True, "0", None, 2**31])
def test_rounds_are_counted_from_zero(value: Any) -> None:
    with pytest.raises(InputError, match=r"^round_="):
        ReplyKey("d", "r", value, "o", "a")


@pytest.mark.parametrize(
    ("epsilon", "delta", "relation", "named"),
    [
        (0.0, 1e-6, "replace_one", "epsilon=0.0"),
        (-1.0, 1e-6, "replace_one", "epsilon=-1.0"),
        (math.nan, 1e-6, "replace_one", "epsilon=nan"),
        (math.inf, 1e-6, "replace_one", "epsilon=inf"),
        (1e15, 1e-6, "replace_one", "epsilon=1000000000000000.0"),
        (1.0, 0.0, "replace_one", "delta=0.0"),
        (1.0, 1.0, "replace_one", "delta=1.0"),
        (1.0, math.nan, "replace_one", "delta=nan"),
        (1.0, 1e-6, "add_one", "relation='add_one'"),
    ],
)
def test_a_budget_is_in_range(epsilon: float, delta: float, relation: str, named: str) -> None:
    with pytest.raises(InputError, match=f"^{named}"):
        Budget(epsilon, delta, relation)


def test_the_other_events_check_their_names() -> None:
    for make in (
        lambda: Opened(0, "id"),
        lambda: Opened(1, ""),
        lambda: Budgeted("", Budget(1.0, 1e-6)),
        lambda: Unsound(KEY, ""),
        lambda: Refused(KEY, "a\nb"),
        lambda: Summed(KEY, frozenset()),
        lambda: Summed(KEY, frozenset({""})),
        lambda: Declared("", "d", "exact", "means"),
        lambda: Upgraded(1),
        lambda: RefusedMore("cohort", ""),
        lambda: RunOpened("cohort", "run", "", "d75a"),
        lambda: RunOpened("cohort", "run", "9f86", "\n"),
        lambda: Aborted("cohort", "run", -1, "scatter"),
        lambda: Aborted("cohort", "", 0, "scatter"),
        lambda: Released("cohort", "x" * 201),
        lambda: Summarised("cohort", "run", "9f86", 0, 40.0, "b94d"),
        lambda: Summarised("cohort", "run", "9f86", 1, 0.0, "b94d"),
        lambda: Summarised("cohort", "run", "", 1, 40.0, "b94d"),
    ):
        with pytest.raises(InputError, match="must"):
            make()
