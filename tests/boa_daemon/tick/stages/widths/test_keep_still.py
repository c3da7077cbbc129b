"""Rules against flapping: a job that moved or started recently keeps its GPUs, and loops end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from drafts import PRICES, a_draft, gpus
from hypothesis import given, settings
from hypothesis import strategies as st

from boa_daemon.sim.wiring import SimulationSettings, prepare
from boa_daemon.store.memory import MemoryStore
from boa_daemon.testing import (
    Ideal,
    Wishes,
    a_class,
    a_job,
    a_node,
    a_problem,
    a_state,
    a_trace,
    an_instance_type,
    rules,
    some_slots,
    states,
)
from boa_daemon.tick.decide.controller import Controller, Ports
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.facts.actions import LaunchNodes, StartJob, StopJob, TerminateNode
from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.limits import Act, ActKind, Caps, Steady
from boa_daemon.tick.facts.ports import Refused
from boa_daemon.tick.facts.reasons import HeldCode
from boa_daemon.tick.facts.state import ClusterState, JobState, JobTerms
from boa_daemon.tick.stages.widths.keep_still import MoveLimits, _has_enough, keep_still
from policies.errors import InvalidProblem
from policies.model import Budget, Width
from policies.placement.first_fit import FirstFit
from policies.registry import POLICIES, PolicyOptions
from policies.speedup import Amdahl

NOW = 10_000.0


def acts(kind: ActKind, target: str, *at: float) -> tuple[Act, ...]:
    """Return the same act at several times, each given in seconds before now."""
    return tuple(Act(kind=kind, target=target, at=NOW - ago) for ago in at)


def running(*past: Act, **changes: object) -> ClusterState:
    """Return job a on two GPUs of a node of four, with past acts."""
    state = a_state(a_job("a"), nodes=[a_node("n1")], held={"a": some_slots("n1", 0, 1)}, now=NOW)
    return replace(state, acts=past, **changes)  # type: ignore[arg-type]


def decided(state: ClusterState, steady: Steady | None = None, **widths: int) -> Decision:
    """Return the decision under the rules."""
    return decide(
        state,
        allocator=Wishes(widths=widths),
        placer=FirstFit(),
        rules=rules(steady=steady or Steady(), idle_hold_seconds=1e6),
    )


def codes(decision: Decision) -> list[HeldCode]:
    """Return the codes of everything that is held back."""
    return [held.code for held in decision.plan.held]


def test_a_job_keeps_its_gpus_for_the_minimum_hold_after_its_start() -> None:
    """It started 100 s ago; the plan wakes up 200 s later, and then the job moves."""
    state = running(*acts("start", "a", 100.0))
    decision = decided(state, a=4)

    assert decision.actions == ()
    assert codes(decision) == ["minimum-hold"]
    assert decision.wake_at == NOW + 200.0
    assert "(for 100 s so far, of at least 300 s)" in decision.explain("a")
    later = decided(replace(state, now=NOW + 200.0), a=4)
    assert [type(action) for action in later.actions] == [StopJob, StartJob]


def test_a_job_is_not_stopped_during_its_minimum_hold() -> None:
    """The policy gives the job no width; without a recent start the job is stopped."""
    state = running(*acts("start", "a", 100.0))

    assert not [action for action in decided(state).actions if isinstance(action, StopJob)]
    assert [type(action) for action in decided(running()).actions] == [StopJob]


def test_the_moves_per_hour_of_a_job_and_of_all_jobs_are_limited() -> None:
    """The next move waits until the first one is an hour old."""
    past = (*acts("stop", "a", 3000.0, 2500.0, 2000.0, 1500.0), *acts("start", "a", 1400.0))
    decision = decided(running(*past), a=4)
    others = decided(running(*acts("stop", "b", 900.0, 800.0)), Steady(moves_per_hour=2), a=4)

    assert (codes(decision), decision.wake_at) == (["moves-of-job"], NOW + 600.0)
    assert (codes(others), others.wake_at) == (["moves-of-all"], NOW + 2700.0)


def test_moves_of_the_same_tick_count_towards_the_limit() -> None:
    """Two of three jobs widen, because two moves are allowed per hour."""
    jobs = [a_job(name, arrived_at=float(n)) for n, name in enumerate("abc")]
    nodes = [a_node(name) for name in ("n1", "n2", "n3")]
    held = {job.id: some_slots(node.id, 0) for job, node in zip(jobs, nodes, strict=True)}
    state = a_state(*jobs, nodes=nodes, held=held, now=NOW)
    decision = decided(state, Steady(moves_per_hour=2), a=2, b=2, c=2)

    assert [action.job for action in decision.actions if isinstance(action, StopJob)] == ["a", "b"]
    assert codes(decision) == ["moves-of-all"]


def test_a_job_on_an_ending_node_moves_in_spite_of_the_rules() -> None:
    """The job has used all its moves and started 10 s ago."""
    past = (*acts("stop", "a", 400.0, 350.0, 300.0, 250.0), *acts("start", "a", 10.0))
    state = running(*past)
    dying = {**state.nodes, "n1": replace(state.nodes["n1"], phase="terminating"), "n2": a_node("n2")}
    decision = decided(replace(state, nodes=dying), a=2)

    assert [type(action) for action in decision.actions] == [StopJob, StartJob]


def test_hard_caps_overrule_the_minimum_hold() -> None:
    """A job that has just started is stopped if its node would break a cap."""
    state = running(*acts("start", "a", 100.0), settled_today_micro_dollars=99_900_000)
    both = rules(steady=Steady(), caps=Caps(usd_per_day=100.0))
    decision = decide(state, allocator=Wishes(widths={"a": 2}), placer=FirstFit(), rules=both)

    assert StopJob in [type(action) for action in decision.actions]


def test_a_job_that_started_eight_times_in_an_hour_is_not_started_again() -> None:
    """It starts again when the first of the eight starts is more than an hour old."""
    past = acts("start", "a", *(3500.0 - 100.0 * n for n in range(8)))
    state = replace(a_state(a_job("a"), nodes=[a_node("n1")], now=NOW), acts=past)
    decision = decided(state, a=2)

    assert (decision.actions, codes(decision)) == ((), ["loop"])
    assert "repeated without success" in decision.explain("a")
    assert decision.wake_at == NOW + 100.0
    later = decided(replace(state, now=NOW + 101.0), a=2)
    assert [type(action) for action in later.actions] == [StartJob]
    assert decided(replace(state, now=NOW + 100.0), a=2).wake_at == NOW + 101.0, "never at once"


def test_eight_launches_in_a_row_without_a_start_pause_the_launches() -> None:
    """A start after them, or eight launches within 80 s, pause nothing."""
    row = acts("launch", "gpu-x4", *(1000.0 - 100.0 * n for n in range(8)))
    state = a_state(a_job("a"), now=NOW)
    decision = decided(replace(state, acts=row), a=2)
    fresh = decided(replace(state, acts=(*row, *acts("start", "b", 50.0))), a=2)
    quick = decided(replace(state, acts=acts("launch", "gpu-x4", *range(80, 0, -10))), a=2)

    assert (decision.actions, codes(decision)) == ((), ["loop"])
    assert (decision.plan.launches, decision.plan.jobs.waiting) == ({}, {"a": "loop"})
    assert decision.wake_at == NOW - 1000.0 + 3600.0
    assert [[type(action) for action in some.actions] for some in (fresh, quick)] == [[LaunchNodes]] * 2


def test_the_end_of_a_node_is_ordered_again_and_reported_if_orders_have_no_effect() -> None:
    """The note has the code `no-effect`."""
    past = acts("terminate", "n1", *range(240, 0, -30))
    state = replace(a_state(nodes=[a_node("n1", idle_since=0.0)], now=NOW), acts=past)
    decision = decide(state, allocator=Wishes(widths={}), placer=FirstFit(), rules=rules(steady=Steady()))

    assert [type(action) for action in decision.actions] == [TerminateNode]
    assert codes(decision) == ["no-effect"]


@settings(deadline=None)
@given(case=states(), ago=st.floats(0.0, 299.0))
def test_no_running_job_is_stopped_within_its_minimum_hold(
    case: tuple[ClusterState, Wishes], ago: float
) -> None:
    """This holds for any cluster and any widths."""
    state, wishes = case
    past = tuple(Act(kind="start", target=name, at=state.now - ago) for name in state.jobs)
    decision = decide(
        replace(state, acts=past), allocator=wishes, placer=FirstFit(), rules=rules(steady=Steady())
    )

    assert not [action for action in decision.actions if isinstance(action, StopJob)]


@pytest.mark.parametrize("name", ["moves_per_hour", "loop_times", "loop_seconds", "minimum_hold_seconds"])
def test_negative_rules_are_rejected(name: str) -> None:
    """The error names the rule."""
    with pytest.raises(InvalidProblem, match=name):
        Steady(**{name: -1})


def test_the_store_returns_recent_orders_without_refused_launches() -> None:
    """A refused launch rented nothing."""
    store = MemoryStore()
    kind = an_instance_type()
    for number in range(2):
        launch = LaunchNodes(id=f"l{number}", instance_type=kind, reason="")
        store.record_intent(launch, at=float(number))
    store.record_outcome(launch, Refused(reason="no capacity", kind="no-capacity"), at=1.0)
    store.record_intent(StopJob(id="s", job="a", generation=1, reason=""), at=2.0)

    assert store.acts_since(0.0) == [
        Act(kind="launch", target="gpu-x4", at=0.0),
        Act(kind="stop", target="a", at=2.0),
    ]
    assert store.acts_since(1.0) == [Act(kind="stop", target="a", at=2.0)]


@pytest.mark.parametrize("acts", [0, 1, 2, 5])
def test_the_store_keeps_a_limited_number_of_recent_orders(acts: int) -> None:
    """It keeps the last orders, sorted by time."""
    store = MemoryStore(acts=acts)
    for number in range(3):
        store.record_intent(StopJob(id=f"s{number}", job="a", generation=1, reason=""), at=float(number))
    assert [act.at for act in store.acts_since(0.0)] == [0.0, 1.0, 2.0][3 - min(acts, 3) :]
    assert [act.at for act in store.acts_since(2.0)] == ([2.0] if acts else [])


def test_a_policy_that_flaps_makes_four_moves_per_hour() -> None:
    """Widths change every 30 s for three hours: the job moves 12 times, at least 300 s apart."""
    world, store = Ideal(a_state(a_job("a"), nodes=[a_node("n1")])), MemoryStore()
    ports = Ports(clock=world.clock, cloud=world, jobs=world, engine=world, store=store)
    moves: list[float] = []
    for look in range(360):
        world.clock.instant = 30.0 * look
        controller = Controller(
            allocator=Wishes(widths={"a": 1 + look % 2}),
            placer=FirstFit(),
            rules=rules(steady=Steady()),
            ports=ports,
        )
        actions = controller.run_once().actions
        moves += [world.clock.instant for action in actions if isinstance(action, StopJob)]

    assert len(moves) == 12
    assert all(later - earlier >= 300.0 for earlier, later in pairwise(moves))


class DayIsOver(Exception):
    """The simulated day is over."""


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_constant_load_gives_no_moves(policy: str) -> None:
    """Six jobs that fit all day start and are never stopped, under every policy."""
    curve = Amdahl(parallel_fraction=0.95, max_gpus=8)
    run = prepare(
        SimulationSettings(
            trace=a_trace(*([0.0] * 6)),
            problem=a_problem(
                a_class(sizes=(1000.0,), curve=curve, rescale_hours=0.05, arrivals_per_hour=0.001)
            ),
            instance_types={"gpu": an_instance_type()},
            budget=Budget(amount=48.0, unit="gpus"),
            policy=policy,
            options=PolicyOptions(nodes=12) if "static" in policy else PolicyOptions(),
        )
    )
    stops: list[tuple[float, str]] = []
    started: set[str] = set()

    def look(decision: Decision) -> None:
        now = decision.state.now
        if now > 86_400.0:
            raise DayIsOver
        stops.extend((now, action.reason) for action in decision.actions if isinstance(action, StopJob))
        started.update(action.job for action in decision.actions if isinstance(action, StartJob))

    controller = replace(run.controller, rules=replace(run.controller.rules, steady=Steady()))
    run.world._events.schedule(86_401.0, lambda _: run.world._want_tick(), None)
    with pytest.raises(DayIsOver):
        run.world.run(controller, look)

    assert started
    assert stops == []


@pytest.mark.parametrize("widths", [{"a": 4}, {"a": 1}, {}])
def test_a_rigid_job_keeps_its_gpus_whatever_the_policy_wants(widths: dict[str, int]) -> None:
    """A move would lose all its work; on an ending node the job still has to stop."""
    state = running()
    rigid = replace(state, jobs={"a": replace(state.jobs["a"], is_rigid=True)})
    assert decided(rigid, **widths).actions == ()
    assert decided(state, **widths).actions != ()

    ending = replace(rigid.nodes["n1"], ends_by=NOW + 60.0)
    moved = decided(replace(rigid, nodes={"n1": ending}), **widths)
    assert any(isinstance(action, StopJob) for action in moved.actions)


def kept_still(state: ClusterState, widths: Mapping[str, int], **policy: Any) -> Draft:
    """Return the draft after the stage: a job may move twice per hour, all jobs three times."""
    steady = Steady(moves_per_hour_of_a_job=2, moves_per_hour=3)
    draft = a_draft(gpus(**widths), site=rules(steady=steady), policy=policy)
    return keep_still(state, draft)


def five_running(*past: Act) -> ClusterState:
    """Return jobs a to e on two GPUs each; equal widths are different objects."""
    jobs = [a_job(name, width=Width("gpu", 2)) for name in "abcde"]
    held = {job.id: some_slots(f"n-{job.id}", 0, 1) for job in jobs}
    nodes = [a_node(f"n-{job.id}") for job in jobs]
    return replace(a_state(*jobs, nodes=nodes, held=held, now=NOW), acts=past)


ALL = dict.fromkeys("abcde", 2)


def test_the_rules_apply_to_jobs_behind_jobs_that_are_exempt() -> None:
    """Job a must move, b has an ordered width, c keeps its width; d started recently and is held back."""
    state = five_running(*acts("start", "d", 100.0))
    ends = replace(state.nodes["n-a"], ends_by=NOW + 100.0)
    b = replace(state.jobs["b"], terms=JobTerms(ordered_gpus=1))
    state = replace(state, nodes={**state.nodes, "n-a": ends}, jobs={**state.jobs, "b": b})
    found = kept_still(state, {**ALL, "a": 4, "b": 1, "d": 4})
    assert found.allocation.widths == gpus(a=4, b=1, c=2, d=2, e=2)
    assert [held.what for held in found.plan.held] == ["job d"]
    assert found.allocation.exact == {"b"}


@pytest.mark.parametrize(("ordered", "is_held"), [(1, False), (3, False), (2, True), (None, True)])
def test_a_width_that_the_user_ordered_overrules_the_minimum_hold(ordered: int | None, is_held: bool) -> None:
    """If the job already holds the ordered width, it keeps that width."""
    state = five_running(*acts("start", "a", 100.0))
    a = replace(state.jobs["a"], terms=JobTerms(ordered_gpus=ordered))
    found = kept_still(replace(state, jobs={**state.jobs, "a": a}), {**ALL, "a": 4})
    assert (found.allocation.widths["a"].gpus == 2) is is_held


def test_a_job_with_enough_gpus_is_not_reported_as_held_back_under_node_prices() -> None:
    """Its narrowing counts as one of the moves; if the width is exact, the job is reported."""
    past = acts("stop", "x", 100.0, 90.0)
    narrow = {**ALL, "a": 1}
    free = kept_still(five_running(*past), narrow, node_prices=PRICES)
    assert (free.allocation.widths["a"].gpus, free.allocation.stay) == (1, frozenset("bcde"))
    held = kept_still(five_running(*acts("start", "a", 100.0)), narrow, node_prices=PRICES)
    assert (held.allocation.widths["a"].gpus, held.allocation.stay, held.plan.held) == (2, {"a", "e"}, ())
    exact = kept_still(
        five_running(*acts("start", "a", 100.0)), narrow, node_prices=PRICES, exact=frozenset("a")
    )
    assert [note.what for note in exact.plan.held] == ["job a"]
    plain = kept_still(five_running(*past), narrow)
    assert (plain.allocation.widths["a"].gpus, plain.allocation.stay) == (1, frozenset())


@pytest.mark.parametrize(
    ("held", "width", "enough"),
    [
        (Width("gpu", 2), Width("gpu", 1), True),
        (Width("gpu", 2), Width("gpu", 2), True),
        (Width("gpu", 2), Width("gpu", 3), False),
        (Width("new", 4), Width("gpu", 1), False),
        (Width("gpu", 2), None, False),
        (None, Width("gpu", 1), False),
    ],
)
def test_a_job_has_enough_if_it_holds_at_least_its_planned_gpus_of_the_same_type(
    held: Width | None, width: Width | None, enough: bool
) -> None:
    """A waiting job never has enough."""
    job = JobState(job=a_job("a", width=held), slots=some_slots("n1", 0))
    assert _has_enough(job, width) is enough
    assert not _has_enough(replace(job, slots=()), width)


def test_a_job_is_held_until_the_oldest_act_that_counts_is_an_hour_old() -> None:
    """Which act counts depends on the limit: on starts, on moves of the job, or on moves of all jobs."""
    limits = Steady(moves_per_hour_of_a_job=2, moves_per_hour=3, loop_times=2)
    for past, code, until in (
        (acts("start", "a", 900.0, 700.0, 500.0), "loop", NOW - 700.0 + 3600.0),
        (acts("stop", "a", 900.0, 700.0, 500.0), "moves-of-job", NOW - 700.0 + 3600.0),
        (acts("stop", "x", 900.0, 700.0, 500.0, 400.0), "moves-of-all", NOW - 700.0 + 3600.0),
    ):
        state = five_running(*past)
        still = MoveLimits.of(state, limits)
        found = still.why_held(state.jobs["a"], still.moves)
        assert found is not None
        assert (found[0].code, found[1]) == (code, until)
