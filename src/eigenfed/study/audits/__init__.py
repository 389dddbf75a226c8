"""Attacks on a configuration, from files to findings in words.

- `attacks`: reconstruct the covariance, and infer membership of a record.
- `coordinator_audit`: attack a site as a lying coordinator could.
- `distinguishing`: bound the epsilon of a mechanism from below.
"""
