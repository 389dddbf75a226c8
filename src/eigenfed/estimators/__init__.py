"""Estimators with the contract of scikit-learn.

- `federated`: `FederatedPCA`.
- `streaming`: `StreamingPCA`.
- `inputs`: tables, data frames, groups and files as the sites of a run.
- `validation`: checks of parameters and data.
- `projection`: `transform` and `inverse_transform` of both estimators.
- `in_process`: the sites of a run, and what may be combined with secure aggregation and privacy.
- `resumable_run`: runs that are recorded in a transcript and resumed.
"""
