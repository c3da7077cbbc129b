"""Runs decide the same with the shortcuts of a tick as without them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from load_scenarios import Scenario, settings_of

from boa_daemon.sim.wiring import SimulationSettings, simulate
from boa_daemon.sim.world_settings import Boot, Checkpoints, Faults, Spot, Stock, WorldSettings
from boa_daemon.tick.decide import decision
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.placeable_nodes import LatestRoom, PlaceableNodes
from boa_daemon.tick.facts.state import ClusterState
from policies.memo import Memo
from policies.placement.lwf import LeastWorkloadFirst
from policies.registry import PolicyOptions

FAULTY = WorldSettings(
    zones=("a", "b"),
    boots={"": Boot(median_seconds=180.0, p99_seconds=900.0)},
    spot=Spot(mean_interruption_hours=2.0, stock=Stock(mean_in_hours=4.0)),
    faults=Faults(boot_failure_fraction=0.05, throttled_fraction=0.05, mean_job_failure_hours=20.0),
    checkpoints=Checkpoints(every_seconds=600.0, cost_seconds=10.0),
)


def decisions_of(settings: SimulationSettings) -> list[Decision]:
    """Return all decisions of a run."""
    seen: list[Decision] = []
    simulate(settings, seen.append)
    return seen


@pytest.mark.first_set(3)
@pytest.mark.parametrize(
    "changes",
    [
        {"policy": "boa"},
        {"policy": "boa-paced"},
        {"policy": "boa", "world": FAULTY},
        {"policy": "boa-paced", "max_nodes": 12},
        {"policy": "boa", "warm_pool_nodes": 3, "kappa": 3.0},
        {"policy": "pollux", "options": PolicyOptions(nodes=8)},
    ],
    ids=["boa", "paced", "faults", "limit", "pool", "pollux"],
)
def test_a_run_takes_the_same_actions_without_shortcuts(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All stages run, each tick builds a room of its own, and a placer places all jobs together."""

    def a_new_room(_latest: LatestRoom, state: ClusterState, **question: Any) -> PlaceableNodes:
        return PlaceableNodes(state, **question)

    settings = replace(settings_of(Scenario(name="steady"), hours=3.0), **changes)
    with_shortcuts = decisions_of(settings)
    monkeypatch.setattr(decision, "_idle_stages", Memo(lambda _facts: frozenset[decision.Stage]()))
    monkeypatch.setattr(LatestRoom, "of", a_new_room)
    monkeypatch.delattr(LeastWorkloadFirst, "place_beside")
    without = decisions_of(settings)

    assert len(with_shortcuts) > 100
    assert [found.actions for found in with_shortcuts] == [found.actions for found in without]
    assert [found.wake_at for found in with_shortcuts] == [found.wake_at for found in without]
