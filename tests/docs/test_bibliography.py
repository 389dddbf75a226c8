"""Citations lead to the bibliography, and the bibliography to modules that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/bibliography.md").read_text("utf-8")
KEY = r"\[([A-Z]\w+\d{4})(?:, supplement)?\]"


def test_every_key_that_is_cited_has_an_entry() -> None:
    entries = set(re.findall(r"^## (\w+\d{4})$", PAGE, flags=re.MULTILINE))
    pages = [path for folder in ("src", "tests", "docs") for path in (ROOT / folder).rglob("*")]
    texts = [path.read_text("utf-8") for path in pages if path.suffix in (".py", ".md")]
    cited = {key for text in texts for key in re.findall(KEY, text)}
    assert cited == entries


def test_the_modules_that_it_names_are_there() -> None:
    tops = "|".join(path.name for path in (ROOT / "src/eigenfed").iterdir() if path.is_dir())
    named = set(re.findall(rf"`((?:{tops})\.[\w.]+)`", PAGE))
    assert len(named) > 15
    for name in named:
        assert (ROOT / "src/eigenfed" / name.replace(".", "/")).with_suffix(".py").exists(), name
