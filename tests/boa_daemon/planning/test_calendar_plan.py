"""A calendar in words and as a document: budgets as typed, quotas, dates, and what would save a date."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import numpy as np
import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.problem_file import parse_problem
from boa_daemon.inputs.yaml_events import parse_yaml
from boa_daemon.planning.calendar_plan import (
    CalendarBudget,
    CalendarPlan,
    calendar_budget,
    calendar_plan,
    is_rate,
    read_quota,
)
from boa_daemon.testing import an_instance_type
from policies.optimum.calendar_search import DeadlineFix
from policies.optimum.job_list import ListedJob

CLASSES = """
gpu_types: {gpu: {usd_per_gpu_hour: 2.0, gpus_per_instance: 4}}
classes:
- {name: c, spread: 0.2, phases: [{size_gpu_hours: 32.0, speedup: {table: {4: 3.2}}}]}
"""
FILE = parse_problem(
    Document(name="classes.yaml", content=parse_yaml(CLASSES), language="yaml"), require_rates=False
)
START = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("units", "per", "hours"),
    [
        (("h", "hr", "hour", "hours", "H"), "hour", 1.0),
        (("d", "day", "days", "Day"), "day", 24.0),
        (("w", "wk", "week", "weeks"), "week", 168.0),
        (("mo", "month", "months", "MONTH."), "month", 730.0),
        (("y", "yr", "year", "years"), "year", 8760.0),
    ],
)
def test_a_budget_is_spent_by_the_period_that_it_names_however_that_is_spelled(
    units: tuple[str, ...], per: str, hours: float
) -> None:
    """900 a day are no ceiling of 37.50 an hour."""
    for unit in units:
        budget = calendar_budget(f"900/{unit}")
        assert (budget.amount, budget.per) == (pytest.approx(900.0), per)
        limits = budget.limits({"gpu": 2})
        if per == "hour":
            assert (limits.usd_per_hour, limits.usd_per_period) == (pytest.approx(900.0), np.inf)
        else:
            assert (limits.usd_per_period, limits.period_hours) == (pytest.approx(900.0), hours)
            assert limits.usd_per_hour == np.inf
        assert limits.instances == {"gpu": 2}


def test_a_budget_without_a_period_is_for_all() -> None:
    """GPUs are no money."""
    budget = calendar_budget("1500")
    assert budget == CalendarBudget(amount=1500.0, per="all")
    assert budget.limits({}).usd_in_all == 1500.0
    with pytest.raises(InputError, match="the budget of a calendar is in dollars"):
        calendar_budget("gpus:4")
    assert is_rate("4/h")
    assert not is_rate("4")


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (CalendarBudget(amount=2.0, per="hour"), "$3.00 an hour"),
        (CalendarBudget(amount=2.0, per="week"), "$3.00 a week"),
        (CalendarBudget(amount=2.0, per="all"), "$3.00 in all"),
    ],
)
def test_a_budget_in_words(budget: CalendarBudget, said: str) -> None:
    """Half as much again."""
    assert budget.said(1.5) == said


MACHINES = {"a100": replace(an_instance_type(gpu_type="a100"), name="p4d.24xlarge")}


@pytest.mark.parametrize("text", ["a100=4", "p4d.24xlarge=4", " a100 : 4 "])
def test_a_quota_is_of_a_gpu_type_or_its_machine(text: str) -> None:
    """Zero forbids a type."""
    assert read_quota([text], MACHINES) == {"a100": 4}
    assert read_quota(["a100=0"], MACHINES) == {"a100": 0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a10=4", "unknown type 'a10'.*a100"),
        ("a100", "is no number of instances. Write --quota a100=4"),
        ("a100=-1", "is no number of instances"),
        ("a100=1.5", "is no number of instances"),
        ("a100=²", "is no number of instances"),
    ],
)
def test_a_wrong_quota_is_refused(text: str, said: str) -> None:
    """The error shows how to write it."""
    with pytest.raises(InputError, match=said):
        read_quota([text], MACHINES)


@cache
def plain() -> CalendarPlan:
    """Return a calendar of one job."""
    return plan(None, budget=CalendarBudget(amount=100.0, per="all"))


def plan(*dues: float | None, start: datetime | None = START, **changes: Any) -> CalendarPlan:
    """Return the calendar of jobs of ten hours and 80 dollars each, one at a time."""
    jobs = [ListedJob(id=f"j{n}", class_name="c", deadline_hours=due) for n, due in enumerate(dues)]
    words: dict[str, Any] = {"budget": None, "quota": {"gpu": 1}, "start": start, "boot_hours": 0.0}
    return calendar_plan(FILE, jobs, **(words | changes))


def test_a_calendar_that_meets_its_dates_says_so() -> None:
    """With dates, and what low and high would be."""
    found = plan(30.0, None)
    assert found.is_met
    document = found.to_document()
    assert (document["status"], document["spend"], document["all_done_hours"]) == ("met", 160.0, 20.0)
    assert (document["start_at"], document["all_done_at"]) == (
        "2026-12-01T00:00+00:00",
        "2026-12-01T20:00+00:00",
    )
    assert document["mean_jct_hours"] == 15.0
    assert [row["end_hours"] for row in document["jobs"]] == [10.0, 20.0]
    assert found.sentences()[0] == "All done by 01 Dec 20:00, for $160.00."
    assert "1 of 1 deadline met." in found.sentences()
    assert found.verdict == []


def test_a_late_job_is_named_with_by_how_much_and_what_would_help() -> None:
    """Two jobs in the time of one: a second node would do."""
    found = plan(10.0, 12.0)
    assert not found.is_met
    (missed,) = found.to_document()["missed"]
    assert (missed["job_id"], missed["due_hours"], missed["end_hours"], missed["late_hours"]) == (
        "j1",
        12.0,
        20.0,
        8.0,
    )
    assert missed["change"]["kind"] == "quota"
    assert missed["message"] == "a quota of 2 x gpu-x4"
    assert found.verdict[0] == "1 of 2 deadlines missed: j1 by 8.00 h."
    assert "1 of 2 deadlines met; no calendar meets more than 1." in found.sentences()


def test_a_job_without_a_place_is_named() -> None:
    """100 dollars pay for one job."""
    found = plan(None, None, budget=CalendarBudget(amount=100.0, per="all"))
    assert len(found.to_document()["left_out"]) == 1
    assert found.verdict[0].startswith("No place within the budget and the quota for: j")
    assert found.to_document()["gap"] is None
    assert found.to_document()["budget_unit"] == "usd"


def test_the_money_of_each_period_is_spent_or_left() -> None:
    """A job a day: its ten hours and 80 dollars of 100; what began late in a day counts where it runs."""
    found = plan(None, None, budget=CalendarBudget(amount=100.0, per="day"))
    document = found.to_document()
    assert document["budget_unit"] == "usd_per_day"
    assert [part["spend"] for part in document["periods"]] == pytest.approx([100.0, 60.0])
    assert [part["not_spent"] for part in document["periods"]] == pytest.approx([0.0, 40.0])
    assert [part["start_hours"] for part in document["periods"]] == [0.0, 24.0]
    assert "Day 2: $60.00 spent, $40.00 not spent." in found.sentences()
    assert plan(None, budget=CalendarBudget(amount=100.0, per="hour")).to_document()["periods"] == []


def test_a_job_that_is_met_only_just_is_at_risk() -> None:
    """A fifth slower it would be late."""
    found = plan(11.0)
    assert found.is_met
    assert found.verdict == ["Met only just, and late if jobs run slowly: j0."]
    assert plan(12.5).verdict == []
    assert plan(12.5, spread=0.5).verdict == []


@pytest.mark.parametrize(
    ("start", "hours", "when", "date"),
    [
        (None, 3.254, "hour 3.25", "hour 3.26"),
        (None, 32.51, "hour 32.5", "hour 32.6"),
        (None, 3.25, "hour 3.25", "hour 3.25"),
        (START, 10.0, "01 Dec 10:00", "01 Dec 10:00"),
        (START, 10.001, "01 Dec 10:00", "01 Dec 10:01"),
    ],
)
def test_a_date_that_is_said_would_be_met(start: datetime | None, hours: float, when: str, date: str) -> None:
    """It is rounded up, as exact as times are shown."""
    found = replace(plain(), start=start)
    assert (found.when(hours), found.date_for(hours)) == (when, date)
    assert (found.at(hours) is None) is (start is None)
    assert found.at(np.inf) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            DeadlineFix(kind="budget", factor=1.5, extra_usd=12.0),
            "a budget of $150.00 in all ($12.00 more is spent)",
        ),
        (DeadlineFix(kind="quota", gpu_type="gpu", instances=3, extra_usd=0.001), "a quota of 3 x gpu-x4"),
        (DeadlineFix(kind="always"), "no hours off"),
        (DeadlineFix(kind="first"), "put it first; no other job is late then"),
        (DeadlineFix(kind="on-demand", misses=("b", "c")), "on demand, and first; then late: b, c"),
        (DeadlineFix(kind="date", ends=10.0), "another date: 01 Dec 10:00"),
        (DeadlineFix(kind="date"), "no change found: no width fits the budget and the quota"),
    ],
)
def test_each_change_is_said(change: DeadlineFix, said: str) -> None:
    """With the money that it costs, from a cent on."""
    assert plain().said(change) == said
