"""Building blocks of secure aggregation (Bonawitz et al., 2017).

The protocol itself, with the rounds of coordinator and sites, is in ``eigenfed.protocol.secure``.

- `identity`: signing keys of sites, and the roster that every site pins.
- `masking`: key agreement, authenticated encryption, and masks that cancel in the sum.
- `shamir`: secret sharing, to recover the masks of sites that dropped out.
- `fixed_point`: real numbers as integers, so that sums are exact and can be masked.
- `rounding_noise`: noise before numbers are rounded to fixed point.
- `topology`: which sites mask with which.
- `collusion`: how many sites may collude.
- `differencing`: sums over different rosters that would isolate a few sites.
"""
