"""``eigenfed stream`` and ``eigenfed merge``: rows into summaries, summaries into one."""

import gzip
import os
import signal
import subprocess
import sys
import time
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA

from command_line import FEATURES, answer, as_csv, eigenfed, rows, without_sign
from eigenfed import StreamingPCA, Summary
from eigenfed.arrays import Array
from eigenfed.data.dialect import Dialect
from eigenfed.data.files import open_table
from eigenfed.data.readers import csv_stream


def lines_of(table: Array, mark: str = " ") -> str:
    return "".join(mark.join(map(repr, row)) + "\n" for row in table.tolist())


@pytest.mark.parametrize("mark", [" ", ",", "\t", ", "])
def test_rows_on_standard_input_become_the_summary_of_a_stream(tmp_path: Path, mark: str) -> None:
    out = tmp_path / "a.summary"
    said = answer("stream", "-", "-k", 2, "-o", out, given=lines_of(rows(300), mark))
    pooled = PCA(2).fit(rows(300))
    assert (said["n"], said["d"], said["bytes"]) == (300, 6, out.stat().st_size)
    np.testing.assert_allclose(said["eigenvalues"], pooled.explained_variance_, rtol=1e-10)
    summary = Summary.from_bytes(out.read_bytes())
    assert summary.n == 300.0
    np.testing.assert_allclose(
        without_sign(summary.vt[:2]), without_sign(pooled.components_), atol=1e-9
    )


def test_a_file_is_read_like_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_text(lines_of(rows(50)))
    assert answer("stream", path, "-k", 2) == answer("stream", "-k", 2, given=path.read_text())


def test_every_so_many_rows_the_file_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def watched(path: Path, data: bytes) -> None:
        sizes.append(Summary.from_bytes(data).n)
        path.write_bytes(data)

    monkeypatch.setattr("eigenfed.data.safe_files.write_at_once", watched)
    call = ("stream", "-k", 2, "-o", tmp_path / "s", "--every")
    answer(*call, 100, given=lines_of(rows(350)))
    assert sizes == [100.0, 200.0, 300.0, 350.0]
    sizes.clear()
    answer(*call, 1500, "--force", given=lines_of(rows(3100)))
    assert sizes == [1500.0, 3000.0, 3100.0]


def test_settings_of_a_stream_reach_it() -> None:
    text = lines_of(rows(100))
    wanted = StreamingPCA(2, forgetting=0.9, center=False).fit(rows(100))
    said = answer("stream", "-k", 2, "--forgetting", 0.9, "--no-center", given=text)
    np.testing.assert_allclose(said["eigenvalues"], wanted.explained_variance_, rtol=1e-12)


@pytest.mark.parametrize(
    ("flags", "given", "n"),
    [
        ((), "a,b\n1,2\n3,5\n", 2),
        ((), "\n\ufeffa,b\r\n1,2\r\n\r\n3,5", 2),
        ((), '"age, years",b\n1,2\n3,5\n', 2),
        ((), "a b\n1 2\n3 5\n", 2),
        (("--header",), "a,b\n1,2\n3,5\n", 2),
        (("--header",), "2019,2020\n1,2\n3,5\n", 2),
        (("--header",), "2019,b\n1,2\n3,5\n", 2),
        ((), "2019,2020\n1,2\n3,5\n", 3),
        ((), "\ufeff1,2\n3,5\n", 2),
    ],
)
def test_names_are_told_from_a_first_row(flags: tuple[str, ...], given: str, n: int) -> None:
    said = answer("stream", "-k", 1, *flags, given=given.lstrip("\n"))
    assert (said["n"], said["d"]) == (n, 2)


def test_a_file_means_the_same_to_a_fit_and_to_a_stream(tmp_path: Path) -> None:
    cells = [["", "NA", "N/A", "NaN"], ["nan", "null", "NULL", ""]]
    text = "a,b\n" + "".join(
        f"{one},{other!r}\n"
        for i, other in enumerate(rows(60)[:, 0].tolist())
        for one in (i, *cells[i % 2])
    )
    plain, packed = tmp_path / "a.csv", tmp_path / "a.csv.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    read = open_table(plain).source.X
    wanted = StreamingPCA(1).fit(read)
    for path in (plain, packed):
        said = answer("stream", path, "-k", 1)
        assert (said["n"], said["missing"]) == (len(read), np.isnan(read).sum())
        assert said["eigenvalues"] == wanted.explained_variance_.tolist()


