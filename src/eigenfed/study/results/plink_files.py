"""Results of genotypes in the files that plink writes, for the programs that read them.

===============================  ===================================================================
``components.eigenval``          eigenvalues of XX'/m, with X people x m variants, one on a line
``components.eigenvec.allele``   loadings of the counted allele, with plink2's columns
``components.afreq``             frequencies of that allele over all sites, and of how many
``scores/<site>.eigenvec``       the site's own people, as plink2 writes them
``scores/<site>.plink1.eigenvec``  the same without a line of names, as plink 1.9 writes them
===============================  ===================================================================

In ``.eigenvec`` files a component is a vector U of length 1 over the people of all sites together,
as in plink's. Scores, which `transform` and ``eigenfed project`` return and ``scores/<site>.npy``
holds, are U times its singular value.
"""

from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.data.genotypes import Variants
from eigenfed.estimators.pca_fit import PCAFit
from eigenfed.study.scores import Projected

SHARED_FILES = ("components.eigenval", "components.eigenvec.allele", "components.afreq")


def find_plink_eigenvalues(pca: PCAFit) -> tuple[Array, float]:
    """Return the eigenvalues of XX'/m that plink writes, (k,), and the sum of all of them.

    They are ``(n - 1) / m`` times the variances, with m the number of variants of which both
    alleles were seen.

    Parameters
    ----------
    pca : PCAFit
        Fitted on genotypes.
    """
    m = int(np.count_nonzero((pca.mean_ > 0.0) & (pca.mean_ < 2.0)))
    # The weight of people who are fitted: those who are only projected do not count.
    fitted = np.square(pca.singular_values_[0]) / pca.explained_variance_[0]
    factor = fitted / max(m, 1)
    return pca.explained_variance_ * factor, float(pca.total_variance_ * factor)


def write_plink_files(
    folder: Path, pca: PCAFit, variants: Variants, rows: Mapping[str, Projected]
) -> None:
    """Write the files of plink into a result folder.

    Parameters
    ----------
    folder : Path
        With a folder ``scores`` in it.
    pca : PCAFit
        Fitted on genotypes.
    variants : Variants
        Those of the components, in their order.
    rows : mapping of str to Projected
        The people of each site, with their families and names.
    """
    values, total = find_plink_eigenvalues(pca)
    lines = [f"{value:.6g}" for value in values]
    lines.append(f"# sum of all eigenvalues, with those not shown: {total:.6g}")
    (folder / "components.eigenval").write_text("\n".join(lines) + "\n", "utf-8")
    names = [f"PC{place + 1}" for place in range(len(values))]
    described = {
        "#CHROM": variants.chromosome,
        "ID": variants.identifier,
        "REF": variants.a2,
        "ALT": variants.a1,
    }
    loadings = dict(zip(names, pca.components_, strict=True))
    frequencies: dict[str, npt.NDArray[Any]] = {"ALT_FREQS": pca.mean_ / 2.0}
    if pca.n_observed_ is not None:
        # Alleles, of which a person has two; on sex chromosomes plink counts others.
        frequencies["OBS_CT"] = np.rint(2.0 * pca.n_observed_).astype(np.int64)
    _write_table(folder / SHARED_FILES[1], described | {"A1": variants.a1} | loadings)
    _write_table(folder / SHARED_FILES[2], described | frequencies)
    for site, found in rows.items():
        units = found.scores / np.where(pca.singular_values_ > 0.0, pca.singular_values_, 1.0)
        text = format_eigenvec(found.row_ids or (), units)
        heading = "## unit vectors U over the people of all sites; scores are U times sqrt((n-1) v)"
        first = "\t".join(["#FID", "IID", *names])
        own = folder / "scores"
        (own / f"{site}.eigenvec").write_text(f"{heading}\n{first}\n{text}", "utf-8")
        (own / f"{site}.plink1.eigenvec").write_text(text.replace("\t", " "), "utf-8")


def format_eigenvec(row_ids: Iterable[str], units: Array) -> str:
    r"""Return the lines of an ``.eigenvec`` file, with tabs.

    Examples
    --------
    >>> format_eigenvec(["fam p1"], np.array([[0.5, -0.25]]))
    'fam\tp1\t0.5\t-0.25\n'
    """
    lines = (
        "\t".join([*person.split(" "), *(f"{number:.6g}" for number in row)])
        for person, row in zip(row_ids, units.tolist(), strict=True)
    )
    return "".join(f"{line}\n" for line in lines)


def _write_table(path: Path, columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write columns of words and numbers, with tabs; floats to seven digits."""
    import pyarrow as pa
    from pyarrow import csv

    held = {name: _to_arrow(column) for name, column in columns.items()}
    buffer = BytesIO()
    buffer.write(("\t".join(columns) + "\n").encode("ascii"))
    options = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    csv.write_csv(pa.table(held), buffer, options)
    path.write_bytes(buffer.getvalue())


def _to_arrow(column: npt.NDArray[Any]) -> Any:
    """Return words or numbers as an array of pyarrow.

    It is made from buffers: to convert an array or a list, pyarrow imports pandas, if installed.
    """
    import pyarrow as pa

    if column.dtype == object:
        words = [word.encode("utf-8") for word in column.tolist()]
        ends = np.zeros(len(words) + 1, np.int32)
        np.cumsum([len(word) for word in words], out=ends[1:])
        buffers = pa.py_buffer(ends), pa.py_buffer(b"".join(words))
        return pa.StringArray.from_buffers(len(words), *buffers)
    kind, dtype = (pa.float32(), np.float32) if column.dtype.kind == "f" else (pa.int64(), np.int64)
    numbers = pa.py_buffer(np.ascontiguousarray(column, dtype))
    return pa.Array.from_buffers(kind, len(column), [None, numbers])
