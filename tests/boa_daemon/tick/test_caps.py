"""Hard caps: whatever the policy wants, the bills of a day and a month stay under them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from drafts import a_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from sampling import sampled

from boa_daemon.sim.wiring import SimulationSettings, prepare
from boa_daemon.sim.world import SimulatedWorld
from boa_daemon.testing import (
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
)
from boa_daemon.tick.actions import LaunchNodes, StopJob, TerminateNode
from boa_daemon.tick.cap_projection import CapProjection
from boa_daemon.tick.caps import _forced, _give_back, hold_back, within_caps, within_instances
from boa_daemon.tick.decision import Decision, decide
from boa_daemon.tick.ledger import bill_within, charge_for
from boa_daemon.tick.limits import DAY_SECONDS, Caps, day_of, month_of
from boa_daemon.tick.ports import Accepted, Launched, Refused, Unknown
from boa_daemon.tick.state import ClusterState, JobTerms, NodeState
from boa_daemon.tick.team_money import TeamMoney
from boa_daemon.units import micro_dollars
from policies.errors import InvalidProblem
from policies.model import Budget, NodeId, Width
from policies.placement.first_fit import FirstFit
from policies.registry import POLICIES, PolicyOptions
from policies.speedup import Table

NOON = 12 * 3600.0
UNSEEN_SECONDS = 300.0


def decided(state: ClusterState, caps: Caps, **widths: int) -> Decision:
    """Return the decision on nodes of four GPUs at 4 USD per hour."""
    return decide(state, allocator=Wishes(widths=widths), placer=FirstFit(), rules=rules(caps=caps))


def kinds(decision: Decision) -> list[type]:
    """Return what is done, in order."""
    return [type(action) for action in decision.actions]


def test_a_launch_that_could_break_the_day_is_refused_with_its_code_and_numbers() -> None:
    """A node of 4 USD/h that must be able to run 900 s needs 1 USD; 0.5 USD is left."""
    state = a_state(a_job("a"), now=NOON, settled_today_micro_dollars=9_500_000)
    decision = decided(state, Caps(usd_per_day=10.0), a=4)

    assert decision.actions == ()
    assert decision.plan.waiting == {"a": "cap-day"}
    assert [held.code for held in decision.plan.held] == ["cap-day"]
    assert decision.plan.held[0].numbers == {"cap_usd": 10.0, "left_usd": 0.5}
    assert "cap_usd 10, left_usd 0.5" in decision.explain("a")
    assert decision.wake_at == DAY_SECONDS


def test_what_the_site_costs_without_a_node_comes_first() -> None:
    """2 USD are left of 10 and a node needs 1; a NAT gateway at 0.05 an hour takes 1.2 of the day's ten."""
    state = a_state(a_job("a"), now=NOON, settled_today_micro_dollars=8_000_000)
    assert kinds(decided(state, Caps(usd_per_day=10.0), a=4)) == [LaunchNodes]
    decision = decided(state, Caps(usd_per_day=10.0, standing_usd_per_hour=0.05), a=4)
    assert decision.plan.waiting == {"a": "cap-day"}
    assert decision.plan.held[0].numbers == {"cap_usd": 8.8, "left_usd": 0.8}
    later = replace(state, standing_charged_until=NOON + 3600.0)
    charged = decided(later, Caps(usd_per_day=10.0, standing_usd_per_hour=0.05), a=4)
    assert charged.actions, "thirteen hours of 0.05 are among the eight dollars: 1.45 are left, not 0.8"
    ceiling = Caps(usd_per_hour=4.0, standing_usd_per_hour=0.05)
    assert decided(state, ceiling, a=4).plan.waiting == {"a": "cap-hour"}


def test_as_many_nodes_as_there_is_room_for() -> None:
    """2.6 USD hold two nodes for 900 s, not three; what is in doubt counts as there."""
    jobs = [a_job(name) for name in "abc"]
    state = a_state(*jobs, now=NOON, settled_month_micro_dollars=17_400_000)
    decision = decided(state, Caps(usd_per_month=20.0), a=4, b=4, c=4)

    assert [action.count for action in decision.actions if isinstance(action, LaunchNodes)] == [2]
    doubtful = replace(a_node("x", phase="requested", launched_at=NOON), is_listed=False)
    also = a_state(*jobs, nodes=[doubtful], now=NOON, settled_month_micro_dollars=17_400_000)
    assert sum(decided(also, Caps(usd_per_month=20.0), a=4, b=4, c=4).plan.launches.values()) == 1