def test_a_damaged_gzip_is_said_to_be_so(tmp_path: Path) -> None:
    packed = gzip.compress(lines_of(rows(500), ",").encode())
    (tmp_path / "a.csv.gz").write_bytes(packed[:-2000])
    run = eigenfed("stream", tmp_path / "a.csv.gz", "-k", 1)
    assert run.exit_code == 1
    assert "a.csv.gz is damaged or incomplete" in run.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_pipe_is_read_as_rows_arrive_and_what_was_read_is_written(
    tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "s"
    command = ["stream", "-k", "2", "-o", str(out), "--every", "10"]
    with subprocess.Popen(
        [sys.executable, "-m", "eigenfed", *command],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(lines_of(rows(13), ","))
        process.stdin.flush()
        end = time.monotonic() + 60
        while not out.exists() and time.monotonic() < end:
            time.sleep(0.05)
        assert Summary.from_bytes(out.read_bytes()).n in (10.0, 13.0)
        time.sleep(0.2)
        process.send_signal(number)
        assert process.wait(60) == 1
        assert "Interrupted: 13 rows were read, and its summary was written" in (
            process.stderr.read()
        )
    assert Summary.from_bytes(out.read_bytes()).n == 13.0


def test_a_stream_goes_on_where_an_earlier_one_ended(tmp_path: Path) -> None:
    names, table = ",".join("abcdef"), rows(300)
    out = tmp_path / "s"
    whole = answer("stream", "-k", 2, given=f"{names}\n{lines_of(table, ',')}")
    answer("stream", "-k", 2, "-o", out, given=f"{names}\n{lines_of(table[:120], ',')}")
    later = f"{names[::-1]}\n{lines_of(table[120:, ::-1], ',')}"
    said = answer("stream", "-k", 2, "--resume", out, "-o", out, given=later)
    assert (said["n"], said["features"]) == (300, list("fedcba"))
    np.testing.assert_allclose(said["eigenvalues"], whole["eigenvalues"], rtol=1e-9)
    assert Summary.from_bytes(out.read_bytes()).names == tuple("fedcba")
    run = eigenfed("stream", "-k", 1, "--resume", out, given="u v\n1 2\n")
    message = "The summary to resume has 6 features and must have 2, as the rows have."
    assert (run.exit_code, message in run.stderr) == (2, True)
    for words, given, wrong in (
        ((), later.replace("f,", "z,", 1), "A summary without 'z' cannot be merged into one with"),
        (("--no-center",), later, "A summary of centred rows cannot be merged into one of rows"),
    ):
        run = eigenfed("stream", "-k", 1, "--resume", out, *words, given=given)
        assert run.exit_code == 2
        assert run.stderr.startswith(f"eigenfed: --resume: {wrong}")
    unnamed = answer("stream", "-k", 1, "--resume", out, given=lines_of(table[:9], ","))
    assert unnamed["features"] is None
    run = eigenfed("stream", "-k", 1, "--resume", out, given=lines_of(table[:9], ","))
    assert run.stderr == (
        f"eigenfed: Standard input has no names of features, and {out} has: they are matched by "
        "position, and the new summary has none.\n"
    )


def test_names_that_a_summary_cannot_keep_are_pointed_out() -> None:
    for names, wrong in (("u,u", "names a column twice"), ("u,", "has a column without a name")):
        run = eigenfed("stream", "-k", 1, given=f"{names}\n1,2\n3,5\n4,1\n")
        assert run.exit_code == 0
        assert run.stderr == (
            f"eigenfed: Standard input {wrong}, so that the summary keeps no names of features.\n"
        )


def test_a_device_needs_no_scikit_learn() -> None:
    code = (
        "import sys; from eigenfed.cli.main import cli\n"
        "try: cli(['stream', '-k', '1'])\n"
        "except SystemExit: pass\n"
        "heavy = ('sklearn', 'pandas', 'scipy', 'pyarrow', 'pydantic', 'rich')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], input="1,2\n3,5\n", capture_output=True, text=True
    )
    assert run.stderr == "[]\n"


@pytest.mark.skipif(sys.platform != "linux", reason="reads the resident memory of a child")
def test_a_device_with_little_memory_writes_the_same_summary(tmp_path: Path) -> None:
    file = tmp_path / "readings.csv"
    table = np.random.default_rng(0).standard_normal((4000, 20))
    file.write_text(",".join(f"f{i}" for i in range(20)) + "\n" + lines_of(table, ","))
    whole, few = tmp_path / "whole.summary", tmp_path / "few.summary"
    answer("stream", file, "-k", 3, "-o", whole)
    code = (
        "import sys; from eigenfed.cli.main import cli\n"
        "try: cli(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(peak.split()[1], 'pyarrow' in sys.modules, file=sys.stderr)"
    )
    given = ["stream", str(file), "-k", "3", "-o", str(few), "--low-memory"]
    run = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True)
    peak_kb, loaded = run.stderr.split()
    assert loaded == "False"
    assert int(peak_kb) < 60_000
    assert few.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(
    ("text", "given"),
    [
        (b"1.5,-2e-3\r\n,NA\r\n\r\n7,0.1\r\n", Dialect()),
        (b"1,5;2\n-3,25e2;999\n", Dialect(delimiter=";", decimal=",", missing=("999",))),
        (b"0.1,123456789.123456789e-7\n4.35,2.2250738585072011e-308\n", Dialect(header=False)),
    ],
)
def test_few_rows_are_parsed_as_pyarrow_parses_them(
    text: bytes, given: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse() -> Array:
        stream = csv_stream.open_csv_stream(BytesIO(text), "a", given, low_memory=True)
        return np.vstack(list(stream.read_batches()))

    here = parse()
    monkeypatch.setattr(csv_stream, "_parse_few", lambda *_: None)
    np.testing.assert_array_equal(here.view(np.int64), parse().view(np.int64))


def test_what_is_no_plain_number_is_left_to_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (b'"1",2\n', b"1_0,2\n", b"+1,2\n", b"1,2,3\n", b"0x1,2\n", b"1.5,2\n"):
        decimal = "," if text == b"1.5,2\n" else "."
        assert csv_stream._parse_few(text, 2, Dialect(delimiter=",", decimal=decimal)) is None


def test_batches_end_at_multiples_wherever_chunks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_stream, "_CHUNK_BYTES", 30)
    text = "".join(f"{i},{'0' * 9}{i}\n" for i in range(10, 20)).encode()
    batches = list(csv_stream.open_csv_stream(BytesIO(text), "a").read_batches(5))
    assert np.cumsum([len(batch) for batch in batches]).tolist()[-1] == 10
    assert 5 in np.cumsum([len(batch) for batch in batches])
    np.testing.assert_array_equal(np.vstack(batches)[:, 0], np.arange(10, 20))


def test_a_line_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_stream, "LONGEST_LINE", 1 << 20)
    run = eigenfed("stream", "-k", 1, given=b"1" * (2 << 20))
    assert run.exit_code == 1
    assert "has a line of more than" in run.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("age,9371\n1,2\n", "has numbers and text in line 1, the first. Pass --header if"),
        ("1,2\n\n3,x9371\n", "has something other than numbers in line 3"),
        ("a,b\n1,2\n\n3,x9371\n", "has something other than numbers in line 4"),
        ("1 2\n3 x9371\n", "has something other than numbers in line 2"),
        (
            "at,b\nx9371,2\ny9371,5\nz9371,1\n",
            "has no numbers in column 1, 'at', in the lines 2 to 4. Correct them, or send the",
        ),
        ("1,2\n3,4,9371\n", "has 3 cells in line 2 and 2 in the first line"),
        ("a,b,c\n9371,2\n", "has 2 cells in line 2 and 3 in the first line"),
        ("1,2\n9371,inf\n", "has an infinite number in line 2"),
        ("1,2\n9371,1e999\n", "has an infinite number in line 2"),
        ('1,2\n9371,"3\n', "has an open quote or a line break inside a cell in line 2"),
        ("1,2\n3,4\r9371,6\n", "has an open quote or a line break inside a cell in line 2"),
        ("1,1_0\n9371,2\n", "has numbers and text in line 1"),
        ("a,b\n", "has no rows"),
        ("", "has no rows"),
        ("\n \n", "has no rows"),
    ],
)
def test_bad_lines_are_told_by_number_and_never_quoted(
    tmp_path: Path, given: str, message: str
) -> None:
    run = eigenfed("stream", "-k", 1, "-o", tmp_path / "s", given=given)
    assert run.exit_code == 1
    assert message in run.stderr
    assert "9371" not in run.output
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_kind_is_no_stream(tmp_path: Path) -> None:
    for name in ("a.parquet", "a.xlsx", "a.npy"):
        (tmp_path / name).write_bytes(b"PK")
        run = eigenfed("stream", tmp_path / name, "-k", 1)
        assert (run.exit_code, "is not a text file, and a stream is csv" in run.stderr) == (2, True)


