"""Federated PCA with the contract of scikit-learn: all sites belong to this program."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.errors import InputError
from eigenfed.estimators.federated_base import FederatedEstimator
from eigenfed.estimators.gaussian_model import GaussianModel
from eigenfed.estimators.groups import group_rows
from eigenfed.estimators.growing_sites import GrowingSites, check_complete, check_growable
from eigenfed.estimators.in_process import Conditions
from eigenfed.estimators.pca_fit import PCAFit
from eigenfed.estimators.validation import validate_rows
from eigenfed.linalg.checks import check_weights
from eigenfed.protocol.component_count import as_components
from eigenfed.protocol.study import BY_SITE


class FederatedPCA(GaussianModel, FederatedEstimator, PCAFit):
    """PCA of rows that stay at their sites, equal to the PCA of all rows in one place.

    Every message between the coordinator and the sites is written as bytes, as it would be on a
    network, and passes the gate of its site. With ``split="samples"`` no entry for a single row
    leaves: sums over rows do, and with "merge" and "power" also directions of single sites.

    Parameters
    ----------
    n_components : int, float, "auto" or None, default=2
        Number of components. A fraction f between 0 and 1 takes the fewest components with more
        than f of the variance, as in scikit-learn; None or "all" takes all,
        ``min(n_samples, n_features)``. "auto" keeps components whose variance exceeds that of the
        first component of pure noise with the same total variance (parallel analysis); features in
        different units should be scaled for it. A fraction and "auto" need the method "covariance",
        "factors" or "krylov", which ``method="auto"`` chooses from. With `privacy` or
        ``split="features"`` the number must be an integer.
    method : str or Method, default="auto"
        A name, or a value with options such as ``Covariance(precision="single")`` or
        ``Power(local_steps=4)``; ``eigenfed.methods()`` lists them. "auto" takes the one that is
        predicted to need least work for the numbers of rows, features and sites.
    split : {"samples", "features"}, default="samples"
        Whether sites hold different rows of the same features, or different features of the same
        rows. With "features" rows are matched by key, the method is "krylov", and the
        coordinator sees vectors with an entry for each row.
    center : bool or "site", default=True
        Subtract the mean of all rows. With "site" each site subtracts its own mean: the components
        are those of what varies within sites, without differences between them such as those of
        their instruments. No mean leaves a site then; `at_site` projects the rows of a site. It
        cannot be combined with `privacy`, for which the sensitivity is not proven, nor with
        ``split="features"``.
    scale : {"auto", False, True, "genotype"}, default="auto"
        True divides by the standard deviation of each feature over all sites; with
        ``center=False`` by its root mean square. "genotype" is for ``.bed`` files: it divides by
        ``sqrt(2 p (1 - p))``, with p the frequency of the counted allele over all sites. "auto" is
        "genotype" for such files, and False otherwise.
    prepare : list of steps or None, default=None
        Steps that prepare the rows before all else, in their order: `NormalizeCounts`, `Log1p`,
        `SelectVariable` and `Standardize`, as values or as text such as "select:2000"; or steps
        that filter the variants of genotypes, such as "maf:0.01" and "ld:1000kb:0.1". Mean and
        components are then those of prepared rows, and `transform` prepares new rows alike. With
        `privacy` only steps within a row can be used: `NormalizeCounts` and `Log1p`.
    secure : bool or "auto", default="auto"
        Secure aggregation: sites mask their replies, so that only sums over all of them can be
        read, and release nothing else but the magnitude of their entries and weights. It requires
        ``split="samples"``, three sites or more, and a method that needs only sums: not "merge",
        nor "power" with local steps. The result is the same to about 1e-12. Here one program owns
        all sites and sees everything: this shows what would leave. "auto" is True where `prepare`
        filters the variants of genotypes at three sites or more, and False otherwise.
    privacy : Privacy, value of ``eigenfed.protocol.published`` or None, default=None
        Differential privacy: ``Privacy(epsilon=1.0, delta=1e-6)`` adds noise with a proven
        guarantee, by default in secure aggregation over three sites or more, with method "auto",
        "covariance" or "power". A published mechanism is run as its paper prints it, and
        `privacy_` states what holds for it. Every fit spends its budget again, because its sites
        are made for one fit.
    whiten : bool, default=False
        Divide the scores by their standard deviations, so that each has variance 1.
    transport : {"local", "processes"}, Local, Processes or None, default=None
        Where sites live. None or "local": on threads of this process. "processes": each in a child
        process; a script must then call ``fit`` under ``if __name__ == "__main__":``. A value of
        ``eigenfed.transport`` has options: ``Local(workers=2)``, ``Processes(deadline_s=60.0)``,
        and ``wire="float32"``, which halves the bytes of messages and limits the accuracy of the
        components to about 1e-4 degrees.
    transcript : str, PathLike or None, default=None
        File in which the run is recorded as it goes. If the file is there from an interrupted run
        of the same study, that run is resumed and ends with the result that it would have had, bit
        for bit; see Notes. The file holds what the coordinator has received: keep it as
        confidential as that, and delete it when it has served.
    tol : float or "auto", default="auto"
        Largest angle between a component and the eigenvector that it approximates, in degrees. It
        is estimated from the component's residual and the distance to the neighbouring eigenvalues.
        "auto" is 0.05 for genotypes, which are multiplied in single precision, and 1e-4 otherwise.
    stop : {"auto", "all", "separated"}, default="auto"
        Which components must meet it: all, or those clearly above the next. "auto" is "separated"
        for genotypes, whose later components mostly lie within noise, and "all" otherwise.
    max_rounds : int, default=50
        Most rounds of products.
    certify : {"auto", "rigorous", False}, default="auto"
        "auto" bounds the angle to the exact components from the run itself where the method allows
        that: with "krylov" the bound holds except with a probability of 1e-6, which the certificate
        states, and costs nothing. "rigorous" leaves nothing to chance where sites can, at the price
        of one more round in which they compute much more. False omits the certificate where it
        costs anything; "covariance" and "factors" have it for nothing. True means "auto".
    random_state : int, RandomState or None, default=None
        For the public start. With an integer, results repeat bit for bit; with secure aggregation
        up to rounding, since sites add noise of two rounding steps that follows from new keys.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal, by decreasing variance, the largest entry of each positive. If `prepare`
        selects features, their columns are those of `selected_features_`, as are the entries of
        `mean_` and `scale_`.
    explained_variance_, explained_variance_ratio_, singular_values_ : ndarray (n_components,)
        With ``center=False`` variances are mean squares: sums of squares about 0, divided by
        ``n_samples_ - 1``. `FederatedSVD` has those about the mean, as `TruncatedSVD` does.
    further_variance_ : ndarray of shape (m,)
        Variances of at most ten components after the last, as far as the run knows them: lower
        bounds, and exact with "covariance". Empty where nothing is known.
    total_variance_ : float
        Of all features together.
    mean_, scale_ : ndarray of shape (n_features,)
        `mean_` is 0 with ``center=False`` and with "site".
    selected_features_ : ndarray of shape (n_selected,) or None
        Positions of the features that `prepare` has selected; None if it keeps all.
    preparation_ : Preparation
        The steps of `prepare`, with their figures over all sites.
    site_means_ : dict of str to ndarray of shape (n_features,)
        With ``center="site"``, the mean of each site, computed where its rows are.
    noise_variance_ : float
        Mean of the ``min(n_samples_, n_features)`` variances beyond those of the components.
    settings_ : dict
        The values of `scale`, `tol`, `stop` and `secure` that were used.
    n_components_ : int
        Number of components, also where it was found from the data.
    n_samples_ : int
        With noise where ``Privacy(count="private")`` asks for it.
    n_observed_ : ndarray of shape (n_features,) or None
        Number, or weight, of the rows in which each feature is known; None if it was not collected,
        as with `privacy`.
    n_rounds_ : int
        Rounds of requests to the sites.
    bytes_up_, bytes_down_ : int
        From and to all sites.
    certificate_ : Certificate or None
    leakage_ : Leakage
        How much of its covariance the most revealing site has revealed. Replies of all sites that
        take more than 512 MB are not kept to compute it: they count as all of the variance.
    privacy_ : Statement or None
        What is guaranteed, in words; None without `privacy`.
    signal_ : ndarray of shape (n_components,) or None
        With `privacy`: estimated squared cosine of each component with the one without noise; near
        0 the component is noise. If all are below 0.5, a `NoiseWarning` is issued. None without
        `privacy`, and with a paper's own mechanism.
    method_, reason_ : str
        The method that was used, and why.
    rounds_ : tuple of RoundRecord
        The rounds of the fit: operation, bytes by site, and the largest angle so far.
    egress_ : dict of str to tuple of Egress
        What left each site, as its gate recorded it.
    by_site_ : dict of str to SiteLevel, or None
        Where each site's rows lie on the components, if `fit_sites` was called with ``by_site``.

    Notes
    -----
    A run that was interrupted in this process, by an exception or from the keyboard, is resumed at
    its sites, with any method, secure aggregation and privacy: no site answers, draws noise or
    pays twice. In a new process the sites are new. They answer the recorded rounds again and
    their answers are compared, so the result is safe but the time is not saved. With secure
    aggregation or privacy that is impossible, and the run is refused. From the transcript of a
    finished run the result is computed again, with a warning, and no site is asked.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed import FederatedPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 6)) * [5, 3, 2, 1, 1, 1]
    >>> pca = FederatedPCA(2).fit_sites({"a": X[:100], "b": X[100:] + 3})
    >>> pca.components_.shape, pca.n_rounds_
    ((2, 6), 2)
    >>> bool(pca.certificate_.converged.all())
    True
    """

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> Self:
        """Add rows to the sites that they belong to, and fit all rows so far.

        Each site keeps a summary of the rows it has seen and forgets them; a new site may appear
        at any time. Up to 512 features the result is that of `fit` on all rows at once to
        rounding. Above that sites keep twice as many directions as components, and all of
        `certificate_` includes what they have lost, which is computed from one number of each site:
        components have mostly not converged then with the default of `tol`. With ``scale=True``
        there is no bound on that, and all angles are infinite.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Without missing entries.
        y : ignored
        groups : array-like of shape (n_samples,), optional
            Site of each row; None puts all rows into one.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self

        Notes
        -----
        `fit` and `fit_sites` start anew, and so does the first `partial_fit` after them. Copies and
        pickles hold the result and not the sites' summaries: they cannot be continued.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X, sites = rng.standard_normal((90, 5)), np.arange(90) % 3
        >>> pca = FederatedPCA(2)
        >>> for rows in np.array_split(np.arange(90), 4):
        ...     pca = pca.partial_fit(X[rows], groups=sites[rows])
        >>> pca.n_samples_, bool(np.allclose(pca.components_, FederatedPCA(2).fit(X).components_))
        (90, True)
        """
        check_growable(self._study_parameters(), is_copy=self._is_copy)
        first = self._growing is None
        X = validate_rows(self, X, reset=first)
        check_complete(X)
        weights = None
        if sample_weight is not None:
            weights = check_weights(sample_weight, X.shape[0], "sample_weight")
        centered = bool(self.center)
        growing = self._growing or GrowingSites.begin(
            X.shape[1], as_components(self.n_components), centered=centered
        )
        growing.check_centered(centered)
        growing = growing.add(X, weights, group_rows(groups, X.shape[0]))
        dtype = X.dtype if first else np.result_type(X.dtype, self.components_.dtype)
        sources = growing.sources(getattr(self, "feature_names_in_", None))
        return self._fit(sources, dtype, conditions=Conditions(), growing=growing)

    def at_site(self, site: Any, X: Any = None) -> Self:
        """Return the fitted estimator as one site uses it, with that site's own mean.

        Parameters
        ----------
        site : str
            One of those that were fitted, or a new one; labels of other kinds are names as text.
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features), optional
            Rows of a new site, for their mean.

        Returns
        -------
        estimator
            A copy, which projects rows of that site.

        Examples
        --------
        >>> from eigenfed import FederatedPCA
        >>> here, there = np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([[9.0, 5.0], [7.0, 5.0]])
        >>> pca = FederatedPCA(1, center="site").fit_sites({"a": here, "b": there})
        >>> pca.components_, pca.explained_variance_ratio_
        (array([[1., 0.]]), array([1.]))
        >>> pca.at_site("b").transform([[9.0, 5.0]])
        array([[1.]])
        """
        if self.center != BY_SITE:
            raise InputError(
                f"at_site requires center='site', and center is {self.center}. Call transform."
            )
        means: Mapping[str, Array] = getattr(self, "site_means_", {})
        if X is None and str(site) not in means:
            raise InputError(
                f"Site {site!r} was not fitted, so that its mean is not known. "
                "Pass its rows, at_site(site, X), or name one of the fitted sites."
            )
        if X is None:
            return self._move_to(means[str(site)])
        return self.at_rows(validate_rows(self, X, reset=False))

    def _project_groups(self, X: Any, groups: npt.ArrayLike | None) -> npt.NDArray[Any]:
        if self.center != BY_SITE:
            return self.transform(X)
        rows = validate_rows(self, X, reset=False)
        scores = np.empty((rows.shape[0], self.n_components_), dtype=rows.dtype)
        for site, places in group_rows(groups, rows.shape[0]).items():
            scores[places] = self.at_site(site).transform_aligned(rows[places])
        return scores
