"""Tables are read strictly and as people write them; whole columns say what single rows say."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs import tables
from boa_daemon.inputs.tables import header_of, read_batches, read_rows

Write = Callable[[str, str], Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Return a function that writes a text to a file."""

    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_bytes(text.encode())
        return tmp_path / name

    return write


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "column 'a' is missing"),
        ("b\n1\n", ":1: column 'a' is missing"),
        ("a,b\n", "no rows below the header"),
        ("a,b\n1,2\n3\n", ":3: 1 cells where the header has 2"),
        ('a,b\n1,"2\n', "not CSV"),
    ],
)
def test_a_damaged_table_is_refused(written: Write, text: str, problem: str) -> None:
    """The error names the file, and the line if there is one."""
    path = written("t.csv", text)

    with pytest.raises(InputError) as caught:
        list(read_rows(path, ("a",)))

    assert str(path) in str(caught.value)
    assert problem in str(caught.value)


def test_cells_are_numbers_in_range_or_refused(written: Write) -> None:
    """Text, nan, negative numbers and fractions of a whole number are refused."""
    row = next(read_rows(written("t.csv", "a,b,c,d,e,f\n8.0,x,nan,-1,1.5, \n"), ("a",)))

    assert row.whole("a") == 8
    with pytest.raises(InputError, match=r":2: b must be a number; got 'x'"):
        row.number("b")
    with pytest.raises(InputError, match=r"c must be a finite number"):
        row.number("c")
    with pytest.raises(InputError, match=r"d must be a finite number, 0 or more; got '-1'"):
        row.number("d")
    with pytest.raises(InputError, match=r"e must be a whole number; got '1.5'"):
        row.whole("e")
    with pytest.raises(InputError, match="f is empty"):
        row.text("f")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """The file is missing or is not UTF-8 text."""
    binary = tmp_path / "b.csv"
    binary.write_bytes(b"\xff\xff")

    with pytest.raises(InputError, match="cannot read"):
        header_of(tmp_path / "none.csv")
    with pytest.raises(InputError, match="not UTF-8"):
        header_of(binary)


