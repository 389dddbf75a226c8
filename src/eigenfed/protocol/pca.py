"""The complete protocol of a study: exact, private, published, or split by features."""

from dataclasses import replace

import numpy as np

from eigenfed.data.loci import Loci
from eigenfed.data.prepared_rows import Preparation
from eigenfed.errors import InputError, PrivacyError
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.published_claims import Published
from eigenfed.protocol.core import Protocol, Total, plain_sum
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.by_site import request_levels
from eigenfed.protocol.exact.frame_checks import check_both_alleles
from eigenfed.protocol.exact.moments import MomentsRequest, collect_moments
from eigenfed.protocol.exact.own_means import WeightsRequest
from eigenfed.protocol.exact.preparation import collect_preparation
from eigenfed.protocol.exact.quality_control import check_same_people
from eigenfed.protocol.exact.stream_summary import merge_streams
from eigenfed.protocol.exact.vertical import features_pca
from eigenfed.protocol.method import Method, Run
from eigenfed.protocol.private.private_pca import private_pca
from eigenfed.protocol.published.published_pca import published_pca
from eigenfed.protocol.study import GENOTYPE, Study


def check_summable(method: Method) -> None:
    """Raise PrivacyError for a method that does not work with secure aggregation.

    Examples
    --------
    >>> from eigenfed import Merge
    >>> check_summable(Merge())
    Traceback (most recent call last):
    eigenfed.errors.PrivacyError: method='merge' needs replies of single sites, ...
    """
    if not method.sums_only():
        raise PrivacyError(
            method.as_argument(),
            " needs replies of single sites, or sets their precision, which secure aggregation "
            "does not support",
            remedy=method.instead_of(),
        )


def pca(
    study: Study,
    *,
    rng: np.random.Generator,
    total: Total = plain_sum,
    rows: int | None = None,
    loci: Loci | None = None,
) -> Protocol[Decomposition]:
    """Return the coordinator's half of a study.

    Parameters
    ----------
    study : Study
        With its method, never "auto".
    rng : numpy Generator
        For public random starts.
    total : Total
        How sums over sites are computed.
    rows : int, optional
        Number of rows, if the sites hold different features of the same rows.
    loci : Loci, optional
        Where the variants of genotypes lie, if the study filters them.

    Examples
    --------
    >>> next(pca(Study(("a",), 2, "covariance"), rng=np.random.default_rng(0))).op
    'moments'
    """
    if isinstance(study.privacy, Published):
        return (yield from published_pca(study, rng=rng))
    if isinstance(study.privacy, Privacy):
        found = yield from private_pca(study, rng=rng, total=total)
        found = replace(found, preparation=Preparation(study.prepare))
    elif study.chosen.merges_streams():
        return (yield from merge_streams(study))
    elif study.split == "features":
        if rows is None:
            raise InputError("split='features' requires the number of rows. Pass rows.")
        return (yield from features_pca(study, rows, rng, total))
    else:
        found = yield from _exact_pca(study, rng, total, loci)
    return replace(found, method=study.chosen.name)


def _exact_pca(
    study: Study, rng: np.random.Generator, total: Total, loci: Loci | None
) -> Protocol[Decomposition]:
    if total.bounded:
        check_summable(study.chosen)
    known, figures = yield from collect_preparation(total, study, loci)
    request = WeightsRequest if study.centers_by_site else MomentsRequest
    moments = yield from collect_moments(total, study, figures, request)
    if known.weight is not None:
        check_same_people(known.weight, moments.n)
    if study.scale == GENOTYPE and loci is not None and moments.average is not None:
        check_both_alleles(moments.average)
    run = Run(study, moments, tuple(sorted(study.sites)), rng, total)
    found = yield from study.chosen.run(run)
    found = replace(found, average=moments.average, observed=moments.observed)
    if study.by_site:
        found = replace(found, by_site=(yield from request_levels(run, found)))
    if known.origin is not None:
        found = replace(found, mean=found.mean + known.origin)
    return replace(found, preparation=known)
