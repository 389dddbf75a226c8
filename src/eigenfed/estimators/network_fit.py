"""An estimator that takes the result of a run whose sites are on other machines."""

from collections.abc import Sequence

import numpy as np

from eigenfed.estimators.pca_fit import PCAFit
from eigenfed.estimators.resumable_run import RunOutcome
from eigenfed.protocol.study import Study


def take_outcome(
    pca: PCAFit, study: Study, outcome: RunOutcome, names: Sequence[str], *, engine: str
) -> PCAFit:
    """Give an estimator the result of a run, as if it had fitted the sites itself.

    Parameters
    ----------
    pca : PCAFit
        With the parameters of the study, not fitted.
    study : Study
        With the method of the run.
    outcome : RunOutcome
        With the leakage that is known.
    names : sequence of str
        The features, in the order of the study.
    engine : str
        What carried the messages.

    Returns
    -------
    PCAFit
        The same estimator. The number of rows is the sum of their weights, which is all that a
        coordinator knows.
    """
    pca.n_features_in_ = len(names)
    pca.feature_names_in_ = np.asarray(names, dtype=object)
    pca.n_samples_ = round(outcome.found.n)
    dtype = np.dtype(np.float64 if study.wire == "float64" else np.float32)
    pca._take(outcome.found, dtype)
    pca._take_account(outcome)
    pca.settings_ = {name: getattr(study, name) for name in ("scale", "tol", "stop", "secure")}
    pca.engine_ = engine
    return pca
