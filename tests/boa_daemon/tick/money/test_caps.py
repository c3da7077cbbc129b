"""Hard caps: the bills of a day and a month stay below them, whatever the policy plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from drafts import a_plan, with_columns
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
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.facts.actions import LaunchNodes, StopJob, TerminateNode
from boa_daemon.tick.facts.limits import DAY_SECONDS, Caps, day_of, month_of
from boa_daemon.tick.facts.ports import Accepted, Launched, Refused, Unknown
from boa_daemon.tick.facts.state import ClusterState, JobTerms, NodeState
from boa_daemon.tick.facts.team_money import TeamMoney
from boa_daemon.tick.money.cap_projection import CapProjection
from boa_daemon.tick.money.caps import _forced, _give_back, hold_back, within_caps, within_instances
from boa_daemon.tick.money.ledger import bill_within, charge_for
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
    """Return the types of the actions, in order."""
    return [type(action) for action in decision.actions]


def test_a_launch_that_could_break_the_daily_cap_is_refused_with_code_and_numbers() -> None:
    """A node of 4 USD per hour must be able to run for 900 s, which costs 1 USD; 0.5 USD is left."""
    state = a_state(a_job("a"), now=NOON, settled_today_micro_dollars=9_500_000)
    decision = decided(state, Caps(usd_per_day=10.0), a=4)

    assert decision.actions == ()
    assert decision.plan.jobs.waiting == {"a": "cap-day"}
    assert [held.code for held in decision.plan.held] == ["cap-day"]
    assert decision.plan.held[0].numbers == {"cap_usd": 10.0, "left_usd": 0.5}
    assert "(the cap is $10.00, $0.50 is left)" in decision.explain("a")
    assert decision.wake_at == DAY_SECONDS


def test_standing_costs_are_paid_before_launches() -> None:
    """A NAT gateway at 0.05 USD per hour takes 1.2 of the day's 10 USD, so the launch waits."""
    state = a_state(a_job("a"), now=NOON, settled_today_micro_dollars=8_000_000)
    assert kinds(decided(state, Caps(usd_per_day=10.0), a=4)) == [LaunchNodes]
    decision = decided(state, Caps(usd_per_day=10.0, standing_usd_per_hour=0.05), a=4)
    assert decision.plan.jobs.waiting == {"a": "cap-day"}
    assert decision.plan.held[0].numbers == {"cap_usd": 10.0, "set_aside_usd": 1.2, "left_usd": 0.8}
    later = replace(state, standing_charged_until=NOON + 3600.0)
    charged = decided(later, Caps(usd_per_day=10.0, standing_usd_per_hour=0.05), a=4)
    assert charged.actions, "thirteen hours of 0.05 are among the eight dollars: 1.45 are left, not 0.8"
    ceiling = Caps(usd_per_hour=4.0, standing_usd_per_hour=0.05)
    assert decided(state, ceiling, a=4).plan.jobs.waiting == {"a": "cap-hour"}


def test_launches_are_cut_to_the_money_that_is_left() -> None:
    """2.6 USD pay for two nodes for 900 s; an unlisted node counts as present."""
    jobs = [a_job(name) for name in "abc"]
    state = a_state(*jobs, now=NOON, settled_month_micro_dollars=17_400_000)
    decision = decided(state, Caps(usd_per_month=20.0), a=4, b=4, c=4)

    assert [action.count for action in decision.actions if isinstance(action, LaunchNodes)] == [2]
    doubtful = replace(a_node("x", phase="requested", launched_at=NOON), is_listed=False)
    also = a_state(*jobs, nodes=[doubtful], now=NOON, settled_month_micro_dollars=17_400_000)
    assert sum(decided(also, Caps(usd_per_month=20.0), a=4, b=4, c=4).plan.launches.values()) == 1


def test_a_gang_is_launched_whole_or_not_at_all() -> None:
    """With room for one node, the job on two nodes gets none, and the other job gets one."""
    state = a_state(a_job("wide"), a_job("slim"), now=NOON, settled_today_micro_dollars=18_500_000)
    plan = decided(state, Caps(usd_per_day=20.0), wide=8, slim=4).plan

    assert (plan.launches, plan.gangs) == ({"gpu-x4": 1}, {})


