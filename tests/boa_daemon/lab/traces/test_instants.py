"""Times with offsets and zones in public traces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from boa_daemon.lab.traces.instants import instant_seconds, zone_of

# 2017-10-29 02:30 in Berlin is 00:30 UTC in summer time: 1509237000 seconds.
MEMBERS = {
    "2017-10-29 00:30:00": 1509237000.0,
    "2017-10-29T00:30:00Z": 1509237000.0,
    "2017-10-29 00:30:00 UTC": 1509237000.0,
    "2017-10-29 02:30:00+02:00": 1509237000.0,
    "2017-10-29 02:30:00+0200": 1509237000.0,
    "2017-10-29 02:30:00+02": 1509237000.0,
    "2017-10-28T20:30:00-04:00": 1509237000.0,
    "2017-10-29 02:30:00 Europe/Berlin": 1509237000.0,
    "2017-10-29 00:30:00.500": 1509237000.5,
    "1509237000": 1509237000.0,
}


@pytest.mark.parametrize(("text", "seconds"), MEMBERS.items(), ids=MEMBERS)
def test_a_time_is_an_instant(text: str, seconds: float) -> None:
    """Offsets and zones are honoured."""
    assert instant_seconds(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["2017-10-29 02:30 PST", "2017-10-29 02:30 Mars/Base", "2017-13-29 02:30", "noon", "",
     "2017-10-29 02:30+02:00 Europe/Berlin", "2017-03-26 02:30 Europe/Berlin"],
)  # fmt: skip
def test_what_is_no_instant_is_refused(text: str) -> None:
    """Ambiguous abbreviations, unknown zones, and times that the clocks skip."""
    with pytest.raises(ValueError, match=r".+"):
        instant_seconds(text)


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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1764300000", 1764300000.0), ("1764300000.5", 1764300000.5), ("1764300000250", 1764300000.25)],
)
def test_counts_are_of_seconds_or_milliseconds(text: str, seconds: float) -> None:
    """JavaScript counts milliseconds; as seconds they would be of the year 57,000."""
    assert instant_seconds(text) == seconds


def test_a_count_that_is_no_instant_is_refused() -> None:
    """Not a job 10 million years from now."""
    with pytest.raises(ValueError, match="no instant"):
        instant_seconds("9" * 20)