def test_a_gang_is_launched_whole_or_not() -> None:
    """Eight GPUs need two nodes; with room for one, none is rented for them, but one for the other job."""
    state = a_state(a_job("wide"), a_job("slim"), now=NOON, settled_today_micro_dollars=18_500_000)
    plan = decided(state, Caps(usd_per_day=20.0), wide=8, slim=4).plan

    assert (plan.launches, plan.gangs) == ({"gpu-x4": 1}, {})


def test_instances_and_rate_are_capped_with_nodes_that_are_ending() -> None:
    """A node that is terminating is still there, and one that is ending still costs."""
    nodes = [a_node("n1", phase="terminating")]
    state = a_state(a_job("a"), a_job("b"), nodes=nodes, now=NOON)

    both = decided(state, Caps(instances=2), a=4, b=4)
    assert (both.plan.launches, set(both.plan.waiting.values())) == ({"gpu-x4": 1}, {"cap-instances"})
    rate = decided(a_state(a_job("a"), a_job("b"), now=NOON), Caps(usd_per_hour=7.9), a=4, b=4)
    assert (rate.plan.launches, set(rate.plan.waiting.values())) == ({"gpu-x4": 1}, {"cap-hour"})


def test_a_node_that_ends_costs_per_hour_until_it_is_gone() -> None:
    """One node runs, one ends, 12 USD per hour are allowed at 4 a node: one may be rented, not two."""
    nodes = [a_node("n1"), a_node("n2", phase="terminating")]
    held = {"old": some_slots("n1", 0, 1, 2, 3)}
    state = a_state(a_job("old"), a_job("a"), a_job("b"), nodes=nodes, held=held, now=NOON)

    assert decided(state, Caps(usd_per_hour=12.0), old=4, a=4, b=4).plan.launches == {"gpu-x4": 1}
    assert decided(state, Caps(usd_per_hour=8.0), old=4, a=4, b=4).plan.launches == {}


def test_a_ceiling_that_was_lowered_gives_nodes_back() -> None:
    """Idle nodes first, then booting ones, then the job with the most work left per weight."""
    jobs = [a_job("long", remaining_gpu_hours=50.0), a_job("short", remaining_gpu_hours=1.0)]
    nodes = [a_node("n1"), a_node("n2"), a_node("n3"), a_node("n4", phase="requested")]
    held = {"long": some_slots("n1", 0, 1), "short": some_slots("n2", 0, 1)}
    state = a_state(*jobs, nodes=nodes, held=held, now=30.0)

    for most, (released, stopped) in {
        3: (("n3",), ()),
        2: (("n3", "n4"), ()),
        1: (("n3", "n4"), ("long",)),
    }.items():
        plan = decided(state, Caps(instances=most), long=2, short=2).plan
        assert (plan.releases, plan.stops, plan.forced) == (released, stopped, ())


def near_the_end(**changes: Any) -> tuple[ClusterState, Caps]:
    """Return a job on one node that has run three hours for 12 USD, and a day cap of 12.2 USD."""
    node = a_node("n1", launched_at=NOON)
    state = a_state(a_job("a"), nodes=[node], held={"a": some_slots("n1", 0)}, now=NOON + 3 * 3600.0)
    return replace(state, **changes), Caps(usd_per_day=12.2)


def test_a_job_is_stopped_in_time_and_its_node_ends_when_it_has() -> None:
    """Kept 240 s it would cost 0.27 USD, 0.2 are left: the job stops, and the node ends without its hold."""
    state, caps = near_the_end()
    first = decided(state, caps, a=1)
    emptied = replace(state.nodes["n1"], gpus=(None,) * 4, idle_since=state.now)
    waiting = replace(state.jobs["a"], slots=(), job=replace(state.jobs["a"].job, width=None))
    later = replace(state, nodes={"n1": emptied}, jobs={"a": waiting}, now=state.now + 10.0)
    second = decided(later, caps, a=1)

    assert kinds(first) == [StopJob]
    assert "the cap on dollars per day" in first.actions[0].reason
    assert first.wake_at == state.now + 30.0
    assert kinds(second) == [TerminateNode]
    assert "the cap on dollars per day" in second.actions[0].reason


