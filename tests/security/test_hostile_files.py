"""Files that somebody else wrote, with a mind of their own: our own error, in words, and cheaply.

Whoever sends a result folder, a study, a transcript or a summary may have made it by hand. What it
claims is compared with what it holds before any room is made; what it says is never run.
"""

import copy
import hashlib
import json
import os
import pickle
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse

from eigenfed import DataError, EigenfedError, Summary
from eigenfed.arrays import Container
from eigenfed.data.files import open_source
from eigenfed.data.readers.npy import map_npy
from eigenfed.privacy.ledger.events import Event
from eigenfed.protocol.core import TOTAL, Call
from eigenfed.protocol.exact.magnitude import MagnitudeRequest
from eigenfed.protocol.exact.moments import MomentsRequest, SquaresRequest
from eigenfed.report.html import write_pages
from eigenfed.study.config import read_site, read_study
from eigenfed.study.results.result_folder import read_result
from eigenfed.transport.transcript import Transcript
from reports import tables, without_pages

SECRET = "4711.25"
LITTLE = 8 << 20
DEEP = "[" * 100_000 + "]" * 100_000


class Trap:
    """Something that runs when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("it was unpickled",)


@contextmanager
def little_memory(most: int = LITTLE) -> Iterator[None]:
    """Fail where more than a little room is made, however briefly."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most


def refused(read: Callable[[], object], kind: type[EigenfedError] = DataError) -> str:
    """Return the message of our own error, which quotes nothing that the file holds."""
    with little_memory(), pytest.raises(kind) as caught:
        read()
    message = str(caught.value)
    assert SECRET not in message
    assert len(message) < 1000
    assert caught.value.__cause__ is None or isinstance(caught.value.__cause__, EigenfedError)
    return message


def npy(header: str, body: bytes = b"", *, version: int = 1, length: int | None = None) -> bytes:
    """Write an array file with a header of one's own."""
    text = header.encode("latin1")
    size = len(text) if length is None else length
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + size.to_bytes(2 * min(version, 2), "little")
        + (text + body)
    )


