"""A trace is read completely, or refused with file and line."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.errors import InputError
from boa_daemon.traces.reader import Trace, TraceFault, TraceJob, check_classes, class_file_of, read_trace

Write = Callable[[str, str], Path]
HEADER = "job_id,arrived_at_seconds,class_name,scale\n"
GOOD = HEADER + "a,0,vision,1\nb,2.5,speech,0.5\n"


def test_a_row_is_an_arrival(written: Write) -> None:
    """Each row gives id, seconds, class and scale."""
    trace = read_trace(written("t.csv", GOOD))

    assert trace == Trace((TraceJob("a", 0.0, "vision", 1.0), TraceJob("b", 2.5, "speech", 0.5)))
    assert trace.window_hours == 2.5 / 3600.0


def test_scale_is_one_without_its_column(written: Write) -> None:
    """Columns may be in any order."""
    trace = read_trace(written("t.csv", "class_name,job_id,arrived_at_seconds\nvision,a,3\n"))

    assert trace.jobs == (TraceJob("a", 3.0, "vision", 1.0),)
    assert trace.window_hours == 0.0


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("", None, "the trace is empty"),
        (HEADER, None, "the trace has no jobs"),
        (HEADER.replace("class_name", "clas_name"), 1, "unknown column 'clas_name'"),
        ("job_id,arrived_at_seconds\na,1\n", 1, "column 'class_name' is missing"),
        ("job_id,job_id,arrived_at_seconds,class_name\n", 1, "column 'job_id' occurs twice"),
        (GOOD + "c,3,visi", 4, "3 cells where the header has 4"),
        (GOOD + "c,1,vision,1\n", 4, "arrivals must be in order of time"),
        (GOOD + "a,3,vision,1\n", 4, "job_id 'a' occurs twice"),
        (GOOD + "c,-1,vision,1\n", 4, "arrived_at_seconds of job c must be a finite number"),
        (GOOD + "c,nan,vision,1\n", 4, "got nan"),
        (GOOD + "c,inf,vision,1\n", 4, "got inf"),
        (GOOD + "c,soon,vision,1\n", 4, "arrived_at_seconds must be a number; got 'soon'"),
        (GOOD + "c,3,vision,0\n", 4, "scale of job c must be a finite number, more than zero"),
        (GOOD + "c,3,vision,nan\n", 4, "scale of job c"),
        (GOOD + "c,3,vision,-2\n", 4, "scale of job c"),
        (GOOD + "c,3,,1\n", 4, "job c needs a class_name"),
        (GOOD + ",3,vision,1\n", 4, "a job needs a job_id"),
        (GOOD + '"c\nd",3,vision,1\n', 4, "a line break inside a cell"),
        (GOOD + '"c,3,vision,1\n', 4, "not CSV"),
        (GOOD + "\n", 4, "0 cells"),
    ],
)
def test_a_damaged_trace_is_refused(written: Write, text: str, line: int | None, problem: str) -> None:
    """The error names the fault, the file and the line."""
    path = written("t.csv", text)

    with pytest.raises(InputError) as caught:
        read_trace(path)

    where = f"{path}: " if line is None else f"{path}:{line}: "
    assert str(caught.value).startswith(where)
    assert problem in str(caught.value)


def test_an_unknown_column_is_refused_with_a_suggestion(written: Write) -> None:
    """The suggestion is the column with the closest name."""
    with pytest.raises(InputError, match="Did you mean 'class_name'"):
        read_trace(written("t.csv", "job_id,arrived_at_seconds,class\na,1,vision\n"))


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    """A trace is UTF-8 text."""
    path = tmp_path / "t.csv"
    path.write_bytes(HEADER.encode() + b"\xff\xfe\x00")

    with pytest.raises(InputError, match="not UTF-8"):
        read_trace(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A directory and an impossible name are refused too."""
    for path in (tmp_path / "none.csv", tmp_path, tmp_path / "a\0b"):
        with pytest.raises(InputError, match="cannot read the trace"):
            read_trace(path)


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """Spreadsheets write one."""
    path = tmp_path / "t.csv"
    path.write_text(GOOD, encoding="utf-8-sig")

    assert len(read_trace(path).jobs) == 2


def test_an_unknown_class_is_refused_with_its_line(written: Write) -> None:
    """The closest class is suggested."""
    path = written("t.csv", GOOD)

    with pytest.raises(InputError, match=r":3: job b is of class 'speech'.*Did you mean 'speach'"):
        check_classes(read_trace(path), ["vision", "speach"], path)
    check_classes(read_trace(path), {"vision", "speech"}, path)


@given(seconds=st.lists(st.floats(min_value=0, max_value=1e9), min_size=2, unique=True))
def test_a_trace_out_of_order_is_refused(seconds: list[float]) -> None:
    """The fault names the first job that is out of order."""
    jobs = [TraceJob(str(at), at, "c") for at in sorted(seconds)]

    assert Trace(tuple(jobs)).window_hours == (max(seconds) - min(seconds)) / 3600.0
    with pytest.raises(TraceFault) as caught:
        Trace(tuple(reversed(jobs)))
    assert caught.value.index == 1


@pytest.mark.exhaustive
def test_a_hundred_thousand_rows_are_read_within_six_seconds(written: Write) -> None:
    """The best of three counts, since other tests share the processor."""
    rows = "".join(f"job-{number},{number},vision,1.5\n" for number in range(100_000))
    path = written("t.csv", HEADER + rows)

    seconds = []
    for _ in range(3):
        started = time.process_time()
        trace = read_trace(path)
        seconds.append(time.process_time() - started)

    assert len(trace.jobs) == 100_000
    assert min(seconds) < 6.0


def test_the_class_file_is_named_or_is_beside_the_trace(written: Write, tmp_path: Path) -> None:
    """For a missing trace the error is about the trace and not about its classes."""
    trace = written("trace.csv", GOOD)
    beside = trace.with_name("classes.yaml")
    assert class_file_of(tmp_path / "nowhere.csv", beside) == beside
    with pytest.raises(InputError, match=r"traces.csv: cannot read the trace: .*Did you mean '.*trace\.csv'"):
        class_file_of(tmp_path / "traces.csv", None)
    with pytest.raises(
        InputError, match=r"there is no .*classes\.yaml that says how large.*Give --classes FILE"
    ):
        class_file_of(trace, None)
    with pytest.raises(InputError, match=r"cannot read the list"):
        class_file_of(tmp_path / "no.csv", None, what="the list", other="")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"there is no .*classes\.yaml"):
        class_file_of(tmp_path / "pipe", None)
    beside.write_text("")
    assert class_file_of(trace, None) == beside
