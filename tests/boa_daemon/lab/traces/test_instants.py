"""Times with offsets and zones in public traces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from boa_daemon.inputs.tables import read_batches, read_rows
from boa_daemon.lab.traces.instants import clock_seconds, column_seconds, row_seconds, zone_of
from boa_daemon.time_text import instant_seconds


def test_times_without_a_zone_are_of_the_files_zone() -> None:
    """Berlin is two hours ahead in summer: 02:30 is 00:30 UTC."""
    assert instant_seconds("2017-07-29 02:30:00", zone_of("Europe/Berlin")) == instant_seconds(
        "2017-07-29 00:30"
    )


def philly(folder: Path, started: str, ended: str) -> list[str]:
    """Return the command that imports a log with one attempt on two GPUs."""
    attempt = {"start_time": started, "end_time": ended, "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}
    job = {"jobid": "a", "submitted_time": "2017-10-29 00:00:00", "attempts": [attempt]}
    path = folder / "cluster_job_log.json"
    path.write_text(json.dumps([job]))
    return ["trace", "import", str(path), "--from", "philly", "--out", str(folder / "out"), "-o", "json"]


@pytest.mark.parametrize(
    ("started", "ended", "hours"),
    [
        ("2017-10-29 02:30+02:00", "2017-10-29 02:30+01:00", 1.0),
        ("2017-10-29T00:30:00Z", "2017-10-29T03:30:00+01:00", 2.0),
        ("2017-10-29 02:00:00", "2017-10-29 02:30:00", 0.5),
    ],
)
def test_philly_counts_the_hours_between(started: str, ended: str, hours: float, tmp_path: Path) -> None:
    """Two GPUs for so many hours."""
    done = CliRunner().invoke(app, philly(tmp_path, started, ended))
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["classes"][0]["size_gpu_hours"] == pytest.approx(2 * hours)


@pytest.mark.parametrize(
    ("started", "ended", "said"),
    [
        ("2017-10-29 02:30+01:00", "2017-10-29 02:30+02:00", "is before"),
        ("2017-10-29 02:30:00", "2017-10-29 03:30:00+02:00", "one alone has a zone"),
    ],
)
def test_philly_refuses_what_it_cannot_count(started: str, ended: str, said: str, tmp_path: Path) -> None:
    """An end before its start is no run of zero seconds."""
    done = CliRunner().invoke(app, philly(tmp_path, started, ended))
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)


COLUMNS = {
    "plain": ["2026-03-01 12:00:00", "2026-12-31T23:59:59", "1999-02-28 00:00:00", "2024-02-29 01:02:03"],
    "mixed": ["2026-03-01 12:00:00", "2026-03-01 12:00:00.5", "2026-03-01T12:00Z", "1772366400"],
    "around the change of clocks": ["2026-03-29 01:59:59", "2026-03-29 03:00:00", "2026-10-25 02:30:00"],
    "before 1970": ["1969-12-31 23:59:59", "0001-01-02 00:00:00"],
}


@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kolkata"]
)
@pytest.mark.parametrize("cells", COLUMNS.values(), ids=COLUMNS)
def test_a_column_says_what_its_rows_say(cells: list[str], zone: str, tmp_path: Path) -> None:
    """Read at once, and one by one."""
    path = tmp_path / "t.csv"
    path.write_text("at,b\n" + "".join(f"{cell},\n" for cell in cells))
    (rows,) = read_batches(path, ("at",))
    each = [row_seconds(row, "at", zone_of(zone)) for row in read_rows(path, ("at",))]
    assert column_seconds(rows, "at", zone_of(zone)) == each


@pytest.mark.parametrize(
    "cell", ["2026-02-29 12:00:00", "2026-13-01 12:00:00", "2026-00-01 12:00:00", "2026-01-00 12:00:00",
             "2026-01-01 24:00:01", "2026-01-01 12:60:00", "2026-01-01 12:00:61", "2026-01-01x12:00:00",
             "0000-01-01 12:00:00", "2026-03-29 02:30:00", "2026-0a-01 12:00:00"],
)  # fmt: skip
def test_a_column_with_no_time_is_refused_by_line(cell: str, tmp_path: Path) -> None:
    """A day that is none, signs, and a time that Berlin's clocks skip."""
    path = tmp_path / "t.csv"
    path.write_text(f"at,b\n2026-01-01 12:00:00,\n{cell},\n")
    (rows,) = read_batches(path, ("at",))
    with pytest.raises(InputError, match=r":3: at must be YYYY-MM-DD"):
        column_seconds(rows, "at", zone_of("Europe/Berlin"))


def test_run_times_of_one_form_are_read_at_once() -> None:
    """One hour, two minutes and three seconds are 3,723 s; others are left to the reader of cells."""
    assert clock_seconds(["01:02:03", "99:59:59"]) == [3723.0, 99 * 3600 + 59 * 60 + 59.0]
    for other in ("1-01:02:03", "02:03", "01:60:03", "01:02:60", "01-02:03", "0\u0661:02:03"):
        assert clock_seconds(["01:02:03", other]) is None
