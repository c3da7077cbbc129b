"""Dates that the daemon's own tick keeps: `decide()` at every step of 10,000 jobs on Markov spot markets."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from followers import Known

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.actions import LaunchNodes
from boa_daemon.tick.decision import decide
from boa_daemon.tick.offers import Cooldown, Offer
from boa_daemon.tick.state import Due, JobTerms
from policies.model import Width
from policies.online.deadlines import NOTHING, Rung, SpotMarket
from policies.placement.first_fit import FirstFit

ONES = rules(instance_types={"gpu": an_instance_type(gpus=1)})
NAME = ONES.instance_types["gpu"].name
SPOT = Offer(instance_type=NAME, zone="a", market="spot", usd_per_hour=0.3)
OFFERS = (SPOT, Offer(instance_type=NAME, zone="a", market="on-demand", usd_per_hour=1.0))
GPUS = (1, 2, 4)
NOW, WORK_HOURS, DATE_HOURS = 10_000_000.0, 16.0, 6.0


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """Return benchmarks/deadlines.py, whose markets these are."""
    path = Path(__file__).resolve().parents[2] / "benchmarks/deadlines.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_dates", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def decided(hours_left: float, work_left: float, held: int, is_up: bool) -> int:
    """Return the configuration that a tick goes to: 0, then on demand at each width, then spot."""
    gpus = 0 if held == NOTHING else GPUS[(held - 1) % len(GPUS)]
    market = "spot" if held > len(GPUS) else "on-demand"
    due = Due(at=NOW + 3600.0 * hours_left, hours=tuple((Width("gpu", one), work_left / one) for one in GPUS))
    nodes = [replace(a_node(f"n{number}", gpus=1), market=market) for number in range(gpus)]
    slots = tuple(slot for number in range(gpus) for slot in some_slots(f"n{number}", 0))
    state = a_state(a_job("a"), nodes=nodes, held={"a": slots} if slots else {}, now=NOW)
    closed = {} if is_up else {SPOT.key: Cooldown(until=NOW + 600.0)}
    state = replace(
        state,
        jobs={"a": replace(state.jobs["a"], terms=JobTerms(due=due))},
        offers=OFFERS,
        cooldowns=closed,
    )
    found = decide(state, allocator=Known(widths={"a": 1}), placer=FirstFit(), rules=ONES)
    wanted = found.plan.widths["a"].gpus
    if wanted == gpus:
        return held
    orders = [one.offer for one in found.actions if isinstance(one, LaunchNodes)]
    is_spot = market == "spot" if not orders else all(o is not None and o.market == "spot" for o in orders)
    return 1 + GPUS.index(wanted) + (len(GPUS) if is_spot else 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("factor", "least"), [(1.0, 0.999), (0.5, 0.99), (2.0, 0.99)], ids=["right", "half", "twice"]
)
def test_the_tick_keeps_dates_under_interruptions(benchmark: ModuleType, factor: float, least: float) -> None:
    """99.9 % with the rates that it believes, 99 % with a market that goes twice as often, or stays away so.

    Some thousand different states are decided, three milliseconds each, so it is among the long tests.
    """
    known: dict[tuple[int, int, int, bool], int] = {}
    believed = SpotMarket()
    market = SpotMarket(up_hours=believed.up_hours * factor, down_hours=believed.down_hours / factor)
    widths = [
        Rung(width=Width("gpu", one), speed=float(one), usd_per_hour=float(one), spot_usd_per_hour=0.3 * one)
        for one in GPUS
    ]

    def choose(steps_left: int, left: np.ndarray, held: np.ndarray, up: np.ndarray) -> np.ndarray:
        found = np.zeros(len(left), dtype=np.intp)
        for number in np.flatnonzero(left > 1e-9):
            key = (steps_left, round(left[number] * 10), int(held[number]), bool(up[number]))
            if key not in known:
                known[key] = decided(0.1 * steps_left, 0.1 * key[1], key[2], key[3])
            found[number] = known[key]
        return found

    found = benchmark.simulate(widths, market, DATE_HOURS, choose, jobs=10_000, work_hours=WORK_HOURS)

    assert found.kept >= least
    assert found.usd < WORK_HOURS
