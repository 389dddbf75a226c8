"""The table ``[privacy]`` of a study file."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from eigenfed.privacy.privacy_terms import BUDGET_FRACTIONS, PUBLIC, Privacy
from eigenfed.study.config.fields import (
    Delta,
    Epsilon,
    FiniteNumber,
    NotNegative,
    NotNegativeNumber,
    PositiveNumber,
    Relation,
    TomlTable,
    read_as,
)


class SharesTable(TomlTable, title="[privacy.shares]"):
    """Fractions of the privacy budget by purpose.

    Those left out keep their defaults.
    """

    count: NotNegativeNumber = BUDGET_FRACTIONS["count"]
    """Fraction of the privacy budget for the number of rows, if it is private."""
    radius: NotNegativeNumber = BUDGET_FRACTIONS["radius"]
    """Fraction of the privacy budget for the norm to which rows are clipped for the mean."""
    mean: NotNegativeNumber = BUDGET_FRACTIONS["mean"]
    """Fraction of the privacy budget for the mean."""
    clip: NotNegativeNumber = BUDGET_FRACTIONS["clip"]
    """Fraction of the privacy budget for the norm to which centered rows are clipped."""
    covariance: NotNegativeNumber = BUDGET_FRACTIONS["covariance"]
    """Fraction of the privacy budget for the covariance."""
    scree: NotNegativeNumber = BUDGET_FRACTIONS["scree"]
    """Fraction of the privacy budget for the variances along the components."""


class PrivacyTable(TomlTable, title="[privacy]"):
    """Differential privacy of each row.

    Without this table, results are exact and reveal more about the rows.
    """

    epsilon: Epsilon = Field(examples=[1.0])
    """Epsilon of everything that the run releases; smaller values are more private."""
    delta: Delta = Field(examples=[1e-6])
    """Probability with which the guarantee may fail. It must be below 1 / number of rows."""
    relation: Relation = "replace_one"
    """Neighbouring data sets differ in one row, which is either replaced by another row
    (replace_one) or left out of every sum (zero_out).
    """
    clip: PositiveNumber | None = Field(
        default=None,
        examples=[10.0],
        json_schema_extra={"$comment": "Leave it out to find one privately."},
    )
    """Bound on the norm of the rows, known without looking at them. By default a bound is found
    privately, at a cost in budget.
    """
    trust: Literal["secure_sum", "local", "central"] = "secure_sum"
    """Who sees sums before noise is added. secure_sum: nobody, as each site adds a part of the
    noise within secure aggregation. local: nobody, as each site adds all of the noise. central: the
    coordinator, who adds the noise.
    """
    colluders: NotNegative = 0
    """Number of sites that may collude with the coordinator without loss of privacy. The other
    sites add more noise to compensate. With 0 the guarantee holds against people outside the study.
    """
    dropouts: NotNegative = 0
    """Number of sites that may drop out of a sum. The other sites add more noise to compensate."""
    count: Literal["public", "private"] = "public"
    """Whether the number of rows is public or estimated with noise. It must be private if a site
    selects its rows (where in its file).
    """
    if_missing: Literal["mean", "public", "drop"] = "mean"
    """What becomes of missing entries. mean: they are replaced by the private mean. public: they
    are replaced by public_center. drop: their rows are left out of every sum, which requires count
    = "private".
    """
    public_center: Annotated[tuple[FiniteNumber, ...], Field(min_length=1)] | None = Field(
        default=None,
        title="a list of numbers, one for each feature or one for all",
        examples=[[100.0]],
        json_schema_extra={"$comment": "Leave it out if nobody knows rough levels."},
    )
    """Rough level of each feature, in the order of features, or one number for all. It must be
    known without looking at the rows, such as 120 for a blood pressure. With few rows far from 0 it
    decides whether anything is found.
    """
    public_scale: Annotated[tuple[PositiveNumber, ...], Field(min_length=1)] | None = Field(
        default=None,
        title="a list of numbers above 0, one for each feature or one for all",
        examples=[[10.0]],
        json_schema_extra={"$comment": "Leave it out to keep the units of the features."},
    )
    """Numbers by which the features are divided, in the order of features, or one for all; known
    without looking at the rows.
    """
    shares: Annotated[Mapping[str, float], read_as(SharesTable, dict)] | None = None


def build_privacy(**keys: Any) -> Privacy:
    """Make the privacy of a study; a list of one public number stands for all features."""
    single = {name: keys[name][0] for name in PUBLIC if len(keys[name] or ()) == 1}
    return Privacy(**(keys | single))
