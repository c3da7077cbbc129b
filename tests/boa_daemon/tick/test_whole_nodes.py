"""Plans on whole nodes: when a job waits for GPUs of others, starts early, and which idle nodes stay."""

from __future__ import annotations

import pytest
from followers import BOOT_SECONDS, Known, plan_of
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.decide.decision import decide
from boa_daemon.tick.explain.explain import explain_job
from boa_daemon.tick.facts.limits import Steady
from boa_daemon.tick.facts.state import ClusterState
from policies.model import Width
from policies.placement.first_fit import FirstFit


def one_running(*, waited_seconds: float = 0.0) -> ClusterState:
    """Return a state in which job "old" has a whole node and job "new" has arrived."""
    now = 1000.0
    return a_state(
        a_job("old"),
        a_job("new", arrived_at=now - waited_seconds),
        nodes=[a_node("n1")],
        held={"old": some_slots("n1", 0, 1, 2, 3)},
        now=now,
    )


def test_no_node_is_rented_if_a_job_ends_before_it_would_have_booted() -> None:
    """Job "old" ends in two minutes and a boot takes three; the explanation says so."""
    state = one_running()
    plan = plan_of(state, Known(widths={"old": 4, "new": 4}, left_hours={"old": 120.0 / 3600.0}))

    assert plan.launches == {}
    assert plan.jobs.waiting == {"new": "gpus-to-fall-free"}
    assert "other jobs will free GPUs sooner than a new node would boot" in explain_job(state, plan, "new")


def test_a_node_is_rented_if_no_job_ends_in_time_or_too_few_gpus_become_free() -> None:
    """Job "old" runs for another hour, or its four GPUs do not suffice for eight."""
    late = plan_of(one_running(), Known(widths={"old": 4, "new": 4}))
    wide = plan_of(one_running(), Known(widths={"old": 4, "new": 8}, left_hours={"old": 0.01}))

    assert late.launches == {"gpu-x4": 1}
    assert wide.launches == {"gpu-x4": 1}


def test_the_time_left_of_a_job_is_reduced_by_the_age_of_its_measurement() -> None:
    """Six minutes were left five minutes ago, so one is left now and no node is rented."""
    for counted_at, launches in ((700.0, {}), (1120.0, {"gpu-x4": 1}), (None, {"gpu-x4": 1})):
        state = a_state(
            a_job("old", counted_at=counted_at),
            a_job("new", arrived_at=1000.0),
            nodes=[a_node("n1")],
            held={"old": some_slots("n1", 0, 1, 2, 3)},
            now=1000.0,
        )
        known = Known(widths={"old": 4, "new": 4}, left_hours={"old": 0.1})

        assert plan_of(state, known).launches == launches


def test_two_jobs_do_not_count_on_the_same_gpus() -> None:
    """Four GPUs become free for two jobs of four, so one node is rented."""
    state = a_state(
        a_job("old"),
        a_job("b", arrived_at=1000.0),
        a_job("c", arrived_at=1000.0),
        nodes=[a_node("n1")],
        held={"old": some_slots("n1", 0, 1, 2, 3)},
        now=1000.0,
    )
    plan = plan_of(state, Known(widths={"old": 4, "b": 4, "c": 4}, left_hours={"old": 0.01}))

    assert plan.launches == {"gpu-x4": 1}


def test_a_node_is_rented_for_a_job_that_has_waited_longer_than_two_boots() -> None:
    """So a wrong forecast cannot make a job wait for ever."""
    known = Known(widths={"old": 4, "new": 4}, left_hours={"old": 0.0})

    assert plan_of(one_running(waited_seconds=359.0), known).launches == {}
    assert plan_of(one_running(waited_seconds=361.0), known).launches == {"gpu-x4": 1}


def test_a_waiting_job_starts_on_free_gpus_while_its_nodes_boot() -> None:
    """Eight GPUs are planned and four are free: it starts on four, and one node is rented."""
    state = a_state(a_job("a"), nodes=[a_node("n1")])
    plan = plan_of(state, Known(widths={"a": 8}, starts=True))

    assert plan.jobs.slots == {"a": some_slots("n1", 0, 1, 2, 3)}
    assert plan.jobs.widths["a"] == Width("gpu", 4)
    assert plan.jobs.intended == {"a": Width("gpu", 8)}
    assert plan.launches == {"gpu-x4": 1}
    assert "gets 8 x gpu once there is room" in explain_job(state, plan, "a")


