"""Work measured at every tick equals work counted from the last event."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from load_scenarios import SCENARIOS, settings_of
from sampling import sampled
from worlds import WORLDS

from boa_daemon.sim import wiring
from boa_daemon.sim.wiring import SimulationSettings, prepare, simulate
from boa_daemon.testing import a_class, a_problem, a_trace, an_instance_type
from boa_daemon.tick.decide.controller import Controller
from policies.errors import InfeasibleBudget
from policies.model import Budget
from policies.registry import PolicyEntry, find_policy
from policies.speedup import Table

SCALING, STIFF = Table(gpus=(1, 2, 4), speeds=(1.0, 1.9, 3.6)), Table(gpus=(1, 2, 4), speeds=(1.0, 1.3, 1.5))


def test_measuring_progress_more_often_changes_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """JCT and spend are equal with progress measured at every tick and counted from the last event."""
    settings = settings_of(SCENARIOS[0], hours=4.0)
    counted = simulate(settings)

    def fresh(name: str) -> PolicyEntry:
        return replace(find_policy(name), reads_progress=True)

    monkeypatch.setattr(wiring, "find_policy", fresh)
    measured = simulate(settings)

    assert measured.mean_jct_hours == pytest.approx(counted.mean_jct_hours, rel=1e-9)
    assert measured.spent_usd == pytest.approx(counted.spent_usd, rel=1e-9)


@st.composite
def phased(draw: DrawFn) -> SimulationSettings:
    """Return jobs of many phases with two kinds of curves, in a random world, under BOA or paced BOA."""
    sizes = draw(st.lists(st.floats(0.01, 0.3), min_size=2, max_size=8))
    stiff = a_class(curve=STIFF, sizes=sizes).phases
    phases = tuple(
        stiff[number] if draw(st.booleans()) else phase
        for number, phase in enumerate(a_class(curve=SCALING, sizes=sizes).phases)
    )
    job_class = replace(
        a_class(startup_hours=0.02, rescale_hours=draw(st.sampled_from((0.0, 0.02)))),
        phases=phases,
        arrivals_per_hour=4.0,
    )
    gaps = draw(st.lists(st.sampled_from((0.0, 10.0, 600.0, 7200.0)), min_size=1, max_size=12))
    return SimulationSettings(
        trace=a_trace(
            *(sum(gaps[: n + 1]) for n in range(len(gaps))),
            scales=[draw(st.sampled_from((0.5, 1.0, 1.7)))] * len(gaps),
        ),
        problem=a_problem(job_class),
        instance_types={"gpu": an_instance_type(gpus=draw(st.sampled_from((2, 4))))},
        budget=Budget(amount=4.0 * (sum(sizes) + 0.1) * draw(st.sampled_from((1.5, 2.0, 3.0)))),
        boot_seconds=draw(st.sampled_from((0.0, 180.0))),
        max_nodes=draw(st.sampled_from((None, 4))),
        seed=draw(st.integers(0, 5)),
        world=draw(WORLDS),
        policy=draw(st.sampled_from(("boa", "boa-paced"))),
    )


@settings(max_examples=sampled(300), deadline=None)
@given(run_settings=phased())
def test_skipping_phase_ends_that_need_no_tick_changes_no_run(run_settings: SimulationSettings) -> None:
    """States and actions are equal whether every phase end is an event or only those that need a tick."""
    try:
        prepare(run_settings)
    except InfeasibleBudget:
        assume(False)

    def seen() -> list[object]:
        ticks: list[object] = []
        result = prepare(run_settings).finish(
            lambda decision: ticks.append((decision.state, decision.actions, decision.plan.wake_at))
        )
        return [*ticks, result.mean_jct_hours, result.spent_usd, result.rescales]

    ahead = seen()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Controller, "next_phase_to_look_at", lambda _self, job: job.phase + 1)
        one_by_one = seen()

    assert ahead == one_by_one
