"""Tables as people save them: other delimiters, decimal commas, codes, no names, workbooks."""

import datetime
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from command_line import answer, eigenfed
from eigenfed import FederatedPCA
from eigenfed.arrays import Array
from eigenfed.data.column_names import describe_differences
from eigenfed.data.dialect import Dialect
from eigenfed.data.files import column_names, open_source, open_table
from eigenfed.data.read_options import ReadOptions
from eigenfed.data.readers import csv_stream, xlsx, xlsx_extent
from eigenfed.errors import DataError, EigenfedError, InputError
from table_files import write_h5ad

CANARY = "4711.25"
X = np.random.default_rng(0).normal(size=(60, 3)).round(4) * 10 + 5


def write_text(path: Path, delimiter: str, decimal: str, table: Array = X) -> Path:
    lines = [delimiter.join(("a", "b", "c"))]
    for row in table.tolist():
        lines.append(delimiter.join(repr(cell).replace(".", decimal) for cell in row))
    path.write_text("\n".join(lines) + "\n")
    return path


def write_xlsx(path: Path, rows: list[list[Any]]) -> Path:
    """The least that a workbook needs."""
    cells = []
    for number, row in enumerate(rows, start=1):
        line = "".join(
            f'<c r="{chr(65 + j)}{number}" t="inlineStr"><is><t>{escape(cell)}</t></is></c>'
            if isinstance(cell, str)
            else f'<c r="{chr(65 + j)}{number}"><v>{cell!r}</v></c>'
            for j, cell in enumerate(row)
            if cell != ""
        )
        cells.append(f'<row r="{number}">{line}</row>')
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        '<Default Extension="rels" ContentType='
        '"application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>'
        f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{kind}.worksheet+xml"/>'
        "</Types>",
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>'
        '<sheet name="visits" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{office}/worksheet" Target="worksheets/sheet1.xml"/>'
        "</Relationships>",
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{"".join(cells)}'
        "</sheetData></worksheet>",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return path


@pytest.mark.parametrize(
    ("name", "delimiter", "decimal", "note"),
    [
        ("a.csv", ",", ".", None),
        ("a.csv", ";", ",", "has semicolons between cells and decimal commas"),
        ("a.csv", ";", ".", "has semicolons between cells, as"),
        ("a.csv", "\t", ",", "has tabs between cells and decimal commas"),
        ("a.csv", "|", ".", "has vertical bars between cells"),
        ("a.tsv", "\t", ".", None),
        ("a.tsv", "\t", ",", "has decimal commas, as detected"),
    ],
)
def test_delimiter_and_decimal_mark_are_detected_and_told(
    tmp_path: Path, name: str, delimiter: str, decimal: str, note: str | None
) -> None:
    path = write_text(tmp_path / name, delimiter, decimal)
    table = open_table(path)
    np.testing.assert_array_equal(table.source.X, X)
    assert table.source.names == ("a", "b", "c")
    assert (note is None and table.notes == ()) or (note or "?") in table.notes[0]
    stated = ReadOptions(Dialect(delimiter, decimal))
    assert open_table(path, options=stated).notes == ()
    wanted = answer("stream", path, "-k", 1)
    np.testing.assert_allclose(
        wanted["eigenvalues"], FederatedPCA(1).fit(X).explained_variance_, rtol=1e-12
    )


def test_one_dialect_for_fit_project_and_stream(tmp_path: Path) -> None:
    gaps = X.copy()
    gaps[3, 1] = gaps[7, 0] = np.nan
    path = write_text(tmp_path / "a.csv", ";", ",", gaps)
    path.write_text(path.read_text().replace("nan", "-", 1).replace("nan", "-9,0"))
    flags = ("--missing", "-", "--missing", "-9", "--decimal", ",")
    fitted = answer("fit", path, "-k", 1, "-o", tmp_path / "out", *flags)
    wanted = FederatedPCA(1).fit_sites({"a": gaps})
    np.testing.assert_allclose(fitted["eigenvalues"], wanted.explained_variance_, rtol=1e-12)
    assert answer("stream", path, "-k", 1, *flags)["missing"] == 2
    projected = answer("project", tmp_path / "out", path, *flags)["scores"]
    np.testing.assert_allclose(np.abs(projected), np.abs(wanted.transform(gaps)), rtol=1e-9)
    run = eigenfed("fit", path, "-k", 1)
    assert run.exit_code == 2
    assert "pass --missing CODE if it is a code for missing entries" in run.stderr