def test_a_job_with_a_head_start_does_not_rent_its_nodes_twice() -> None:
    """It runs on four GPUs and one node boots: nothing is launched or moved."""
    state = a_state(
        a_job("a"),
        nodes=[a_node("n1"), a_node("n2", phase="requested")],
        held={"a": some_slots("n1", 0, 1, 2, 3)},
    )
    plan = plan_of(state, Known(widths={"a": 8}, starts=True))

    assert (plan.launches, plan.jobs.slots, plan.jobs.stops) == ({}, {}, ())


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_the_policy_keeps_as_many_idle_nodes_as_it_says_the_latest_first(kept: int) -> None:
    """Three nodes are idle; the others are released at once."""
    nodes = [a_node(f"n{number}", idle_since=900.0 + number) for number in (1, 2, 3)]
    plan = plan_of(a_state(nodes=nodes, now=1000.0), Known(widths={}, nodes=kept))

    assert set(plan.releases) == {f"n{number}" for number in range(1, 4 - kept)}
    assert (plan.wake_at is not None) == (kept > 0)


def test_a_kept_idle_node_is_released_when_its_time_is_over() -> None:
    """It has been idle for ten minutes."""
    state = a_state(nodes=[a_node("n1", idle_since=400.0)], now=1000.0)

    assert plan_of(state, Known(widths={}, nodes=5)).releases == ("n1",)


@given(
    left=st.lists(st.floats(min_value=0.0, max_value=1.0), min_size=1, max_size=6), width=st.integers(1, 16)
)
def test_rented_free_and_soon_free_gpus_cover_the_waiting_job(left: list[float], width: int) -> None:
    """This holds for any forecasts, and one node less would not be needed."""
    names = [f"j{number}" for number in range(len(left))]
    state = a_state(
        *(a_job(name) for name in names),
        a_job("new", arrived_at=1000.0),
        nodes=[a_node(f"n-{name}") for name in names],
        held={name: some_slots(f"n-{name}", 0, 1, 2) for name in names},
        now=1000.0,
    )
    known = Known(
        widths=dict.fromkeys(names, 3) | {"new": width}, left_hours=dict(zip(names, left, strict=True))
    )
    plan = plan_of(state, known)

    ending = sum(hours < known.boot_hours for hours in left)
    rented = 4 * sum(plan.launches.values())
    assert "new" in plan.jobs.slots or rented + len(names) + 3 * ending >= width
    assert rented - 4 < width


@pytest.mark.parametrize(("minimum_hold_seconds", "starts"), [(60.0, True), (BOOT_SECONDS + 120.0, False)])
def test_a_job_gets_no_head_start_if_its_minimum_hold_exceeds_the_boot(
    minimum_hold_seconds: float, starts: bool
) -> None:
    """It would stay narrow after its nodes have come."""
    state = a_state(a_job("new"), nodes=[a_node("n1")], now=1000.0)
    site = rules(steady=Steady(minimum_hold_seconds=minimum_hold_seconds))
    plan = decide(state, allocator=Known(widths={"new": 8}, starts=True), placer=FirstFit(), rules=site).plan
    assert ("new" in plan.jobs.intended) is starts
    assert plan.launches


def test_the_sites_longest_hold_limits_how_long_an_idle_node_is_kept() -> None:
    """The limit is 30 s, although the policy would keep the node longer."""
    node_prices = Known(widths={}, nodes=1)
    site = rules(longest_hold_seconds=30.0)

    def released(now: float) -> tuple[str, ...]:
        state = a_state(nodes=[a_node("n1", idle_since=0.0)], now=now)
        return decide(state, allocator=node_prices, placer=FirstFit(), rules=site).plan.releases

    assert (released(29.0), released(31.0)) == ((), ("n1",))
