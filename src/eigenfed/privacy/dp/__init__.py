"""Differential privacy with Gaussian noise.

- `accounting`: conversions between mu, epsilon and delta, and composition.
- `sensitivity`: how much one row can change each sum that is released.
- `clipping`: rows as integer vectors of bounded norm.
- `discrete_gaussian`: integer noise, and how much of it a reply needs.
- `norm_counts`: counts of rows within many radii, released at once.
- `private_stream`: one pass over rows, released once with noise.
"""
