"""The list of jobs: its columns, and its errors with file and line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.jobs_file import parse_instant, read_list
from policies.optimum.job_list import ListedJob

CLASSES = ("vision", "speech")


def a_list(folder: Path, text: str) -> Path:
    """Write a list and return its path."""
    path = folder / "jobs.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_may_have_any_order_and_cells_may_be_empty(tmp_path: Path) -> None:
    """Two columns are required; blanks around cells and blank rows do not matter."""
    path = a_list(
        tmp_path,
        "class_name, deadline_hours ,job_id,scale,weight\nvision,2.5,a,3,0.5\n,,,,\n\n speech , , b ,,\n",
    )

    assert read_list(path, CLASSES).jobs == (
        ListedJob(id="a", class_name="vision", scale=3.0, weight=0.5, deadline_hours=2.5),
        ListedJob(id="b", class_name="speech"),
    )


def test_quotes_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    """Spreadsheets write both."""
    path = tmp_path / "jobs.csv"
    path.write_bytes(b'\xef\xbb\xbfjob_id,class_name\r\n"a, b","vision"\r\n')

    assert read_list(path, CLASSES).jobs == (ListedJob(id="a, b", class_name="vision"),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the list is empty"),
        ("\n\n", "the list is empty"),
        ("job_id,class_name\n", "the list has no jobs"),
        ("job_id,class_name,dead_line_hours\na,vision,1\n", ":1: unknown column 'dead_line_hours'"),
        ("job_id,class_name,priority\na,vision,1\n", ":1: unknown column 'priority'"),
        ("job_id\na\n", ":1: column 'class_name' must occur exactly once"),
        ("job_id,class_name,job_id\na,vision,b\n", ":1: column 'job_id' must occur exactly once"),
        ("job_id,class_name,scale,scale\na,vision,1,2\n", ":1: column 'scale' must occur exactly once"),
        ("a,vision\n", ":1: unknown column 'a'"),
        ("job_id,class_name\na,vision\nb\n", ":3: 1 cells where the header has 2"),
        ("job_id,class_name\na,vision,1\n", ":2: 3 cells where the header has 2"),
        ("job_id,class_name\n,vision\n", ":2: a job needs a job_id"),
        ("job_id,class_name\na,vision\n\na,speech\n", ":4: job_id 'a' occurs twice"),
        ("job_id,class_name\na,visoin\n", ":2: unknown class 'visoin'. Did you mean 'vision'?"),
        ("job_id,class_name\na,\n", ":2: unknown class ''"),
        ("job_id,class_name\na," + "x" * 200_000 + "\n", ":2: unknown class '" + "x" * 80 + "...'"),
    ],
)
def test_an_invalid_list_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    """The error may suggest a correction."""
    with pytest.raises(InputError) as refusal:
        read_list(a_list(tmp_path, text), CLASSES)

    assert says in str(refusal.value)
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize("column", ["scale", "weight", "deadline_hours"])
@pytest.mark.parametrize("cell", ["0", "-1", "nan", "inf", "1e300", "1e-300", "1,250", "two", "0x10"])
def test_numbers_must_be_positive_and_finite(tmp_path: Path, column: str, cell: str) -> None:
    """Numbers beyond any job's size are refused too."""
    path = a_list(tmp_path, f'job_id,class_name,{column}\na,vision,1\nb,vision,"{cell}"\n')

    with pytest.raises(InputError, match=rf":3: {column} must be a finite number, more than zero; got"):
        read_list(path, CLASSES)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    """A file may be missing, a folder, or not UTF-8."""
    with pytest.raises(InputError, match="no such file"):
        read_list(tmp_path / "none.csv", CLASSES)
    with pytest.raises(InputError, match="folder"):
        read_list(tmp_path, CLASSES)
    (tmp_path / "jobs.csv").write_bytes(b"job_id,class_name\na,\xff\n")
    with pytest.raises(InputError, match=r":2: the file is not UTF-8 text"):
        read_list(tmp_path / "jobs.csv", CLASSES)


def test_dates_become_hours_from_the_first_day(tmp_path: Path) -> None:
    """A date alone means its beginning for a submission and its end for a deadline."""
    path = a_list(
        tmp_path,
        "job_id,class_name,submit_at,deadline_at\na,vision,2026-12-01T06:00,2026-12-02\nb,speech,,2026-12-01T12:00\n",
    )
    found = read_list(path, CLASSES)

    assert found.start == datetime(2026, 12, 1, tzinfo=UTC)
    assert found.has_arrivals
    assert found.jobs == (
        ListedJob(id="a", class_name="vision", submit_hours=6.0, deadline_hours=48.0 - 6.0),
        ListedJob(id="b", class_name="speech", deadline_hours=12.0),
    )


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("2026-12-31", "2027-01-01T00:00:00+00:00"),
        ("2026-12-31Z", "2027-01-01T00:00:00+00:00"),
        ("2026-12-31 +01:00", "2027-01-01T00:00:00+01:00"),
        ("2026-03-29 Europe/Berlin", "2026-03-30T00:00:00+02:00"),
        ("20261231-0500", "2027-01-01T00:00:00-05:00"),
        (" 2026-12-31 ", "2027-01-01T00:00:00+00:00"),
        ("2026-12-31T00Z", "2026-12-31T00:00:00+00:00"),
        ("2026-12-31 24:00", "2027-01-01T00:00:00+00:00"),
    ],
)
def test_the_end_of_a_day_alone_is_its_end_in_its_zone(text: str, end: str) -> None:
    """A day with a zone is no clock: its deadline is not the begin of the day."""
    assert parse_instant(text, is_end=True).isoformat() == end


def test_hours_of_submission_may_be_zero(tmp_path: Path) -> None:
    """A list without dates has no start."""
    found = read_list(a_list(tmp_path, "job_id,class_name,submit_hours\na,vision,0\nb,vision,1.5\n"), CLASSES)

    assert [job.submit_hours for job in found.jobs] == [0.0, 1.5]
    assert found.start is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("job_id,class_name,submit_at\na,vision,tomorrow\n", ":2: submit_at must be a date; got 'tomorrow'"),
        ("job_id,class_name,deadline_at\na,vision,2026-12-01\n", "no day from which to count"),
        (
            "job_id,class_name,submit_hours\na,vision,-1\n",
            ":2: submit_hours must be a finite number, 0 or more",
        ),
        (
            "job_id,class_name,submit_at,submit_hours\na,vision,2026-12-01,4\n",
            ":2: give either submit_at or submit_hours",
        ),
        (
            "job_id,class_name,submit_at,deadline_at\na,vision,2026-12-03,2026-12-01\n",
            ":2: the deadline of job 'a' is before it is submitted",
        ),
    ],
)
def test_invalid_dates_are_refused(tmp_path: Path, text: str, says: str) -> None:
    """Unreadable dates, a deadline before the submission, and dates beside hours are errors."""
    with pytest.raises(InputError) as caught:
        read_list(a_list(tmp_path, text), CLASSES)

    assert says in str(caught.value)


def test_a_submission_before_the_start_is_refused(tmp_path: Path) -> None:
    """The start is given by the caller here."""
    path = a_list(tmp_path, "job_id,class_name,submit_at\na,vision,2026-12-01\n")
    with pytest.raises(InputError, match="before the list begins"):
        read_list(path, CLASSES, start=datetime(2026, 12, 2, tzinfo=UTC))
