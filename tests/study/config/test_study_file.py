"""Study files: what they mean, and one sentence for each way to get them wrong."""

import hashlib
from pathlib import Path

import pytest

from eigenfed import Power
from eigenfed.errors import Argument, DataError, InputError
from eigenfed.privacy.privacy_terms import BUDGET_FRACTIONS, COUNTS, TRUSTS
from eigenfed.study.config import Expected, read_study, schema_of

BASE = 'name = "heart"\nsites = ["north", "south", "island"]\ncomponents = 4\n'
PRIVATE = BASE + "[privacy]\nepsilon = 1\ndelta = 1e-6\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def fault_of(folder: Path, text: str) -> str:
    with pytest.raises((DataError, InputError)) as caught:
        read_study(written(folder, text))
    assert caught.value.__cause__ is None
    return str(caught.value)


def test_absent_keys_stand_for_their_defaults(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, BASE))
    assert (study.name, study.sites) == ("heart", ("north", "south", "island"))
    assert (study.components, study.method, study.features, study.quorum) == (4, "auto", "same", 3)
    assert (study.center, study.scale, study.secure, study.by_site) == (True, False, False, False)
    assert (study.deadline_s, study.seed, study.engine) == (None, None, "in_process")
    assert study.privacy is None
    assert study.expected is None


def test_every_key_is_read(tmp_path: Path) -> None:
    (tmp_path / "spectrum.txt").write_text("4.0\n2\n\n0.5\n")
    study = read_study(
        written(
            tmp_path,
            BASE
            + 'method = "power"\ncenter = false\nscale = true\nfeatures = ["a b", "c"]\n'
            + "quorum = 3\ndeadline_s = 2\nseed = 9\nsecure = false\nby_site = false\n"
            + '[privacy]\nepsilon = 2\ndelta = 1e-7\nrelation = "zero_out"\nclip = 3\n'
            + 'trust = "secure_sum"\ncolluders = 1\ndropouts = 0\ncount = "private"\n'
            + "shares = { mean = 0.5, count = 0.1 }\n"
            + "[expected]\nrows = { north = 30 }\nfeatures = 12\nlatency_ms = 0\n"
            + 'bandwidth_mbps = 1.5\nspectrum = "spectrum.txt"\n',
        )
    )
    assert (study.method, study.center, study.scale) == (Power(), False, True)
    assert (study.features, study.quorum, study.deadline_s) == (("a b", "c"), 3, 2.0)
    assert study.seed == 9
    assert study.privacy is not None
    assert (study.privacy.epsilon, study.privacy.delta, study.privacy.clip) == (2.0, 1e-7, 3.0)
    assert study.privacy.relation == "zero_out"
    assert (study.privacy.colluders, study.privacy.dropouts) == (1, 0)
    assert (study.privacy.count, dict(study.privacy.shares or {})["count"]) == ("private", 0.1)
    assert study.privacy.split(["mean", "covariance"])["mean"] == pytest.approx(0.5 / 1.3)
    assert study.expected == Expected({"north": 30}, 12, 0.0, 1.5, None, (4.0, 2.0, 0.5))


def test_choices_of_privacy_are_those_of_the_library() -> None:
    keys = schema_of("study")["properties"]["privacy"]["properties"]
    assert tuple(keys["trust"]["enum"]) == TRUSTS
    assert tuple(keys["count"]["enum"]) == COUNTS
    assert list(keys["shares"]["properties"]) == list(BUDGET_FRACTIONS)


def test_options_do_not_apply_under_privacy_even_at_their_defaults(tmp_path: Path) -> None:
    text = 'method = { name = "covariance", precision = "double" }\n' + PRIVATE
    assert "without options" in fault_of(tmp_path, text)


def test_a_method_may_be_a_table_with_options(tmp_path: Path) -> None:
    text = BASE + '[method]\nname = "power"\nlocal_steps = 2\ndecay = false\n'
    assert read_study(written(tmp_path, text)).method == Power(local_steps=2, decay=False)