def described(descr: str = "'<f8'", order: str = "False", shape: str = "(3, 8)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


BODY = np.full((3, 8), float(SECRET)).tobytes()
ARRAYS = {
    "claims 8 TiB": npy(described(shape="(1048576, 1048576)"), BODY),
    "claims more than there are numbers": npy(described(shape=f"({10**40}, 8)"), BODY),
    "is empty along one axis and endless along another": npy(described(shape=f"(0, {2**62})")),
    "has a negative length": npy(described(shape="(-3, -8)"), BODY),
    "has a length that is true": npy(described(shape="(True, 8)"), BODY),
    "has a shape that is code": npy(described(shape="(__import__('os').abort(), 8)"), BODY),
    "has more axes than numpy": npy(described(shape=f"({'1, ' * 99})"), BODY),
    "has no shape": npy("{'descr': '<f8', 'fortran_order': False, }", BODY),
    "has two shapes": npy("{'shape': (1, 8), 'shape': (3, 8), 'descr': '<f8', }", BODY),
    "has a further entry": npy(described()[:-2] + "'more': 1}", BODY),
    "is nested without end": npy("(" * 9000, BODY),
    "has an order that is neither": npy(described(order="2"), BODY),
    "has an order that is text": npy(described(order="'False'"), BODY),
    "is by columns and cut short": npy(described(order="True"), BODY[:-1]),
    "is by columns and 8 TiB": npy(described(order="True", shape="(1048576, 1048576)"), BODY),
    "holds objects": npy(described(descr="'|O'"), pickle.dumps([Trap()] * 24)),
    "holds records": npy(described(descr="[('a', '<f8')]"), BODY),
    "holds text of a gigabyte each": npy(described(descr="'<U999999999'"), BODY),
    "holds numbers of no kind": npy(described(descr="'<f99'"), BODY),
    "holds numbers of a foreign unit": npy(described(descr="'<m8[no]'"), BODY),
    "is cut short": npy(described(), BODY[:-1]),
    "ends in its header": npy(described())[:40],
    "ends in its mark": b"\x93NUM",
    "is nothing": b"",
    "has an endless header": npy(described(), version=2, length=2**32 - 1),
    "is of a version to come": npy(described(), BODY, version=9),
    "is something else": b"PK\x03\x04" + BODY,
}


def result(folder: Path, **settings: Any) -> Path:
    without_pages(folder, tables(), **settings)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result with scores and figures by site."""
    return result(tmp_path_factory.mktemp("results") / "whole", by_site=True, share=("north",))


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return copied(whole, tmp_path / "copy")


def copied(whole: Path, to: Path) -> Path:
    for path in whole.rglob("*"):
        if path.is_file():
            target = to / path.relative_to(whole)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return to


@pytest.mark.parametrize("how", ARRAYS)
@pytest.mark.parametrize("part", ["components.npy", "mean.npy", "scores/north.npy"])
def test_an_array_of_a_result_is_refused_where_it(folder: Path, part: str, how: str) -> None:
    (folder / part).write_bytes(ARRAYS[how])
    assert part in refused(lambda: write_pages(folder))


@pytest.mark.parametrize("how", ARRAYS)
def test_a_table_is_refused_where_it(tmp_path: Path, how: str) -> None:
    (tmp_path / "a.npy").write_bytes(ARRAYS[how])
    assert "a.npy" in refused(lambda: open_source(tmp_path / "a.npy"))


@pytest.mark.parametrize("how", ARRAYS)
@pytest.mark.parametrize("part", ["arr_0", "indptr", "indices", "data", "shape", "format"])
def test_an_archive_is_refused_where_a_part_of_it(tmp_path: Path, part: str, how: str) -> None:
    path = tmp_path / "a.npz"
    if part == "arr_0":
        np.savez(path, np.ones((3, 8)))
    else:
        sparse.save_npz(path, sparse.csr_array(np.ones((3, 8))))
    with_member(path, part, ARRAYS[how])
    assert "a.npz" in refused(lambda: open_source(path))


@pytest.mark.parametrize("layout", ["csc", "bsr", "coo", "dia"])
@pytest.mark.parametrize("how", ["claims 8 TiB", "holds objects", "is cut short"])
def test_other_layouts_are_no_less_careful(tmp_path: Path, layout: str, how: str) -> None:
    path = tmp_path / "a.npz"
    save_as(path, layout)
    with_member(path, "data", ARRAYS[how])
    assert "a.npz" in refused(lambda: open_source(path))


def save_as(path: Path, layout: str) -> None:
    table: Any = sparse.csr_array(np.ones((3, 8)))
    sparse.save_npz(path, table.asformat(layout))


def saved(array: npt.NDArray[Any]) -> bytes:
    held = BytesIO()
    np.save(held, array)
    return held.getvalue()


def with_member(path: Path, part: str, data: bytes) -> None:
    """Replace a member of an archive."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members[f"{part}.npy"] = data
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)


@pytest.mark.parametrize("shape", [(2**40, 8), (-1, 8), (3, 2**62), (3, -8)])
@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "dia"])
def test_a_sparse_table_of_an_endless_shape_is_refused(
    tmp_path: Path, layout: str, shape: tuple[int, int]
) -> None:
    path = tmp_path / "a.npz"
    save_as(path, layout)
    with_member(path, "shape", saved(np.array(shape)))
    assert "a.npz" in refused(lambda: open_source(path))


@pytest.mark.parametrize("part", ["arr_0", "indptr"])
def test_a_bomb_in_an_archive_does_not_go_off(tmp_path: Path, part: str) -> None:
    path, rows = tmp_path / "a.npz", 96 << 20
    parts = {"format": np.array("csr"), "shape": np.array([rows - 1, 1])}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ["format", "shape"] * (part == "indptr"):
            archive.writestr(f"{name}.npy", saved(parts[name]))
        with archive.open(f"{part}.npy", "w") as member:
            shape = f"({rows}, 1)" if part == "arr_0" else f"({rows},)"
            member.write(npy(described(descr="'|u1'", shape=shape)))
            for _ in range(rows >> 20):
                member.write(bytes(1 << 20))
    assert path.stat().st_size < 1 << 18
    assert "100 times" in refused(lambda: open_source(path))


