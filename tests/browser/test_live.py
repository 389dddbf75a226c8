"""Live pages in Chromium: they follow what happens, and keep what they showed last."""

import pytest
from playwright.sync_api import expect

from eigenfed.cli.watch_server import serve_page
from eigenfed.report.live_page import LiveView
from eigenfed.report.live_run import view_run
from eigenfed.report.live_site import view_site
from live_views import ended, run_at, site_at
from reports import CONTRAST, Opened

pytestmark = pytest.mark.browser

RUNNING, SITE = view_run(run_at(7)), view_site(site_at(6))


def test_the_page_follows_the_run_to_its_end_and_says_so(opened: Opened) -> None:
    current = [view_run(run_at(0, "waiting", ("in", "missing", "in")))]
    with serve_page(lambda: current[0]) as url:
        watched = opened(url)
        page = watched.page
        state = page.locator(".verdict .value").first
        expect(state).to_have_text("Waiting for sites")
        current[0] = RUNNING
        expect(state).to_have_text("Running")
        expect(page.locator("#round-table tbody tr")).to_have_count(7)
        expect(page.locator("#angles .dot")).to_have_count(3)
        page.locator("#rounds summary").click()
        page.locator("#log pre").focus()
        current[0] = view_run(run_at(12))
        expect(page.locator("#round-table tbody tr")).to_have_count(12)
        assert page.locator("#reply-table").is_visible()
        expect(page.locator("#log pre")).to_be_focused()
        page.locator("#angles .dot").first.hover()
        expect(page.locator("#tip")).to_contain_text("after 0 rounds")
        page.mouse.move(0, 0)
        current[0] = view_run(ended(run_at(13)))
        expect(state).to_have_text("Done")
    expect(page.locator("#round-table tbody tr")).to_have_count(13)
    expect(page.locator("#link")).to_be_hidden()
    assert watched.said == []
    assert set(watched.asked) == {url, f"{url}state.json"}


def test_a_page_whose_command_is_gone_keeps_the_last_state_and_says_so(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eigenfed.cli.watch_server._LAST_LOOK_S", 0.0)
    with serve_page(lambda: RUNNING) as url:
        page = opened(url).page
        expect(page.locator("#link")).to_be_hidden()
    expect(page.locator("#link")).to_contain_text("cannot be reached. This is the state of")
    expect(page.locator("#round-table tbody tr")).to_have_count(7)


@pytest.mark.parametrize("view", [RUNNING, SITE], ids=["run", "site"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_on_a_phone_in_both_colour_schemes(
    view: LiveView, scheme: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eigenfed.cli.watch_server._LAST_LOOK_S", 0.0)
    with serve_page(lambda: view) as url:
        page = opened(url, color_scheme=scheme, viewport={"width": 360, "height": 740}).page
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        worst = page.evaluate(CONTRAST)
        assert worst[0][0] >= 4.5, worst


def test_without_script_it_is_complete_and_loads_itself_again(opened: Opened) -> None:
    with serve_page(lambda: SITE) as url:
        page = opened(url, java_script_enabled=False).page
        assert page.locator("#left-table tbody tr").count() == 2
        assert page.locator("noscript meta[http-equiv=refresh]").count() == 1
