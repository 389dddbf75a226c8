"""The report of an estimator that was fitted in Python."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from eigenfed.data.safe_files import check_writable, write_at_once
from eigenfed.errors import InputError
from eigenfed.estimators.federated import FederatedPCA
from eigenfed.report.html import write_pages
from eigenfed.study.results.result_folder import check_free, write_result


def write_report(pca: FederatedPCA, path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write the report of a fitted estimator.

    Parameters
    ----------
    pca : FederatedPCA
        Fitted; with ``fit_sites(..., by_site=True)`` the report compares the sites.
    path : str or PathLike
        A file that ends in ``.html``, for the page alone: one file that loads nothing. Otherwise a
        folder for the whole result, as ``eigenfed fit -o`` writes it, with components, variances
        and the page; ``eigenfed project`` and ``eigenfed report`` read it.
    force : bool, default=False
        Replace an earlier file or result.

    Returns
    -------
    Path
        The page.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from eigenfed import FederatedPCA, write_report
    >>> pca = FederatedPCA(1).fit_sites({"a": np.eye(3), "b": 2 * np.eye(3)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(pca, f"{folder}/page.html").name
    'page.html'
    """
    if not isinstance(pca, FederatedPCA):
        raise InputError(
            f"pca has type {type(pca).__name__} and must be a FederatedPCA. Fit one; for a "
            "truncated SVD, with center=False."
        )
    if not hasattr(pca, "components_"):
        raise InputError("pca is not fitted. Call fit or fit_sites first.")
    target, sites = Path(path), sorted(pca.egress_)
    if target.suffix.lower() != ".html":
        check_free(target, force=force)
        write_result(target, pca, sites=sites, force=force)
        return write_pages(target).shared
    if target.exists() and not force:
        raise InputError(f"{target} exists. Name another file, or pass force=True.")
    check_writable(target.parent)
    with TemporaryDirectory() as folder:
        result = Path(folder, "result")
        write_result(result, pca, sites=sites)
        page = write_pages(result).shared.read_bytes()
    write_at_once(target, page)
    return target
