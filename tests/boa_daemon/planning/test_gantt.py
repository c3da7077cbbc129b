"""The chart of a calendar: a bar for each job where it runs, its date, and where the money begins anew."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from boa_daemon.planning.calendar_plan import CalendarBudget, CalendarPlan
from boa_daemon.planning.calendar_range import CalendarRange
from boa_daemon.planning.gantt import MOST_DATES, MOST_NAMES, draw_gantt, gantt_figure, gantt_words
from boa_daemon.testing import an_instance_type
from policies.optimum.calendar import Calendar, CalendarEntry, CalendarJob, CalendarLimits, InstanceOption
from policies.optimum.calendar_search import CalendarSearchResult
from policies.optimum.job_list import ListedJob

MACHINE = an_instance_type(usd_per_gpu_hour=2.0)
LIMITS = CalendarLimits(instances={"gpu": 1})


def plan(
    *dues: float | None, budget: CalendarBudget | None = None, dated: bool = False, out: int = 0
) -> CalendarPlan:
    """Return the calendar of jobs of ten hours each, one after the other; the last `out` have no place."""
    option = InstanceOption(gpu_type="gpu", instances=1, gpus=4, hours=10.0, usd=80.0)
    jobs = tuple(
        CalendarJob(job=ListedJob(id=f"j{n}", class_name="c", deadline_hours=due), options=(option,))
        for n, due in enumerate(dues)
    )
    placed, left_out = jobs[: len(jobs) - out], jobs[len(jobs) - out :]
    entries = tuple(CalendarEntry(job=job, option=option, starts=10.0 * n) for n, job in enumerate(placed))
    calendar = Calendar(entries=entries, left_out=left_out)
    return CalendarPlan(
        found=CalendarSearchResult(
            calendar=calendar, order=jobs, hours_per_usd=0.0, own={}, bound_weighted_hours=1.0, least_missed=0
        ),
        budget=budget,
        limits=LIMITS,
        machines={"gpu": MACHINE},
        start=datetime(2026, 12, 1, 6, tzinfo=UTC) if dated else None,
        changes={},
        between=CalendarRange(low=calendar, high=calendar, spread={}),
    )


def bars(found: CalendarPlan) -> list[tuple[float, float]]:
    """Return left end and width of each bar, by row."""
    (axes,) = gantt_figure(found, "t").axes
    return [(patch.get_x(), patch.get_width()) for patch in axes.patches if hasattr(patch, "get_width")]


def test_a_bar_is_where_its_job_runs() -> None:
    """In hours, or in days if all takes more than three."""
    assert bars(plan(None, None)) == [(0.0, pytest.approx(10.0)), (10.0, pytest.approx(10.0))]
    (_, last) = bars(plan(*[None] * 8))[6:]
    assert last == (pytest.approx(70.0 / 24.0), pytest.approx(10.0 / 24.0))


def test_late_jobs_dates_and_jobs_without_a_place_are_marked() -> None:
    """The legend has what there is, and the names of the rows are those of the jobs."""
    found = plan(10.0, 12.0, None, out=1)
    figure = gantt_figure(found, "t")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["j0", "j1", "j2"]
    assert "no place" in [text.get_text() for text in axes.texts]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["gpu-x4", "late", "waits", "deadline"]
    assert gantt_words(found).endswith("Late: 1. Without a place: 1.")
    assert "each of 2 jobs" in gantt_words(found)
    plain = gantt_figure(plan(None), "t")
    assert [text.get_text() for text in plain.legends[0].get_texts()] == ["gpu-x4", "waits"]


def test_periods_of_the_budget_end_at_lines() -> None:
    """One day's money each; a sum for all has none."""
    daily = gantt_figure(plan(None, None, None, budget=CalendarBudget(amount=90.0, per="day")), "t")
    lines = [line for line in daily.axes[0].lines if line.get_linestyle() == "--"]
    assert [float(next(iter(line.get_xdata()))) for line in lines] == [24.0]  # type: ignore[arg-type]
    assert "the next day's money" in [text.get_text() for text in daily.legends[0].get_texts()]
    whole = gantt_figure(plan(None, budget=CalendarBudget(amount=900.0, per="all")), "t")
    assert not any("money" in text.get_text() for text in whole.legends[0].get_texts())


@pytest.mark.parametrize("jobs", [1, 3, 8, 60])
def test_dates_are_few_and_at_whole_steps(jobs: int) -> None:
    """At midnight, or at whole hours of the day."""
    (axes,) = gantt_figure(plan(*[None] * jobs, dated=True), "t").axes
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert 1 <= len(labels) <= MOST_DATES + 1
    assert all(len(text) in (6, 12) for text in labels)
    if len(labels[0]) == 12:
        assert all(text.endswith(":00") for text in labels)
    assert "2026" in axes.get_xlabel()


def test_of_many_jobs_none_is_named() -> None:
    """Names would cover each other."""
    for jobs, named in ((MOST_NAMES, MOST_NAMES), (MOST_NAMES + 1, 0)):
        figure = gantt_figure(plan(*[None] * jobs), "t")
        assert len(figure.axes[0].get_yticklabels()) == named


def test_a_chart_is_a_file(tmp_path: Path) -> None:
    """Of the kind of its name."""
    draw_gantt(plan(None), tmp_path / "g.svg", "t")
    assert "<svg" in (tmp_path / "g.svg").read_text()
