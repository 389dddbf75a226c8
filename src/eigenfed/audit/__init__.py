"""Attacks on whole configurations, which report what an attacker learns.

- `reconstruct`: the covariance of all rows, from the products in a run.
- `membership`: whether a record was among the rows, from released components.
- `epsilon`: a lower bound on a mechanism's epsilon, from many runs.
- `hostile_coordinator`: a coordinator that lies to one site.
- `lies`: the altered messages that it sends.
- `stand_in_rows`: rows of sites that are simulated for it.
"""
