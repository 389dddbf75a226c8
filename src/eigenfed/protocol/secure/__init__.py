"""Secure aggregation: the coordinator learns a sum over the sites and no single reply.

- `aggregation`: `SecureSum`, the coordinator's half.
- `participant`: `Participant`, the site's half, with the reason of each round.
- `sum_format`: messages, byte layouts, and the contexts of keys and signatures.
- `sum_order`: which message may follow which.
- `sum_keys`: a site's secrets for a batch of sums, and the secret shares it holds.
"""
