"""The public names, the README's promises and the demo."""

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
        "BudgetExceeded",
        "Covariance",
        "DataError",
        "EigenfedError",
        "FederatedPCA",
        "FederatedSVD",
        "InputError",
        "Krylov",
        "Log1p",
        "Merge",
        "NormalizeCounts",
        "Policy",
        "Power",
        "Privacy",
        "PrivacyError",
        "ProtocolError",
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


def test_import_brings_no_optional_package() -> None:
    """Nothing beyond what scikit-learn itself brings, which may be pandas where it is there."""

    def packages(module: str) -> set[str]:
        code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        return set(run.stdout.decode().split())

    optional = {"pandas", "polars", "pyarrow", "matplotlib", "numba"}
    estimators = packages("eigenfed.estimators.federated, eigenfed.estimators.streaming")
    assert not (estimators - packages("sklearn.decomposition")) & optional
    assert not packages("eigenfed") & (optional | {"sklearn", "scipy", "numpy"})
    assert not packages("eigenfed.transport.processes") & (optional | {"sklearn"})


def test_names_are_there_before_they_are_used_and_others_are_not() -> None:
    assert set(eigenfed.__all__) <= set(dir(eigenfed))
    code = "from eigenfed import *; import sys; print(FederatedPCA.__name__, Power.__module__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert run.stdout.decode().split() == ["FederatedPCA", "eigenfed.protocol.exact.power"]
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


def shown_by(example: str) -> str:
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example)],
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout


def test_sensors_show_the_merged_components_beside_the_pooled_ones() -> None:
    page = shown_by("three_sensors.py")
    angles = dict(re.findall(r"^(\w+).* ([\d.]+) deg +[\d.]+%", page, flags=re.MULTILINE))
    assert float(angles["merged"]) < 0.2
    assert float(angles["IncrementalPCA"]) > 10 * float(angles["merged"])
    off = [float(x) for x in re.findall(r"off by ([\d.e-]+)", page)]
    assert len(off) == 5
    assert max(off) < 1e-3


def test_demo_shows_what_the_federated_pca_brought_and_cost() -> None:
    page = shown_by("three_hospitals.py")
    rows = re.findall(
        r"^(\w+) +(\d+) +(\d+) kB +([\d.e+-]+) deg +([\d.e+-]+) deg +([\d.]+) / ([\d.]+)$",
        page,
        flags=re.MULTILINE,
    )
    found = {row[0]: [float(x) for x in row[1:]] for row in rows}
    assert set(found) == {"covariance", "krylov", "merge"}
    for rounds, sent, angle, bound, rank, variance in found.values():
        assert rounds >= 2
        assert sent > 0
        assert angle <= bound
        assert 0 < rank <= 1
        assert 0 < variance <= 1
    assert found["covariance"][2] < 1e-9
    assert found["krylov"][2] < 1e-4
    assert "averaging local PCAs" in page