def test_arrays_that_numpy_wrote_are_mapped_whatever_their_order(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    kinds: list[npt.NDArray[Any]] = [
        np.arange(12.0).reshape(3, 4),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(12, dtype=">i2").reshape(3, 4),
        np.zeros((0, 4)),
        np.array(2.5),
        np.array(["a", "bcd"]),
        np.array([True, False]),
        np.array(["2026-01-01"], dtype="M8[D]"),
    ]
    for kind in kinds:
        np.save(path, kind)
        found = map_npy(path)
        np.testing.assert_array_equal(found, kind)
        assert found.dtype == kind.dtype
    for writer in (
        b'{"shape":(2,),"fortran_order":False,"descr":"<f4"}',
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (2L,)}   \n",
    ):
        path.write_bytes(npy(writer.decode(), np.array([1.5, 2.5], np.float32).tobytes()))
        np.testing.assert_array_equal(map_npy(path), [1.5, 2.5])


TEXTS = {
    "is nested without end": DEEP,
    "nests tables without end": '{"a":' * 100_000,
    "has a number of a million digits": "9" * 1_000_000,
    "has a number of twenty digits": '{"k": 99999999999999999999}',
    "is a list": "[]",
    "is no JSON": SECRET + "]",
    "is null": "null",
    "holds half a character": '{"method": "\\ud800"}',
    "is nothing": "",
}


@pytest.mark.parametrize("how", TEXTS)
@pytest.mark.parametrize("part", ["result.json", "run.jsonl"])
def test_json_of_a_result_is_refused_where_it(folder: Path, part: str, how: str) -> None:
    (folder / part).write_text(TEXTS[how])
    assert part in refused(lambda: write_pages(folder))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 20])
@pytest.mark.parametrize("part", ["result.json", "run.jsonl"])
def test_numbers_that_json_has_not_are_refused(folder: Path, part: str, number: str) -> None:
    text = (folder / part).read_text()
    for place in ('"bytes_up": ', '"n": '):
        if place in text:
            head, _, tail = text.partition(place)
            (folder / part).write_text(f"{head}{place}{number}{tail}")
            assert part in refused(lambda: write_pages(folder))


@pytest.mark.parametrize("part", ["result.json", "run.jsonl", "features.txt", "mean.npy"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "absent"])
def test_a_part_that_is_no_file_is_refused_at_once(folder: Path, part: str, kind: str) -> None:
    path = folder / part
    path.unlink()
    makers: dict[str, Callable[[], object]] = {
        "pipe": lambda: os.mkfifo(path),
        "device": lambda: path.symlink_to("/dev/zero"),
        "folder": path.mkdir,
        "absent": lambda: None,
    }
    makers[kind]()
    assert part in refused(lambda: write_pages(folder))


def test_a_part_beyond_all_measure_is_not_read(folder: Path) -> None:
    with (folder / "result.json").open("r+b") as file:
        file.truncate(1 << 40)
    assert "result.json" in refused(lambda: read_result(folder))


@pytest.mark.parametrize("part", ["sites", "multiqc"])
def test_pages_are_not_written_or_removed_where_a_link_leads(folder: Path, part: str) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "index.html").write_text("mine")
    (folder / part).symlink_to(outside)
    assert part in refused(lambda: write_pages(folder))
    assert [path.name for path in outside.iterdir()] == ["index.html"]