def test_the_study_that_sites_approve_has_all_that_they_agree_on(tmp_path: Path) -> None:
    text = BASE + 'features = ["age", "sbp"]\nseed = 3\n'
    file = read_study(written(tmp_path, text))
    agreed = file.study
    assert (agreed.name, agreed.sites) == ("heart", ("island", "north", "south"))
    assert (agreed.components, agreed.method, agreed.privacy) == (4, "auto", None)
    assert agreed.features == hashlib.sha256(b"age\nsbp").hexdigest()
    changed = text.replace("seed = 3", "seed = 4").replace('"north", "south"', '"south", "north"')
    assert read_study(written(tmp_path, changed)).study.digest == agreed.digest
    for old, new in (("sbp", "dbp"), ("components = 4", "components = 3"), ("heart", "liver")):
        changed = text.replace(old, new)
        assert read_study(written(tmp_path, changed)).study.digest != agreed.digest
    assert read_study(written(tmp_path, BASE)).study.features == ""


def test_a_manifest_beside_the_file_lists_the_features(tmp_path: Path) -> None:
    (tmp_path / "features.txt").write_bytes("\ufeffage\r\nsystolic pressure\r\n\r\n".encode())
    study = read_study(written(tmp_path, 'manifest = "features.txt"\n' + BASE))
    assert study.features == ("age", "systolic pressure")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "features.txt names no feature. Write the name of one feature per line."),
        ("a\nb\na\n", "features.txt names the feature 'a' more than once. Name it once."),
        (None, "features.txt cannot be read: No such file or directory. Check the path."),
    ],
)
def test_a_manifest_that_lists_nothing_is_refused(
    tmp_path: Path, text: str | None, fault: str
) -> None:
    if text is not None:
        (tmp_path / "features.txt").write_text(text)
    assert fault_of(tmp_path, 'manifest = "features.txt"\n' + BASE).endswith(fault)


