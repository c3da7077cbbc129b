"""A running job keeps its claim at a cap, on whole daemons whose jobs take up to ten minutes to stop."""

from __future__ import annotations

import pytest
from claimed_days import BOOT_SECONDS, TICK_SECONDS, Day, ticks_of

from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.actions import StartJob
from policies.model import JobId

DAYS = [
    Day(seed=1, stop_seconds=60.0),
    Day(seed=2, stop_seconds=600.0),
    Day(seed=3, stop_seconds=180.0, nodes=2, arrivals_per_hour=4.0),
    pytest.param(Day(seed=4, stop_seconds=60.0, nodes=8, hours=10.0), marks=pytest.mark.exhaustive),
    pytest.param(Day(seed=5, stop_seconds=300.0, hours=24.0), marks=pytest.mark.exhaustive),
]


@pytest.fixture(
    scope="module", params=DAYS, ids=lambda day: f"{day.nodes} nodes, stops of {day.stop_seconds:.0f} s"
)
def day(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Decision]:
    """Return the decisions of a day."""
    return list(ticks_of(request.param, tmp_path_factory.mktemp("day")))


@pytest.mark.first_set(1)
def test_no_job_stands_still_longer_than_a_boot_and_no_width_flaps(day: list[Decision]) -> None:
    """Without claims, jobs of these days stood still for up to two hours after an ordered stop."""
    longest, flaps, moves = 0.0, [], 0
    stopped: dict[JobId, float] = {}
    widths: dict[JobId, list[tuple[float, int, int]]] = {}
    for tick in day:
        now, prices = tick.state.now, tick.plan.node_prices
        for name, job in tick.state.jobs.items():
            if not job.slots:
                if name in widths:
                    stopped.setdefault(name, now)
                    longest = max(longest, now - stopped[name])
                continue
            stopped.pop(name, None)
            held = widths.setdefault(name, [])
            if not held or held[-1][2] != job.generation:
                assert job.job.width is not None
                held.append((now, job.job.width.gpus, job.generation))
        assert prices is not None
    for name, held in widths.items():
        moves += len(held) - 1
        for (_, first, _), (at, second, _), (then, third, _) in zip(held, held[1:], held[2:], strict=False):
            is_back = (second - first) * (third - second) < 0
            if is_back and then - at < 2.0 * 0.5 * BOOT_SECONDS:
                flaps.append((name, first, second, third, then - at))
    assert moves > 5, "the day has moves"
    assert longest <= BOOT_SECONDS + TICK_SECONDS
    assert flaps == []


def test_between_its_stop_and_its_start_a_job_stands_before_every_arrival(day: list[Decision]) -> None:
    """No start takes a GPU that another job claims and that is free for it."""
    seen = 0
    for tick in day:
        claims = tick.state.claims
        taken = {
            slot: action.job
            for action in tick.actions
            if isinstance(action, StartJob)
            for slot in action.slots
        }
        for name, claim in claims.items():
            seen += bool(claim.slots)
            if not claim.slots or name in taken.values():
                continue
            for slot in claim.slots:
                assert taken.get(slot, name) == name, (tick.state.tick, name, slot)
    assert seen > 0, "the day has jobs between stop and start"
