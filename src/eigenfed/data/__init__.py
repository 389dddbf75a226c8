"""How a site's records become blocks and products. The only reader of data files.

- `source`: rows as blocks, dense or sparse.
- `feature_totals`: weights, sums and means of features over rows.
- `scattered_rows`: rows of a site that lie scattered in a larger table.
- `prepare_step`: the base class of steps that prepare rows.
- `steps`: the steps that prepare rows, as values: normalise, logarithm, select, standardise.
- `variant_steps`: the steps that filter the variants of genotypes, as values.
- `prepared_rows`: rows after those steps, block by block or sparse.
- `prepared`: products with rows that are centred and scaled on the way.
- `shifted_rows`: the same where the mean is far from the rows.
- `own_center`: the mean of a site's own rows, in two parts, for rows far from zero.
- `genotypes`: packed genotypes as a table that is decoded where it is used.
- `genotype_filters`: lists of people and variants to use.
- `loci`, `long_range_ld`: where variants lie, and regions that are left out.
- `harmonise`: a site's variants matched to the manifest of a study.
- `variant_filters`: which variants the steps keep, from counts over all sites.
- `packed_rows`: products with genotypes, tile by tile.
- `summarized_rows`: a summary of rows in place of the rows.
- `one_pass`: the whole scatter matrix in one pass over the rows.
- `files`: a file of any kind as a source.
- `readers`: one module for each kind of file.
- `dialect`: delimiter, decimal mark, missing codes and line of names of text files.
- `file_kinds`: which files are read, by their names.
- `read_options`: columns left out, renamed, or in other units.
- `column_names`, `row_filter`: which columns and rows of a file are used.
- `cache`, `copy_files`: parsed copies of large files.
- `safe_files`: strict JSON, bounded reads and atomic writes.
"""