def test_what_is_no_text_is_refused() -> None:
    run = eigenfed("stream", "-k", 1, given=b"1 2\n\xff\xfe\n")
    assert run.exit_code == 1
    assert "Standard input is not UTF-8 text: see line 2" in run.stderr


def test_summaries_merge_into_that_of_all_rows(tmp_path: Path) -> None:
    parts = {"a": rows(300), "b": rows(200, seed=1) + 7, "c": rows(40, seed=2)}
    for name, part in parts.items():
        answer("stream", "-k", 2, "-o", tmp_path / name, given=lines_of(part))
    files = [tmp_path / name for name in parts]
    said = answer("merge", *files, "-o", tmp_path / "all", "-k", 2)
    pooled = PCA(2).fit(np.vstack(list(parts.values())))
    assert (said["n"], said["k"], said["summaries"]) == (540.0, 2, 3)
    np.testing.assert_allclose(said["eigenvalues"], pooled.explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(said["ratios"], pooled.explained_variance_ratio_, rtol=1e-10)
    assert Summary.from_bytes((tmp_path / "all").read_bytes()).rank == 2
    whole = answer("merge", *reversed(files), "-o", tmp_path / "whole")
    assert whole["k"] == 6
    np.testing.assert_allclose(whole["eigenvalues"][:2], said["eigenvalues"], rtol=1e-10)


def test_the_bound_of_a_merged_summary_holds(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((600, 200)) * 0.8 ** np.arange(200)
    for name, part in {"a": X[:400], "b": X[400:]}.items():
        pca = StreamingPCA(3, memory="low_rank").fit(part)
        (tmp_path / name).write_bytes(pca.summary_.to_bytes())
    said = answer("merge", tmp_path / "a", tmp_path / "b", "-k", 3, "-o", tmp_path / "m")
    found = Summary.from_bytes((tmp_path / "m").read_bytes())
    pooled = PCA(3).fit(X).components_
    sine = np.linalg.norm(pooled.T @ pooled - found.vt.T @ found.vt, 2)
    assert 0 < sine <= said["sine_bound"]


def test_the_bound_of_a_stream_that_keeps_the_whole_scatter_is_rounding() -> None:
    rows = np.random.default_rng(4).standard_normal((500, 50)) * 0.95 ** np.arange(50)
    lines = "\n".join(",".join(map(repr, row)) for row in rows.tolist())
    assert answer("stream", "-", "-k", 5, given=lines)["sine_bound"] < 1e-10
    flat = "\n".join(",".join(row) for row in np.eye(4, dtype=int).astype(str).tolist())
    run = eigenfed("stream", "-", "-k", 2, given=flat)
    assert "unknown: the gap after the last component is too small" in run.stdout


def test_what_cannot_be_merged_is_named(tmp_path: Path) -> None:
    for name, d in {"a": 2, "b": 3}.items():
        summary = Summary.empty(d, 2).update(np.eye(d))
        (tmp_path / name).write_bytes(summary.to_bytes())
    (tmp_path / "junk").write_bytes(b"not a summary")
    out = tmp_path / "out"
    for files, code, message in [
        (("a", "b"), 2, f"{tmp_path / 'b'}: A summary of 3 features cannot be merged into one"),
        (("a", "junk"), 1, f"{tmp_path / 'junk'}: The data were not written by eigenfed"),
        (("a", "junk"), 1, "Pass a file that eigenfed wrote, such as a summary.\n"),
        (("a", "a"), 2, "is named twice"),
    ]:
        run = eigenfed("merge", *(tmp_path / name for name in files), "-o", out)
        assert run.exit_code == code
        assert message in run.stderr
        assert not out.exists()


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    out = tmp_path / "s"
    out.write_text("mine")
    for call in (("stream", "-k", 1), ("merge", out)):
        run = eigenfed(*call, "-o", out, given="1 2\n2 5\n")
        assert run.exit_code == 2
        assert "--force" in run.stderr
        assert out.read_text() == "mine"
    run = eigenfed("stream", "-k", 1, "-o", tmp_path / "nowhere/s", given="1 2\n")
    assert run.exit_code == 2
    run = eigenfed("stream", "-k", 1, "--every", 5, given="1 2\n")
    assert run.exit_code == 2


def test_where_nothing_can_be_written_is_said_before_a_row_is_read(tmp_path: Path) -> None:
    made = tmp_path / "a.summary"
    made.write_bytes(StreamingPCA(1).fit(rows(30)).summary_.to_bytes())
    for call in (
        ("stream", "-k", 1, "-o", "/proc/a"),
        ("stream", "-k", 1, "--loadings", "/proc/a"),
        ("merge", made, "-o", "/proc/a"),
        ("project", made, made, "-o", "/proc/a.csv"),
        ("fit", made, "-k", 1, "-o", "/proc/a"),
        ("demo", "-o", "/proc/a"),
    ):
        run = eigenfed(*call, given="no number\n")
        assert run.exit_code == 2
        assert run.stderr.startswith("eigenfed: No file can be made in the folder /proc: ")


def test_a_link_a_device_or_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    pipe, link, nowhere = (tmp_path / name for name in ("pipe", "link", "nowhere"))
    os.mkfifo(pipe)
    (tmp_path / "file").write_text("mine")
    link.symlink_to(tmp_path / "file")
    nowhere.symlink_to(tmp_path / "none")
    for out in (pipe, link, nowhere):
        for option in ("-o", "--loadings"):
            run = eigenfed("stream", "-k", 1, option, out, "--force", given="1 2\n2 5\n")
            assert (run.exit_code, "is a link, a device or a pipe" in run.stderr) == (2, True)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert nowhere.is_symlink()
    assert link.read_text() == "mine"


def test_asking_for_more_directions_than_there_are_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(Summary.empty(2, 2).update(np.eye(2)).to_bytes())
    run = eigenfed("merge", tmp_path / "a", "-k", 5, "-o", tmp_path / "out")
    assert run.exit_code == 0
    assert "fewer than -k 5" in run.stderr


def test_fewer_directions_keep_the_bound_of_all_that_were_merged(tmp_path: Path) -> None:
    table = np.random.default_rng(0).standard_normal((400, 12)) * 0.7 ** np.arange(12)
    for name, part in (("a", table[:200]), ("b", table[200:] + 1.0)):
        lines = "\n".join(",".join(map(repr, row)) for row in part.tolist())
        answer("stream", "-", "-k", 6, "-o", tmp_path / name, given=lines)
    few, all_ = (
        answer("merge", tmp_path / "a", tmp_path / "b", *k, "-o", tmp_path / f"m{len(k)}")
        for k in (("-k", 3), ())
    )
    assert few["eigenvalues"] == all_["eigenvalues"][:3]
    assert few["sine_bound"] < 0.1


def test_summaries_are_matched_by_name(tmp_path: Path) -> None:
    table = rows(200)
    paths = [tmp_path / name for name in ("one", "two", "old", "other")]
    texts = [
        f"a,b,c,d,e,f\n{lines_of(table[:120], ',')}",
        f"f,e,d,c,b,a\n{lines_of(table[120:, ::-1], ',')}",
        lines_of(table[:50], ","),
        f"a,b,c,d,e,z\n{lines_of(table[:50], ',')}",
    ]
    for path, text in zip(paths, texts, strict=True):
        answer("stream", "-k", 2, "-o", path, given=text)
    one, two, old, other = paths
    said = answer("merge", one, two, "-o", tmp_path / "both")
    assert said["features"] == list("abcdef")
    np.testing.assert_allclose(
        said["eigenvalues"][:2], PCA(2).fit(table).explained_variance_, rtol=1e-9
    )
    run = eigenfed("merge", one, old, "-o", tmp_path / "mixed")
    assert (run.exit_code, f"{old} has no names of features" in run.stderr) == (0, True)
    assert Summary.from_bytes((tmp_path / "mixed").read_bytes()).names is None
    for files, message in (
        ((one, two, old), "cannot be matched by position"),
        ((one, other), f"{other}: A summary without 'f' cannot be merged into one with it."),
    ):
        run = eigenfed("merge", *files, "-o", tmp_path / "refused")
        assert (run.exit_code, message in run.stderr) == (2, True)


def test_rows_are_projected_onto_a_summary_by_name(tmp_path: Path) -> None:
    table = rows(200)
    path = as_csv(tmp_path / "all.csv", table)
    answer("stream", path, "-k", 3, "-o", tmp_path / "all.summary")
    order = [5, 2, 0, 1, 3, 4]
    mixed = as_csv(tmp_path / "new.csv", table[:9, order], tuple(FEATURES[i] for i in order))
    found = answer("project", tmp_path / "all.summary", mixed, "-k", 2)
    pooled = PCA(2).fit(table)
    wanted = pooled.transform(table[:9]) * np.sign(
        [row[np.abs(row).argmax()] for row in pooled.components_]
    )
    np.testing.assert_allclose(found["scores"], wanted, atol=1e-8)
    alone = as_csv(tmp_path / "one.csv", table[:1])
    run = eigenfed("project", tmp_path / "all.summary", alone, "-k", 1, "-o", tmp_path / "one.npy")
    assert run.stdout == f"1 record x 1 score written to {tmp_path / 'one.npy'}\n"
    run = eigenfed("project", tmp_path / "all.summary", mixed, "--id-column", FEATURES[0])
    assert run.exit_code == 2
    assert f"--id-column {FEATURES[0]} is a feature of the components." in run.stderr
    run = eigenfed("project", tmp_path / "all.summary", mixed, "-k", 99)
    assert run.exit_code == 2
    assert "the number of directions that the summary holds" in run.stderr


def test_loadings_of_streams_and_merges_are_csv_with_the_names_of_features(tmp_path: Path) -> None:
    table, parts = rows(300), []
    for place, part in enumerate((table[:120], table[120:])):
        file = tmp_path / f"{place}.csv"
        file.write_text(",".join(FEATURES) + "\n" + lines_of(part, ","))
        parts.append(tmp_path / f"{place}.summary")
        answer(
            "stream", file, "-k", 2, "-o", parts[-1], "--loadings", tmp_path / f"{place}.out.csv"
        )
    merged = tmp_path / "merged.csv"
    answer("merge", *parts, "-o", tmp_path / "m.summary", "-k", 2, "--loadings", merged)
    head, *lines = (line.split(",") for line in merged.read_text().splitlines())
    assert head == ["feature", "PC1", "PC2"]
    assert [line[0] for line in lines] == list(FEATURES)
    found = np.array([line[1:] for line in lines], dtype=float).T
    pooled = PCA(2).fit(table).components_
    np.testing.assert_allclose(without_sign(found), without_sign(pooled), atol=1e-9)
    again = eigenfed("merge", *parts, "-o", tmp_path / "n.summary", "--loadings", merged)
    assert (again.exit_code, "--force" in again.stderr) == (2, True)
    assert (
        eigenfed("stream", "-k", 1, "--loadings", tmp_path / "x.csv", given="1 2\n3 5\n").exit_code
        == 0
    )
    assert (tmp_path / "x.csv").read_text().splitlines()[1].startswith("x0,")
