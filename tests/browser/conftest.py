"""One browser for all tests, and a page that keeps what it says and asks for."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from eigenfed import Privacy
from reports import Opened, Watched, named, result, tables

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SITES = ("München-Süd", "north", "west")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = os.environ.get("EIGENFED_BROWSER", "/usr/bin/chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """Open a file or an address, with settings of the browser's context."""
    contexts = []

    def open_(path: Path | str, **settings: Any) -> Watched:
        context = browser.new_context(**settings)
        contexts.append(context)
        watched = Watched(context.new_page())
        watched.page.on("console", lambda message: watched.said.append(message.text))
        watched.page.on("pageerror", lambda error: watched.said.append(str(error)))
        watched.page.on("request", lambda request: watched.asked.append(request.url))
        watched.page.goto(path if isinstance(path, str) else path.as_uri())
        return watched

    yield open_
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Results of all kinds, with their pages."""
    home = tmp_path_factory.mktemp("results")
    sites = tables(SITES, apart=3.0)
    odd = named(tables(SITES, apart=3.0, d=40))
    many = tuple(f"clinic-{at:02d}" for at in range(50))
    result(home / "exact", odd, k=4, by_site=True, share=SITES[:2], method="krylov")
    result(home / "secure", sites, secure=True, method="krylov")
    private = Privacy(5.0, 1e-3, clip=20.0)
    result(home / "private", sites, k=2, scores=False, privacy=private)
    result(home / "stuck", sites, k=4, method="subspace", max_rounds=1, by_site=True)
    result(home / "many", tables(many, n=20, d=30), k=20, by_site=True, share=many)
    return {path.name: path for path in home.iterdir()}