WRONG = [None, True, -1, 0, 2**62, 1e308, "", "x", [], {}, [None], {"x": None}, ["x", "x"]]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where something stands, all the way down, but the first of each list alone."""
    if path:
        yield path
    inner: Any = ()
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value[:1])
    for key, entry in inner:
        yield from places(entry, (*path, key))


def changed(value: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    """Replace what stands there; `...` takes it away."""
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    if wrong is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = wrong
    return value


def ours_or_none(read: Callable[[], object]) -> bool:
    """Say whether it was refused; an error that is not ours goes through."""
    try:
        read()
    except EigenfedError:
        return True
    return False


def used(folder: Path) -> None:
    """Do with a result what people do."""
    read_result(folder).estimator().transform(np.zeros((1, 8)))
    write_pages(folder)


def test_a_wrong_value_in_any_field_of_a_result_gives_our_error_or_none(folder: Path) -> None:
    facts = json.loads((folder / "result.json").read_text())
    found = list(places(facts))
    rng = np.random.default_rng(0)
    cases = [(path, wrong) for path in found for wrong in (..., *WRONG)]
    told = 0
    for at in rng.choice(len(cases), 250, replace=False):
        path, wrong = cases[at]
        (folder / "result.json").write_text(json.dumps(changed(facts, path, wrong)))
        told += ours_or_none(lambda: used(folder))
    assert told > 125


def test_a_wrong_value_in_any_field_of_a_log_gives_our_error_or_none(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    rng = np.random.default_rng(1)
    told = 0
    for _ in range(150):
        event = int(rng.integers(len(lines)))
        found = list(places(lines[event]))
        path = found[rng.integers(len(found))]
        wrong = (..., *WRONG)[rng.integers(len(WRONG) + 1)]
        changed_lines = [*lines[:event], changed(lines[event], path, wrong), *lines[event + 1 :]]
        text = "".join(json.dumps(line) + "\n" for line in changed_lines)
        (folder / "run.jsonl").write_text(text)
        told += ours_or_none(lambda: write_pages(folder))
    assert told > 75


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Change, drop, repeat or insert a few bytes, or cut the rest off."""
    for _ in range(rng.integers(1, 4)):
        at, size = int(rng.integers(len(data) + 1)), int(rng.integers(1, 9))
        match rng.integers(5):
            case 0:
                data = data[:at] + rng.bytes(size) + data[at + size :]
            case 1:
                data = data[:at] + data[at + size :]
            case 2:
                data = data[:at] + data[at : at + size] * 3 + data[at + size :]
            case 3:
                data = data[:at] + rng.bytes(size) + data[at:]
            case _:
                data = (
                    data[:at] + bytes([rng.choice(list(b'0123456789-+.eE[]{}",:#='))]) + data[at:]
                )
    return data if rng.integers(8) else data[: int(rng.integers(len(data) + 1))]


def test_a_result_with_any_few_bytes_changed_gives_our_error_or_none(
    whole: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(2)
    parts = sorted(path for path in whole.rglob("*") if path.is_file())
    folder = copied(whole, tmp_path / "copy")
    told = 0
    for _ in range(300):
        path = parts[rng.integers(len(parts))]
        place = folder / path.relative_to(whole)
        place.write_bytes(mutated(path.read_bytes(), rng))
        told += ours_or_none(lambda: used(folder))
        place.write_bytes(path.read_bytes())
    assert told > 100


STUDY = """\
name = "heart"  # a comment
sites = ["north", "south", "west"]
components = 3
method = "covariance"
scale = true
quorum = 3
deadline_s = 60.5

[privacy]
epsilon = 1.0
delta = 1e-6

[expected]
rows = { north = 100, south = 2_000, west = 0x40 }
features = 40
decay = 0.5
"""
SITE = """\
name = "north"
data = "a.csv"
where = ["age >= 18", 'bmi < 30.5']
ledger = "north.ledger"
[policy]
min_rows = 20
[policy.budget]
epsilon = 3.0
delta = 1e-6
"""
SETTINGS: dict[str, Callable[[], str]] = {
    "is nested without end": lambda: f"name = {DEEP}",
    "nests tables without end": lambda: "name = " + "{a=" * 100_000,
    "has a key without end": lambda: "a." * 500_000 + "a = 1",
    "has a key without end in a table of one line": lambda: f"x = {{{'a.' * 500_000}a = 1}}",
    "has a header without end": lambda: f"[{'a.' * 500_000}a]",
    "has a quoted key without end": lambda: '"a".' * 250_000 + "a = 1",
    "hides a key without end between comments": lambda: f'# """\n{"a." * 500_000}a = 1\n# """',
    "hides a key without end after a string": lambda: (
        f'x = {{y = """a"""", {"a." * 400_000}a = 1, z = "b"}}'
    ),
    "has a long key": lambda: "a" * 900_000 + " = 1",
    "has a long text": lambda: f'name = "{"a" * 900_000}"',
    "has a number of a million digits": lambda: f"name = {'9' * 900_000}",
    "has a number of four thousand digits": lambda: STUDY.replace("= 3", f"= {'9' * 4000}"),
    "has a number of a million sixteenths": lambda: STUDY.replace("= 3", f"= 0x{'f' * 900_000}"),
    "has a list of such": lambda: STUDY.replace("= 3", f"= [0x{'f' * 900_000}]"),
    "has an infinite number": lambda: STUDY.replace("= 3", "= inf"),
    "has a date for a number": lambda: STUDY.replace("= 3", "= 1979-05-27"),
    "is longer than settings are": lambda: "#" * (1 << 21),
    "is no text": lambda: "\x00",
}


@pytest.mark.parametrize("how", SETTINGS)
@pytest.mark.parametrize("read", [read_study, read_site])
def test_a_file_of_settings_is_refused_where_it(
    tmp_path: Path, read: Callable[[Path], object], how: str
) -> None:
    path = tmp_path / "a.toml"
    path.write_text(SETTINGS[how]())
    with little_memory(256 << 20), pytest.raises(DataError) as caught:
        read(path)
    assert "a.toml" in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("read", "text"), [(read_study, STUDY), (read_site, SITE)])
