"""The report of an estimator, written from Python, and what a notebook shows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn

from eigenfed import FederatedPCA, FederatedSVD, InputError, Privacy, write_report

X = np.random.default_rng(4).standard_normal((90, 5)) * [4, 3, 2, 1, 1]
SITES = {"a": X[:30], "b": X[30:50] + 40.0, "c": X[50:]}


def test_a_page_or_a_whole_result_is_written(tmp_path: Path) -> None:
    pca = FederatedPCA(2).fit_sites(SITES, by_site=True)
    page = write_report(pca, tmp_path / "page.html")
    text = page.read_text("utf-8")
    assert "Differences between sites" in text
    assert "fit with center=" in text
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    with pytest.raises(InputError, match=r"page\.html exists\. Name another file"):
        write_report(pca, page)
    assert write_report(pca, page, force=True) == page
    whole = write_report(pca, tmp_path / "result")
    assert whole == tmp_path / "result/report.html"
    np.testing.assert_array_equal(np.load(tmp_path / "result/components.npy"), pca.components_)
    with pytest.raises(InputError, match=r"Folder .* does not exist"):
        write_report(pca, tmp_path / "none/page.html")
    with pytest.raises(InputError, match=r"result is not empty\. .* or pass force=True to replace"):
        write_report(pca, tmp_path / "result")
    nested = FederatedPCA(2).fit(X, groups=["ward/1", "ward/2"] * (len(X) // 2))
    for name in ("nested", "nested.html"):
        with pytest.raises(InputError, match="The site name 'ward/1' is not a valid file name"):
            write_report(nested, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_a_result_without_any_bound_has_a_report(tmp_path: Path) -> None:
    wide = np.random.default_rng(6).standard_normal((60, 520)) * 0.9 ** np.arange(520)
    pca = FederatedPCA(2, scale=True).partial_fit(wide)
    assert pca.certificate_ is not None
    assert np.isinf(pca.certificate_.residuals).all()
    text = write_report(pca, tmp_path / "result").read_text("utf-8")
    assert "Bound on the angle" in text
    assert "Largest residual" not in text


def test_only_a_fitted_pca_has_a_report(tmp_path: Path) -> None:
    wrong: Any = FederatedSVD(1).fit(X)
    with pytest.raises(InputError, match="must be a FederatedPCA"):
        write_report(wrong, tmp_path / "page.html")
    with pytest.raises(InputError, match="pca is not fitted"):
        write_report(FederatedPCA(1), tmp_path / "page.html")


def test_a_notebook_shows_components_below_the_diagram() -> None:
    svd: Any = FederatedSVD(2)
    assert "PC1" not in svd._repr_html_()
    pca: Any = FederatedPCA(None).fit(np.eye(14))
    for text in (svd.fit(X)._repr_html_(), pca._repr_mimebundle_()["text/html"]):
        assert "<td>PC1</td>" in text
    assert '<td colspan="4">4 more</td>' in pca._repr_html_()
    with sklearn.config_context(display="text"):
        assert "text/html" not in pca._repr_mimebundle_()


def test_results_have_short_texts() -> None:
    terms = Privacy(9.0, 1e-6, trust="central", clip=20.0, shares={"scree": 0.0})
    private = FederatedPCA(1, privacy=terms, center=False).fit(X)
    assert repr(private.privacy_).startswith("Statement(epsilon=9, delta=1e-06, unit=")
    assert len(repr(private.privacy_)) < 100