def test_a_job_that_the_policy_does_not_know_is_told_to_stop_before_its_node_ends() -> None:
    """As any other: it may write its checkpoint, and its node is no more idle than another's."""
    state, caps = near_the_end()
    state = replace(state, jobs={}, unplanned=state.jobs)
    first = decided(state, caps)
    assert (kinds(first), first.plan.stops) == ([StopJob], ("a",))


def test_a_node_ends_under_a_job_that_does_not_stop() -> None:
    """At the last look that is in time: 120 s cost 0.133 USD, 0.1 is left."""
    state, caps = near_the_end(now=NOON + 3 * 3600.0 + 90.0)
    stopping = replace(state.jobs["a"], is_stopping=True)

    decision = decided(replace(state, jobs={"a": stopping}), caps, a=1)

    assert kinds(decision) == [TerminateNode]
    assert decision.plan.forced == ("n1",)


def test_the_next_look_is_when_keeping_could_break_the_cap() -> None:
    """2 USD are left, that is 1800 s at 4 USD/h; keeping counts 240 s ahead."""
    state, _ = near_the_end()
    decision = decided(state, Caps(usd_per_day=14.0), a=1)

    assert decision.actions == ()
    assert decision.wake_at == pytest.approx(state.now + 1800.0 - 240.0, abs=0.01)


def test_tomorrow_has_a_cap_too() -> None:
    """Ten minutes before midnight the day has room, but tomorrow's cap is 0.1 USD."""
    state = a_state(a_job("a"), now=DAY_SECONDS - 600.0)

    assert decided(state, Caps(usd_per_day=0.7), a=4).plan.launches == {"gpu-x4": 1}
    plan = decided(replace(state, now=DAY_SECONDS - 5.0), Caps(usd_per_day=0.7), a=4).plan
    assert (plan.launches, plan.waiting) == ({}, {"a": "cap-day"})


def test_a_launch_shortly_before_midnight_is_billed_its_minute_to_the_day_that_ends() -> None:
    """A minute of 4 USD/h is 0.067 USD, all of it today's, though ten seconds are left of today."""
    state = a_state(a_job("a"), now=DAY_SECONDS - 10.0, settled_today_micro_dollars=9_950_000)
    short = decided(state, Caps(usd_per_day=10.0), a=4)
    enough = decided(replace(state, settled_today_micro_dollars=9_930_000), Caps(usd_per_day=10.0), a=4)

    assert (short.plan.launches, short.plan.waiting) == ({}, {"a": "cap-day"})
    assert short.wake_at == DAY_SECONDS
    assert enough.plan.launches == {"gpu-x4": 1}


def test_no_round_is_held_while_a_cap_keeps_everything_away() -> None:
    """A policy that decides each minute wakes at midnight, when there is money again; nodes bring rounds."""
    spent = {"now": NOON, "settled_today_micro_dollars": 10_000_000}
    in_rounds = rules(caps=Caps(usd_per_day=10.0), round_seconds=60.0)

    def wake_at(state: ClusterState) -> float | None:
        allocator = Wishes(widths={"a": 4, "b": 4})
        return decide(state, allocator=allocator, placer=FirstFit(), rules=in_rounds).wake_at

    assert wake_at(a_state(a_job("a"), **spent)) == DAY_SECONDS
    assert wake_at(a_state(a_job("a"), now=NOON)) == NOON + 30.0
    ending = replace(a_node("n1", phase="terminating"), launched_at=NOON - 600.0)
    assert wake_at(a_state(a_job("a"), nodes=[ending], **spent)) == NOON + 30.0


def test_a_spot_node_is_expected_to_cost_up_to_its_types_price() -> None:
    """Its price may rise to that: kept 240 s it may cost 0.27 USD, not 0.07."""
    node = replace(a_node("n1", launched_at=NOON), market="spot", prices=((NOON, 1.0),))
    state = a_state(a_job("a"), nodes=[node], held={"a": some_slots("n1", 0)}, now=NOON)

    assert kinds(decided(state, Caps(usd_per_day=0.2), a=1)) == [StopJob]
    assert kinds(decided(state, Caps(usd_per_day=0.3), a=1)) == []


