"""The documentation site builds, its links lead somewhere, and nothing comes from another host."""

import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import eigenfed
import eigenfed.baselines

ROOT = Path(__file__).parents[2]
_ASIDE = {"404.html"}  # its links are those of a server's root


class Page(HTMLParser):
    """What a page links to, loads, and can be linked to at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and "href" in given:
            self.loads.append(given["href"])
        if "src" in given:
            self.loads.append(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "zensical.toml", folder)
    (folder / "src").symlink_to(ROOT / "src")
    run = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return folder / "build/docs"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    found = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    return {path: page for path, page in found.items() if path.name not in _ASIDE}


def is_elsewhere(address: str) -> bool:
    return bool(re.match(r"([a-z]+:)?//", address))


def test_every_page_is_in_the_menu_and_in_the_site(pages: dict[Path, Page]) -> None:
    with (ROOT / "zensical.toml").open("rb") as file:
        menu = [page for entry in tomllib.load(file)["project"]["nav"] for page in entry.values()]
    written = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert sorted(menu) == sorted(written)
    assert {path.stem for path in pages} == {Path(name).stem for name in written}


def test_links_and_anchors_lead_somewhere(pages: dict[Path, Page]) -> None:
    followed = 0
    for path, page in pages.items():
        for link in page.links:
            if is_elsewhere(link):
                continue
            name, anchor = urldefrag(unquote(link))
            target = (path.parent / name).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{path.name} links to {link}"
            if anchor and target in pages:
                assert anchor in pages[target].anchors, f"{path.name} links to {link}"
                followed += 1
    assert followed > 50


def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert page.loads, path.name
        assert not [address for address in page.loads if is_elsewhere(address)], path.name
        # What the theme's script would fetch a library for.
        text = path.read_text(encoding="utf-8")
        assert not re.search(r'class="[^"]*\b(mermaid|glightbox|pyodide)\b', text), path.name
    for sheet in site.rglob("*.css"):
        rules = sheet.read_text(encoding="utf-8")
        assert not re.search(r"(url\(|@import )\s*[\"']?(https?:)?//", rules), sheet.name


def test_public_names_are_on_the_page_of_the_api(pages: dict[Path, Page]) -> None:
    (api,) = (page for path, page in pages.items() if path.name == "api.html")
    shown = {anchor.rpartition(".")[2] for anchor in api.anchors}
    assert {*eigenfed.__all__, *eigenfed.baselines.__all__} <= shown
