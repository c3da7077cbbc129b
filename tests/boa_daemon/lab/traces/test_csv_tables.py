"""Public tables are read strictly, and the right workload file is found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.csv_tables import header_of, pick_file, read_rows

Write = Callable[[str, str], Path]


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


def test_the_only_workload_is_taken_and_several_are_listed(written: Write, tmp_path: Path) -> None:
    """Of several, one is picked by its path from the source or from the working directory."""
    one = written("workloads/workload-1.csv", "a\n1\n")
    patterns = ("workloads*/workload-*.csv",)

    assert pick_file(tmp_path, patterns, None) == one
    assert pick_file(one, patterns, None) == one
    two = written("workloads/workload-2.csv", "a\n1\n")
    with pytest.raises(
        InputError, match=r"2 workloads, and none picked.*workload-1\.csv, workloads.workload-2"
    ):
        pick_file(tmp_path, patterns, None)
    assert pick_file(tmp_path, patterns, "workloads/workload-2.csv") == two
    assert pick_file(tmp_path, patterns, str(two)) == two
    with pytest.raises(InputError, match=r"--workload 'workload-9.csv' is no file.*Pick one"):
        pick_file(tmp_path, patterns, "workload-9.csv")


def test_an_empty_or_missing_directory_is_refused(tmp_path: Path) -> None:
    """The error says what was looked for."""
    with pytest.raises(InputError, match=r"no \*\.csv in this directory"):
        pick_file(tmp_path, ("*.csv",), None)
    with pytest.raises(InputError, match="no such file or directory"):
        pick_file(tmp_path / "none", ("*.csv",), None)
