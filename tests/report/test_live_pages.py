"""Live pages: what they say of a run and of a site, at each moment."""

import json
from dataclasses import replace

import pytest

from eigenfed.privacy.ledger.ledger import Budget, Totals
from eigenfed.report.live_page import LiveView, render_live, render_update
from eigenfed.report.live_run import view_run
from eigenfed.report.live_site import view_site
from eigenfed.transport.rounds import RoundRecord
from live_views import NAMES, RUN, ended, run_at, site_at


def verdicts(view: LiveView) -> dict[str, str]:
    return {found.title: f"{found.value}: {found.words}" for found in view.page.verdicts}


def test_before_a_run_the_page_says_who_is_missing() -> None:
    view = view_run(run_at(0, "waiting", ("in", "missing", "in")))
    told = verdicts(view)
    assert told["Sites"] == "2 of 3: Missing: south. A run requires 2."
    assert told["Time left"].startswith("unknown")
    assert view.page.subtitle == "no run yet, 0 rounds so far, over NVIDIA FLARE"
    assert b"No round is over yet." in render_live(view)


def test_a_run_shows_its_rounds_bytes_losses_and_angle() -> None:
    run = run_at(10)
    view = view_run(run)
    told = verdicts(view)
    assert told["State"] == "Running: Round 11, product: waiting for south."
    assert told["Sites"] == "2 of 3: Lost: island. A run requires 2."
    assert told["Angle to go"] == "9.5e-05 degrees: Estimated. The run ends at 0.0001 degrees."
    assert told["Time left"] == "about 42 s: If the angle keeps falling at this rate."
    page = render_live(view).decode()
    for record in run.rounds:
        for site in record.received:
            up, down = (
                f'<td class="n" title="{n}">{n:,}</td>' for n in (record.received[site], 7656)
            )
            assert f"<td>{record.op}</td><td>{site}</td>{up}{down}</tr>" in page
    assert page.count("<td>island</td>") == 10
    assert view.facts["rounds"][0]["lost"] == ("island",)


def test_when_a_run_is_over_the_page_says_so() -> None:
    view = view_run(ended(run_at(10)))
    update = json.loads(render_update(view))
    assert update["over"] is True
    assert verdicts(view)["State"] == "Done: The result is in result."
    assert verdicts(view)["Time left"] == "none: This page does not change any more."
    assert verdicts(view)["Angle to go"].startswith("none")


def test_parts_of_an_update_are_those_of_the_page() -> None:
    view = view_run(run_at(7))
    page, parts = render_live(view).decode(), json.loads(render_update(view))["page"]["parts"]
    assert set(parts) == {".verdicts", "#sites", "#accuracy", "#rounds", "#log"}
    for html in parts.values():
        assert html in page


def test_very_many_rounds_stay_a_short_page() -> None:
    view = view_run(run_at(3000))
    assert len(render_live(view)) < 400_000
    assert b"the last 200 of 3000" in render_live(view)
    assert len(view.facts["rounds"]) == 200
    assert view.facts["n_rounds"] == 3000
    assert render_live(view).count(b'class="dot') <= 151


@pytest.mark.parametrize("angle", [float("inf"), float("nan"), 0.0])
def test_any_angle_can_be_shown(angle: float) -> None:
    rounds = tuple(RoundRecord(n, "product", {}, {}, NAMES, angle) for n in range(3))
    view = view_run(replace(run_at(3), rounds=rounds))
    assert json.loads(render_update(view))["facts"]["angle"] in (None, 0.0)


def test_names_are_text() -> None:
    view = view_run(replace(run_at(2), study="<script>1</script>", log=("<img src=x>",)))
    for body in (render_live(view), render_update(view)):
        assert b"<script>1" not in body.replace(b'"study": "<script>1</script>"', b"").replace(
            b'"title": "Study <script>1</script>"', b""
        )
        assert b"<img" not in body.replace(b'["<img src=x>"]', b"")


def test_a_site_shows_what_left_what_was_refused_and_what_is_left_of_the_budget() -> None:
    view = view_site(site_at(6))
    told = verdicts(view)
    assert (
        told["Left the site"] == "12.6 kB: 6 replies; the last to sum_unmask in round 6 of heart."
    )
    assert told["Refused"] == "2 requests: Codes: unapproved."
    assert told["Budget, epsilon"].startswith("0.7255 of 1: 3 spends come to mu=0.2")
    assert told["Leakage"].startswith("12 %: ")
    page = render_live(view).decode()
    assert "<td>scatter times directions</td><td>of all sites together only: the " in page
    assert "<td>masked, exact in the sum</td>" in page
    assert "<dd>epsilon 0.6406 at delta 1e-05, if spent in one run</dd>" in page
    assert "The study is not among those that the site has approved." in page
    assert view.facts["replies"][0]["reveals"] == "directions"
    assert RUN[:8] in page


def test_no_digest_of_a_reply_is_served() -> None:
    view = view_site(site_at(6))
    assert b"00ff00ff" not in render_live(view) + render_update(view)


@pytest.mark.parametrize(
    ("totals", "value", "left"),
    [
        (Totals("replace_one", 0.0, None, 0, 0, None), "none set", ""),
        (
            Totals("replace_one", float("inf"), 1e-5, 0, 0, Budget(1.0, 1e-5), exact=2),
            "no guarantee",
            "epsilon 0 at delta 1e-05",
        ),
    ],
)
def test_a_site_without_a_budget_or_a_guarantee_says_so(
    totals: Totals, value: str, left: str
) -> None:
    view = view_site(replace(site_at(0), totals=totals, leakage=None, refused={}, is_held=True))
    told = verdicts(view)
    assert told["Budget, epsilon"].startswith(f"{value}: The rows are blocked after aborted runs.")
    assert told["Leakage"].startswith("none")
    assert left in render_live(view).decode()
    assert json.loads(render_update(view))["facts"]["held"] is True