def test_terminating_nodes_count_towards_the_cap_on_instances() -> None:
    """One terminating node and a cap of two leave one launch; a cap of 7.9 USD per hour does too."""
    nodes = [a_node("n1", phase="terminating")]
    state = a_state(a_job("a"), a_job("b"), nodes=nodes, now=NOON)

    waits = {"a": "nodes-to-come"}
    both = decided(state, Caps(instances=2), a=4, b=4)
    assert (both.plan.launches, both.plan.jobs.waiting) == ({"gpu-x4": 1}, waits | {"b": "cap-instances"})
    rate = decided(a_state(a_job("a"), a_job("b"), now=NOON), Caps(usd_per_hour=7.9), a=4, b=4)
    assert (rate.plan.launches, rate.plan.jobs.waiting) == ({"gpu-x4": 1}, waits | {"b": "cap-hour"})


def test_a_terminating_node_counts_towards_the_cap_on_usd_per_hour() -> None:
    """One node runs and one ends, at 4 USD per hour each: under a cap of 12 USD one is rented."""
    nodes = [a_node("n1"), a_node("n2", phase="terminating")]
    held = {"old": some_slots("n1", 0, 1, 2, 3)}
    state = a_state(a_job("old"), a_job("a"), a_job("b"), nodes=nodes, held=held, now=NOON)

    assert decided(state, Caps(usd_per_hour=12.0), old=4, a=4, b=4).plan.launches == {"gpu-x4": 1}
    assert decided(state, Caps(usd_per_hour=8.0), old=4, a=4, b=4).plan.launches == {}


def test_nodes_are_given_back_if_the_cap_on_instances_is_lowered() -> None:
    """Idle nodes go first, then booting ones, then the job with the most work left per weight stops."""
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
        assert (plan.releases, plan.jobs.stops, plan.forced) == (released, stopped, ())


def near_the_end(**changes: Any) -> tuple[ClusterState, Caps]:
    """Return a job on one node that has cost 12 USD in three hours, and a daily cap of 12.2 USD."""
    node = a_node("n1", launched_at=NOON)
    state = a_state(a_job("a"), nodes=[node], held={"a": some_slots("n1", 0)}, now=NOON + 3 * 3600.0)
    return replace(state, **changes), Caps(usd_per_day=12.2)


def test_a_job_is_stopped_before_the_cap_breaks_and_its_node_ends_afterwards() -> None:
    """Keeping the node for 270 s would cost 0.30 USD and 0.2 are left; the node ends without a hold."""
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


def test_a_job_that_the_policy_does_not_know_is_also_stopped_before_the_cap_breaks() -> None:
    """It is stopped like any other job, so it can write its checkpoint."""
    state, caps = near_the_end()
    state = replace(state, jobs={}, unplanned=state.jobs)
    first = decided(state, caps)
    assert (kinds(first), first.plan.jobs.stops) == ([StopJob], ("a",))


def test_a_node_is_ended_under_a_job_that_does_not_stop_in_time() -> None:
    """At the last possible tick 150 s would cost 0.167 USD, and 0.1 is left."""
    state, caps = near_the_end(now=NOON + 3 * 3600.0 + 90.0)
    stopping = replace(state.jobs["a"], is_stopping=True)

    decision = decided(replace(state, jobs={"a": stopping}), caps, a=1)

    assert kinds(decision) == [TerminateNode]
    assert decision.plan.forced == ("n1",)


def test_the_plan_wakes_up_when_keeping_a_node_could_break_the_cap() -> None:
    """2 USD are left, which is 1800 s at 4 USD per hour; keeping counts 270 s ahead."""
    state, _ = near_the_end()
    decision = decided(state, Caps(usd_per_day=14.0), a=1)

    assert decision.actions == ()
    assert decision.wake_at == pytest.approx(state.now + 1800.0 - 270.0, abs=0.01)


