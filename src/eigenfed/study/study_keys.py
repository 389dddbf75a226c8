"""All that a study file may say."""

from eigenfed.privacy.dp.sensitivity import RELATIONS
from eigenfed.privacy.guarantee import COUNTS, SHARES, TRUSTS
from eigenfed.privacy.secagg.identity import LEAST_SITES
from eigenfed.protocol.method import AUTO
from eigenfed.study.keys import Barred, Below, Given, Is, Key, Not, Table
from eigenfed.study.method_rule import CannotBePrivate, MethodRule, NeedsSingleReplies
from eigenfed.study.rules import ByName, Choice, Either, Flag, Listed, Real, Text, Whole

NAME = Text(
    "1 to 64 letters, digits, - and _, with a letter or digit first",
    "[A-Za-z0-9][A-Za-z0-9_-]{0,63}",
)
FILE = Text("the path of a file, in quotes", r"[^\u0000]+")
COLUMN = Text("the name of a column", r"[\s\S]+")
EPSILON, DELTA = Real(above=0, below=1e6), Real(above=0, below=1)
ENGINES = ("in_process",)
RELATION = Key(
    "relation",
    Choice(RELATIONS),
    "What the guarantee hides: that one row is another one, or that it is left out.",
    "Write one of them.",
    RELATIONS[0],
    RELATIONS[0],
)

_NOT_SECURE_SUM = tuple(trust for trust in TRUSTS if trust != "secure_sum")
_SECURE, _PRIVATE = Is("secure", (True,)), Given("privacy")
_MASKED = (_PRIVATE, Not(Is("privacy.trust", _NOT_SECURE_SUM)))
_TOO_FEW = (
    f"needs {LEAST_SITES} sites at least, as of two each could tell the other's part, and sites "
    "has fewer."
)

_PRIVACY = Table(
    "privacy",
    "Differential privacy of each row. Without this table results are exact, and tell more.",
    (
        Key(
            "epsilon",
            EPSILON,
            "The guarantee for all that the run releases: smaller is more private.",
            "Write 1.0, say.",
            1.0,
            required=True,
        ),
        Key(
            "delta",
            DELTA,
            "The chance with which the guarantee may fail: below one over the number of rows.",
            "Write 1e-6, say.",
            1e-6,
            required=True,
        ),
        RELATION,
        Key(
            "clip",
            Real(above=0),
            "A bound on the norm of rows that is known without looking at them. Without it one is "
            "found privately, and paid for.",
            "Leave it out to find one privately.",
            10.0,
        ),
        Key(
            "trust",
            Choice(TRUSTS),
            "Who sees what before noise: nobody, as sites add parts of it inside secure sums; "
            "nobody, as each site adds all of it (local); or the coordinator (central).",
            "Write one of them.",
            TRUSTS[0],
            TRUSTS[0],
        ),
        Key(
            "colluders",
            Whole(0),
            "How many sites may show the coordinator what they know without loss of privacy: the "
            "others add noise for them. With 0 the guarantee is one against people outside the "
            "study.",
            "Write 0 for none.",
            0,
            0,
        ),
        Key(
            "dropouts",
            Whole(0),
            "How many sites may be lost from a sum: the others add noise for them.",
            "Write 0 for none.",
            0,
            0,
        ),
        Key(
            "count",
            Choice(COUNTS),
            "Whether the number of rows is known to all, or found with noise, which a site needs "
            "that takes only some of its rows (where).",
            "Write one of them.",
            COUNTS[0],
            COUNTS[0],
        ),
    ),
    (
        Table(
            "shares",
            "How the budget is split; what is not named keeps its default.",
            tuple(
                Key(
                    name,
                    Real(least=0),
                    f"The part that buys the {name}.",
                    "Write 0.1, say.",
                    share,
                    share,
                )
                for name, share in SHARES.items()
            ),
        ),
    ),
)

_EXPECTED = Table(
    "expected",
    "What eigenfed plan reckons with before anything runs; a run does not read it.",
    (
        Key(
            "rows",
            ByName(NAME, Whole(1), "a whole number of at least 1 for each of some sites"),
            "How many rows sites expect to have.",
            "Write { north = 3000, south = 900 }, say.",
            {"north": 3000, "south": 900, "island": 150},
        ),
        Key("features", Whole(1), "How many features.", "Write 120, say.", 120),
        Key(
            "latency_ms",
            Real(least=0),
            "How long a message takes to a site, in milliseconds.",
            "Write 40, say.",
            40.0,
        ),
        Key(
            "bandwidth_mbps",
            Real(above=0),
            "How fast a site is joined to the others, in megabits a second.",
            "Write 20, say.",
            20.0,
        ),
        Key(
            "decay",
            Real(above=0, most=1),
            "What share of the eigenvalue before it each one is.",
            "Write 0.9, say.",
            0.9,
        ),
        Key(
            "spectrum",
            FILE,
            "Instead of decay: a file beside this one with an eigenvalue a line, largest first.",
            'Write "spectrum.txt", say.',
            "spectrum.txt",
        ),
    ),
)

