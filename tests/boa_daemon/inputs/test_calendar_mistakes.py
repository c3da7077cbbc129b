"""Thirty typical mistakes in lists, hours, budgets and changes; each error says what to type."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.jobs_file import read_list
from boa_daemon.inputs.off_hours import working_time
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.planning.calendar_plan import calendar_budget, read_quota
from boa_daemon.planning.whatif import Scenario, ScenarioBase

HEAD = "job_id,class_name,scale,submit_at,deadline_at\n"
LISTS = [
    ("", "the list is empty", "The first line names the columns"),
    (HEAD, "the list has no jobs", "Add one row per job"),
    ("job_id,class\na,tune\n", "list.csv:1: unknown column 'class'", "class_name"),
    ("job_id,class_name,dedline_at\na,tune,\n", "list.csv:1: unknown column", "Did you mean 'deadline_at'"),
    ("job_id,job_id,class_name\na,b,tune\n", "list.csv:1: column 'job_id' must occur exactly once", "names"),
    ("class_name,scale\ntune,1\n", "list.csv:1: column 'job_id' must occur", "The first line names"),
    (HEAD + "a,tuen,,,\n", "list.csv:2: unknown class 'tuen'", "Did you mean 'tune'"),
    (HEAD + "a,tune,1,,\na,tune,1,,\n", "list.csv:3: job_id 'a' occurs twice", ""),
    (HEAD + ",tune,1,,\n", "list.csv:2: a job needs a job_id", ""),
    (HEAD + "a,tune,1\n", "list.csv:2: 3 cells where the header has 5", "Is the file whole?"),
    (HEAD + "a,tune,two,,\n", "list.csv:2: scale must be a finite number, more than zero", "'two'"),
    (HEAD + "a,tune,0,,\n", "list.csv:2: scale must be a finite number, more than zero", "'0'"),
    (HEAD + "a,tune,-1,,\n", "list.csv:2: scale must be a finite number, more than zero", "'-1'"),
    (HEAD + "a,tune,1,soon,\n", "list.csv:2: submit_at must be a date; got 'soon'", "Write 2026-12-24"),
    (HEAD + "a,tune,1,01.12.2026,\n", "list.csv:2: submit_at must be a date", "2026-12-24T18:00"),
    (HEAD + "a,tune,1,,2026-12-03\n", "no day from which to count", "--start 2026-12-01"),
    (HEAD + "a,tune,1,2026-12-05,2026-12-03\n", "list.csv:2: the deadline of job 'a' is before", "submitted"),
    (
        "job_id,class_name,deadline_hours,submit_at,deadline_at\na,tune,3,2026-12-01,2026-12-03\n",
        "list.csv:2: give either deadline_at or deadline_hours",
        "not both",
    ),
    ('job_id,class_name\n"a,tune\n', "list.csv", ""),
    (
        f"off: weekends\n{HEAD}a,tune,1,2026-12-01,\n",
        "list.csv: off hours 'weekends' are no window",
        "sat-sun",
    ),
    (f"off: 22-6\n{HEAD}a,tune,1,2026-12-01,\n", "list.csv: off hours '22-6' are no window", "20:00-08:00"),
    (f"off: mon-sun\n{HEAD}a,tune,1,2026-12-01,\n", "leave no time to work", "mon-fri 19:00-07:00"),
    ("off: sat-sun\njob_id,class_name\na,tune\n", "off hours need a day from which to count", "--start"),
]


def read(path: Path) -> None:
    """Read a list and its off hours."""
    found = read_list(path, ["tune", "train"])
    working_time(found.off, found.start, boot_hours=0.0, file=path)


@pytest.mark.parametrize(("text", "says", "hint"), LISTS)
def test_an_error_in_a_list_gives_its_line_and_a_hint(
    text: str, says: str, hint: str, tmp_path: Path
) -> None:
    """The error has the file, the line if there is one, the value and a correction."""
    path = tmp_path / "list.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read(path)

    assert says in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("40000 per month", "40000 per month"),
        ("40000/moth", "unknown unit of time 'moth'"),
        ("$40k/month", "$40k"),
        ("gpus:8", "Give dollars, and instances by --quota TYPE=4"),
        ("-5/h", "-5"),
        ("0", "0"),
    ],
)
def test_an_invalid_calendar_budget_is_refused(text: str, says: str) -> None:
    """A calendar's budget is in dollars, per unit of time or in total; the error names the wrong part."""
    with pytest.raises(InputError) as caught:
        calendar_budget(text)

    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("budget:60000/month", "is no change that BOA knows"),
        ("quota=a100:two", "is no number of instances"),
        ("quota=h100:2", "unknown type 'h100'"),
        ("prices=+ten%", "is no factor"),
        ("class=tune", "unknown class ''"),
        ("market=preemptible", "unknown market 'preemptible'. Known: on-demand, spot"),
    ],
)
def test_an_invalid_scenario_change_is_refused(change: str, says: str, tmp_path: Path) -> None:
    """The error names the wrong part of the change."""
    path = tmp_path / "classes.yaml"
    path.write_text(
        "gpu_types: {a100: {instance_type: p4d.24xlarge}}\nclasses:\n"
        "- {name: tune, phases: [{size_gpu_hours: 1, speedup: {a100: {table: {1: 1}}}}]}\n"
    )
    file = load_problem(path, require_rates=False)
    base = ScenarioBase(
        scenario=Scenario(name="base", budget="40/h"),
        kind="list" if "market" not in change else "trace",
        problem=file.problem,
        machines=file.instance_types,
    )
    with pytest.raises(InputError) as caught:
        base.changed(change)

    assert says in str(caught.value)


def test_a_quota_of_an_unknown_type_is_refused() -> None:
    """The error names the type."""
    with pytest.raises(InputError, match="unknown type 'a100'"):
        read_quota(["a100:4"], {})
