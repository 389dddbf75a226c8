"""All that a site's own file may say."""

from eigenfed.data.row_filter import PATTERN
from eigenfed.privacy.policy import Policy
from eigenfed.study.keys import Barred, Given, Key, Not, Table
from eigenfed.study.method_rule import MethodName
from eigenfed.study.rules import Flag, Listed, Real, Text, Whole
from eigenfed.study.study_keys import DELTA, EPSILON, FILE, NAME, RELATION

_SHARE = Real(least=0, most=1)
_CONDITION = Text("a column, one of < <= == != >= >, and a number", PATTERN)
_OPEN = Policy()
_FLAG = "Write one of them, without quotes."

_BUDGET = Table(
    "budget",
    "The most privacy to spend on the rows, over all runs. The ledger keeps count, and nothing "
    "leaves without noise.",
    (
        Key(
            "epsilon",
            EPSILON,
            "Smaller is more private.",
            "Write 2.0, say.",
            2.0,
            required=True,
        ),
        Key(
            "delta",
            DELTA,
            "Below one over the number of rows.",
            "Write 1e-6, say.",
            1e-6,
            required=True,
        ),
        RELATION,
    ),
)

_POLICY = Table(
    "policy",
    "What this site allows, whatever the study asks for. An ask beyond it is refused.",
    (
        Key(
            "max_rank_fraction",
            _SHARE,
            "Most of the directions that may have been answered about, over all runs in the "
            "ledger.",
            "Write 0.5, say; 1.0 sets no limit.",
            0.5,
            _OPEN.max_rank_fraction,
        ),
        Key(
            "max_variance_fraction",
            _SHARE,
            "Most of the variance that those directions may hold.",
            "Write 0.9, say; 1.0 sets no limit.",
            0.9,
            _OPEN.max_variance_fraction,
        ),
        Key(
            "max_rounds",
            Whole(1),
            "Most asks to answer in one run. Default: no limit.",
            "Write 30, say.",
            30,
            _OPEN.max_rounds,
        ),
        Key(
            "min_rows",
            Whole(2),
            "Fewest rows with which the site takes part: the sums of one row are that row.",
            "Write 20, for example.",
            20,
            required=True,
        ),
        Key(
            "max_runs",
            Whole(1),
            "Most runs that may be opened on the rows, as the ledger counts them.",
            "Write 100, for example.",
            100,
            _OPEN.max_runs,
        ),
        Key(
            "methods",
            Listed(MethodName(), "a list of methods that there are, each once"),
            "The methods in which the site takes part: covariance tells the whole covariance, "
            "others less. Default: all.",
            'Write ["krylov"], for example, or leave it out to allow all.',
            ["krylov"],
        ),
        Key(
            "secure_only",
            Flag(),
            "Whether replies leave only inside secure sums.",
            _FLAG,
            True,
            _OPEN.secure_only,
        ),
        Key(
            "least_roster_change",
            Whole(0),
            "By how many sites two secure sums must differ, if they differ: what differs is about "
            "those sites alone. 0 sets no limit.",
            "Write 3, say.",
            3,
            _OPEN.least_roster_change,
        ),
        Key(
            "sound_only",
            Flag(),
            "Whether to refuse the papers' own mechanisms, whose claims may not hold.",
            _FLAG,
            True,
            _OPEN.sound_only,
        ),
        Key(
            "colluders",
            Whole(0),
            "How many other sites may collude with the coordinator: noise must be enough without "
            "theirs.",
            "Write 0 for none.",
            0,
            _OPEN.colluders,
        ),
        Key(
            "trusts_coordinator",
            Flag(),
            "Whether sums may leave without noise for the coordinator to add it.",
            _FLAG,
            False,
            _OPEN.trusts_coordinator,
        ),
    ),
    (_BUDGET,),
    required=True,
)

SITE = Table(
    "",
    "One site's own file: where its rows are and what it allows. It stays at the site.",
    (
        Key(
            "name",
            NAME,
            "What the site is called, as the study's list of sites has it.",
            "Take the name that the study has.",
            "north",
            required=True,
        ),
        Key(
            "data",
            FILE,
            "The site's rows: a csv, parquet, h5ad, npy, npz or svm file, relative to this one.",
            'Write "north.csv", say.',
            "north.csv",
            required=True,
        ),
        Key(
            "id_column",
            Text("the name of a column", r"[\s\S]*"),
            "The column of a csv or parquet file that names the rows, and is no feature.",
            'Write "patient", say.',
            "patient",
        ),
        Key(
            "where",
            Listed(
                _CONDITION,
                f'a list of conditions, each once, of {_CONDITION.words}, as in "age >= 18"',
            ),
            "Which rows to take: all of these must hold. A column, one of < <= == != >= >, and a "
            "number; a missing entry never holds. A column in it stays a feature if it is one.",
            'Write ["age >= 18", "cohort == 2"], say.',
            ["age >= 18", "cohort == 2"],
            [],
        ),
        Key(
            "ledger",
            FILE,
            "Where what leaves is written down and paid for, over all runs. It is begun once, by "
            "eigenfed ledger create. Needed where the study asks for privacy.",
            'Write "north.ledger", say.',
            "north.ledger",
        ),
        Key(
            "dataset",
            Text(
                "1 to 200 printable characters", r"[^\u0000-\u001f\u007f-\u00a0\u2028\u2029]{1,200}"
            ),
            "What the ledger calls these rows. Other rows need another name.",
            'Write "visits-2026", say.',
            "visits-2026",
            "data",
        ),
        Key(
            "approved",
            Listed(
                Text("64 hexadecimal digits", "[0-9a-f]{64}"),
                "a list of digests, each once, of 64 hexadecimal digits",
            ),
            "Digests of the studies in which the site takes part, as eigenfed plan prints them. "
            "Default: every study that the policy allows.",
            "Copy what eigenfed plan prints of the study.",
            ["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"],
        ),
        Key(
            "share_scores",
            Flag(),
            "Whether the page for everybody may show each of this site's rows as a point. Never "
            "where the study asks for privacy.",
            _FLAG,
            True,
            False,
        ),
    ),
    (_POLICY,),
    (
        Barred(
            (Given("policy.budget"), Not(Given("ledger"))),
            "[policy.budget] limits what is spent over all runs, and only a ledger remembers them. "
            'Write ledger = "north.ledger", say.',
        ),
        Barred(
            (Given("dataset"), Not(Given("ledger"))),
            "dataset is the ledger's name for the rows, and there is no ledger. Write ledger = "
            '"north.ledger", say, or leave dataset out.',
        ),
    ),
)
"""The keys of site.toml."""