def test_a_launch_shortly_before_midnight_must_fit_under_tomorrows_cap() -> None:
    """Ten minutes before midnight a cap of 0.7 USD has room, five seconds before it has none."""
    state = a_state(a_job("a"), now=DAY_SECONDS - 600.0)

    assert decided(state, Caps(usd_per_day=0.7), a=4).plan.launches == {"gpu-x4": 1}
    plan = decided(replace(state, now=DAY_SECONDS - 5.0), Caps(usd_per_day=0.7), a=4).plan
    assert (plan.launches, plan.jobs.waiting) == ({}, {"a": "cap-day"})


def test_a_launch_shortly_before_midnight_costs_a_whole_minute_today() -> None:
    """A minute at 4 USD per hour is 0.067 USD, although ten seconds are left of today."""
    state = a_state(a_job("a"), now=DAY_SECONDS - 10.0, settled_today_micro_dollars=9_950_000)
    short = decided(state, Caps(usd_per_day=10.0), a=4)
    enough = decided(replace(state, settled_today_micro_dollars=9_930_000), Caps(usd_per_day=10.0), a=4)

    assert (short.plan.launches, short.plan.jobs.waiting) == ({}, {"a": "cap-day"})
    assert short.wake_at == DAY_SECONDS
    assert enough.plan.launches == {"gpu-x4": 1}


def test_no_round_is_scheduled_while_a_cap_allows_no_node_and_none_is_here() -> None:
    """The plan wakes up at midnight; with a node here rounds go on."""
    spent = {"now": NOON, "settled_today_micro_dollars": 10_000_000}
    in_rounds = rules(caps=Caps(usd_per_day=10.0), round_seconds=60.0)

    def wake_at(state: ClusterState) -> float | None:
        allocator = Wishes(widths={"a": 4, "b": 4})
        return decide(state, allocator=allocator, placer=FirstFit(), rules=in_rounds).wake_at

    assert wake_at(a_state(a_job("a"), **spent)) == DAY_SECONDS
    assert wake_at(a_state(a_job("a"), now=NOON)) == NOON + 30.0
    ending = replace(a_node("n1", phase="terminating"), launched_at=NOON - 600.0)
    assert wake_at(a_state(a_job("a"), nodes=[ending], **spent)) == NOON + 30.0


def test_a_spot_node_is_projected_at_the_price_of_its_type() -> None:
    """The spot price may rise: keeping the node for 270 s may cost 0.30 USD, not 0.08."""
    node = replace(a_node("n1", launched_at=NOON), market="spot", prices=((NOON, 1.0),))
    state = a_state(a_job("a"), nodes=[node], held={"a": some_slots("n1", 0)}, now=NOON)

    assert kinds(decided(state, Caps(usd_per_day=0.2), a=1)) == [StopJob]
    assert kinds(decided(state, Caps(usd_per_day=0.31), a=1)) == []


def test_the_cap_on_instances_also_limits_the_nodes_of_the_plan() -> None:
    """The planner's own limit may be lower, but never higher."""
    assert within_instances(rules(caps=Caps(instances=5))).max_nodes == 5
    assert within_instances(rules(caps=Caps(instances=5), max_nodes=9)).max_nodes == 5
    assert within_instances(rules(caps=Caps(instances=5), max_nodes=3)).max_nodes == 3
    assert within_instances(rules()).max_nodes is None


def test_jobs_that_need_the_gpus_of_a_job_that_is_held_back_are_held_back_too() -> None:
    """Job b needs a's GPUs and c needs b's: if a stays, all three stay."""
    jobs = [a_job(name) for name in "abc"]
    nodes = [a_node(name) for name in ("n1", "n2", "n3")]
    state = a_state(*jobs, nodes=nodes, held={"a": some_slots("n1", 0), "b": some_slots("n2", 0)})
    plan = decided(state, Caps(), a=1, b=1, c=1).plan
    plan = with_columns(
        plan,
        slots={"a": some_slots("n3", 0), "b": some_slots("n1", 0), "c": some_slots("n2", 0)},
    )

    assert hold_back(state, plan, {"a"}).jobs.slots == {}
    assert set(hold_back(state, plan, {"a"}, letting_go=frozenset("a")).jobs.slots) == {"b", "c"}
    assert set(hold_back(state, plan, {"c"}).jobs.slots) == {"a", "b"}


