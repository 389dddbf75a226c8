"""The public names and the README's promises."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import eigenfed
import eigenfed.baselines

ROOT = Path(__file__).parents[2]


def test_public_names_are_pinned() -> None:
    assert eigenfed.__all__ == [
        "Autosomes",
        "Budget",
        "BudgetExceeded",
        "CallRate",
        "Covariance",
        "DataError",
        "EigenfedError",
        "ExcludeLongRangeLd",
        "Factors",
        "FederatedPCA",
        "FederatedSVD",
        "HardyWeinberg",
        "InputError",
        "Krylov",
        "Log1p",
        "Matched",
        "Merge",
        "MinorAlleleFrequency",
        "NoiseWarning",
        "NormalizeCounts",
        "Policy",
        "Power",
        "Privacy",
        "PrivacyError",
        "ProtocolError",
        "PruneLd",
        "Randomized",
        "Region",
        "RegionReport",
        "SelectVariable",
        "SiteLost",
        "SiteRefused",
        "Standardize",
        "StreamingPCA",
        "Subspace",
        "Summary",
        "methods",
        "write_report",
    ]
    assert eigenfed.baselines.__all__ == [
        "FrequentDirections",
        "Grouse",
        "PowerStream",
        "Spirit",
        "dr_svd",
        "guo",
        "uda",
        "wda",
    ]
    for module in (eigenfed, eigenfed.baselines):
        assert all(hasattr(module, name) for name in module.__all__)


def modules_after(*statements: str) -> list[set[str]]:
    """Run statements in a new process, and return all that is imported after each of them."""
    code = "\n".join(f"{line}\nprint(*__import__('sys').modules)" for line in statements)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [set(line.split()) for line in run.stdout.splitlines()]


OPTIONAL = {"pandas", "polars", "pyarrow", "matplotlib", "numba", "llvmlite", "nvflare"}


def test_import_brings_no_optional_package() -> None:
    package, process = modules_after("import eigenfed", "import eigenfed.transport.processes")
    assert not package & (OPTIONAL | {"sklearn", "scipy", "numpy"})
    # A child process for each site starts with these imports.
    assert not process & (OPTIONAL | {"sklearn", "scipy.optimize", "scipy.stats"})


def test_all_names_bring_no_optional_package_and_are_there_before_they_are_used() -> None:
    """Nothing beyond what scikit-learn itself brings, which may be pandas where it is there."""
    assert set(eigenfed.__all__) <= set(dir(eigenfed))
    peer, ours = modules_after("import sklearn.decomposition", "from eigenfed import *; Power()")
    assert not (ours - peer) & OPTIONAL
    assert {"eigenfed.estimators.federated", "eigenfed.estimators.streaming"} <= ours
    with pytest.raises(AttributeError, match=r"^module 'eigenfed' has no attribute 'PCA'$"):
        eigenfed.PCA  # type: ignore[attr-defined]  # noqa: B018


def test_make_lists_every_target_of_the_readme() -> None:
    makefile = (ROOT / "Makefile").read_text()
    promised = set(re.findall(r"make (\w+)", (ROOT / "README.md").read_text()))
    assert promised <= set(re.findall(r"^(\w+):.*## ", makefile, flags=re.MULTILINE))


def test_links_between_pages_lead_somewhere() -> None:
    for page in ROOT.glob("*.md"):
        for target in re.findall(r"\]\(([\w./]+)\)", page.read_text()):
            assert (ROOT / target).exists(), f"{page.name} links to {target}"


def test_every_public_thing_is_documented_with_an_example() -> None:
    for name in (*eigenfed.__all__, *eigenfed.baselines.__all__):
        thing = getattr(eigenfed, name, None) or getattr(eigenfed.baselines, name)
        if not (isinstance(thing, type) and issubclass(thing, Exception)):
            assert ">>>" in (thing.__doc__ or ""), name


@pytest.mark.parametrize(
    "path", sorted((ROOT / "src").rglob("*.py")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_modules_hold_one_idea_and_never_pickle(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 500
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in [*node.names, ast.alias(getattr(node, "module", None) or "")]
    }
    assert not imported & {"pickle", "joblib", "dill", "cloudpickle"}


def test_no_file_name_and_no_class_name_is_used_twice() -> None:
    paths = [path for path in (ROOT / "src").rglob("*.py") if path.name != "__init__.py"]
    classes = [
        node.name
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    for names in ([path.name for path in paths], classes):
        assert not {name for name, uses in Counter(names).items() if uses > 1}


@pytest.mark.parametrize(
    "package",
    sorted(path.parent for path in (ROOT / "src/eigenfed").rglob("*/__init__.py")),
    ids=lambda path: path.name,
)
def test_a_package_names_its_modules(package: Path) -> None:
    named = set(re.findall(r"\w+", (package / "__init__.py").read_text()))
    assert {path.stem for path in package.glob("*.py")} - {"__init__"} <= named


def test_nothing_in_linalg_reads_a_file_a_clock_or_hidden_randomness() -> None:
    for path in [*(ROOT / "src/eigenfed/linalg").glob("*.py"), ROOT / "src/eigenfed/arrays.py"]:
        text = path.read_text()
        for banned in ("open(", "import os", "pathlib", "import time", "np.random", "random."):
            assert banned not in text, f"{path.name} uses {banned}"