STUDY = Table(
    "",
    "A study: what the sites compute together. Everybody reads this file and signs it off.",
    (
        Key(
            "name",
            NAME,
            "What the study is called.",
            "Rename it.",
            "three-hospitals",
            required=True,
        ),
        Key(
            "sites",
            Listed(NAME, f"a list of names, each once, of {NAME.words}", least=1),
            "Who may take part.",
            'Write ["north", "south", "island"], say.',
            ["north", "south", "island"],
            required=True,
        ),
        Key(
            "components",
            Whole(1),
            "How many components to compute.",
            "Ask for one component or more.",
            4,
            required=True,
        ),
        Key(
            "method",
            MethodRule(),
            'How they are found: a name, a table such as { name = "power", local_steps = 2 }, or '
            '"auto", which takes the one that is predicted to take least work.',
            'Write "auto" if in doubt.',
            AUTO,
            AUTO,
        ),
        Key(
            "center",
            Flag(),
            "Whether rows are taken about the mean of all.",
            "Write one of them, without quotes.",
            True,
            True,
        ),
        Key(
            "scale",
            Flag(),
            "Whether features are divided by their standard deviation over all sites.",
            "Write one of them, without quotes.",
            False,
            False,
        ),
        Key(
            "secure",
            Flag(),
            "Whether nothing leaves a site but inside sums that nobody can open.",
            "Write one of them, without quotes.",
            False,
            False,
        ),
        Key(
            "features",
            Either(
                Choice(("same", "common")),
                Listed(COLUMN, "a list of names, each once", least=1),
            ),
            'Which features: "same" if all sites must have the same, "common" for those that all '
            "have, or a list of names.",
            'Write "same" if in doubt.',
            "same",
            "same",
        ),
        Key(
            "manifest",
            FILE,
            "Instead of features: a file beside this one with the name of a feature a line.",
            'Write "features.txt", say.',
            "features.txt",
        ),
        Key(
            "by_site",
            Flag(),
            "Whether each site tells the mean and the spread of its own rows on the components, "
            "for the report.",
            "Write one of them, without quotes.",
            True,
            False,
        ),
        Key(
            "quorum",
            Whole(1),
            "How many of the sites must be there for a run to begin. Default: all of them.",
            "Lower it, or leave it out to wait for all.",
            3,
        ),
        Key(
            "deadline_s",
            Real(above=0),
            "How long to wait for an answer of a site, in seconds. Default: for ever.",
            "Write 600, say.",
            600.0,
        ),
        Key(
            "engine",
            Choice(ENGINES),
            "What carries the messages. There are no others so far.",
            "Leave it out.",
            ENGINES[0],
            ENGINES[0],
        ),
        Key(
            "seed",
            Whole(0, 2**32 - 1),
            "For public random starts, never for noise.",
            "Write 7, say, or leave it out.",
            7,
        ),
    ),
    (_PRIVACY, _EXPECTED),
    (
        Barred(
            (Given("manifest"), Given("features")),
            "manifest and features both say which features to take. Keep one of them.",
        ),
        Barred(
            (Is("by_site", (True,)), _SECURE),
            "by_site = true lets sites tell of their own rows, and with secure = true nothing "
            "leaves but in sums. Set one of them to false.",
        ),
        Barred(
            (Is("by_site", (True,)), _PRIVATE),
            "by_site = true tells of a site's rows without noise, and there is a [privacy]. Set "
            "by_site = false.",
        ),
        Barred(
            (_SECURE, NeedsSingleReplies()),
            "method must be one that needs sums only, with secure = true: this one needs replies "
            'of single sites. Write method = "auto".',
        ),
        Barred(
            (_PRIVATE, CannotBePrivate()),
            "method must be one that can be made private, without options, with [privacy]. Write "
            'method = "auto".',
        ),
        Barred(
            (_SECURE, Below("sites", LEAST_SITES)),
            f"secure = true {_TOO_FEW} Name more sites, or set secure = false.",
        ),
        Barred(
            (*_MASKED, Below("sites", LEAST_SITES)),
            f'[privacy] with trust = "secure_sum" {_TOO_FEW} Name more sites, or write trust = '
            '"local" in [privacy].',
        ),
        Barred(
            (_SECURE, Below("quorum", LEAST_SITES)),
            f"quorum must be at least {LEAST_SITES} with secure = true, or a run could begin that "
            "must not. Raise quorum, or leave it out.",
        ),
        Barred(
            (*_MASKED, Below("quorum", LEAST_SITES)),
            f'quorum must be at least {LEAST_SITES} with [privacy] and trust = "secure_sum". Raise '
            "quorum, or leave it out.",
        ),
        Barred(
            (_SECURE, Is("privacy.trust", _NOT_SECURE_SUM)),
            'secure = true goes with trust = "secure_sum" in [privacy] only. Change one of them.',
        ),
        *(
            Barred(
                (
                    Given(f"privacy.{name}"),
                    Not(Below(f"privacy.{name}", 1)),
                    Is("privacy.trust", _NOT_SECURE_SUM),
                ),
                f'{name} in [privacy] requires trust = "secure_sum". Leave it out.',
            )
            for name in ("colluders", "dropouts")
        ),
        Barred(
            (Given("expected.decay"), Given("expected.spectrum")),
            "decay and spectrum in [expected] both say how eigenvalues fall. Keep one of them.",
        ),
    ),
)
"""The keys of study.toml."""
