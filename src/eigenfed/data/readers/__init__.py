"""One module for each kind of file: from bytes on disk to blocks of rows.

- `csv`: csv files, and the dialect that all commands share.
- `csv_stream`: rows of csv that arrive over time.
- `csv_cells`: what both of them share.
- `parquet_rows`: rows that stay in a parquet file as long as one pass over them is enough.
- `plink`: genotypes in ``.bed``, ``.bim`` and ``.fam`` files.
- `csr`: rows of a sparse table that a file stores by row, for `npz` and `h5ad`.
- `xlsx_extent`: how far the cells of a workbook reach, before it is read.
- `xlsx`, `parquet`, `npy`, `npz`, `h5ad`, `svm`: the other kinds.
"""