def test_a_comma_that_may_separate_thousands_is_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a;b\n1,234;2\n5,678;3\n")
    with pytest.raises(InputError, match=r"may be decimal commas, or separate.*Pass decimal=','"):
        open_source(path)
    options = ReadOptions(Dialect(decimal=","))
    assert open_source(path, options=options).X[0, 0] == 1.234


def test_another_mark_later_in_the_file_is_refused_and_never_misread(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a;b\n" + "1;2\n" * 60 + "3,5;4\n")
    with pytest.raises(
        InputError, match=r"another decimal mark in row 61 of 'a'. Pass decimal=','"
    ):
        open_source(path)
    assert open_source(path, options=ReadOptions(Dialect(decimal=","))).X[60, 0] == 3.5


@pytest.mark.parametrize(
    "first", [f"{CANARY},3,9", f"p17,{CANARY},3", f"x,2021-03-04,{CANARY}", f'"1,5","{CANARY}",b']
)
def test_a_first_line_with_numbers_is_not_taken_for_names(tmp_path: Path, first: str) -> None:
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text(f"{first}\n1,2,3\n4,5,7\n")
    other.write_text("a,b,c\n1,2,3\n4,5,7\n")
    run = eigenfed("fit", one, other, "-k", 1)
    assert run.exit_code == 1
    assert "has numbers in its first line where the columns' names must be" in run.stderr
    assert "Pass --no-header if the file has no line of names" in run.stderr
    assert not any(part in run.output for part in (CANARY, "p17", "2021", "1,5"))
    with pytest.raises(DataError, match="header=False"):
        column_names(one)


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_a_code_in_the_first_row_does_not_make_a_column_of_text(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"lab.{kind}"
    table: list[list[Any]] = [
        ["ward", "hdl", "crp"],
        ["A", "k.A.", 1.5],
        ["B", 52, 2],
        ["3", "k.A.", 2.5],
        ["C", 49, 1],
        ["D", 61, 4],
    ]

    def say(*flags: str) -> str:
        if kind == "xlsx":
            write_xlsx(path, table)
        else:
            path.write_text("".join(",".join(map(str, row)) + "\n" for row in table))
        return eigenfed("fit", path, "-k", 1, *flags).stderr

    told = "has columns that do not hold numbers: 'ward'. Pass --exclude NAME to leave them out"
    assert told in say()
    told = "has text in row 1 of 'hdl', a column of numbers. Correct that cell, pass --missing CODE"
    assert told in say("--exclude", "ward")
    assert say("--exclude", "ward", "--missing", "k.A.") == ""
    table[4][1] = "k.A."  # of five cells, three are text
    told = "has columns that do not hold numbers: 'hdl'."
    assert told in say("--exclude", "ward")


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_a_line_of_names_that_is_taken_for_a_row_is_pointed_out(tmp_path: Path, kind: str) -> None:
    paths = [tmp_path / f"{name}.{kind}" for name in ("one", "two")]
    tables: list[list[list[Any]]] = [[["age", "bmi"], [1, 2], [4, 5]], [[1, 3], [4, 9]]]
    for path, rows in zip(paths, tables, strict=True):
        if kind == "xlsx":
            write_xlsx(path, rows)
        else:
            path.write_text("".join(f"{a},{b}\n" for a, b in rows))
    run = eigenfed("fit", *paths, "-k", 1, "--no-header")
    assert run.exit_code == 2
    assert run.stderr == (
        f"eigenfed: Site 'one': {paths[0]} has only text in its first line, as a line of names "
        "has, and --no-header takes it for a row. Remove that line, or add one to the files that "
        "have none.\n"
    )


def test_files_without_names_are_read_by_position_on_request(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one.csv", "two.csv")]
    for path, part in zip(paths, np.array_split(X, 2), strict=True):
        path.write_text("".join(",".join(map(repr, row)) + "\n" for row in part.tolist()))
    found = answer("fit", *paths, "-k", 1, "--no-header", "--exclude", "column3")
    wanted = FederatedPCA(1).fit(X[:, :2])
    np.testing.assert_allclose(found["eigenvalues"], wanted.explained_variance_, rtol=1e-12)
    options = ReadOptions(Dialect(header=False))
    assert open_source(paths[0], options=options).names == ("column1", "column2", "column3")
    named = ReadOptions(Dialect(header=True))
    (tmp_path / "years.csv").write_text("2019,2020\n1,2\n")
    assert open_source(tmp_path / "years.csv", options=named).names == ("2019", "2020")


def test_names_that_look_like_entries_are_never_quoted() -> None:
    import pandas as pd

    read_wrongly = pd.DataFrame([[1.0, 2.0]], columns=["p17", CANARY])
    right = pd.DataFrame([[1.0, 2.0]], columns=["age", "bmi"])
    pca = FederatedPCA(1)
    for sites in ({"a": read_wrongly, "b": right}, {"a": read_wrongly, "b": right[["age"]]}):
        with pytest.raises(InputError, match="is the line of names missing") as caught:
            pca.fit_sites(sites)
        assert CANARY not in str(caught.value)
        assert "p17" not in str(caught.value)
    told = describe_differences({"a": ["x", CANARY], "b": ["x", "y"]})
    assert CANARY not in told
    assert "'a'" in told
    assert told.endswith("are not shown (is the line of names missing?)")


@pytest.mark.parametrize("kind", ["csv", "xlsx", "parquet", "tsv"])
def test_columns_are_left_out_renamed_and_converted(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    rows: list[list[Any]] = [["p1", 1.75, -9.0, 1.0], ["p2", 1.5, 80.0, 2.0]]
    names = ["id", "groesse", "kg", "visit"]
    if kind == "xlsx":
        write_xlsx(path, [list(names), *rows])
    elif kind == "parquet":
        pq.write_table(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), path)
    else:
        mark = "," if kind == "csv" else "\t"
        path.write_text("\n".join(mark.join(map(str, line)) for line in [names, *rows]) + "\n")
    options = ReadOptions(
        Dialect(missing=["-9"]),
        exclude=["visit"],
        rename={"groesse": "height"},
        units={"height": 100.0},
    )
    table = open_table(path, id_column="id", options=options)
    assert table.source.names == ("height", "kg")
    assert table.row_ids == ("p1", "p2")
    np.testing.assert_array_equal(table.source.X, [[175.0, np.nan], [150.0, 80.0]])
    chosen = open_table(path, columns=["kg"], where=["height > 160"], options=options)
    assert np.isnan(chosen.source.X).tolist() == [[True]]
    for wrong, what in (
        (ReadOptions(rename={"nobody": "a"}), "rename has 'nobody'"),
        (ReadOptions(units={"groesse": 2.0}, rename={"groesse": "g"}), "units has 'groesse'"),
    ):
        with pytest.raises(InputError, match=what):
            open_table(path, id_column="id", options=wrong)


def test_options_are_refused_where_they_cannot_apply(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    path = write_text(tmp_path / "b.csv", ",", ".")
    for options, what in (
        (ReadOptions(Dialect(delimiter=";")), "delimiter requires a file of kind .csv"),
        (ReadOptions(exclude=["a"]), "exclude requires a file of kind"),
    ):
        with pytest.raises(InputError, match=what):
            open_source(tmp_path / "a.npy", options=options)
    run = eigenfed("fit", path, "-k", 1, "--layer", "raw")
    assert (run.exit_code, "--layer requires a file of kind .h5ad" in run.stderr) == (2, True)
    for bad in ({"delimiter": "ab"}, {"delimiter": "1"}, {"decimal": "x"}, {"missing": "-"}):
        with pytest.raises(InputError):
            Dialect(**bad)  # type: ignore[arg-type]
    for wrong in ({"units": {"a": 0.0}}, {"rename": {"a": "c", "b": "c"}}, {"exclude": "a"}):
        with pytest.raises(InputError):
            ReadOptions(**wrong)


def test_a_workbook_is_a_table_too(tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "a.xlsx", [["a", "b"], [1.5, "NA"], [2, 3.25], ["", ""]])
    np.testing.assert_array_equal(open_source(path).X, [[1.5, np.nan], [2.0, 3.25]])
    refusals: list[tuple[list[list[Any]], str]] = [
        ([["a", "b"], [1, f"x{CANARY}"], [2, f"y{CANARY}"]], "do not hold numbers: 'b'"),
        ([["a", "b"], [1, 2], [1, f"y{CANARY}"]], "has text in row 2 of 'b'"),
        ([["a", float(CANARY)], [1, 2]], "has numbers in its first line"),
        ([["a", "b"]], "has a line of names and no rows"),
    ]
    for rows, what in refusals:
        with pytest.raises(EigenfedError, match=what) as caught:
            open_source(write_xlsx(path, rows))
        assert CANARY not in str(caught.value)
    write_xlsx(path, [["note"], ["see the second sheet"]])
    with pytest.raises(InputError, match="has no column of numbers in its first sheet"):
        open_source(path)
    path.write_bytes(b"PK no workbook")
    with pytest.raises(DataError, match=r"is not a complete \.xlsx workbook"):
        open_source(path)


def rewrite_sheet(path: Path, change: Callable[[str], str]) -> None:
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    parts["xl/worksheets/sheet1.xml"] = change(parts["xl/worksheets/sheet1.xml"])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)


def put_last(rows: str) -> Callable[[str], str]:
    return lambda text: text.replace("</sheetData>", rows)


@pytest.mark.parametrize("place", ["XFD1048576", "XFD20000", "A99999999999"])
def test_a_cell_far_from_the_table_is_refused_before_it_takes_all_memory(
    tmp_path: Path, place: str
) -> None:
    path = write_xlsx(tmp_path / "a.xlsx", [["a", "b"], [1, 2], [3, 5]])
    far = f'<row r="{place.lstrip("AEDFX")}"><c r="{place}"><v>{CANARY}</v></c></row></sheetData>'
    rewrite_sheet(path, put_last(far))
    with pytest.raises(DataError, match=r"one lies far from the table") as caught:
        open_source(path)
    assert CANARY not in str(caught.value)


def test_formats_may_reach_far_from_the_table(tmp_path: Path) -> None:
    far = '<row r="1048576"><c r="A1048576" s="1"/><c r="XFD1048576" s="1"></c></row></sheetData>'
    blanks = " " * (1 << 20)
    for space in (blanks, blanks[:-3], blanks[:-10], blanks[:-100]):
        path = write_xlsx(tmp_path / "a.xlsx", [["a", "b"], [1, 2], [3, 5]])
        moved = far.replace("<row", f"{space}<row")
        rewrite_sheet(path, put_last(moved))
        np.testing.assert_array_equal(open_source(path).X, [[1.0, 2.0], [3.0, 5.0]])


@pytest.mark.parametrize("size", [7, 64, 1 << 20])
def test_cells_are_found_wherever_the_text_of_a_sheet_is_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    rows: list[list[Any]] = [["a", "b"], *([i, ""] for i in range(200)), ["", ""], [1, 7]]
    path = write_xlsx(tmp_path / "a.xlsx", rows)
    monkeypatch.setattr(xlsx_extent, "_PART_BYTES", size)
    monkeypatch.setattr(xlsx_extent, "_MOST_SPARSE", 10)
    with zipfile.ZipFile(path) as archive:
        found = xlsx_extent._measure(archive, xlsx_extent._find_first_sheet(archive))
    assert found == (203, 2, 204)


def test_a_workbook_of_many_gigabytes_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_xlsx(tmp_path / "a.xlsx", [["a", "b"], [1, 2], [3, 5]])
    rewrite_sheet(path, put_last(" " * 100_000 + "</sheetData>"))
    monkeypatch.setattr(xlsx_extent, "_MOST_UNPACKED", 50_000)
    with pytest.raises(DataError, match=r"Save the table as csv"):
        open_source(path)


def test_a_layer_and_the_marked_features_of_anndata(tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    write_h5ad(path, X)
    with h5py.File(path, "r+") as file:
        file.create_group("layers").create_dataset("log", data=2 * X)
        file["var"]["highly_variable"] = np.array([True, False, True])
    marked = ReadOptions(layer="log", highly_variable=True)
    source = open_source(path, options=marked)
    assert source.names == ("x0", "x2")
    np.testing.assert_array_equal(source.X, 2 * X[:, [0, 2]])
    with pytest.raises(InputError, match=r"has no layer 'raw'\. Its layers: 'log'"):
        open_source(path, options=ReadOptions(layer="raw"))


def test_a_column_of_different_integers_is_pointed_out(tmp_path: Path) -> None:
    paths = []
    for site, start in (("north", 0), ("south", 1000)):
        path = tmp_path / f"{site}.csv"
        lines = [f"{start + i * 7},{a!r},{i % 5}" for i, a in enumerate(X[:, 0].tolist())]
        path.write_text("\n".join(["patient,sbp,grade", *lines]) + "\n")
        paths.append(path)
    run = eigenfed("fit", *paths, "-k", 1)
    assert "Column 'patient' holds a different integer in every row" in run.stderr
    quiet = eigenfed("fit", *paths, "-k", 1, "--id-column", "patient", "--features", "common")
    assert quiet.stderr == ""
    paths[1].write_text(paths[1].read_text().replace("patient,", "visit,", 1))
    some = answer("fit", *paths, "-k", 1, "--id-column", "patient", "--features", "common")
    assert (some["n"], some["d"]) == (2 * len(X), 2)
    run = eigenfed("fit", *paths, "-k", 1, "--id-column", "nobody", "--features", "common")
    assert (run.exit_code, "is a column of none of the files" in run.stderr) == (2, True)


def test_the_files_of_a_study_are_pointed_out_with_its_keys(tmp_path: Path) -> None:
    lines = [f"{i * 7},{a!r},{i % 5}" for i, a in enumerate(X[:, 0].tolist())]
    (tmp_path / "a.csv").write_text("\n".join(["patient,sbp,grade", *lines]) + "\n")
    write_h5ad(tmp_path / "b.h5ad", np.random.default_rng(0).poisson(3.0, (40, 3)).astype(float))
    study, site = tmp_path / "study.toml", tmp_path / "site.toml"
    study.write_text('name = "s"\nsites = ["north"]\ncomponents = 1\n')
    assert eigenfed("ledger", "create", tmp_path / "a.ledger").exit_code == 0
    for data, advice in (
        ("a.csv", "name it as id_column, or list it under exclude, in the site's file."),
        ("b.h5ad", "logarithms with prepare in the study file, or name a layer in which that"),
    ):
        site.write_text(f'name = "north"\ndata = "{data}"\n[policy]\nmin_rows = 2\n')
        run = eigenfed("fit", "--study", study, site)
        assert (run.exit_code, advice in run.stderr, "--" in run.stderr) == (0, True, False)
    run = eigenfed("fit", site, "-k", 1)
    assert (run.exit_code, "Pass --study STUDY to rehearse" in run.stderr) == (2, True)
    # A ledger that knows the rows with other features names its site, and the key for other rows.
    site.write_text('name = "north"\ndata = "a.csv"\nledger = "a.ledger"\n[policy]\nmin_rows = 2\n')
    assert eigenfed("fit", "--study", study, site).exit_code == 0
    site.write_text('id_column = "patient"\n' + site.read_text())
    run = eigenfed("fit", "--study", study, site)
    assert run.exit_code == 1
    assert "Site 'north': its ledger knows the rows 'data' with 3 dimensions" in run.stderr
    assert run.stderr.endswith("set dataset in the site's file with a name of their own.\n")


def test_a_site_states_its_own_names_units_and_codes(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("north.csv", "south.csv")]
    write_text(paths[0], ",", ".", X[:30])
    other = X[30:].copy()
    other[4, 1] = np.nan
    write_text(paths[1], ";", ",", other / [1.0, 100.0, 1.0])
    text = paths[1].read_text().replace("a;b;c", "a;B;c").replace("nan", "k.A.")
    paths[1].write_text(text)
    keys = {
        "north": "",
        "south": 'rename = { B = "b" }\nunits = { b = 100.0 }\nmissing = ["k.A."]\n'
        'delimiter = ";"\ndecimal = ","\nheader = true\ncache = "copies"\ndrop_cache = true\n',
    }
    study = tmp_path / "study.toml"
    study.write_text('name = "s"\nsites = ["north", "south"]\ncomponents = 1\n')
    for site, lines in keys.items():
        (tmp_path / f"{site}.toml").write_text(
            f'name = "{site}"\ndata = "{site}.csv"\n{lines}[policy]\nmin_rows = 2\n'
        )
    sites = [tmp_path / f"{site}.toml" for site in keys]
    found = answer("fit", "--study", study, *sites)
    wanted = FederatedPCA(1).fit_sites({"north": X[:30], "south": other})
    np.testing.assert_allclose(found["eigenvalues"], wanted.explained_variance_, rtol=1e-10)
    run = eigenfed("fit", "--study", study, *sites, "--decimal", ",")
    assert (run.exit_code, "--decimal cannot be combined with --study" in run.stderr) == (2, True)


def test_raw_counts_are_pointed_out(tmp_path: Path) -> None:
    path = tmp_path / "cells.h5ad"
    write_h5ad(path, np.random.default_rng(0).poisson(3.0, (40, 3)).astype(float))
    run = eigenfed("fit", path, "-k", 1)
    assert "cells.h5ad holds integers, as raw counts are" in run.stderr
    write_h5ad(path, X)
    assert eigenfed("fit", path, "-k", 1).stderr == ""


def test_pyarrow_is_handed_no_python_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its threads outlive a read, and freeing one as the interpreter ends aborts the process."""
    seen = []

    def watch(name: str) -> None:
        read = getattr(pyarrow.csv, name)

        def spy(source: Any, **options: Any) -> Any:
            seen.append((source, options["parse_options"].invalid_row_handler))
            return read(source, **options)

        monkeypatch.setattr(pyarrow.csv, name, spy)

    watch("open_csv")
    watch("read_csv")
    path = write_text(tmp_path / "a.csv", ",", ".")
    open_source(path)
    # So few rows would be parsed without pyarrow.
    monkeypatch.setattr(csv_stream, "_FEW_BYTES", 0)
    answer("stream", path, "-k", 1)
    assert len(seen) == 2
    assert all(handler is None for _, handler in seen)
    assert all(type(source) in (pa.OSFile, pa.BufferReader) for source, _ in seen)


def test_a_name_that_looks_like_an_entry_is_not_quoted_with_a_wrong_cell(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("104.62,b\n1,2\n3,4\nlow,6\n")
    with pytest.raises(EigenfedError, match="text in row 3") as refused:
        open_table(path, options=ReadOptions(dialect=Dialect(header=True)))
    assert "104" not in str(refused.value)


def test_dates_of_a_sheet_are_refused_by_name_and_never_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = [datetime.date(1951, 7, day) for day in (1, 2, 3)]
    rows = [["age", "visit"], *([40 + i, day] for i, day in enumerate(days))]
    path = write_xlsx(tmp_path / "a.xlsx", [["age", "visit"], [1, 2]])
    monkeypatch.setattr(xlsx, "_read_rows", lambda _: rows)
    with pytest.raises(EigenfedError, match="has dates or times in 'visit'") as refused:
        open_table(path)
    assert "1951" not in str(refused.value)
    assert open_table(path, options=ReadOptions(exclude=("visit",))).source.d == 1
