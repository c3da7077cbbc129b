"""Jobs widen onto spare GPUs until another job needs them; nearly empty nodes are emptied if that pays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from drafts import a_draft, a_plan, gpus
from followers import Known, plan_of
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import (
    Ideal,
    Wishes,
    a_job,
    a_node,
    a_state,
    an_instance_type,
    rules,
    some_slots,
    states,
)
from boa_daemon.tick.decide.decision import decide
from boa_daemon.tick.decide.diff import diff
from boa_daemon.tick.explain.explain import explain_job
from boa_daemon.tick.facts.draft import SOON_SECONDS
from boa_daemon.tick.facts.limits import Act, Caps, Steady
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, JobTerms
from boa_daemon.tick.stages.nodes.use_spare import use_spare
from policies.answer import LentWidth
from policies.model import Job, Width
from policies.placement.first_fit import FirstFit

NOW = 1000.0


def lending() -> ClusterState:
    """Return job "old", planned on two GPUs, which holds all four of its node."""
    return a_state(a_job("old"), nodes=[a_node("n1")], held={"old": some_slots("n1", 0, 1, 2, 3)}, now=NOW)


def test_a_job_grows_onto_free_gpus_of_its_node() -> None:
    """It keeps its own GPUs first; the explanation names the planned width."""
    state = a_state(a_job("a"), nodes=[a_node("n1")], held={"a": some_slots("n1", 2, 3)}, now=NOW)
    plan = plan_of(state, Known(widths={"a": 2}, stretches=True))

    assert plan.jobs.slots == {"a": some_slots("n1", 2, 3, 0, 1)}
    assert plan.jobs.widths["a"] == Width("gpu", 4)
    assert plan.jobs.intended == {"a": Width("gpu", 2)}
    assert "2 x gpu are planned for it; the rest would be idle" in explain_job(state, plan, "a")
    assert plan_of(state, Known(widths={"a": 2})).jobs.slots == {}


def test_a_starting_job_also_takes_the_free_gpus_of_its_node() -> None:
    """One GPU is planned on an idle node of four, and the job gets all four."""
    state = a_state(a_job("a"), nodes=[a_node("n1")], now=NOW)

    assert len(plan_of(state, Known(widths={"a": 1}, stretches=True)).jobs.slots["a"]) == 4


def test_a_job_does_not_grow_onto_another_node() -> None:
    """The other node is idle and kept; lent GPUs would keep it rented."""
    state = a_state(
        a_job("a"),
        nodes=[a_node("n1"), a_node("n2", idle_since=NOW)],
        held={"a": some_slots("n1", 0, 1, 2, 3)},
        now=NOW,
    )

    assert plan_of(state, Known(widths={"a": 4}, stretches=True, nodes=1)).jobs.slots == {}


def test_the_job_that_saves_most_gets_the_spare_gpu() -> None:
    """By these node prices the narrower job saves most."""
    state = a_state(
        a_job("wide"),
        a_job("narrow"),
        nodes=[a_node("n1")],
        held={"wide": some_slots("n1", 0, 1), "narrow": some_slots("n1", 2)},
        now=NOW,
    )
    plan = plan_of(state, Known(widths={"wide": 2, "narrow": 1}, stretches=True))

    assert plan.jobs.slots == {"narrow": some_slots("n1", 2, 3)}


def test_a_job_keeps_lent_gpus_while_no_job_waits() -> None:
    """The decision has no actions."""
    state = lending()
    plan = plan_of(state, Known(widths={"old": 2}, stretches=True))

    assert diff(state, plan) == ()
    assert plan.jobs.intended == {"old": Width("gpu", 2)}


def test_a_job_that_is_lent_more_says_once_what_is_planned() -> None:
    """It keeps two GPUs beyond its plan and gets one more: one plan and one reason, also when held back."""
    state = a_state(a_job("old"), nodes=[a_node("n1")], held={"old": some_slots("n1", 0, 1, 2)}, now=NOW)
    jobs = plan_of(state, Known(widths={"old": 1}, stretches=True)).jobs

    assert (jobs.widths["old"], jobs.intended) == (Width("gpu", 4), {"old": Width("gpu", 1)})
    assert jobs.reasons["old"].count("planned without them are") == 1
    assert jobs.reasons["old"].endswith(f"are 1 x gpu: {jobs.own_reasons['old']}")
    back = jobs.held_back(["old"])["old"]
    assert (back.width, back.reason) == (Width("gpu", 1), jobs.own_reasons["old"])


def test_lent_gpus_go_to_a_waiting_job_before_a_node_is_rented() -> None:
    """Job "old" shrinks to two GPUs, and "new" starts beside it at once."""
    state = lending()
    state = replace(state, jobs={**state.jobs, "new": a_state(a_job("new", arrived_at=NOW)).jobs["new"]})
    plan = plan_of(state, Known(widths={"old": 2, "new": 2}, stretches=True))

    assert {job: len(slots) for job, slots in plan.jobs.slots.items()} == {"old": 2, "new": 2}
    assert plan.launches == {}


def test_lent_gpus_are_not_called_back_if_they_do_not_suffice() -> None:
    """Job "new" needs three GPUs and two are lent: a node is rented, and "old" keeps four."""
    state = lending()
    state = replace(state, jobs={**state.jobs, "new": a_state(a_job("new", arrived_at=NOW)).jobs["new"]})
    plan = plan_of(state, Known(widths={"old": 2, "new": 3}, stretches=True))

    assert "old" not in plan.jobs.slots
    assert plan.launches == {"gpu-x4": 1}


def test_a_job_gives_up_a_node_on_which_it_holds_only_lent_gpus() -> None:
    """The job holds two nodes and is planned on one."""
    state = a_state(
        a_job("a"),
        nodes=[a_node("n1"), a_node("n2")],
        held={"a": (*some_slots("n1", 0, 1, 2, 3), *some_slots("n2", 0, 1, 2, 3))},
        now=NOW,
    )
    plan = plan_of(state, Known(widths={"a": 4}, stretches=True))

    assert len(plan.jobs.slots["a"]) == 4
    assert len({slot.node for slot in plan.jobs.slots["a"]}) == 1


@pytest.mark.parametrize(("since_start", "moves"), [(100.0, False), (400.0, True)])
def test_spare_gpus_are_neither_lent_nor_called_back_within_the_minimum_hold(
    since_start: float, moves: bool
) -> None:
    """Five minutes after its start a job may grow and may shrink."""
    steady = rules(steady=Steady(minimum_hold_seconds=300.0))
    started = (Act(kind="start", target="a", at=NOW - since_start),)
    grows = a_state(a_job("a"), nodes=[a_node("n1")], held={"a": some_slots("n1", 0, 1)}, now=NOW)
    gives = a_state(
        a_job("a"),
        a_job("new", arrived_at=NOW),
        nodes=[a_node("n1")],
        held={"a": some_slots("n1", 0, 1, 2, 3)},
        now=NOW,
    )
    for state, widths in ((grows, {"a": 2}), (gives, {"a": 2, "new": 2})):
        decision = decide(
            replace(state, acts=started),
            allocator=Known(widths=widths, stretches=True),
            placer=FirstFit(),
            rules=steady,
        )
        assert ("a" in decision.plan.jobs.slots) is moves


def test_growing_onto_spare_gpus_counts_as_a_move() -> None:
    """Two jobs could grow and one move is allowed per hour, so one job grows."""
    state = a_state(
        a_job("a"),
        a_job("b"),
        nodes=[a_node("n1"), a_node("n2")],
        held={"a": some_slots("n1", 0, 1), "b": some_slots("n2", 0, 1)},
        now=NOW,
    )
    decision = decide(
        state,
        allocator=Known(widths={"a": 2, "b": 2}, stretches=True),
        placer=FirstFit(),
        rules=rules(steady=Steady(moves_per_hour=1)),
    )

    assert len(decision.plan.jobs.slots) == 1


def two_halves(**changes: float) -> Known:
    """Return node prices for two jobs on two GPUs each, with ten hours left."""
    known = Known(widths={"a": 2, "b": 2}, left_hours={"a": 10.0, "b": 10.0}, worth=1.0, loses=1.0)
    return replace(known, **changes)  # type: ignore[arg-type]


def halves() -> ClusterState:
    """Return two nodes with one job on half of each."""
    return a_state(
        a_job("a"),
        a_job("b"),
        nodes=[a_node("n1"), a_node("n2")],
        held={"a": some_slots("n1", 0, 1), "b": some_slots("n2", 2, 3)},
        now=NOW,
    )


def test_one_of_two_half_empty_nodes_is_emptied() -> None:
    """Ten hours of a node are worth 10 and the move costs 1, so job a moves beside b."""
    plan = plan_of(halves(), two_halves())

    assert plan.jobs.slots == {"a": some_slots("n2", 0, 1)}


@pytest.mark.parametrize("changes", [{"worth": 0.0}, {"loses": 5.0}, {"left_hours": {"a": 10.0, "b": 1.9}}])
def test_no_node_is_emptied_if_that_does_not_pay_twice_the_cost(changes: dict[str, float]) -> None:
    """The node is worth nothing, the move costs half of the saving, or the staying job ends soon."""
    assert plan_of(halves(), two_halves(**changes)).jobs.slots == {}


def test_lent_gpus_are_returned_to_empty_a_node() -> None:
    """Both jobs hold whole nodes; each shrinks to its two planned GPUs, and one node is emptied."""
    state = a_state(
        a_job("a"),
        a_job("b"),
        nodes=[a_node("n1"), a_node("n2")],
        held={"a": some_slots("n1", 0, 1, 2, 3), "b": some_slots("n2", 0, 1, 2, 3)},
        now=NOW,
    )
    plan = plan_of(state, two_halves(stretches=True))

    assert plan.jobs.slots == {"a": some_slots("n2", 2, 3), "b": some_slots("n2", 0, 1)}


class ForAWhile(Known):
    """Node prices that lose half of the time for which a job is narrower."""

    def hours_lost(self, job: Job, then: Width, *, hours_left: float, back_in_hours: float) -> float:
        """Return half of that time."""
        return 0.5 * min(hours_left, back_in_hours)


@pytest.mark.parametrize(("worth", "makes_room"), [(1.1, True), (0.9, False)])
def test_a_long_job_moves_beside_a_short_one_if_its_loss_until_the_short_one_ends_pays(
    worth: float, makes_room: bool
) -> None:
    """Job "long" loses half of the hour that "short" has left, not half of its own 1,000 h."""
    state = a_state(
        a_job("long"),
        a_job("short"),
        nodes=[a_node("n1"), a_node("n2")],
        held={"long": some_slots("n1", 0, 1, 2, 3), "short": some_slots("n2", 0, 1)},
        now=NOW,
    )
    left = {"long": 1000.0, "short": 1.0}
    plan = plan_of(state, ForAWhile(widths={"long": 2, "short": 2}, left_hours=left, worth=worth))

    assert plan.jobs.slots == ({"long": some_slots("n2", 2, 3)} if makes_room else {})


def test_the_plan_wakes_up_soon_after_a_move_empties_a_node() -> None:
    """Without a move there is no wake-up."""

    def wake_at(known: Known) -> float | None:
        return decide(halves(), allocator=known, placer=FirstFit(), rules=rules()).wake_at

    assert wake_at(two_halves()) == NOW + SOON_SECONDS
    assert wake_at(two_halves(worth=0.0)) is None


@pytest.mark.parametrize(("zone", "moves"), [("z1", True), ("z2", False)])
def test_a_job_moves_its_last_gpu_on_a_node_only_within_its_zone(zone: str, moves: bool) -> None:
    """The fifth GPU of job a moves beside b if n3 is in the same zone; otherwise b moves."""
    zones = {"n1": "z1", "n2": "z1", "n3": zone}
    state = a_state(
        a_job("a"),
        a_job("b"),
        nodes=[replace(a_node(name), zone=where) for name, where in zones.items()],
        held={"a": (*some_slots("n1", 0, 1, 2, 3), *some_slots("n2", 0)), "b": some_slots("n3", 0, 1)},
        now=NOW,
    )
    plan = plan_of(state, two_halves(widths={"a": 5, "b": 2}))

    if moves:
        assert plan.jobs.slots == {"a": (*some_slots("n1", 0, 1, 2, 3), *some_slots("n3", 2))}
    else:
        assert plan.jobs.slots == {"b": some_slots("n2", 1, 2)}


def test_lent_gpus_on_an_emptied_node_are_given_up() -> None:
    """Job a gives up its lent GPU beside b, and b moves to n3."""
    state = a_state(
        a_job("a"),
        a_job("b"),
        a_job("c"),
        nodes=[a_node("n1"), a_node("n2"), a_node("n3")],
        held={
            "a": (*some_slots("n1", 0, 1, 2, 3), *some_slots("n2", 0)),
            "b": some_slots("n2", 2),
            "c": some_slots("n3", 0, 1, 2),
        },
        now=NOW,
    )
    left = {"a": 10.0, "b": 10.0, "c": 10.0}
    plan = plan_of(state, two_halves(widths={"a": 4, "b": 1, "c": 3}, left_hours=left))

    assert plan.jobs.slots == {"a": some_slots("n1", 0, 1, 2, 3), "b": some_slots("n3", 3)}


def test_no_node_is_emptied_if_the_rules_against_flapping_hold_its_jobs() -> None:
    """Both jobs started 10 s ago."""
    started = tuple(Act(kind="start", target=name, at=NOW - 10.0) for name in "ab")
    decision = decide(
        replace(halves(), acts=started),
        allocator=two_halves(),
        placer=FirstFit(),
        rules=rules(steady=Steady()),
    )
    assert decision.plan.jobs.slots == {}


def test_at_the_node_limit_gpus_are_shared_by_weight_and_every_job_gets_some() -> None:
    """With weights 1 and 8 on 20 GPUs, the heavy job gets all 16 and the other job 4."""
    state = a_state(a_job("a"), a_job("b"), now=NOW)
    known = Known(widths={"a": 16, "b": 16}, weights={"a": 1.0, "b": 8.0})
    plan = plan_of(state, known, rules(max_nodes=5))

    assert plan.jobs.widths == {"a": Width("gpu", 4), "b": Width("gpu", 16)}
    assert plan.launches == {"gpu-x4": 5}


def test_at_the_node_limit_a_running_job_makes_room_for_a_new_one() -> None:
    """The new job has less work left, and gets 3/4 of the GPUs (heSRPT)."""
    state = a_state(
        a_job("old"),
        a_job("new", arrived_at=NOW),
        nodes=[a_node("n1"), a_node("n2")],
        held={"old": (*some_slots("n1", 0, 1, 2, 3), *some_slots("n2", 0, 1, 2, 3))},
        now=NOW,
    )
    known = Known(widths={"old": 8, "new": 8}, left_hours={"old": 2.0})
    plan = plan_of(state, known, rules(max_nodes=2))

    assert {job: len(slots) for job, slots in plan.jobs.slots.items()} == {"old": 2, "new": 6}
    assert plan.jobs.waiting == {}


def test_with_fewer_gpus_than_jobs_the_first_jobs_run_and_the_others_wait() -> None:
    """Four GPUs for six jobs: the first four run."""
    names = "abcdef"
    state = a_state(*(a_job(name) for name in names), nodes=[a_node("n1")], now=NOW)
    plan = plan_of(state, Known(widths=dict.fromkeys(names, 4)), rules(max_nodes=1))

    assert list(plan.jobs.slots) == ["a", "b", "c", "d"]
    assert plan.jobs.waiting == {"e": "node-limit", "f": "node-limit"}


def test_at_the_node_limit_lent_gpus_are_returned_for_a_job_that_needs_another_node() -> None:
    """Three free GPUs and one new node give job "wide" its seven GPUs."""
    state = a_state(
        a_job("lent"), a_job("wide"), nodes=[a_node("n1")], held={"lent": some_slots("n1", 2, 3)}, now=NOW
    )
    known = Known(widths={"lent": 1, "wide": 7}, stretches=True)
    plan = plan_of(state, known, rules(max_nodes=2))

    assert (len(plan.jobs.slots["lent"]), plan.launches) == (1, {"gpu-x4": 1})
    assert plan.jobs.waiting == {"wide": "nodes-to-come"}


def settled(state: ClusterState, known: Known, **limits: Any) -> Ideal:
    """Return the world after the tick without actions, which comes within ten."""
    world = Ideal(state)
    world.ready_all()
    for look in range(10):
        seen = replace(state, tick=look, nodes=world.nodes_by_id, jobs=world.jobs_by_id)
        decision = decide(seen, allocator=known, placer=FirstFit(), rules=rules(**limits))
        world.do(decision.actions)
        world.ready_all()
        if not decision.actions:
            return world
    raise AssertionError(decision.actions)


@pytest.mark.parametrize(
    "limits",
    [{"max_nodes": 2}, {"caps": Caps(usd_per_hour=8.0)}, {"caps": Caps(usd_per_hour=11.9), "max_nodes": 4}],
)
@pytest.mark.parametrize("held", [1, 2, 4])
def test_jobs_settle_where_the_limit_is_below_the_fleet(held: int, limits: dict[str, Any]) -> None:
    """A job that wants more than the limit ever allows has one share, whatever it was lent."""
    jobs = [a_job("a"), a_job("b"), a_job("c", width=Width("gpu", held))]
    nodes = [a_node(f"n{number}") for number in range(3)]
    state = a_state(*jobs, nodes=nodes, held={"c": some_slots("n2", *range(held))}, now=NOW)
    known = Known(widths={"a": 4, "b": 3, "c": 9}, stretches=True, worth=1.0, loses=0.0)
    settled(state, known, **limits)


@given(
    case=states(),
    max_nodes=st.sampled_from((None, 2, 4)),
    worth=st.sampled_from((0.0, 1.0)),
    loses=st.sampled_from((0.0, 0.2)),
    is_late=st.booleans(),
)
def test_without_events_the_actions_end_and_no_job_waits_beside_free_gpus(
    case: tuple[ClusterState, Wishes], max_nodes: int | None, worth: float, loses: float, is_late: bool
) -> None:
    """After at most ten ticks no action is left; overdue jobs run as far as there are GPUs for them."""
    state, wishes = case
    overdue = 2.0 if is_late else 0.0
    known = Known(widths=wishes.widths, stretches=True, worth=worth, loses=loses, overdue=overdue)
    world = settled(state, known, max_nodes=max_nodes)
    running = {name for name, job in world.jobs_by_id.items() if job.slots}
    if max_nodes is None:
        assert running == wishes.widths.keys()
    else:
        room = 4 * max(max_nodes, len(state.nodes))
        used = sum(len(job.slots) for job in world.jobs_by_id.values())
        assert used <= room
        if is_late:
            assert len(running) >= min(len(wishes.widths), 4 * max_nodes)
        assert running == wishes.widths.keys() or used >= 4 * max_nodes


def test_stopping_jobs_and_jobs_with_an_ordered_width_get_no_spare_gpus() -> None:
    """Their slots do not change."""
    state = a_state(a_job("a"), nodes=[a_node("n1")], held={"a": some_slots("n1", 2, 3)}, now=NOW)
    stopping = replace(state, jobs={"a": replace(state.jobs["a"], is_stopping=True)})
    assert plan_of(stopping, Known(widths={"a": 2}, stretches=True)).jobs.slots == {}
    ordered = replace(state, jobs={"a": replace(state.jobs["a"], terms=JobTerms(ordered_gpus=2))})
    assert plan_of(ordered, Known(widths={"a": 2}, stretches=True)).jobs.slots == {}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpTo(Known):
    """Node prices that lend up to `most` GPUs; of two jobs the wider one saves more."""

    most: int = 4

    def stretch(self, job: Job, now: Width, *, most_gpus: int, hours_left: float | None) -> LentWidth | None:
        """Return as many GPUs as there are, up to `most`."""
        gpus = min(most_gpus, self.most)
        return LentWidth(width=Width("gpu", gpus), saved_hours=now.gpus) if gpus > now.gpus else None


def spared(state: ClusterState, prices: Known | None = None, **changes: Any) -> Plan:
    """Return the plan after the stage alone, where all jobs are planned on what they hold."""
    widths = {job: entry.job.width for job, entry in state.jobs.items() if entry.job.width}
    policy = {"node_prices": prices or UpTo(widths={}), **changes.pop("policy", {})}
    plan = a_plan(widths=widths, **changes.pop("plan", {}))
    return use_spare(state, a_draft(widths, policy=policy, plan=plan, **changes)).plan


def test_spare_gpus_are_lent_on_nodes_behind_nodes_that_lend_none() -> None:
    """Before n5 come a full, an idle, an ending and a claimed node, and a node with shared GPUs."""
    shared = replace(an_instance_type(), places_per_gpu=2)
    nodes = [a_node(f"n{number}", kind=shared if number == 4 else None) for number in range(6)]
    nodes[2] = replace(nodes[2], ends_by=99.0)
    held = {"full": some_slots("n0", 0, 1, 2, 3)}
    held |= {f"j{number}": some_slots(f"n{number}", 0) for number in (2, 3, 4, 5)}
    state = a_state(*(a_job(name) for name in held), nodes=nodes, held=held)
    plan = spared(state, claimed=frozenset({"n3"}))
    assert plan.jobs.slots == {"j5": some_slots("n5", 0, 1, 2, 3)}
    assert (plan.jobs.widths["j5"], plan.jobs.intended) == (Width("gpu", 4), gpus(j5=1))


def test_jobs_that_may_not_grow_do_not_keep_another_job_on_the_node_from_growing() -> None:
    """One job has an exact width, one waits or stops, one must stay; the last takes all free GPUs."""
    held = {name: some_slots("n0", number) for number, name in enumerate(("just", "waits", "stays", "z"))}
    kind = an_instance_type(gpus=6)
    state = a_state(*(a_job(name) for name in held), nodes=[a_node("n0", kind=kind)], held=held)
    policy = {"exact": frozenset({"just"}), "stay": frozenset({"stays"})}
    found = spared(state, policy=policy, plan={"waiting": {"waits": "budget"}})
    assert found.jobs.slots == {"z": some_slots("n0", 3, 4, 5)}
    stopping = replace(state.jobs["waits"], is_stopping=True)
    state = replace(state, jobs={**state.jobs, "waits": stopping})
    assert spared(state, policy=policy).jobs.slots == {"z": some_slots("n0", 3, 4, 5)}


def test_spare_gpus_that_one_job_cannot_use_go_to_other_jobs() -> None:
    """Job b already has the most it can use (two), so a and c take one GPU each."""
    held = {"b": some_slots("n0", 0, 1), "a": some_slots("n0", 2), "c": some_slots("n0", 3)}
    state = a_state(*(a_job(name) for name in held), nodes=[a_node("n0", gpus=8)], held=held)
    found = spared(state, UpTo(widths={}, most=2))
    assert found.jobs.slots == {"a": some_slots("n0", 2, 4), "c": some_slots("n0", 3, 5)}


def test_no_spare_gpus_are_lent_without_node_prices_or_in_a_fixed_fleet() -> None:
    """The same job grows if the policy has node prices and sets no fleet."""
    state = a_state(a_job("a"), nodes=[a_node("n0")], held={"a": some_slots("n0", 0)})
    draft = a_draft(gpus(a=1), plan=a_plan(widths=gpus(a=1)))
    assert use_spare(state, draft) is draft
    assert spared(state).jobs.slots
    assert spared(state, policy={"nodes": {"gpu-x4": 1}}).jobs.slots == {}
