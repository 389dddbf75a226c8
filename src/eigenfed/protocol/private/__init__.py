"""Differentially private PCA with a proven guarantee.

- `budget_schedule`: the noised requests of a run, and the budget fraction of each.
- `noisy_sums`: the coordinator's requests for noisy sums, and the search for a radius.
- `private_pca`: the coordinator's half.
- `private_site`: the site's half: clipped integer sums and their sensitivities.
"""