ODD = {
    "tabs with commas inside": "gpus\tname\n8\ta,b\n",
    "bars": "gpus|name\n8|a,b\n",
    "semicolons": "gpus;name\n8;a,b\n",
    "Excel's separator": "sep=;\ngpus;name\n8;a,b\n",
    "comments above": '# exported by a tool, 2026\n#\n\ngpus,name\n8,"a,b"\n',
    "CR LF": 'gpus,name\r\n8,"a,b"\r\n',
    "CR": 'gpus,name\r8,"a,b"\r',
    "mixed ends of lines": 'gpus,name\r\n\n8,"a,b"\n\r\n',
    "blank rows of a spreadsheet": 'gpus,name\n,\n8,"a,b"\n , \n',
    "spaces": ' gpus , name \n 8 ,"a,b"\n',
    "columns without a name": 'gpus,name,,\n8,"a,b",,\n',
    "a byte order mark": '\ufeffgpus,name\n8,"a,b"\n',
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_odd_tables_are_read_as_meant(text: str, written: Write) -> None:
    """One row with eight GPUs."""
    rows = list(read_rows(written("t.csv", text), ("gpus", "name")))
    assert [(row.whole("gpus"), row.text("name")) for row in rows] == [(8, "a,b")]


REFUSED = {
    "a column twice": ("gpus,name,gpus\n8,a,4\n", ":1: column 'gpus' occurs twice"),
    "a title": ("My cluster,\ngpus,name\n8,a\n", "Line 2 looks like the header"),
    "a longer row": ("gpus,name\n8,a\n8,a,\n", ":3: 3 cells where the header has 2"),
    "a line break inside a cell": ('gpus,name\n8,"a\nb"\n\n8,a,c\n', ":5: 3 cells"),
    "an earlier fault first": ('gpus,name\n8,"a\nb"\nx,y\n8,"a\n', ":4: gpus must be a number"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_odd_tables_are_refused_by_line(text: str, said: str, written: Write) -> None:
    """The line is that on which the row ends."""
    path = written("t.csv", text)
    with pytest.raises(InputError) as caught:
        [rows.wholes("gpus") for rows in read_batches(path, ("gpus", "name"))]
    assert said in str(caught.value)


ZERO_BYTES = {
    "in a name": ("gpus,name\n8,a\n4,b\0c\n", 3),
    "at its end": ("gpus,name\n8,a\0\n", 2),
    "in quotation marks": ('gpus,name\n8,"a,\0b"\n', 2),
    "in the second line of a cell": ('gpus,name\n8,"a\nb\0"\n', 3),
    "in a number": ("gpus,name\n8\0,a\n", 2),
    "in the header": ("gpus,name,no\0te\n8,a,b\n", 1),
    "in a column that nobody reads": ("gpus,name,note\n8,a,\0\n", 2),
    "in a comment": ("gpus,name\n# \0\n8,a\n", 2),
    "behind many rows": ("gpus,name\n" + "8,a\n" * 9000 + "8,a\0\n", 9002),
    "in place of the rest": ("gpus,name\n8,a\n" + "\0" * 40, 3),
}


@pytest.mark.parametrize(("text", "line"), ZERO_BYTES.values(), ids=ZERO_BYTES)
def test_a_zero_byte_is_refused_by_its_line(text: str, line: int, written: Write) -> None:
    """It would become a part of a name, or of a column's name, that nobody sees."""
    path = written("t.csv", text)
    with pytest.raises(InputError, match="zero bytes in its text") as caught:
        [rows.wholes("gpus") for rows in read_batches(path, ("gpus", "name"))]
    assert caught.value.line == line


def test_a_zero_byte_in_parquet_is_refused_by_its_row(tmp_path: Path) -> None:
    """A cell of Parquet may hold one as well."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"gpus": [8, 4], "name": ["a", "b\0c"]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="zero bytes in a cell") as caught:
        list(read_rows(tmp_path / "t.parquet", ("gpus", "name")))
    assert caught.value.line == 2


NUMBERS = {
    "12,5": 12.5,
    "1250,00": 1250.0,
    "1.250,5": 1250.5,
    "1'250.5": 1250.5,
    "1\u202f250": 1250.0,
    "1,00,000": 100000.0,
    "1e3": 1000.0,
    "1_000": 1000.0,
    "\u0661\u0662\u066b\u0665": 12.5,
    "\uff11\uff12": 12.0,
    "8.0": 8.0,
    "1.250": 1.25,
}


@pytest.mark.parametrize("odd", NUMBERS)
def test_a_column_says_what_its_rows_say(odd: str, written: Write) -> None:
    """One odd cell among plain ones changes no other."""
    path = written("t.csv", f"a|b\n1|x\n{odd}|y\n3|z\n")
    (rows,) = read_batches(path, ("a",))
    assert (
        rows.numbers("a") == [row.number("a") for row in read_rows(path, ("a",))] == [1.0, NUMBERS[odd], 3.0]
    )


@pytest.mark.parametrize(
    ("cell", "said"),
    [("1,250", "which may be 1250 or 1.250"), ("5k", "Write 5000, or 5120 if"), ("(5)", "Write -5 if"),
     ("5 %", "Write 0.05 for a fraction, or 5"), ("0x10", "Write 16"), ("true", "no yes or no"),
     ("1.2M", "Write 1200000"), ("\u00bd", "must be a number"), ("5\u00b2", "must be a number"),
     ("nan", "finite"), ("inf", "finite"), ("1e999", "finite"), ("\u22125", "0 or more"),
     ("", "must be a number")],
)  # fmt: skip
def test_a_cell_without_one_number_is_refused(cell: str, said: str, written: Write) -> None:
    """By column and by row, with the line and what to write."""
    path = written("t.csv", f"a|b\n1|x\n{cell}|y\n3|z\n")
    (rows,) = read_batches(path, ("a",))
    for read in (lambda: rows.numbers("a"), lambda: rows.row(1).number("a")):
        with pytest.raises(InputError) as caught:
            read()
        assert ":3: a must be" in str(caught.value)
        assert said in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n", "\n\n\n", "# a\n", "sep=;\n", " \r\n\r\n"])
def test_a_file_without_a_header_is_refused(text: str, written: Write) -> None:
    """Also where no column is needed."""
    path = written("t.csv", text)
    with pytest.raises(InputError, match="no rows below the header"):
        list(read_rows(path, ()))


def test_a_point_may_group_digits_where_the_comma_is_decimal(written: Write) -> None:
    """1.250 in a file of a German spreadsheet is 1250, or 1.25 of a program: both are named."""
    (rows,) = read_batches(written("t.csv", "a;b\n2,5;x\n1.250;y\n"), ("a",))
    with pytest.raises(InputError, match=r":3: a must be a number; got '1.250', which may be 1250 or 1.250"):
        rows.numbers("a")


def test_batches_end_anywhere(written: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, lines and filtered rows are the same in batches of one, two and many."""
    path = written("t.csv", "a,b\n" + "".join(f'{i},"x{os.linesep * (i % 3)}"\n' for i in range(20)))
    found = []
    for size in (1, 2, 7, 8192):
        monkeypatch.setattr(tables, "_BATCH", size)
        kept = [rows.where([i % 2 for i in rows.wholes("a")]) for rows in read_batches(path, ("a",))]
        found.append([(row.line, row.whole("a")) for rows in kept for row in map(rows.row, range(len(rows)))])
    assert found[0][0] == (4, 1)
    assert all(one == found[0] for one in found)
