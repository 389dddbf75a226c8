"""Differentially private PCA with a proven guarantee.

- `budget_schedule`: the noised requests of a run, and the budget fraction of each.
- `noise_verdict`: whether a result is mostly noise.
- `noisy_sums`: the coordinator's requests for noisy sums, and radii found in noisy counts.
- `private_pca`: the coordinator's half.
- `reply_noise`: the noise of each reply.
- `signal_estimate`: how much of its signal each component has kept.
- `private_site`: the site's half: clipped integer sums and their sensitivities.
"""
