"""Parsed copies: made once, for one state of a file, whole or not at all, and removable."""

import errno
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from command_line import answer, eigenfed
from eigenfed.data import cache as store
from eigenfed.data import copy_files as parsed_copy
from eigenfed.data.cache import CacheSlot, forget_cache
from eigenfed.data.files import open_source, open_table
from eigenfed.data.readers import csv
from eigenfed.data.source import Block
from eigenfed.errors import DataError, InputError
from table_files import WRITERS, csv_text, write_csv

TABLE = np.arange(12.0).reshape(4, 3)


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_SMALL_BYTES", 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_csv(tmp_path / "a.csv", TABLE)
    return tmp_path / "a.csv"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were parsed."""
    seen: list[Path] = []

    def noted(path: Path, *arguments: Any) -> Any:
        seen.append(path)
        return csv.read_csv_blocks(path, *arguments)

    monkeypatch.setattr("eigenfed.data.files.read_csv_blocks", noted)
    return seen


def copies(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def test_small_files_leave_no_copy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_SMALL_BYTES", TABLE.nbytes)
    assert open_table(path).cache is None
    assert copies(path.parent) == [path]


def test_a_large_file_is_parsed_once(path: Path, parsed: list[Path]) -> None:
    first, second = open_table(path), open_table(path)
    assert parsed == [path]
    assert first.cache == second.cache
    assert first.cache is not None
    assert first.cache.parent == path.with_name("a.csv.eigenfed")
    for table in (first, second):
        assert isinstance(table.source.X, np.memmap)
        np.testing.assert_array_equal(table.source.X, TABLE)


def test_other_columns_or_ids_are_other_copies(tmp_path: Path, parsed: list[Path]) -> None:
    path = tmp_path / "a.csv"
    path.write_text(csv_text(TABLE, ["x", "y", "z"], list("abcd")))
    chosen: list[dict[str, Any]] = [
        {"id_column": "id"},
        {"columns": ["x", "y"]},
        {"columns": ["y", "x"]},
        {"columns": ["x", "y"], "id_column": "id"},
    ]
    tables = [open_table(path, **options) for options in chosen + chosen]
    assert len(parsed) == len({table.cache for table in tables}) == 4
    assert [table.row_ids is not None for table in tables[4:]] == [True, False, False, True]
    np.testing.assert_array_equal(tables[6].source.X, TABLE[:, [1, 0]])


@pytest.mark.parametrize("keeps_time", [False, True])
def test_a_changed_file_is_parsed_again_and_its_old_copy_goes(
    path: Path, parsed: list[Path], keeps_time: bool
) -> None:
    before = path.stat()
    old = open_table(path)
    write_csv(path, TABLE[::-1])
    assert path.stat().st_size == before.st_size
    if keeps_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    new = open_table(path)
    assert len(parsed) == 2
    np.testing.assert_array_equal(new.source.X, TABLE[::-1])
    np.testing.assert_array_equal(old.source.X, TABLE)
    assert new.cache is not None
    assert copies(new.cache.parent) == [new.cache]


def test_only_the_owner_can_enter_a_copy(path: Path) -> None:
    folder = open_table(path).cache
    assert folder is not None
    for place in (folder.parent, folder):
        assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0


def test_copies_can_be_forgotten(path: Path, parsed: list[Path]) -> None:
    source = open_source(path)
    open_source(path, columns=["x1"])
    assert forget_cache(path) == 2
    assert copies(path.parent) == [path]
    assert forget_cache(path) == 0
    np.testing.assert_array_equal(source.X, TABLE)
    open_source(path)
    assert len(parsed) == 3


def test_forgetting_touches_nothing_else(path: Path) -> None:
    folder = open_table(path).cache
    assert folder is not None
    other = folder.parent / "notes.txt"
    other.write_text("mine")
    assert forget_cache(path) == 1
    assert copies(folder.parent) == [other]


def test_a_folder_may_hold_the_copies_of_many_files(tmp_path: Path) -> None:
    paths = [tmp_path / name / "a.csv" for name in ("here", "there")]
    for path, X in zip(paths, (TABLE, -TABLE), strict=True):
        path.parent.mkdir()
        write_csv(path, X)
    tables = [open_table(path, cache=tmp_path / "kept" / "copies") for path in paths]
    np.testing.assert_array_equal(tables[1].source.X, -TABLE)
    assert all(copies(path.parent) == [path] for path in paths)
    assert forget_cache(paths[0], cache=tmp_path / "kept" / "copies") == 1
    assert open_table(paths[1], cache=str(tmp_path / "kept" / "copies")).cache == tables[1].cache


@pytest.mark.parametrize("name", ["table.csv", "csr.npz"])
@pytest.mark.parametrize("damage", ["cut", "gone", "other shape", "other version", "no json"])
def test_a_damaged_copy_is_made_again(tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / name
    WRITERS[name](path, TABLE)
    folder = open_table(path).cache
    assert folder is not None
    about = folder / "about.json"
    numbers = folder / ("X.npy" if name == "table.csv" else "data.npy")
    if damage == "cut":
        os.truncate(numbers, numbers.stat().st_size - 8)
    elif damage == "gone":
        numbers.unlink()
    elif damage == "no json":
        about.write_text("{")
    else:
        change = {"shape": [5, 3]} if damage == "other shape" else {"version": 0}
        about.write_text(json.dumps(json.loads(about.read_text()) | change))
    source = open_source(path)
    X = source.X.toarray() if source.is_sparse else source.X
    np.testing.assert_array_equal(X, TABLE)
    assert open_table(path).cache == folder


def test_a_file_that_changes_while_it_is_read_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changing(*arguments: Any) -> Any:
        yield from csv.read_csv_blocks(*arguments)
        write_csv(path, TABLE + 1)

    monkeypatch.setattr("eigenfed.data.files.read_csv_blocks", changing)
    with pytest.raises(DataError, match=r"a\.csv changed while it was read"):
        open_source(path)
    assert copies(path.with_name("a.csv.eigenfed")) == []


def test_a_fault_late_in_the_file_leaves_no_copy(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv, "_BLOCK_BYTES", 64)
    path.write_text("a,b\n" + "1,2\n" * 1000 + "1\n")
    with pytest.raises(DataError, match="row 1001"):
        open_source(path)
    assert copies(path.with_name("a.csv.eigenfed")) == []


CRASH = """
import os, sys
from pathlib import Path
from eigenfed.data import cache, files
cache._SMALL_BYTES = 1
{patch}
files.open_source(sys.argv[1])
"""


@pytest.mark.parametrize(
    "patch",
    [
        "cache.CacheSlot._put_in_place = lambda *_: os._exit(9)",
        "cache.write_copy = lambda folder, _: (folder / 'X.npy').touch() or os._exit(9)",
    ],
)
def test_a_crash_leaves_no_copy_that_is_taken_for_whole(path: Path, patch: str) -> None:
    code = CRASH.format(patch=patch)
    assert subprocess.run([sys.executable, "-c", code, str(path)]).returncode == 9
    folder = path.with_name("a.csv.eigenfed")
    (left,) = copies(folder)
    table = open_table(path)
    np.testing.assert_array_equal(table.source.X, TABLE)
    assert table.cache != left
    assert forget_cache(path) == 2
    assert not folder.exists()


def test_two_processes_may_build_the_same_copy(path: Path) -> None:
    slot = CacheSlot.of(path, [("x0",), None, None], None)
    mine, first = slot.start(), slot.start()
    assert mine is not None
    assert first is not None
    with slot.build(mine) as ours:
        (ours / "mine").touch()
        with slot.build(first) as theirs:
            (theirs / "first").touch()
    assert [file.name for file in slot.place.iterdir()] == ["first"]
    assert copies(slot.folder) == [slot.place]


def test_a_folder_that_cannot_be_written_is_named(path: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(
        InputError, match=r"a\.csv is large.*file.*Pass cache=\.\.\., a folder that can"
    ):
        open_source(path, cache=blocked)


@pytest.mark.parametrize("when", ["write", "rename"])
def test_a_full_disk_is_said_to_be_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    owner, name = (parsed_copy, "_sync") if when == "write" else (Path, "rename")
    monkeypatch.setattr(owner, name, full)
    with pytest.raises(InputError, match=r"a\.csv.*No space left on device. Pass cache="):
        open_source(path)
    assert copies(path.with_name("a.csv.eigenfed")) == []


def test_a_copy_that_cannot_be_mapped_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_table(path).cache

    def refuses(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patched:
        patched.setattr(np, "memmap", refuses)
        with pytest.raises(InputError, match="cannot be mapped: Cannot allocate memory"):
            open_source(path)
    assert open_table(path).cache == folder


def test_blocks_without_rows_are_passed_over(path: Path) -> None:
    slot = CacheSlot.of(path, None, None)
    none, some = Block(TABLE[:0]), Block(TABLE[:2])
    np.testing.assert_array_equal(store.store_blocks([none, some, none], slot, None).X, TABLE[:2])
    with pytest.raises(DataError, match="has no rows"):
        store.store_blocks([none], slot, None)


def test_a_copy_that_is_gone_at_once_is_not_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = CacheSlot.build

    @contextmanager
    def forgotten(slot: CacheSlot, part: Path) -> Iterator[Path]:
        with built(slot, part) as folder:
            yield folder
        forget_cache(path)

    monkeypatch.setattr(CacheSlot, "build", forgotten)
    with pytest.raises(DataError, match=r"The parsed copy of .*a\.csv was changed"):
        open_source(path)


def test_an_array_that_cannot_be_mapped_is_said_to_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    np.save(tmp_path / "a.npy", TABLE)
    monkeypatch.setattr(np, "memmap", refuses)
    with pytest.raises(InputError, match=r"a\.npy cannot be mapped: Cannot allocate memory"):
        open_source(tmp_path / "a.npy")


def test_more_entries_than_a_short_index_can_count_get_a_long_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsed_copy, "_INT32_ENTRIES", 5)
    monkeypatch.setattr(parsed_copy, "_PART_ENTRIES", 2)
    WRITERS["csr.npz"](tmp_path / "a.npz", TABLE)
    table = open_table(tmp_path / "a.npz")
    assert table.cache is not None
    for part in ("indices", "indptr"):
        assert np.load(table.cache / f"{part}.npy").dtype == np.int64
    np.testing.assert_array_equal(table.source.X.toarray(), TABLE)
    assert sorted(file.name for file in table.cache.iterdir()) == [
        "about.json",
        "data.npy",
        "indices.npy",
        "indptr.npy",
    ]


def test_sparse_copies_are_mapped_and_not_read(tmp_path: Path) -> None:
    sparse.save_npz(tmp_path / "a.npz", sparse.csr_array(TABLE))
    X = open_source(tmp_path / "a.npz").X
    for part in (X.data, X.indices, X.indptr):
        while isinstance(part.base, np.ndarray) and not isinstance(part, np.memmap):
            part = part.base
        assert isinstance(part, np.memmap)


def test_sparse_rows_without_any_entry_can_be_kept(tmp_path: Path) -> None:
    sparse.save_npz(tmp_path / "a.npz", sparse.csr_array((5, 3)))
    source = open_source(tmp_path / "a.npz")
    assert (source.n, source.d, source.X.nnz) == (5, 3, 0)


def read_only(path: Path) -> Path:
    """A file where the folder of copies would be: nobody, not even root, can write into it."""
    blocked = path.with_name(f"{path.name}.eigenfed")
    blocked.write_text("")
    return blocked


@pytest.mark.parametrize("spare", [1 << 40, 0])
def test_beside_a_read_only_file_rows_are_in_memory_or_in_deleted_files(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spare: int
) -> None:
    blocked = read_only(path)
    monkeypatch.setattr(store, "find_spare_bytes", lambda: spare)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    table = open_table(path)
    assert table.cache is None
    assert table.notes == ()
    assert isinstance(table.source.X, np.memmap) == (spare == 0)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert blocked.read_text() == ""
    np.testing.assert_array_equal(table.source.X, TABLE)


def test_a_copy_that_cannot_be_anywhere_is_refused_with_a_remedy(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_only(path)
    monkeypatch.setattr(store, "find_spare_bytes", lambda: 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"a\.csv is large.*Pass cache=\.\.\., a folder"):
        open_source(path)


def test_copies_are_told_of_dropped_by_choice_and_removed_by_a_command(
    path: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    run = eigenfed("fit", path, "-k", 1, "--cache", kept)
    assert f"A parsed copy of {path} (1 MB) is kept in {kept}" in run.stderr
    assert f"eigenfed cache {path} --cache {kept} --remove" in run.stderr
    assert not path.with_name("a.csv.eigenfed").exists()
    (shown,) = answer("cache", path, "--cache", kept)["files"]
    assert (len(shown["copies"]), shown["removed"], shown["bytes"] > 0) == (1, 0, True)
    run = eigenfed("fit", path, "-k", 1, "--cache", kept, "--drop-cache")
    assert (run.exit_code, run.stderr) == (0, "")
    assert list(kept.iterdir()) == []
    eigenfed("fit", path, "-k", 1)
    assert eigenfed("cache", path, "--remove").stdout.endswith(", removed\n")
    assert eigenfed("cache", path).stdout == f"{path}: no parsed copies\n"
    assert not path.with_name("a.csv.eigenfed").exists()


def test_rows_that_are_not_kept_have_their_ids(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "find_spare_bytes", lambda: 0)
    path.write_text("id,a\np1,1\np2,2\n")
    for _ in range(2):
        assert open_table(path, id_column="id", keep=False).row_ids == ("p1", "p2")
    open_table(path, id_column="id")
    assert open_table(path, id_column="id", keep=False).row_ids == ("p1", "p2")
    assert forget_cache(path) == 0


def test_memory_that_is_left_is_known() -> None:
    assert 0 < store.find_spare_bytes() < 1 << 60