@pytest.mark.parametrize("text", ["1\n2\n", "1\n-1\n", "secret\n", "nan\n", "0\n", "", "inf\n"])
def test_a_spectrum_that_does_not_fall_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.txt").write_text(text)
    fault = fault_of(tmp_path, BASE + '[expected]\nspectrum = "s.txt"\n')
    assert "s.txt" in fault
    assert "eigenvalue" in fault
    assert "secret" not in fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "components = 0",
            "components = 0 must be an integer of at least 1, a fraction of the variance below 1, "
            '"all" or "auto". Set components = 4, for example.',
        ),
        ("components = 2.5", "components = 2.5 must be an integer of at least 1, a fraction"),
        ("components = true", "components = true must be an integer"),
        ('components = "4"', 'components = "4" must be an integer of at least 1, a fraction'),
        (
            'method = "magic"',
            'method = "magic" must be one of "auto", "covariance", "factors", "krylov", '
            '"randomized", "subspace", "power", "merge", or a table of a name and options. Set '
            'method = "auto", for example.',
        ),
        (
            'method = { name = "power", steps = 4 }',
            "The method 'power' has no option 'steps'. It has local_steps, align, dec",
        ),
        (
            'method = { name = "power", local_steps = "4" }',
            "method.local_steps = \"4\" of the method 'power' must be of type int. Pass one.",
        ),
        (
            'method = { name = "power", local_steps = 0 }',
            "method.local_steps = 0 must be",
        ),
        ('method = { name = "auto" }', 'method = { name = "auto" } must be one of "auto", "cov'),
        ("method = { local_steps = 4 }", 'method = { local_steps = 4 } must be one of "auto", "c'),
        ('secure = "yes"', 'secure = "yes" must be true or false. Write true or false, without q'),
        ("center = 1", 'center = 1 must be true, false or "site".'),
        ('engine = "flower"', 'engine = "flower" must be one of "in_process", "nvflare", "files".'),
        ("seed = -1", "seed = -1 must be an integer from 0 to 4294967295."),
        (
            "deadline_s = 0",
            "deadline_s = 0 must be a number above 0. Set deadline_s = 600.0, for example.",
        ),
        ("deadline_s = nan", "deadline_s = nan must be a number above 0."),
        ("deadline_s = inf", "deadline_s = inf must be a number above 0."),
        (
            "quorum = 4",
            "quorum = 4 must be at most 3, the number of sites. Lower it, or leave it",
        ),
        (
            'features = "all"',
            'features = "all" must be "same", "common", or a list of names, each once.',
        ),
        ('features = ["a", "a"]', 'features = ["a", "a"] must be "same", "common", or a'),
        ("features = []", "features = [] must be"),
        ("seed = 1979-05-27", "seed = 1979-05-27 must be an integer"),
        ("privacy = 1", "privacy = 1 must be a table. Write its keys below [privacy]."),
        (
            'methods = "auto"',
            "'methods' is not a key of this file. Did you mean 'method'? Rename it, or rem",
        ),
        ("epsilon = 1.0", "'epsilon' is not a key of this file. Move it below [privacy]."),
        ("mean = 1.0", "'mean' is not a key of this file. Move it below [privacy.shares]."),
        ("zzzz = 1", "'zzzz' is not a key of this file. Remove it; the keys are name, sites, co"),
        ('manifest = "f"\nfeatures = "same"', "manifest and features both select the features"),
        ("by_site = true\nsecure = true", "by_site = true cannot be combined with secure = true"),
        (
            'method = "merge"\nsecure = true',
            "method must be one that needs only sums over sites if secure = true",
        ),
        (
            'secure = true\nmethod = { name = "covariance", precision = "single" }',
            "method must be one that needs only sums over sites if secure = true",
        ),
        ("quorum = 2\nsecure = true", "quorum must be at least 3 if secure = true"),
    ],
)
def test_a_key_that_breaks_its_rule_is_named_with_rule_and_remedy(
    tmp_path: Path, text: str, fault: str
) -> None:
    key = text.split(" ")[0]
    base = "".join(line + "\n" for line in BASE.splitlines() if not line.startswith(f"{key} "))
    said = fault_of(tmp_path, base + text)
    where, _, rest = said.partition(": ")
    line = int(where.removeprefix(f"{tmp_path / 'study.toml'}:"))
    assert (base + text).splitlines()[line - 1].split(" ")[0] in fault
    assert rest.startswith(fault)
    assert said.endswith(".")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "epsilon = 0\ndelta = 1e-6",
            "privacy.epsilon = 0 must be a number above 0 and below 1e+06.",
        ),
        ("epsilon = 1", "privacy.delta is required and must be a number above 0 and below 1. Set"),
        ("epsilon = 1\ndelta = 1", "privacy.delta = 1 must be a number above 0 and below 1."),
        (
            'epsilon = 1\ndelta = 1e-6\nrelation = "add_one"',
            'privacy.relation = "add_one" must be one of "replace_one", "zero_out".',
        ),
        (
            'epsilon = 1\ndelta = 1e-6\ntrust = "me"',
            'privacy.trust = "me" must be one of "secure_sum", "local", "central".',
        ),
        ("epsilon = 1\ndelta = 1e-6\ndropouts = 1", "privacy.dropouts = 1 must be at most 0 wi"),
        ("epsilon = 1\ndelta = 1e-6\ncolluders = 2", "privacy.colluders = 2 must be at most 1 w"),
        (
            'epsilon = 1\ndelta = 1e-6\ncolluders = 1\ntrust = "local"',
            'in [privacy], colluders = 1 requires trust = "secure_sum".',
        ),
        (
            'epsilon = 1\ndelta = 1e-6\ndropouts = 1\ntrust = "local"',
            'in [privacy], dropouts = 1 requires trust = "secure_sum".',
        ),
        (
            'epsilon = 1\ndelta = 1e-6\ncount = "none"',
            'privacy.count = "none" must be one of "public", "private".',
        ),
        (
            "epsilon = 1\ndelta = 1e-6\nshares = { men = 1 }",
            "'men' is not a key of [privacy.shares]. Did you mean 'mean'? Rename it, or remove it.",
        ),
        (
            "epsilon = 1\ndelta = 1e-6\nseed = 3",
            "'seed' is not a key of [privacy]. Move it above the first [table].",
        ),
        ("epsilon = 1e300\ndelta = 1e-6", "privacy.epsilon = 1e+300 must be a number above 0 and"),
    ],
)
def test_privacy_that_breaks_its_rules_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    assert fault_of(tmp_path, f"{BASE}[privacy]\n{text}\n").partition(": ")[2].startswith(fault)


