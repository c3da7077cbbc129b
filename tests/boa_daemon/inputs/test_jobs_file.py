"""The list of jobs: what it says, and every way to get it wrong, by file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.jobs_file import read_jobs
from policies.optimum.job_list import ListedJob

CLASSES = ("vision", "speech")


def a_list(folder: Path, text: str) -> Path:
    """Write a list and return its path."""
    path = folder / "jobs.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_come_in_any_order_and_empty_cells_leave_out(tmp_path: Path) -> None:
    """Two columns are enough; blanks around cells and blank rows do not matter."""
    path = a_list(
        tmp_path,
        "class_name, deadline_hours ,job_id,scale,weight\nvision,2.5,a,3,0.5\n,,,,\n\n speech , , b ,,\n",
    )

    assert read_jobs(path, CLASSES) == (
        ListedJob(id="a", class_name="vision", scale=3.0, weight=0.5, deadline_hours=2.5),
        ListedJob(id="b", class_name="speech"),
    )


def test_quotes_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    """As spreadsheets write them."""
    path = tmp_path / "jobs.csv"
    path.write_bytes(b'\xef\xbb\xbfjob_id,class_name\r\n"a, b","vision"\r\n')

    assert read_jobs(path, CLASSES) == (ListedJob(id="a, b", class_name="vision"),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the list is empty"),
        ("\n\n", "the list is empty"),
        ("job_id,class_name\n", "the list has no jobs"),
        ("job_id,class_name,dead_line_hours\na,vision,1\n", ":1: unknown column 'dead_line_hours'"),
        ("job_id,class_name,priority\na,vision,1\n", ":1: unknown column 'priority'"),
        ("job_id\na\n", ":1: column 'class_name' must be there once"),
        ("job_id,class_name,job_id\na,vision,b\n", ":1: column 'job_id' must be there once"),
        ("job_id,class_name,scale,scale\na,vision,1,2\n", ":1: column 'scale' must be there once"),
        ("a,vision\n", ":1: unknown column 'a'"),
        ("job_id,class_name\na,vision\nb\n", ":3: 1 cells where the header has 2"),
        ("job_id,class_name\na,vision,1\n", ":2: 3 cells where the header has 2"),
        ("job_id,class_name\n,vision\n", ":2: a job needs a job_id"),
        ("job_id,class_name\na,vision\n\na,speech\n", ":4: job_id 'a' occurs twice"),
        ("job_id,class_name\na,visoin\n", ":2: unknown class 'visoin'. Did you mean 'vision'?"),
        ("job_id,class_name\na,\n", ":2: unknown class ''"),
        ("job_id,class_name\na," + "x" * 200_000 + "\n", ":2: not valid CSV: field larger than"),
    ],
)
def test_what_is_no_list_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    """What is wrong, where, and what it might have meant."""
    with pytest.raises(InputError) as refusal:
        read_jobs(a_list(tmp_path, text), CLASSES)

    assert says in str(refusal.value)
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize("column", ["scale", "weight", "deadline_hours"])
@pytest.mark.parametrize("cell", ["0", "-1", "nan", "inf", "1e300", "1e-300", "1,5", "two", "0x10"])
def test_numbers_must_be_numbers(tmp_path: Path, column: str, cell: str) -> None:
    """Positive, finite and of a size that a job can have."""
    path = a_list(tmp_path, f'job_id,class_name,{column}\na,vision,1\nb,vision,"{cell}"\n')

    with pytest.raises(InputError, match=rf":3: {column} must be a finite number, more than zero; got"):
        read_jobs(path, CLASSES)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    """Missing, a folder, not text."""
    with pytest.raises(InputError, match="no such file"):
        read_jobs(tmp_path / "none.csv", CLASSES)
    with pytest.raises(InputError, match="directory"):
        read_jobs(tmp_path, CLASSES)
    (tmp_path / "jobs.csv").write_bytes(b"job_id,class_name\na,\xff\n")
    with pytest.raises(InputError, match=r":2: the file is not UTF-8 text"):
        read_jobs(tmp_path / "jobs.csv", CLASSES)
