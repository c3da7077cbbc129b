"""`boa calendar` of a list with dates, a rate or a quota: one answer as table, JSON, CSV and picture."""

from __future__ import annotations

import csv
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from boa_daemon.cli import app
from boa_daemon.errors import InputError, MissingPrice

CLASSES = """
gpu_types: {gpu: {usd_per_gpu_hour: 2.0, gpus_per_instance: 4}}
classes:
- name: vision
  phases: [{size_gpu_hours: 16.0, speedup: {table: {1: 1.0, 2: 1.8, 4: 3.2, 8: 5.0}}}]
"""
JOBS = """job_id,class_name,submit_at,deadline_at
first,vision,2026-12-01,2026-12-01T06:00
second,vision,2026-12-01,2026-12-01T06:00
third,vision,2026-12-01T03:00,
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Write classes and a list; each job takes about 5 hours of one instance."""
    (tmp_path / "classes.yaml").write_text(CLASSES)
    (tmp_path / "jobs.csv").write_text(JOBS)
    return [
        *(str(tmp_path / "jobs.csv"), "--classes", str(tmp_path / "classes.yaml")),
        *("--boot-seconds", "0"),
    ]


def boa(*arguments: object) -> Result:
    """Run the command line; an error stays an exception."""
    return CliRunner().invoke(app, ["calendar", *map(str, arguments)], env={"COLUMNS": "140"})


def document(*arguments: object, code: int = 0) -> dict[str, Any]:
    """Return the JSON answer."""
    result = boa(*arguments, "--json")
    assert result.exit_code == code, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_a_missed_deadline_names_the_quota_that_meets_it(files: list[str]) -> None:
    """Two jobs of 5 hours are due at 6:00, so one instance is too few and two are enough."""
    found = document(*files, "--quota", "gpu=1", code=3)
    (missed,) = found["missed"]

    assert found["status"] == "missed"
    assert found["least_missed_deadlines"] == 1
    assert found["all_done_at"] == "2026-12-01T15:00+00:00"
    assert found["spend"] == pytest.approx(3 * 40.0)
    assert (missed["change"]["kind"], missed["change"]["instances"]) == ("quota", 2)
    again = document(*files, "--quota", f"gpu={missed['change']['instances']}")
    assert again["missed"] == []


def test_a_monthly_budget_is_kept_in_every_month(files: list[str]) -> None:
    """80 dollars a month pay for two jobs, so the third starts in the next month, after 730 hours."""
    found = document(*files, "--budget", "80/month")

    assert (found["budget"], found["budget_unit"]) == (pytest.approx(80.0), "usd_per_month")
    assert [round(month["spend"], 6) for month in found["periods"]] == [80.0, 51.2]
    assert found["periods"][1]["not_spent"] == pytest.approx(28.8)
    assert max(job["start_hours"] for job in found["jobs"]) == 730.0
    assert found["status"] == "met"


@pytest.mark.parametrize("budget", ["8/h", "8/hour"])
def test_an_hourly_budget_is_kept_at_every_instant(files: list[str], budget: str) -> None:
    """The budget pays for one instance, so the jobs run one after another."""
    found = document(*files, "--budget", budget, code=3)
    runs = sorted((job["start_hours"], job["end_hours"]) for job in found["jobs"])

    assert all(before[1] <= after[0] for before, after in pairwise(runs))


def test_a_boot_delays_the_end_of_a_job(files: list[str]) -> None:
    """The boot takes half an hour."""
    found = document(*files[:-1], "1800", "--budget", "1000/h")

    assert found["jobs"][0]["end_hours"] == pytest.approx(16.0 / 5.0 + 0.5)


def test_table_csv_and_json_agree(files: list[str]) -> None:
    """They show the same spend, deadlines and jobs."""
    found = document(*files, "--budget", "80/month")
    shown = boa(*files, "--budget", "80/month").stdout
    rows = list(csv.DictReader(io.StringIO(boa(*files, "--budget", "80/month", "-o", "csv").stdout)))

    assert f"for ${found['spend']:,.2f}." in shown
    assert "2 of 2 deadlines met." in shown
    assert "Month 2: $51.20 spent, $28.80 not spent." in shown
    assert [row["job_id"] for row in rows] == [job["job_id"] for job in found["jobs"]]


def test_the_gantt_chart_names_every_job(files: list[str], tmp_path: Path) -> None:
    """The same list gives the same SVG."""
    drawn = []
    for name in ("a.svg", "b.svg"):
        assert boa(*files, "--quota", "gpu=1", "--gantt", tmp_path / name).exit_code == 3
        drawn.append((tmp_path / name).read_text())

    assert drawn[0] == drawn[1]
    assert all(f"<!-- {job} -->" in drawn[0] for job in ("first", "second", "third"))


def test_jobs_that_no_quota_allows_are_named(files: list[str]) -> None:
    """The exit code is 3."""
    result = boa(*files, "--quota", "gpu=0", "--budget", "80/month")

    assert result.exit_code == 3
    assert "No place within the budget and the quota for: first, second, third." in result.stdout


def test_hours_off_pause_jobs_and_delay_their_ends(files: list[str], tmp_path: Path) -> None:
    """Hours off may stand in the list or in a flag; a missed deadline may be met without hours off."""
    busy = document(*files, "--quota", "gpu=1", "--off", "04:00-20:00", code=3)
    listed = tmp_path / "jobs.csv"
    listed.write_text(f"off: 04:00-20:00\n{listed.read_text()}")
    found = document(*files, "--quota", "gpu=1", code=3)
    picture = tmp_path / "off.svg"

    assert found["jobs"] == busy["jobs"]
    assert found["off"] == ["04:00-20:00"]
    assert [job["end_hours"] for job in found["jobs"]] == [21.0, 26.0, 47.0]
    assert [missed["change"]["kind"] for missed in found["missed"]] == ["always", "quota"]
    assert found["missed"][0]["message"] == "no hours off"
    assert boa(*files, "--quota", "gpu=1", "--gantt", picture).exit_code == 3
    assert picture.exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "no budget"),
        (["--quota", "gpu=1", "--off", "nights"], "'nights' are no window"),
        (["--budget", "gpus:8"], "the budget of a calendar is in dollars"),
        (["--budget", "80/decade"], "unknown unit of time 'decade'"),
        (["--quota", "gup=1"], "unknown type 'gup'"),
        (["--quota", "gpu=many"], "no number of instances"),
        (["--quota", "gpu"], "no number of instances"),
        (["--budget", "80/month", "--start", "soon"], "--start 'soon' is no date"),
        (["--min-budget"], "--min-budget is for a list without dates"),
        (["--budget", "80/month", "--gantt", "picture.txt"], "is no picture"),
    ],
)
def test_wrong_calendar_flags_are_refused(files: list[str], flags: list[str], says: str) -> None:
    """Each error says what is wrong."""
    error = boa(*files, *flags).exception

    assert isinstance(error, InputError)
    assert says in str(error)


def test_calendar_flags_without_a_list_are_refused(files: list[str]) -> None:
    """A stream of jobs has no dates."""
    words = ["plan", *files[1:3], "--budget", "80/month", "--quota", "gpu=1"]
    error = CliRunner().invoke(app, words).exception

    assert "are of a list of jobs. Plan it with boa calendar LIST" in str(error)


def test_a_calendar_without_prices_is_refused(files: list[str], tmp_path: Path) -> None:
    """A calendar rents whole instances, which need a price."""
    (tmp_path / "classes.yaml").write_text(CLASSES.split("\n", 2)[2])
    error = boa(*files, "--quota", "gpu=1").exception

    assert isinstance(error, MissingPrice)
