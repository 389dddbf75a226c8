"""Exact methods: what the sites compute, what the coordinator computes, and the certificate.

- `moments`: counts, means and variances over all sites, which every method starts with.
- `own_means`: weights alone, where each site centres its rows by its own mean.
- `preparation`: figures for steps that prepare rows: features to select, means and deviations.
- `quality_control`: which variants of genotypes the steps of a study keep.
- `variant_counts`: counts of genotypes by variant over all sites.
- `variant_products`: sums of products of neighbouring variants, for their correlations.
- `stages`: how requests bring those figures to the sites.
- `frame`: requests about centred and scaled rows; the first brings the mean and the scale.
- `frame_rows`: the rows of a site as these requests see them.
- `frame_checks`: the mean and scale of a run as a site checks them.
- `magnitude`: the magnitude of a site's numbers, for secure sums.
- `products`: the scatter of all rows times a few directions, the primitive of most methods.
- `certificate`: Rayleigh-Ritz on a basis, and bounds on the eigenvalues outside it.
- `accuracy`: angles, bounds and convergence from Ritz values and residuals.
- `rounding`: errors of arithmetic, messages and fixed point, which a certificate adds.
- `covariance`: `Covariance`: the whole covariance in one round.
- `factors`: `Factors`: the whole covariance in one round, as factors, where rows are few.
- `krylov`: `Krylov`: block Lanczos, one block of directions each round.
- `lanczos_run`: the components and the certificate of a block Lanczos run that has ended.
- `randomized`: `Randomized`: randomized SVD in a fixed number of rounds ([Hartebrodt2022] Alg. 5).
- `subspace`: `Subspace`: subspace iteration ([Hartebrodt2022] Alg. 3).
- `power`: `Power`: FedPower without noise ([Guo2024] Alg. 1 to 3).
- `merge`: `Merge`: one summary from each site, merged by the coordinator.
- `stream_summary`: one summary of a site's stream, and the components of merged ones.
- `vertical`: sites that hold different features of the same rows.
- `tree`: `Region`: summaries merged in a tree, asynchronously ([Grammenos2020] Alg. 1).
- `by_site`: where each site's rows lie on the components.
- `power_site`: site operations of `power`.
- `orthonormalise`: orthonormal vectors whose rows are split over sites.
- `site_vectors`: the rows of such vectors that a site keeps.
- `spectrum`: components of a covariance matrix that is known completely.

Throughout, D is a site's rows after centring and scaling, W the diagonal matrix of their weights,
and the scatter is the sum of D'W D over sites; the covariance is the scatter over n - 1.
"""