@pytest.mark.parametrize("name", ["usd_per_day", "usd_per_month", "usd_per_hour", "instances"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan")])
def test_a_cap_must_be_positive(name: str, value: float) -> None:
    """Zero, a negative number and not-a-number are errors."""
    with pytest.raises(InvalidProblem, match=name):
        Caps(**{name: value})


@settings(deadline=None)
@given(
    launched=st.floats(0.0, 4e6),
    seconds=st.floats(1.0, 4e6),
    prices=st.lists(st.tuples(st.floats(1.0, 1e6), st.floats(0.1, 99.0)), max_size=4),
)
def test_the_days_of_a_bill_add_up_to_the_bill(
    launched: float, seconds: float, prices: list[tuple[float, float]]
) -> None:
    """The parts are exact to the micro-dollar, and the month's part is the sum of its days."""
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
    """On 29 February 2028 the day and the month end together."""
    leap_day = 1_835_395_200.0 + 3600.0
    assert day_of(leap_day).ends_at == month_of(leap_day).ends_at == 1_835_395_200.0 + DAY_SECONDS
    assert month_of(leap_day).begins_at == 1_835_395_200.0 - 28 * DAY_SECONDS


@dataclass(slots=True)
class Unreliable:
    """A simulated cloud that loses answers, lists nodes late, and ends nodes slowly.

    An end that was lost once is not lost again: the second order is answered.
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
        """Launch nodes; sometimes the request or the answer is lost."""
        kind, now = self.draws.integers(8), self.world.clock.now()
        for seconds in (self.lag_seconds, UNSEEN_SECONDS + 1.0):
            # The daemon ticks every 30 s; the simulator ticks only at events, so schedule some.
            self.world._events.schedule(now + seconds, lambda _: self.world._want_tick(), None)
        if kind == 0:
            return Unknown(reason="the request was lost")
        outcome = self.world.cloud.launch(action)
        return Unknown(reason="the answer was lost") if kind == 1 else outcome

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """End nodes a while later; some requests are lost."""
        return {action.node: self._terminate(action) for action in actions}

    def _terminate(self, action: TerminateNode) -> Accepted | Refused | Unknown:
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
    """Return some days of work for a policy, and caps that make the jobs wait."""
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
def test_bills_never_exceed_a_cap_and_all_jobs_finish(
    case: tuple[SimulationSettings, Caps], is_unreliable: bool
) -> None:
    """This holds for days and months, with lost answers, late listings and slow ends."""
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


def test_caps_that_do_not_bind_change_no_action() -> None:
    """A run has the same actions with very high caps and without caps."""
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


def test_under_a_cap_below_the_price_of_a_node_every_job_stops_once() -> None:
    """This includes a job on two nodes; the idle node ends at once."""
    nodes = [a_node(name, launched_at=NOON - 3600.0) for name in ("n1", "n2", "n3", "n4")]
    held = {"wide": some_slots("n1", 0) + some_slots("n2", 0), "slim": some_slots("n3", 0)}
    state = a_state(a_job("wide"), a_job("slim"), nodes=nodes, held=held, now=NOON)
    decision = decided(state, Caps(usd_per_hour=0.1), wide=2, slim=1)
    assert sorted(decision.plan.jobs.stops) == ["slim", "wide"]
    assert {action.node for action in decision.actions if isinstance(action, TerminateNode)} >= {"n4"}
    assert {held.code for held in decision.plan.held} == {"cap-hour"}


def test_nodes_are_given_back_in_the_order_of_the_work_that_is_lost() -> None:
    """Idle nodes come before booting ones, stopping jobs before working ones; ties go to the youngest."""
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


def test_a_node_whose_jobs_already_stop_is_given_back_before_a_working_one() -> None:
    """Job "wide" stops first, so its other node goes next, unless job "heir" also runs there."""
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


def test_a_node_with_an_unknown_job_is_given_back_first() -> None:
    """No work of an unknown job is known to be lost, and there is no job to stop."""
    nodes = [replace(a_node("n1"), gpus=("ghost", None, None, None)), a_node("n2")]
    state = a_state(a_job("a"), nodes=nodes, held={"a": some_slots("n2", 0)}, now=NOON)
    projection = CapProjection(state, Caps(usd_per_hour=0.5))
    assert _give_back(state, a_plan(), projection) == ([], ["n1", "n2"], {"a"})


def test_no_more_nodes_are_forced_to_end_than_the_cap_requires() -> None:
    """With money for 151 s no node is forced to end, for 149 s one, for 119 s both."""
    nodes = [a_node(name, launched_at=NOON - 3600.0) for name in ("n1", "n2")]
    held = {"a": some_slots("n1", 0), "b": some_slots("n2", 0)}
    state = a_state(a_job("a"), a_job("b"), nodes=nodes, held=held, now=NOON)
    second = 2 * 4.0 / 3600.0
    for seconds, forced in ((151.0, ()), (149.0, ("n1",)), (119.0, ("n1", "n2"))):
        projection = CapProjection(state, Caps(usd_per_day=8.0 + seconds * second))
        assert _forced(["n1", "n2"], projection) == forced


def test_launches_of_a_second_type_get_the_room_that_the_first_leaves() -> None:
    """Each node takes 1 USD of the day; jobs that have no node of those left wait for the cap."""
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
        (3.1, {"old-x4": 2, "new-x4": 1}, {}),
        (2.1, {"old-x4": 2}, {"b": "cap-day"}),
        (1.1, {"old-x4": 1}, {"b": "cap-day"}),
    ):
        found = within_caps(state, plan, rules(caps=Caps(usd_per_day=usd)))
        assert dict(found.launches) == left
        assert found.jobs.waiting == {**plan.jobs.waiting, **reasons}
        cut = {held.what for held in found.held}
        assert cut == {
            f"{n - left.get(name, 0)} {name}" for name, n in launches.items() if n > left.get(name, 0)
        }


def test_starts_that_a_teams_cap_does_not_allow_are_removed() -> None:
    """The start stays if the team has room or no cap; without any caps the plan stays the same."""
    terms = JobTerms(team="red")
    state = a_state(a_job("a"), nodes=[a_node("n1")], now=NOON)
    state = replace(state, jobs={"a": replace(state.jobs["a"], terms=terms)})
    plan = a_plan(widths={"a": Width("gpu", 1)}, slots={"a": some_slots("n1", 0)})
    for cap, starts in ((0.01, False), (100.0, True), (None, True)):
        poor = replace(state, teams={"red": TeamMoney(day_cap_usd=cap)})
        found = within_caps(poor, plan, rules(caps=Caps()))
        assert bool(found.jobs.slots) is starts
        assert found.jobs.waiting == ({} if starts else {"a": "team-day-cap"})
    assert within_caps(state, plan, rules()) is plan


def test_a_job_that_waits_for_another_reason_keeps_it_if_launches_are_cut() -> None:
    """A resting job does not wait for the cap."""
    state = a_state(a_job("a"), a_job("b"), now=NOON, settled_today_micro_dollars=9_500_000)
    resting = replace(state.jobs["b"], terms=JobTerms(not_before=NOON + 60.0))
    state = replace(state, jobs={**state.jobs, "b": resting})
    assert decided(state, Caps(usd_per_day=10.0), a=4, b=4).plan.jobs.waiting == {
        "a": "cap-day",
        "b": "not-before",
    }


def test_only_listed_nodes_that_are_not_terminating_are_given_back_for_a_cap() -> None:
    """One instance is allowed: the idle node ends, the unlisted and the terminating ones are left alone."""
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
def test_jobs_affected_by_a_cap_wait_for_that_cap(
    caps: Caps, ends: list[str], starts: dict[str, str], stops: tuple[str, ...], waits: set[str]
) -> None:
    """This holds for a running job that stops, a job that cannot start, and a job whose launch is cut."""
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

    assert (list(found.releases), found.jobs.stops) == (ends, stops)
    assert {job: slots[0].node for job, slots in found.jobs.slots.items()} == starts
    assert found.launches == {}
    assert {job for job, reason in found.jobs.waiting.items() if reason != before.get(job)} == waits
    named = {
        *(f"job {job}" for job in stops),
        *(f"node {node}" for node in (["n1", "n2"] if stops else ends)),
    }
    assert {held.what for held in found.held} == (named | {f"1 {machine.name}"} if waits else set())
    assert {found.jobs.waiting[job] for job in waits} == {held.code for held in found.held}
