"""Lists of jobs on both markets: mean hours, the hours for deadlines, and low and high cases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from boa_daemon.inputs.problem_file import ProblemFile, load_problem
from boa_daemon.planning.calendar_plan import CalendarBudget, CalendarPlan, calendar_plan
from boa_daemon.planning.spot_list import at_most, quota_of_both
from boa_daemon.sim.world_settings import Checkpoints, Spot, WorldSettings
from policies.optimum.calendar_search import DeadlineFix
from policies.optimum.job_list import ListedJob

CLASSES = """
gpu_types: {gpu: {usd_per_gpu_hour: 2.0, gpus_per_instance: 4}}
classes:
- name: vision
  spread: 0.2
  phases: [{size_gpu_hours: 32.0, speedup: {table: {4: 3.2}}}]
"""
WORLD = WorldSettings(
    spot=Spot(
        price_fraction=0.25, price_volatility=0.0, mean_interruption_hours=10.0, unannounced_fraction=1.0
    ),
    checkpoints=Checkpoints(every_seconds=3600.0),
)
"""A job takes ten hours of one node, which is taken back every ten hours, at a quarter of the price."""


@pytest.fixture
def file(tmp_path: Path) -> ProblemFile:
    """Return a problem file with one class."""
    (tmp_path / "classes.yaml").write_text(CLASSES)
    return load_problem(tmp_path / "classes.yaml", require_rates=False)


def plan(
    file: ProblemFile, due: float | None, market: WorldSettings | None = WORLD, *, usd: float = 40.0
) -> CalendarPlan:
    """Return the calendar of one job; 40 dollars pay for spot only."""
    return calendar_plan(
        file,
        [ListedJob(id="a", class_name="vision", deadline_hours=due)],
        budget=CalendarBudget(amount=usd, per="all"),
        quota={"gpu": 1},
        start=None,
        boot_hours=0.0,
        market=market,
    )


def test_a_job_on_spot_takes_its_mean_hours(file: ProblemFile) -> None:
    """Interruptions lengthen the ten hours of work."""
    (entry,) = plan(file, None).entries

    assert entry.option.gpu_type == "gpu@spot"
    # (exp(1/10) - 1) x 10 hours for each of ten hours between checkpoints.
    assert entry.option.hours == pytest.approx(10 * 10 * np.expm1(0.1))
    assert entry.option.usd == pytest.approx(entry.option.hours * 2.0)
    # In 19 of 20 runs there are at most three interruptions, each of which costs an hour.
    assert entry.option.sure_hours == pytest.approx(10.0 + 3.0)


@pytest.mark.parametrize(
    ("due", "usd", "machine", "is_met"),
    [(12.9, 40.0, "gpu@spot", False), (13.1, 40.0, "gpu@spot", True), (12.9, 200.0, "gpu", True)],
)
def test_a_spot_job_meets_a_deadline_only_after_its_sure_hours(
    file: ProblemFile, due: float, usd: float, machine: str, is_met: bool
) -> None:
    """On spot the job takes 10.5 hours on average and surely no more than 13; on demand it takes 10."""
    found = plan(file, due, replace(WORLD, on_demand=True), usd=usd)

    assert [entry.option.gpu_type for entry in found.entries] == [machine]
    assert found.is_met is is_met


def test_a_fix_by_on_demand_names_its_cost_and_the_late_jobs(file: ProblemFile) -> None:
    """The fix moves a job from spot to on demand."""
    found = plan(file, None)

    assert (
        found.said(DeadlineFix(kind="on-demand", extra_usd=14.0))
        == "on demand, and first ($14.00 more is spent); no other job is late then"
    )
    assert found.said(DeadlineFix(kind="on-demand", misses=("b",))) == "on demand, and first; then late: b"


def test_low_and_high_cases_use_the_spread_of_the_class_file(file: ProblemFile) -> None:
    """Low is ten hours less a fifth; high is thirteen hours and a fifth. Dollars follow."""
    document = plan(file, None).to_document()
    (job,) = document["jobs"]

    assert (job["market"], job["end_low_hours"]) == ("spot", pytest.approx(8.0))
    assert job["end_high_hours"] == pytest.approx(13.0 * 1.2)
    assert (job["spend_low"], job["spend_high"]) == (pytest.approx(16.0), pytest.approx(31.2))
    assert document["range"]["spread"] == {"vision": 0.2}
    assert document["range"]["low"]["spend"] == pytest.approx(16.0)
    assert document["range"]["high"]["all_done_hours"] == pytest.approx(15.6)
    assert job["interruptions"] == pytest.approx(0.1 * 10 * 10 * np.expm1(0.1))


def test_a_deadline_missed_only_in_the_high_case_is_at_risk(file: ProblemFile) -> None:
    """A job of ten hours is due after eleven; a fifth more would be late."""
    found = plan(file, 11.0, None, usd=200.0)

    assert found.is_met
    assert [job.job.id for job in found.between.at_risk] == ["a"]
    assert found.to_document()["jobs"][0]["is_at_risk"]
    assert any("late if jobs run slowly: a." in line for line in found.sentences())


def test_spot_has_the_quota_of_its_type_unless_it_has_its_own(file: ProblemFile) -> None:
    """A quota of 3 allows 3 nodes on each market."""
    machines = dict.fromkeys(("gpu", "gpu@spot"), file.instance_types["gpu"])

    assert quota_of_both({"gpu": 3}, machines) == {"gpu": 3, "gpu@spot": 3}
    assert quota_of_both({"gpu": 3, "gpu@spot": 1}, machines) == {"gpu": 3, "gpu@spot": 1}


@pytest.mark.parametrize("mean", [0.0, 0.05, 1.0, 7.3, 40.0, 2000.0])
def test_at_most_is_the_95_per_cent_quantile_of_a_poisson_variable(mean: float) -> None:
    """The check uses 20,000 draws."""
    drawn = np.random.default_rng(1).poisson(mean, 20_000)

    assert np.mean(drawn <= at_most(mean)) >= 0.945
    assert at_most(mean) == 0 or np.mean(drawn < at_most(mean)) <= 0.955
