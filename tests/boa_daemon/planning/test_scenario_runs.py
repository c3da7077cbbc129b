"""Scenarios over a trace: each equals a run of `boa simulate` with the changed settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import floats, lists

from boa_daemon.cli.common.simulation_options import settings_in_world
from boa_daemon.errors import InputError
from boa_daemon.planning.scenario_runs import difference, run_scenario, scenario_settings, with_more_load
from boa_daemon.planning.whatif import Scenario, ScenarioBase
from boa_daemon.sim.wiring import SimulationSettings, simulate
from boa_daemon.sim.world_settings import Spot, WorldSettings
from boa_daemon.traces.reader import Trace, TraceJob
from policies.model import Budget

CLASSES = """
gpu_types: {gpu: {usd_per_gpu_hour: 2.0, gpus_per_instance: 4}}
classes:
- name: vision
  phases: [{size_gpu_hours: 4.0, speedup: {table: {1: 1.0, 2: 1.8, 4: 3.2, 8: 5.0}}}]
- name: speech
  phases: [{size_gpu_hours: 1.0, speedup: {table: {1: 1.0, 2: 1.7, 4: 2.6}}}]
"""


@pytest.fixture
def base(tmp_path: Path) -> SimulationSettings:
    """Return settings with forty jobs, one every quarter of an hour."""
    rows = [f"{n},{900 * n},{'speech' if n % 3 else 'vision'}" for n in range(40)]
    (tmp_path / "trace.csv").write_text("\n".join(["job_id,arrived_at_seconds,class_name", *rows]) + "\n")
    (tmp_path / "classes.yaml").write_text(CLASSES)
    budget = Budget(amount=16.0)
    found = settings_in_world(
        *(tmp_path / "trace.csv", tmp_path / "classes.yaml", budget), world=None, spot=False, boot=None
    )
    return replace(found, policy="boa-paced")


def row_of(base: SimulationSettings, change: str) -> dict[str, Any]:
    """Return the row of a change."""
    kept = ScenarioBase(
        scenario=Scenario(name="base", budget="16/h"),
        kind="trace",
        problem=base.problem,
        machines=base.instance_types,
    )
    return run_scenario(base, kept.changed(change))


@pytest.mark.parametrize(
    ("change", "alike"),
    [
        ("budget=14/h", {"budget": Budget(amount=14.0)}),
        ("quota=gpu:2", {"world": WorldSettings(quotas={"gpu": 2})}),
    ],
)
def test_a_scenario_equals_the_run_of_its_settings(
    base: SimulationSettings, change: str, alike: dict[str, Any]
) -> None:
    """Mean JCT and spend are equal."""
    found, run = row_of(base, change), simulate(replace(base, best_effort=True, **alike))

    assert found["mean_jct_hours"] == run.mean_jct_hours
    assert found["spend"] == run.spent_usd


def test_changes_of_prices_sizes_load_and_market_have_their_effect(base: SimulationSettings) -> None:
    """Lower prices shorten jobs, larger sizes lengthen them, and spot costs less."""
    plain = run_scenario(base, Scenario(name="base", budget="16/h"))

    assert row_of(base, "prices=-50%")["mean_jct_hours"] < plain["mean_jct_hours"]
    assert row_of(base, "class=vision:x2")["mean_jct_hours"] > plain["mean_jct_hours"]
    assert row_of(base, "load=x1.5")["jobs"] == 60
    assert row_of(base, "market=spot")["spend"] < plain["spend"]


def test_a_scenario_without_spot_returns_to_on_demand(base: SimulationSettings) -> None:
    """A scenario with the spot market of the world keeps the world."""
    spot = Spot(price_fraction=0.4)
    only = replace(base, world=replace(base.world, spot=spot, on_demand=False))

    kept = scenario_settings(only, Scenario(name="base", budget="16/h", spot=spot))
    assert (kept.world.spot, kept.world.on_demand) == (spot, False)
    back = scenario_settings(only, Scenario(name="base", budget="16/h"))
    assert back.world.markets == ("on-demand",)


@given(gaps=lists(floats(0.0, 9e3), min_size=1, max_size=30), factor=floats(0.2, 4.0))
def test_more_load_multiplies_the_jobs_within_the_same_period(gaps: list[float], factor: float) -> None:
    """The number of jobs is right to one job."""
    at, jobs = 0.0, []
    for number, gap in enumerate(gaps):
        at += gap
        jobs.append(TraceJob(str(number), at, "c"))
    try:
        found = with_more_load(Trace(tuple(jobs)), factor)
    except InputError:
        assert factor * len(jobs) < 1.0
        return
    assert abs(len(found.jobs) - factor * len(jobs)) < 1.0 + 1e-6
    assert found.jobs[0].arrived_at_seconds >= jobs[0].arrived_at_seconds
    assert found.jobs[-1].arrived_at_seconds <= jobs[-1].arrived_at_seconds


def test_a_difference_is_worded_in_time_and_dollars() -> None:
    """Here jobs take longer and cost less."""
    rows = [
        {"scenario": name, "mean_jct_hours": hours, "spend": usd}
        for name, hours, usd in (("base", 1.0, 18_000.0), ("budget=25/h", 1.1, 14_400.0))
    ]

    said = "budget=25/h: 6.0 min more from submission to end, $3,600.00 less"
    assert difference(rows[1], rows[0]) == said


def test_a_limit_on_nodes_replaces_that_of_the_base(base: SimulationSettings) -> None:
    """Without one in the scenario the base keeps its own."""
    capped = replace(base, max_nodes=9)

    assert scenario_settings(capped, Scenario(name="base", budget="16/h")).max_nodes == 9
    assert scenario_settings(capped, Scenario(name="less", budget="16/h", max_nodes=2)).max_nodes == 2
    assert row_of(base, "nodes=1")["mean_jct_hours"] > row_of(base, "nodes=9")["mean_jct_hours"]