def test_settings_with_any_few_bytes_changed_give_our_error_or_none(
    tmp_path: Path, read: Callable[[Path], object], text: str
) -> None:
    path, rng, told = tmp_path / "a.toml", np.random.default_rng(3), 0
    path.write_text(text)
    read(path)
    for _ in range(400):
        path.write_bytes(mutated(text.encode(), rng))
        told += ours_or_none(lambda: read(path))
    assert told > 200


def recorded(path: Path) -> list[Call[Any]]:
    calls: list[Call[Any]] = [
        Call(MomentsRequest(), summed=True),
        Call(MagnitudeRequest()),
        Call(SquaresRequest(mean=np.ones(2))),
    ]
    replies: list[dict[str, Any]] = [
        {TOTAL: {"n": np.array([float(SECRET)])}},
        {"north": {"n": np.ones(1)}, "south": {"n": np.ones(1)}},
        {"north": {}},
    ]
    with Transcript(path, run="r") as record:
        for place, (call, reply) in enumerate(zip(calls, replies, strict=True)):
            record.keep(place, call, reply)
    return calls


def replayed(path: Path, calls: list[Call[Any]]) -> None:
    with Transcript(path) as record:
        for place, call in enumerate(calls):
            record.replay(place, call)


def rewritten(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Change the second round of a transcript, with checksums that fit."""
    data, records, start = path.read_bytes(), [], 0
    while start < len(data):
        size = int.from_bytes(data[start : start + 8], "little")
        records.append(data[start + 16 : start + 16 + size])
        start += 16 + size
    read = Container.from_bytes(records[2], kind="transcript", version=1)
    scalars, arrays = dict(read.scalars), dict(read.arrays)
    change(scalars, arrays)
    records[2] = Container("transcript", 1, scalars, arrays).to_bytes()
    path.write_bytes(b"".join(prefixed(record) for record in records))


def prefixed(record: bytes) -> bytes:
    size = len(record).to_bytes(8, "little")
    return size + hashlib.blake2b(size, digest_size=8).digest() + record


REPLIES: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "nests its sites without end": lambda s, a: s.update(sites=DEEP),
    "has a number for its sites": lambda s, a: s.update(sites="9" * 5000),
    "has NaN for its sites": lambda s, a: s.update(sites="NaN"),
    "has sites that are no text": lambda s, a: s.update(sites="[1, 2]"),
    "has sites that are lists": lambda s, a: s.update(sites="[[], []]"),
    "has a site twice": lambda s, a: s.update(sites='["a", "a"]'),
    "has half a character for a site": lambda s, a: s.update(sites='["\\ud800", "b"]'),
    "has no JSON for its sites": lambda s, a: s.update(sites=SECRET + "]"),
    "has an outcome of no kind": lambda s, a: s.update(outcome="won"),
    "has an array of no site": lambda s, a: a.update(n=np.ones(1)),
    "has an array of a site that is not there": lambda s, a: a.update({"7/n": np.ones(1)}),
    "has an array of a site before the first": lambda s, a: a.update({"-1/n": np.ones(1)}),
    "has an array of a site beyond all": lambda s, a: a.update({"9" * 5000 + "/n": np.ones(1)}),
    "lacks a field": lambda s, a: s.pop("sites"),
    "has a foreign field": lambda s, a: s.update(more=1),
    "has a round that is text": lambda s, a: s.update(round="1"),
    "has another round": lambda s, a: s.update(round=2**1000),
}


@pytest.mark.parametrize("how", REPLIES)
def test_a_transcript_is_refused_where_it(tmp_path: Path, how: str) -> None:
    path = tmp_path / "run.transcript"
    calls = recorded(path)
    rewritten(path, lambda scalars, arrays: (REPLIES[how](scalars, arrays), None)[1])
    assert "run.transcript" in refused(lambda: replayed(path, calls))


def test_a_transcript_with_any_few_bytes_changed_gives_our_error_or_none(tmp_path: Path) -> None:
    path, rng, told = tmp_path / "run.transcript", np.random.default_rng(4), 0
    calls = recorded(path)
    data = path.read_bytes()
    for _ in range(300):
        path.write_bytes(mutated(data, rng))
        told += ours_or_none(lambda: replayed(path, calls))
    assert told > 200


def sealed(header: dict[str, Any] | str, body: bytes = b"") -> bytes:
    """Write a container with a header of one's own, and a checksum that fits."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    text += b" " * (-len(text) % 8)
    data = b"eigenfed" + len(text).to_bytes(8, "little") + text + body
    return data + hashlib.sha256(data).digest()[:16]


def headed(**changes: Any) -> dict[str, Any]:
    return {"kind": "summary", "version": 1, "scalars": {}, "arrays": []} | changes


CONTAINERS: dict[str, Callable[[], bytes]] = {
    "is nested without end": lambda: sealed(DEEP),
    "has a number of many digits": lambda: sealed("9" * 100_000),
    "has a scalar of many digits": lambda: sealed(
        '{"kind": "summary", "version": 1, "arrays": [], "scalars": {"n": ' + "9" * 9000 + "}}"
    ),
    "has a scalar that is NaN": lambda: sealed(headed(scalars={"n": float("nan")})),
    "has a kind without end": lambda: sealed(headed(kind="a" * 900_000)),
    "has a version without end": lambda: sealed(headed(version=10**4000)),
    "claims 8 TiB": lambda: sealed(headed(arrays=[["vt", "<f8", [1 << 20, 1 << 20]]])),
    "claims more than there are numbers": lambda: sealed(
        headed(arrays=[["vt", "<f8", [10**30, 8]]])
    ),
    "is empty along one axis and endless along another": lambda: sealed(
        headed(arrays=[["vt", "<f8", [0, 1 << 47, 1 << 47]]])
    ),
    "has a negative length": lambda: sealed(headed(arrays=[["vt", "<f8", [-1, 8]]]), BODY),
    "holds objects": lambda: sealed(headed(arrays=[["vt", "|O", [3]]]), pickle.dumps(Trap())),
    "has a header beyond all measure": lambda: b"eigenfed" + b"\xff" * 8 + BODY,
    "has more directions than features": lambda: Container(
        "summary",
        1,
        {"n": 9.0, "energy": 1.0, "lost": 0.0, "rank": 99_000, "centered": False},
        {"mean": np.zeros(1), "s": np.zeros(99_000), "vt": np.zeros((99_000, 1))},
    ).to_bytes(),
}


@pytest.mark.parametrize("how", CONTAINERS)
def test_a_summary_is_refused_where_it(how: str) -> None:
    data = CONTAINERS[how]()
    refused(lambda: Summary.from_bytes(data))


def test_a_summary_with_any_few_bytes_changed_gives_our_error_or_none() -> None:
    rng, told = np.random.default_rng(5), 0
    other = Summary.empty(d=4, rank=3).update(rng.standard_normal((20, 4)))
    data = other.to_bytes()
    for round_ in range(400):
        changed_data = mutated(data[:-16], rng)
        # Every other one has a checksum that fits, and so comes further.
        end = hashlib.sha256(changed_data).digest()[:16] if round_ % 2 else data[-16:]

        def used_again(found: bytes = changed_data + end) -> None:
            summary = Summary.from_bytes(found)
            merged = summary.merge(other) if summary.d == other.d else summary
            Summary.from_bytes(merged.to_bytes())

        told += ours_or_none(used_again)
    assert told > 200


@pytest.mark.parametrize("body", [DEEP.encode(), b'{"number":' + b"9" * 9000 + b"}", b"NaN", b""])
def test_an_event_of_a_ledger_that_is_nested_or_huge_is_refused(body: bytes) -> None:
    refused(lambda: Event.from_bytes(body))
