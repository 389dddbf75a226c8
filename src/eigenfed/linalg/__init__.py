"""Numerical kernels on arrays: no input or output, no clock, no hidden randomness.

- `block_scatter`: the scatter of rows that come in blocks.
- `checks`: argument checks shared by the public functions and classes.
- `compress`: leading singular values and vectors of a stack of rows, through its Gram matrix.
- `dispersion`: features ranked by how much they vary.
- `eigen`: leading eigenpairs of symmetric matrices.
- `genotype`: products of packed genotypes with a few directions.
- `genotype_codes`: genotypes of two bits counted and decoded.
- `genotype_pairs`: sums of products of pairs of variants, counted on bits.
- `hardy_weinberg`: the exact test of Hardy-Weinberg equilibrium of many variants.
- `krylov_bound`: the next eigenvalue bounded from a block Lanczos run itself, with a probability.
- `lanczos`: block Lanczos with full reorthogonalisation.
- `ld_pruning`: correlated variants in windows, of which one is kept.
- `orthonormal`: orthonormalise, complete and sign rows; angles between subspaces.
- `remainder`: the largest eigenvalue outside known directions, bounded from above.
- `row_sums`: sums over many rows in pieces, as exact for equal rows as for different ones.
- `sampling`: components above noise, and how far another sample would turn them.
- `scatter`: `Scatter`, the exact counterpart of a summary: the whole d x d scatter matrix.
- `sparse_products`: products of sparse rows with a few directions, by scipy or by a kernel.
- `spiked`: estimated angles between noisy and noiseless eigenvectors.
- `stacked_rows`: rows in several arrays as one table, and its leading eigenpairs.
- `stream`: `Stream`, a summary that grows row by row, with adaptive rank and missing entries.
- `summary`: `Summary`, the mergeable state of streaming and one-shot merging.
- `summary_format`: its bytes, and the rules that they obey.
- `threads`: BLAS on one thread for small products, threads over blocks for large ones.
- `vector_bits`: population counts of rows of bits, for a kernel that numba compiles.
- `vector_entries`: the kernel for products of sparse rows, as machine code.
- `vector_rows`: operations on rows of 64 bytes, for kernels that numba compiles.
"""