def test_the_planner_knows_the_cap_on_instances() -> None:
    """Its own limit may be lower, never higher."""
    assert within_instances(rules(caps=Caps(instances=5))).max_nodes == 5
    assert within_instances(rules(caps=Caps(instances=5), max_nodes=9)).max_nodes == 5
    assert within_instances(rules(caps=Caps(instances=5), max_nodes=3)).max_nodes == 3
    assert within_instances(rules()).max_nodes is None


def test_a_mover_that_is_held_back_keeps_its_gpus_from_others() -> None:
    """b was to take what a leaves, and c what b leaves: all three stay where they are."""
    jobs = [a_job(name) for name in "abc"]
    nodes = [a_node(name) for name in ("n1", "n2", "n3")]
    state = a_state(*jobs, nodes=nodes, held={"a": some_slots("n1", 0), "b": some_slots("n2", 0)})
    plan = decided(state, Caps(), a=1, b=1, c=1).plan
    plan = replace(
        plan,
        slots={"a": some_slots("n3", 0), "b": some_slots("n1", 0), "c": some_slots("n2", 0)},
    )

    assert hold_back(state, plan, {"a"}).slots == {}
    assert set(hold_back(state, plan, {"a"}, letting_go=frozenset("a")).slots) == {"b", "c"}
    assert set(hold_back(state, plan, {"c"}).slots) == {"a", "b"}


