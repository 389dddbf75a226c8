"""Estimators with the contract of scikit-learn.

- `federated`: `FederatedPCA`.
- `pca_fit`: the same without scikit-learn, as commands and studies run it.
- `federated_svd`: `FederatedSVD`.
- `federated_base`: `fit` of the federated estimators.
- `site_fit`: `fit_sites`, and the account of a run.
- `federated_study`: checks of their parameters, and the study that these describe.
- `streaming`: `StreamingPCA`.
- `inputs`: tables, data frames and files as the sites of a run.
- `groups`: one table split into sites.
- `frames`: data frames and AnnData objects.
- `unnamed_tables`: tables of sites whose columns have no names.
- `validation`: checks of parameters and data.
- `projection`: `transform` and `inverse_transform` of all estimators.
- `projector`: projection of rows whose columns are the features, for commands too.
- `growing_sites`: summaries of sites whose rows grow, for `partial_fit`.
- `result_table`: what a notebook shows of a fitted estimator.
- `site_centres`: projections about the mean of one site.
- `gaussian_model`: covariance, precision and likelihood of the model behind a PCA.
- `setting_conflicts`: settings of a run that cannot be combined.
- `in_process`: the sites of a run that belong to this program, and how it is opened at them.
- `network_fit`: the result of a run whose sites are on other machines.
- `resumable_run`: runs that are recorded in a transcript and resumed.
"""