@pytest.mark.parametrize(
    ("base", "extra", "fault"),
    [
        (PRIVATE, "by_site = true\n", "by_site = true cannot be combined with [privacy]"),
        (PRIVATE, 'method = "krylov"\n', "method must be one that supports differential privacy, "),
        (
            PRIVATE,
            'method = { name = "power", local_steps = 2 }\n',
            "method must be one that supports differential privacy, without options, if there is a",
        ),
        (PRIVATE, "quorum = 2\n", "quorum must be at least 3 if [privacy] has"),
        (
            PRIVATE.replace(', "island"', ""),
            "",
            '[privacy] with trust = "secure_sum" requires at least 3 sites',
        ),
        (
            BASE.replace(', "island"', ""),
            "secure = true\n",
            "secure = true requires at least 3 sites",
        ),
        (
            PRIVATE + 'trust = "central"\n',
            "secure = true\n",
            'secure = true requires trust = "secure_sum" in [privacy]',
        ),
        (
            BASE + '[expected]\ndecay = 0.5\nspectrum = "s"\n',
            "",
            "decay and spectrum in [expected] both describe eigenvalues",
        ),
        (
            BASE + "[expected]\nrows = { west = 3 }\n",
            "",
            "expected.rows names 'west', which is not in sites",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, base: str, extra: str, fault: str
) -> None:
    assert fault_of(tmp_path, extra + base).partition(": ")[2].startswith(fault)


LISTED = 'features = ["age", "bmi"]\n'


@pytest.mark.parametrize(
    ("engine", "network", "fault"),
    [
        ("in_process", 'host = "a.example"', "[network] requires an engine. Set engine = "),
        ("nvflare", "port = 9000", 'engine = "nvflare" requires host below [network]. Set host'),
        ("files", "", 'engine = "files" requires drop below [network]. Set drop = "drop", for ex'),
        ("files", 'drop = "d"\nport = 1', 'network.port is not used with engine = "files". Rem'),
        ("nvflare", 'host = "a"\ndrop = "d"', 'network.drop is not used with engine = "nvflare"'),
        ("nvflare", 'host = "a b"', 'network.host = "a b" must be the name or IPv4 address of a m'),
        ("nvflare", 'host = "http://a"', 'network.host = "http://a" must be the name or IPv4'),
        ("nvflare", 'host = "a"\nport = 0', "network.port = 0 must be an integer from 1 to 65535"),
        ("files", 'folder = "d"', "'folder' is not a key of [network]. Remove it; the keys are h"),
    ],
)
def test_an_engine_and_its_network_must_fit(
    tmp_path: Path, engine: str, network: str, fault: str
) -> None:
    text = f'{BASE}{LISTED}engine = "{engine}"\n[network]\n{network}\n'
    assert fault_of(tmp_path, text).partition(": ")[2].startswith(fault)


def test_between_machines_the_features_must_be_listed(tmp_path: Path) -> None:
    network = 'engine = "files"\n[network]\ndrop = "d"\n'
    for given, said in (("", "same"), ('features = "common"\n', "common")):
        fault = fault_of(tmp_path, BASE + given + network)
        assert f'features = "{said}" requires engine = "in_process": between machines, si' in fault
        assert fault.endswith("List the features, or set manifest.")
    (tmp_path / "f.txt").write_text("age\nbmi\n")
    by_file = read_study(written(tmp_path, f'{BASE}manifest = "f.txt"\n{network}'))
    listed = read_study(written(tmp_path, BASE + LISTED + network))
    assert by_file.study.digest == listed.study.digest
    assert listed.network is not None
    assert (listed.network.drop, listed.network.port) == (tmp_path / "d", 8102)


def test_the_engine_does_not_change_what_is_approved(tmp_path: Path) -> None:
    digests = {
        read_study(written(tmp_path, BASE + LISTED + network)).study.digest
        for network in (
            "",
            'engine = "files"\n[network]\ndrop = "d"\n',
            'engine = "nvflare"\n[network]\nhost = "pca.example"\nport = 9000\n',
        )
    }
    assert len(digests) == 1


def test_two_sites_may_add_all_of_the_noise_themselves(tmp_path: Path) -> None:
    text = PRIVATE.replace(', "island"', "") + 'trust = "local"\n'
    assert read_study(written(tmp_path, text)).quorum == 2


def test_the_number_of_components_can_follow_from_the_data(tmp_path: Path) -> None:
    for text, value in (("0.95", 0.95), ('"all"', "all"), ('"auto"', "auto")):
        study = read_study(
            written(tmp_path, BASE.replace("components = 4", f"components = {text}"))
        )
        assert study.components == study.study.components == value
    changed = BASE.replace("components = 4", "components = 0.9")
    fault = fault_of(tmp_path, changed + "[privacy]\nepsilon = 1.0\ndelta = 1e-6\n")
    assert "components must be an integer if there is a [privacy]" in fault
    assert "components must be an integer for this method" in fault_of(
        tmp_path, changed + 'method = "merge"\n'
    )


@pytest.mark.parametrize("key", ["name", "sites", "components"])
def test_a_key_that_is_needed_is_asked_for(tmp_path: Path, key: str) -> None:
    text = "".join(line + "\n" for line in BASE.splitlines() if not line.startswith(key))
    fault = fault_of(tmp_path, text)
    assert f": {key} is required and must be " in fault
    assert f"Set {key} = " in fault


def test_a_broken_line_is_counted_and_not_quoted(tmp_path: Path) -> None:
    fault = fault_of(tmp_path, BASE + "name\n")
    assert fault.endswith(
        "study.toml is not valid TOML: line 4 cannot be read. Write one key = value per line, "
        "strings in quotes, and each key once."
    )
    assert "ends too early" in fault_of(tmp_path, 'name = "x')
    assert "secret" not in fault_of(tmp_path, "age,name\n34,secret\n")


def test_a_key_twice_is_no_toml(tmp_path: Path) -> None:
    assert "line 4 cannot be read" in fault_of(tmp_path, BASE + "components = 5\n")


def test_a_file_that_is_not_there_not_text_or_too_large(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.toml cannot be read: No such file"):
        read_study(tmp_path / "nowhere.toml")
    (tmp_path / "bytes.toml").write_bytes(b"name = \xff\n")
    with pytest.raises(DataError, match=r"bytes\.toml is not UTF-8 text"):
        read_study(tmp_path / "bytes.toml")
    (tmp_path / "long.toml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(DataError, match="more than 1 MB"):
        read_study(tmp_path / "long.toml")


def test_a_long_value_is_cut_in_the_message(tmp_path: Path) -> None:
    fault = fault_of(tmp_path, BASE.replace("4", f'"{"x" * 5000}"'))
    assert len(fault) < 400


def test_checks_of_the_library_itself_are_told_as_the_file_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(epsilon: float, delta: float) -> float:
        raise InputError(
            Argument("epsilon", epsilon), " asks for next to no noise at all", remedy="Pass less."
        )

    monkeypatch.setattr("eigenfed.privacy.privacy_terms.mu_of", refusing)
    assert fault_of(tmp_path, PRIVATE).endswith(
        "study.toml:5: in [privacy], epsilon = 1.0 asks for next to no noise at all. Pass less."
    )