@pytest.mark.parametrize("name", ["usd_per_day", "usd_per_month", "usd_per_hour", "instances"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan")])
def test_a_cap_is_more_than_nothing(name: str, value: float) -> None:
    """Zero would mean that nothing ever runs: that is said, not obeyed."""
    with pytest.raises(InvalidProblem, match=name):
        Caps(**{name: value})


@settings(deadline=None)
@given(
    launched=st.floats(0.0, 4e6),
    seconds=st.floats(1.0, 4e6),
    prices=st.lists(st.tuples(st.floats(1.0, 1e6), st.floats(0.1, 99.0)), max_size=4),
)
def test_the_days_of_a_bill_add_up_to_it(
    launched: float, seconds: float, prices: list[tuple[float, float]]
) -> None:
    """Not a micro-dollar is lost or made at midnight, and the month's part is that of its days."""
    changes = [(launched, 3.0)]
    for gap, price in prices:
        changes.append((changes[-1][0] + gap, price))
    node = replace(a_node(launched_at=launched), prices=tuple(changes) if prices else ())
    ended = replace(node, phase="terminated", ended_at=launched + seconds)
    charge = charge_for(ended)

    assert sum(part for _, part in charge.days) == charge.micro_dollars
    assert all(part >= 0 for _, part in charge.days)
    month = month_of(launched + seconds)
    of_month = sum(part for day, part in charge.days if month.begins_at <= day * DAY_SECONDS < month.ends_at)
    assert of_month == bill_within(node, month, until=launched + seconds)


def test_days_and_months_are_those_of_the_calendar() -> None:
    """29 February 2028 belongs to a day and a month that end together."""
    leap_day = 1_835_395_200.0 + 3600.0
    assert day_of(leap_day).ends_at == month_of(leap_day).ends_at == 1_835_395_200.0 + DAY_SECONDS
    assert month_of(leap_day).begins_at == 1_835_395_200.0 - 28 * DAY_SECONDS


@dataclass(slots=True)
class Unreliable:
    """The simulated cloud, except that answers get lost, listings lag, and ends take their time.

    What is lost once is not lost again: an order is answered at the second try.
    """

    world: SimulatedWorld
    draws: np.random.Generator
    lag_seconds: float
    end_seconds: float
    ending: set[NodeId] = field(default_factory=set)
    lost: set[NodeId] = field(default_factory=set)

    def nodes(self) -> Sequence[NodeState]:
        """Return the nodes that the listing shows by now."""
        now = self.world.clock.now()
        return [
            replace(node, phase="terminating") if node.id in self.ending and node.ended_at is None else node
            for node in self.world.cloud.nodes()
            if node.ended_at is not None or node.launched_at + self.lag_seconds <= now
        ]

    def offers(self) -> tuple[()]:
        """Return nothing."""
        return ()

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Launch, and lose every fourth answer, or the request itself."""
        kind, now = self.draws.integers(8), self.world.clock.now()
        for seconds in (self.lag_seconds, UNSEEN_SECONDS + 1.0):
            # A daemon looks every half a minute; the simulator only where something could be seen.
            self.world._events.schedule(now + seconds, lambda _: self.world._want_tick(), None)
        if kind == 0:
            return Unknown(reason="the request was lost")
        outcome = self.world.cloud.launch(action)
        return Unknown(reason="the answer was lost") if kind == 1 else outcome

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """End nodes a while later; some requests are lost."""
        return {action.node: self._terminate(action) for action in actions}

    def _terminate(self, action: TerminateNode) -> Accepted | Refused | Unknown:
        """End one node."""
        if action.node not in self.lost and self.draws.integers(4) == 0:
            self.lost.add(action.node)
            return Unknown(reason="the request was lost")
        if action.node not in self.ending:
            self.ending.add(action.node)
            ends_at = self.world.clock.now() + self.end_seconds
            self.world._events.schedule(ends_at, self.world.cloud.terminate, [action])
        return Accepted()


@st.composite
def capped_runs(draw: DrawFn) -> tuple[SimulationSettings, Caps]:
    """Return some days of work for some policy, and caps that make it wait."""
    curve = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.8, 3.0, 5.0))
    classes = [
        a_class("x", sizes=draw(st.sampled_from(((0.3,), (2.0, 6.0)))), curve=curve),
        a_class("y", sizes=(draw(st.sampled_from((1.0, 9.0))),), rescale_hours=0.05),
    ]
    gaps = draw(st.lists(st.sampled_from((0.0, 600.0, 7200.0, 40_000.0)), min_size=2, max_size=12))
    start = draw(st.sampled_from((0.0, 26.0 * DAY_SECONDS, 31 * DAY_SECONDS - 700.0)))
    arrivals = [start + sum(gaps[: n + 1]) for n in range(len(gaps))]
    trace = a_trace(*arrivals, class_names=[draw(st.sampled_from("xy")) for _ in arrivals])
    policy = draw(st.sampled_from(sorted(POLICIES)))
    run = SimulationSettings(
        trace=trace,
        problem=a_problem(*classes),
        instance_types={"gpu": an_instance_type(gpus=draw(st.sampled_from((2, 4))))},
        budget=Budget(amount=draw(st.sampled_from((30.0, 60.0)))),
        policy=policy,
        options=PolicyOptions(nodes=draw(st.integers(9, 12))) if "static" in policy else PolicyOptions(),
        boot_seconds=draw(st.sampled_from((0.0, 180.0))),
        seed=draw(st.integers(0, 9)),
    )
    day = draw(st.sampled_from((11.7, 20.0, 33.3)))
    caps = Caps(
        usd_per_day=draw(st.sampled_from((None, day))),
        usd_per_month=draw(st.sampled_from((None, 2.5 * day))),
        usd_per_hour=draw(st.sampled_from((None, 32.0))),
        instances=draw(st.sampled_from((None, 9))),
    )
    return run, caps


@settings(max_examples=sampled(60), deadline=None)
@given(case=capped_runs(), is_unreliable=st.booleans())
def test_no_cap_is_exceeded_by_a_micro_dollar(
    case: tuple[SimulationSettings, Caps], is_unreliable: bool
) -> None:
    """In any world, over days and months, with lost answers, late listings and slow ends; and jobs finish."""
    run_settings, caps = case
    run = prepare(run_settings)
    ports, controller = run.controller.ports, run.controller
    if is_unreliable:
        flaky = Unreliable(run.world, np.random.default_rng(run_settings.seed), 200.0, 55.0)
        ports = replace(ports, cloud=flaky)
    rates: list[float] = []
    most: list[int] = []
    controller = replace(controller, ports=ports, rules=replace(controller.rules, caps=caps))

    def look(decision: Decision) -> None:
        rates.append(sum(n.usd_per_hour for n in run.world.cloud._live.values()))
        most.append(len(run.world.cloud._live))

    run.world.run(controller, look)

    store = controller.ports.store
    first, last = int(run.world.started_at // DAY_SECONDS), int(run.world.clock.now() // DAY_SECONDS)
    by_day = {
        day * DAY_SECONDS: store.settled_since(day * DAY_SECONDS)
        - store.settled_since((day + 1) * DAY_SECONDS)
        for day in range(first, last + 1)
    }
    by_month: dict[float, int] = {}
    for day, part in by_day.items():
        begins_at = month_of(day).begins_at
        by_month[begins_at] = by_month.get(begins_at, 0) + part
    assert run.world.finished == len(run_settings.trace.jobs)
    assert sum(by_day.values()) == store.settled_micro_dollars() == run.world.cloud.meter.micro_dollars
    if caps.usd_per_day is not None:
        assert max(by_day.values()) <= micro_dollars(caps.usd_per_day)
    if caps.usd_per_month is not None:
        assert max(by_month.values()) <= micro_dollars(caps.usd_per_month)
    if caps.instances is not None:
        assert max(most) <= caps.instances
    if caps.usd_per_hour is not None:
        assert max(rates) <= caps.usd_per_hour


def test_caps_that_are_far_away_change_nothing() -> None:
    """The same decisions as without them."""
    trace = a_trace(*(600.0 * n for n in range(20)))
    run_settings = SimulationSettings(
        trace=trace,
        problem=a_problem(a_class()),
        instance_types={"gpu": an_instance_type()},
        budget=Budget(amount=30.0),
    )
    acts: list[list[tuple[float, str]]] = []
    for caps in (None, Caps(usd_per_day=1e6, usd_per_month=1e7, usd_per_hour=1e5, instances=10_000)):
        run = prepare(run_settings)
        seen: list[tuple[float, str]] = []
        acts.append(seen)

        def note(decision: Decision, seen: list[tuple[float, str]] = seen) -> None:
            seen += [(decision.state.now, action.reason) for action in decision.actions]

        run.world.run(replace(run.controller, rules=replace(run.controller.rules, caps=caps)), note)

    assert acts[0] == acts[1]
    assert acts[0]


def test_under_a_ceiling_that_pays_for_nothing_all_goes_once() -> None:
    """Two nodes share a job, a third has its own, a fourth is idle: each ends once, the idle one first."""
    nodes = [a_node(name, launched_at=NOON - 3600.0) for name in ("n1", "n2", "n3", "n4")]
    held = {"wide": some_slots("n1", 0) + some_slots("n2", 0), "slim": some_slots("n3", 0)}
    state = a_state(a_job("wide"), a_job("slim"), nodes=nodes, held=held, now=NOON)
    decision = decided(state, Caps(usd_per_hour=0.1), wide=2, slim=1)
    assert sorted(decision.plan.stops) == ["slim", "wide"]
    assert {action.node for action in decision.actions if isinstance(action, TerminateNode)} >= {"n4"}
    assert {held.code for held in decision.plan.held} == {"cap-hour"}


def test_nodes_are_given_back_in_the_order_of_what_is_lost() -> None:
    """Idle, emptying, booting, then working: the least lost per dollar, the youngest, the first name."""
    jobs = [a_job("long", remaining_gpu_hours=50.0), a_job("short"), a_job("done", remaining_gpu_hours=0.0)]
    jobs += [a_job("heavy", weight=2.0), a_job("stopping")]
    held = {job.id: some_slots(f"n-{job.id}", 0) for job in jobs}
    kind = an_instance_type()
    nodes = [a_node(f"n-{job.id}", launched_at=100.0) for job in jobs]
    nodes += [a_node(name, launched_at=at) for name, at in (("old", 0.0), ("young", 9.0), ("also", 9.0))]
    nodes += [a_node("boots", phase="requested", launched_at=50.0)]
    state = a_state(*jobs, nodes=nodes, held=held, now=NOON)
    stopping = replace(state.jobs["stopping"], is_stopping=True)
    state = replace(state, jobs={**state.jobs, "stopping": stopping})
    projection = CapProjection(state, Caps(usd_per_hour=kind.usd_per_hour / 2.0))
    ended, emptied, stopped = _give_back(state, a_plan(), projection)
    assert ended == ["also", "young", "old", "boots"]
    assert emptied == ["n-stopping", "n-long", "n-short", "n-heavy", "n-done"]
    assert stopped == {job.id for job in jobs}


def test_a_node_whose_jobs_stop_for_another_comes_before_one_that_still_works() -> None:
    """The wide job goes first, as most is left of it; its other node then has nobody left to lose."""
    jobs = [a_job("wide", remaining_gpu_hours=50.0), a_job("slim", remaining_gpu_hours=9.0), a_job("heir")]
    held = {"wide": some_slots("n1", 0) + some_slots("n2", 0), "slim": some_slots("n3", 0)}
    held["heir"] = some_slots("n2", 1)
    nodes = [a_node(name) for name in ("n1", "n2", "n3")]
    state = a_state(*jobs, nodes=nodes, held=held, now=NOON)
    projection = CapProjection(state, Caps(usd_per_hour=0.5))
    assert _give_back(state, a_plan(), projection)[1] == ["n1", "n3", "n2"]
    alone = a_state(*jobs[:2], nodes=nodes, held={name: held[name] for name in ("wide", "slim")}, now=NOON)
    projection = CapProjection(alone, Caps(usd_per_hour=0.5))
    assert _give_back(alone, a_plan(), projection)[1] == ["n1", "n2", "n3"]


def test_a_node_under_a_job_that_nobody_lists_is_emptied_for_a_cap_as_any_other() -> None:
    """There is nobody to tell; the node goes first, as nothing is known to be lost."""
    nodes = [replace(a_node("n1"), gpus=("ghost", None, None, None)), a_node("n2")]
    state = a_state(a_job("a"), nodes=nodes, held={"a": some_slots("n2", 0)}, now=NOON)
    projection = CapProjection(state, Caps(usd_per_hour=0.5))
    assert _give_back(state, a_plan(), projection) == ([], ["n1", "n2"], {"a"})


def test_of_nodes_that_must_end_now_no_more_do_than_needed() -> None:
    """Both empty in time where money is left; one ends at once where one does it, both where both must."""
    nodes = [a_node(name, launched_at=NOON - 3600.0) for name in ("n1", "n2")]
    held = {"a": some_slots("n1", 0), "b": some_slots("n2", 0)}
    state = a_state(a_job("a"), a_job("b"), nodes=nodes, held=held, now=NOON)
    second = 2 * 4.0 / 3600.0
    for seconds, forced in ((121.0, ()), (119.0, ("n1",)), (89.0, ("n1", "n2"))):
        projection = CapProjection(state, Caps(usd_per_day=8.0 + seconds * second))
        assert _forced(["n1", "n2"], projection) == forced


def test_launches_of_a_second_type_have_the_room_that_the_first_leaves() -> None:
    """A node of either type takes a dollar of the day; two are left, so one is cut and its jobs say why."""
    kinds_of = {name: an_instance_type(gpu_type=name) for name in ("old", "new")}
    launches = {kind.name: 2 for kind in kinds_of.values()}
    plan = a_plan(
        widths={"a": Width("old", 4), "b": Width("new", 4), "c": Width("gone", 1)},
        launches=launches,
        instance_types={kind.name: kind for kind in kinds_of.values()},
        waiting=dict.fromkeys("abcd", "nodes-to-come"),
    )
    state = a_state(*(a_job(name) for name in "abcd"), now=NOON)
    for usd, left, reasons in (
        (4.1, {"old-x4": 2, "new-x4": 2}, {}),
        (3.1, {"old-x4": 2, "new-x4": 1}, {"b": "cap-day"}),
        (2.1, {"old-x4": 2}, {"b": "cap-day"}),
        (1.1, {"old-x4": 1}, {"a": "cap-day", "b": "cap-day"}),
    ):
        found = within_caps(state, plan, rules(caps=Caps(usd_per_day=usd)))
        assert dict(found.launches) == left
        assert found.waiting == {**plan.waiting, **reasons}
        cut = {held.what for held in found.held}
        assert cut == {
            f"{n - left.get(name, 0)} {name}" for name, n in launches.items() if n > left.get(name, 0)
        }


def test_what_a_team_may_not_do_is_taken_out_before_the_caps_of_the_site() -> None:
    """A start that its purse has no room for; a team with room changes nothing, nor does one without caps."""
    terms = JobTerms(team="red")
    state = a_state(a_job("a"), nodes=[a_node("n1")], now=NOON)
    state = replace(state, jobs={"a": replace(state.jobs["a"], terms=terms)})
    plan = a_plan(widths={"a": Width("gpu", 1)}, slots={"a": some_slots("n1", 0)})
    for cap, starts in ((0.01, False), (100.0, True), (None, True)):
        poor = replace(state, teams={"red": TeamMoney(day_cap_usd=cap)})
        found = within_caps(poor, plan, rules(caps=Caps()))
        assert bool(found.slots) is starts
        assert found.waiting == ({} if starts else {"a": "team-day-cap"})
    assert within_caps(state, plan, rules()) is plan


def test_who_waits_for_something_else_than_a_cut_launch_keeps_its_reason() -> None:
    """A job that rests does not wait for the cap."""
    state = a_state(a_job("a"), a_job("b"), now=NOON, settled_today_micro_dollars=9_500_000)
    resting = replace(state.jobs["b"], terms=JobTerms(not_before=NOON + 60.0))
    state = replace(state, jobs={**state.jobs, "b": resting})
    assert decided(state, Caps(usd_per_day=10.0), a=4, b=4).plan.waiting == {
        "a": "cap-day",
        "b": "not-before",
    }


def test_only_nodes_that_are_listed_and_do_not_go_already_are_given_back_for_a_cap() -> None:
    """One is allowed: the idle one goes; what no listing shows cannot, what goes is left alone."""
    nodes = [
        a_node("listed", launched_at=NOON - 300.0, idle_since=NOON),
        replace(a_node("unseen", phase="requested", launched_at=NOON), is_listed=False),
        a_node("going", phase="terminating", launched_at=NOON - 300.0),
    ]
    decision = decided(a_state(nodes=nodes, now=NOON), Caps(instances=1))
    assert set(decision.plan.releases) == {"listed"}
    assert [action.node for action in decision.actions if isinstance(action, TerminateNode)] == ["listed"]


@pytest.mark.parametrize(
    ("caps", "ends", "starts", "stops", "waits"),
    [
        (Caps(instances=3), [], {"runs": "n1", "starts": "n2"}, (), set()),
        (Caps(instances=1), ["n2"], {"runs": "n1"}, (), {"starts", "late"}),
        (Caps(usd_per_hour=0.5), ["n2"], {}, ("runs",), {"runs", "starts", "late"}),
    ],
)
def test_where_nodes_go_who_stops_who_cannot_start_and_who_waits_for_a_launch_says_why(
    caps: Caps, ends: list[str], starts: dict[str, str], stops: tuple[str, ...], waits: set[str]
) -> None:
    """One runs, one was to start on an idle node, one waits for a launch; one for another type, one rests."""
    machine = an_instance_type(gpu_type="gpu")
    jobs = [a_job(name) for name in ("runs", "starts", "late", "other", "rests")]
    nodes = [a_node(name, launched_at=NOON - 300.0) for name in ("n1", "n2")]
    state = a_state(*jobs, nodes=nodes, held={"runs": some_slots("n1", 0)}, now=NOON)
    before = {"late": "nodes-to-come", "other": "nodes-to-come", "rests": "not-before"}
    plan = a_plan(
        widths={name: Width("old" if name == "other" else "gpu", 1) for name in ("runs", *before, "starts")}
        | {"rests": Width("old", 1)},
        slots={"runs": some_slots("n1", 0), "starts": some_slots("n2", 0)},
        launches={} if caps.instances == 3 else {machine.name: 1},
        instance_types={machine.name: machine},
        waiting=before,
    )
    found = within_caps(state, plan, rules(caps=caps))

    assert (list(found.releases), found.stops) == (ends, stops)
    assert {job: slots[0].node for job, slots in found.slots.items()} == starts
    assert found.launches == {}
    assert {job for job, reason in found.waiting.items() if reason != before.get(job)} == waits
    named = {
        *(f"job {job}" for job in stops),
        *(f"node {node}" for node in (["n1", "n2"] if stops else ends)),
    }
    assert {held.what for held in found.held} == (named | {f"1 {machine.name}"} if waits else set())
    assert {found.waiting[job] for job in waits} == {held.code for held in found.held}
