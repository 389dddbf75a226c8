"""The keys of a study file, which all sites read and approve."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, create_model

from eigenfed.privacy.dp.sensitivity import RELATIONS
from eigenfed.privacy.guarantee import COUNTS, SHARES, TRUSTS, Privacy
from eigenfed.privacy.secagg.identity import LEAST_SITES
from eigenfed.protocol.method import AUTO
from eigenfed.study.config.conflicts import Conflict, below, equals, given
from eigenfed.study.config.fields import (
    NAME_RULE,
    Delta,
    Epsilon,
    FileName,
    Flag,
    Name,
    NotNegative,
    NotNegativeNumber,
    OneOf,
    Positive,
    PositiveNumber,
    Ratio,
    ReadAs,
    Relation,
    Remedy,
    Rule,
    Seed,
    TomlTable,
    Unique,
)
from eigenfed.study.config.method_option import (
    MethodOption,
    cannot_be_private,
    needs_single_replies,
)

_ENGINES = ("in_process",)
_OTHER_TRUSTS = tuple(trust for trust in TRUSTS if trust != "secure_sum")
_SECURE, _PRIVATE = equals("secure", True), given("privacy")
_MASKED = (_PRIVATE, ~equals("privacy.trust", *_OTHER_TRUSTS))
_TOO_FEW = (
    f"requires at least {LEAST_SITES} sites: with two, each could compute the part of the other."
)

_PURPOSES = (
    "the number of rows, if it is private",
    "the norm to which rows are clipped for the mean",
    "the mean",
    "the norm to which centered rows are clipped",
    "the covariance",
    "the variances along the components",
)
_SHARES: dict[str, Any] = {
    name: (
        NotNegativeNumber,
        Field(
            default=share,
            description=f"Fraction of the privacy budget for {purpose}.",
            examples=[share],
        ),
    )
    for (name, share), purpose in zip(SHARES.items(), _PURPOSES, strict=True)
}
SharesTable = create_model(
    "SharesTable",
    __base__=TomlTable,
    __cls_kwargs__={"title": "[privacy.shares]"},
    __doc__="Fractions of the privacy budget by purpose. Those left out keep their defaults.",
    **_SHARES,
)


class PrivacyTable(TomlTable, title="[privacy]"):
    """Differential privacy of each row.

    Without this table, results are exact and reveal more about the rows.
    """

    epsilon: Epsilon = Field(
        description="Epsilon of everything that the run releases; smaller values are more private.",
        examples=[1.0],
    )
    delta: Delta = Field(
        description="Probability with which the guarantee may fail. It must be below 1 / number "
        "of rows.",
        examples=[1e-6],
    )
    relation: Relation = RELATIONS[0]
    clip: Annotated[PositiveNumber, Remedy("Leave it out to find one privately.")] | None = Field(
        default=None,
        description="Bound on the norm of the rows, known without looking at them. By default a "
        "bound is found privately, at a cost in budget.",
        examples=[10.0],
    )
    trust: Annotated[str, OneOf(TRUSTS)] = Field(
        default=TRUSTS[0],
        description="Who sees sums before noise is added. secure_sum: nobody, as each site adds a "
        "part of the noise within secure aggregation. local: nobody, as each site adds all of the "
        "noise. central: the coordinator, who adds the noise.",
        examples=[TRUSTS[0]],
    )
    colluders: NotNegative = Field(
        default=0,
        description="Number of sites that may collude with the coordinator without loss of "
        "privacy. The other sites add more noise to compensate. With 0 the guarantee holds "
        "against people outside the study.",
        examples=[0],
    )
    dropouts: NotNegative = Field(
        default=0,
        description="Number of sites that may drop out of a sum. The other sites add more noise "
        "to compensate.",
        examples=[0],
    )
    count: Annotated[str, OneOf(COUNTS)] = Field(
        default=COUNTS[0],
        description="Whether the number of rows is public or estimated with noise. It must be "
        "private if a site selects its rows (where in its file).",
        examples=[COUNTS[0]],
    )
    shares: Annotated[Mapping[str, float], ReadAs(SharesTable, dict)] | None = None

    conflicts = tuple(
        Conflict(
            (given(name), ~below(name, 1), equals("trust", *_OTHER_TRUSTS)),
            f'{name} in [privacy] requires trust = "secure_sum". Leave it out.',
        )
        for name in ("colluders", "dropouts")
    )


def _build_privacy(table: PrivacyTable) -> Privacy:
    return Privacy(**dict(table))


class ExpectedTable(TomlTable, title="[expected]"):
    """What eigenfed plan assumes about the sites.

    A run does not read it.
    """

    rows: (
        Annotated[
            dict[Name, Positive], Rule("an integer of at least 1 for each of some of the sites")
        ]
        | None
    ) = Field(
        default=None,
        description="Number of rows at each site.",
        examples=[{"north": 3000, "south": 900, "island": 150}],
    )
    features: Positive | None = Field(
        default=None, description="Number of features.", examples=[120]
    )
    latency_ms: NotNegativeNumber | None = Field(
        default=None,
        description="Time of a message from the coordinator to a site and back, in milliseconds.",
        examples=[40.0],
    )
    bandwidth_mbps: PositiveNumber | None = Field(
        default=None,
        description="Bandwidth of the coordinator, shared by all sites, in megabits per second.",
        examples=[20.0],
    )
    decay: Ratio | None = Field(
        default=None,
        description="Ratio of each eigenvalue of the covariance to the one before it.",
        examples=[0.9],
    )
    spectrum: FileName | None = Field(
        default=None,
        description="File with one eigenvalue per line, the largest first, in place of decay. "
        "The path is relative to this file.",
        examples=["spectrum.txt"],
    )

    conflicts = (
        Conflict(
            (given("decay"), given("spectrum")),
            "decay and spectrum in [expected] both describe the eigenvalues. Keep one of them.",
        ),
    )


class StudyTable(TomlTable, title="study.toml"):
    """A study: what the sites compute together.

    Every site reads this file and approves it.
    """

    name: Name = Field(description="Name of the study.", examples=["three-hospitals"])
    sites: Annotated[
        tuple[Name, ...],
        Field(min_length=1),
        Unique(),
        Rule(f"a list of names, each once, of {NAME_RULE}"),
    ] = Field(
        description="Names of the sites that may take part.",
        examples=[["north", "south", "island"]],
    )
    components: Annotated[Positive, Remedy("Ask for one component or more.")] = Field(
        description="Number of components to compute.", examples=[4]
    )
    method: Annotated[MethodOption, Remedy('Set method = "auto" if in doubt.')] = Field(
        default=AUTO,
        description="Method: a name, a table with options such as "
        '{ name = "power", local_steps = 2 }, or "auto" for the method with the lowest predicted '
        "cost.",
        examples=[AUTO],
    )
    center: Flag = Field(
        default=True,
        description="Whether to subtract the mean over all sites from the features.",
        examples=[True],
    )
    scale: Flag = Field(
        default=False,
        description="Whether to divide the features by their standard deviation over all sites.",
        examples=[False],
    )
    secure: Flag = Field(
        default=False,
        description="Whether to use secure aggregation: the coordinator sees sums over sites and "
        "no reply of a single site.",
        examples=[False],
    )
    features: Annotated[
        Annotated[str, OneOf(("same", "common"))]
        | Annotated[
            tuple[Annotated[str, Field(strict=True, min_length=1)], ...],
            Field(min_length=1),
            Unique(),
        ],
        Rule('"same", "common", or a list of names, each once'),
        Remedy('Set features = "same" if in doubt.'),
    ] = Field(
        default="same",
        description='Features to use: "same" if all sites must have the same columns, "common" '
        "for the columns that all sites have, or a list of names.",
        examples=["same"],
    )
    manifest: FileName | None = Field(
        default=None,
        description="File with the name of one feature per line, in place of features. The path "
        "is relative to this file.",
        examples=["features.txt"],
    )
    by_site: Flag = Field(
        default=False,
        description="Whether each site reports the mean and the variance of its own rows along "
        "the components.",
        examples=[True],
    )
    quorum: (
        Annotated[Positive, Remedy("Lower it, or leave it out to wait for all sites.")] | None
    ) = Field(
        default=None,
        description="Number of sites that must be present for a run to start. By default all "
        "of them.",
        examples=[3],
    )
    deadline_s: PositiveNumber | None = Field(
        default=None,
        description="Time to wait for the reply of a site, in seconds. By default there is no "
        "limit.",
        examples=[600.0],
    )
    engine: Annotated[str, OneOf(_ENGINES), Remedy("Leave it out.")] = Field(
        default=_ENGINES[0],
        description="Transport of the messages. There is only one so far.",
        examples=[_ENGINES[0]],
    )
    seed: Seed | None = Field(
        default=None,
        description="Seed of public random starts. It is never used for noise.",
        examples=[7],
    )
    privacy: Annotated[Privacy, ReadAs(PrivacyTable, _build_privacy)] | None = None
    expected: ExpectedTable | None = None

    conflicts = (
        Conflict(
            (given("manifest"), given("features")),
            "manifest and features both select the features. Keep one of them.",
        ),
        Conflict(
            (equals("by_site", True), _SECURE),
            "by_site = true cannot be combined with secure = true: it reports statistics of single "
            "sites, and secure aggregation reveals sums over sites only. Set one of them to false.",
        ),
        Conflict(
            (equals("by_site", True), _PRIVATE),
            "by_site = true cannot be combined with [privacy]: it reports statistics of single "
            "sites without noise. Set by_site = false.",
        ),
        Conflict(
            (needs_single_replies(), _SECURE),
            "method must be one that needs only sums over sites if secure = true; this one needs "
            'replies of single sites. Set method = "auto".',
        ),
        Conflict(
            (cannot_be_private(), _PRIVATE),
            "method must be one that supports differential privacy, without options, if there is "
            'a [privacy]. Set method = "auto".',
        ),
        Conflict(
            (_SECURE, below("sites", LEAST_SITES)),
            f"secure = true {_TOO_FEW} Add sites, or set secure = false.",
        ),
        Conflict(
            (*_MASKED, below("sites", LEAST_SITES)),
            f'[privacy] with trust = "secure_sum" {_TOO_FEW} Add sites, or set trust = "local" in '
            "[privacy].",
        ),
        Conflict(
            (below("quorum", LEAST_SITES), _SECURE),
            f"quorum must be at least {LEAST_SITES} if secure = true: a secure sum over fewer "
            "sites is refused. Raise quorum, or leave it out.",
        ),
        Conflict(
            (below("quorum", LEAST_SITES), *_MASKED),
            f"quorum must be at least {LEAST_SITES} if [privacy] has trust = "
            '"secure_sum". Raise quorum, or leave it out.',
        ),
        Conflict(
            (_SECURE, equals("privacy.trust", *_OTHER_TRUSTS)),
            'secure = true requires trust = "secure_sum" in [privacy]. Change one of them.',
        ),
    )
