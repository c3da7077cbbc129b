"""`store/memory.py`: exact sums, open launches and cool-downs, with the last records of each kind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists, tuples

from boa_daemon.store.memory import GIVEN_UP_SECONDS, MemoryStore
from boa_daemon.testing import an_instance_type
from boa_daemon.tick.facts.actions import LaunchNodes, StopJob
from boa_daemon.tick.facts.limits import DAY_SECONDS
from boa_daemon.tick.facts.ports import Accepted, Charge, Launched, Outcome, Refused, Unknown

KEY = "gpu-x4//on-demand"
FULL = Refused(reason="none left", kind="no-capacity")


def a_launch(name: str = "t1", **changes: Any) -> LaunchNodes:
    """Return an order of two nodes."""
    return LaunchNodes(id=name, instance_type=an_instance_type(), count=2, reason="", **changes)


def a_bill(node: str, micro_dollars: int, *days: tuple[int, int]) -> Charge:
    """Return a bill."""
    return Charge(
        node=node,
        instance_type="gpu-x4",
        started_at=0.0,
        ended_at=1.0,
        micro_dollars=micro_dollars,
        days=days or ((0, micro_dollars),),
    )


def answered(outcome: Outcome, action: LaunchNodes | None = None, *, at: float = 10.0) -> MemoryStore:
    """Return a store in which a launch was ordered at 5 and answered."""
    store, launch = MemoryStore(), action or a_launch()
    store.record_intent(launch, at=5.0)
    store.record_outcome(launch, outcome, at=at)
    return store


def unseen(store: MemoryStore) -> list[tuple[str, ...]]:
    """Return the nodes of open launches that no listing has shown."""
    return [launch.unseen for launch in store.unsettled()]


def test_an_intent_is_open_with_all_its_nodes_from_the_start() -> None:
    """What is asked for counts until it is known; another order than a launch is never open."""
    store = MemoryStore()
    store.record_intents([a_launch(), StopJob(id="s", job="a", generation=1, reason="")], at=5.0)
    assert unseen(store) == [("t1/0", "t1/1")]
    assert [launch.at for launch in store.unsettled()] == [5.0]


@pytest.mark.parametrize(
    ("outcome", "left"),
    [
        (Unknown(reason="lost"), [("t1/0", "t1/1")]),
        (Launched(nodes=("n1", "n2")), [("n1", "n2")]),
        (Launched(nodes=("n1",), short=FULL), [("n1",)]),
        (Launched(nodes=()), []),
        (FULL, []),
    ],
)
def test_only_a_refusal_or_no_nodes_settle_a_launch_at_once(outcome: Outcome, left: list[tuple[str]]) -> None:
    """A lost answer may be a node that runs and is paid."""
    assert unseen(answered(outcome)) == left


def test_a_launch_is_settled_by_the_listings_together() -> None:
    """Each shows some of its nodes; other launches' nodes change nothing."""
    store = answered(Launched(nodes=("n1", "n2")))
    store.record_seen("other", ["n2"])
    store.record_seen("t1", ["n1"])
    assert unseen(store) == [("n2",)]
    store.record_seen("t1", ["n2"])
    assert unseen(store) == []
    store.record_seen("t1", ["n2"])


def test_what_did_not_come_closes_its_offer() -> None:
    """A refusal, what a short answer lacks, and nodes that never appear; a lost answer closes nothing."""
    assert set(answered(FULL).cooldowns(10.0)) == {KEY}
    assert set(answered(Launched(nodes=("n1",), short=FULL)).cooldowns(10.0)) == {KEY}
    assert answered(Unknown(reason="lost")).cooldowns(10.0) == {}
    store = answered(Unknown(reason="lost"))
    store.give_up("t1", "never seen", at=20.0)
    store.give_up("t1", "never seen", at=30.0)
    assert store.cooldowns(20.0)[KEY].until == 20.0 + GIVEN_UP_SECONDS
    assert (unseen(store), [outcome for _, outcome, _ in store.outcomes][-1].reason) == ([], "never seen")
    assert len(store.outcomes) == 2


def test_a_cool_down_ends_at_its_instant_and_grows_with_each_refusal() -> None:
    """Three minutes, then six; a scope of its own is closed in place of the offer."""
    store = answered(FULL)
    assert (set(store.cooldowns(189.9)), set(store.cooldowns(190.0))) == ({KEY}, set())
    store.record_outcome(a_launch("t2"), FULL, at=200.0)
    assert (store.cooldowns(200.0)[KEY].until, store.cooldowns(200.0)[KEY].times) == (560.0, 2)
    store.close_offers(Refused(reason="", kind="quota", scopes=("other/*/spot", "third")), at=200.0)
    assert {scope: rest.kind for scope, rest in store.cooldowns(200.0).items()} == {
        KEY: "no-capacity",
        "other/*/spot": "quota",
        "third": "quota",
    }


def test_a_launch_that_comes_opens_only_what_it_proves() -> None:
    """One node that comes does not prove that a gang of four would."""
    store = answered(FULL)
    gang = LaunchNodes(id="g", instance_type=an_instance_type(), count=4, is_gang=True, reason="")
    store.record_outcome(gang, FULL, at=10.0)
    assert set(store.cooldowns(10.0)) == {KEY, f"{KEY}/3"}
    store.record_outcome(a_launch("t2"), Launched(nodes=("n1", "n2")), at=11.0)
    assert set(store.cooldowns(11.0)) == {f"{KEY}/3"}
    store.record_outcome(gang, Launched(nodes=("n1",) * 4), at=12.0)
    assert store.cooldowns(12.0) == {}


@given(lists(tuples(integers(0, 3), lists(tuples(integers(0, 4), integers(0, 99)), max_size=3)), max_size=12))
def test_sums_are_those_of_the_bills_that_stand(rows: list[tuple[int, list[tuple[int, int]]]]) -> None:
    """One bill for each node; a withdrawn one is in no sum, by day or in all, and may come again."""
    store = MemoryStore()
    for reopened in (False, True):
        standing: dict[str, Charge] = {}
        if reopened:
            store.reopen_charges({f"n{node}" for node, _ in rows})
            assert store.settled_micro_dollars() == 0
        for node, days in rows:
            bill = a_bill(f"n{node}", sum(part for _, part in days), *(days or [(0, 0)]))
            store.record_charge(bill)
            standing.setdefault(bill.node, bill)
        assert list(store.charges) == [*standing.values()]
        assert store.settled_micro_dollars() == sum(bill.micro_dollars for bill in standing.values())
        for first in range(6):
            due = sum(part for bill in standing.values() for day, part in bill.days if day >= first)
            assert store.settled_since((first + 0.999) * DAY_SECONDS) == due


def test_the_last_bills_are_kept_and_all_are_summed() -> None:
    """A long simulation stays small; a bill that was dropped is still not counted twice."""
    store = MemoryStore(keep=1)
    for _ in range(2):
        for node in ("n1", "n2"):
            store.record_charge(a_bill(node, 5))
    assert ([bill.node for bill in store.charges], store.settled_micro_dollars()) == (["n2"], 10)
    store.reopen_charges(["n9"])
    assert store.settled_micro_dollars() == 10


def test_acts_are_the_last_orders_since_an_instant_in_order_of_time() -> None:
    """A refused launch was no act; the oldest are dropped, and none are kept where none are wanted."""
    store = MemoryStore(acts=3)
    for number in range(5):
        store.record_intent(
            StopJob(id=f"s{number}", job=f"j{number}", generation=1, reason=""), at=float(number)
        )
    assert [act.target for act in store.acts_since(0.0)] == ["j2", "j3", "j4"]
    assert [act.target for act in store.acts_since(3.0)] == ["j3", "j4"]
    assert [act.kind for act in answered(FULL).acts_since(0.0)] == []
    assert [act.kind for act in answered(Launched(nodes=("n1",))).acts_since(0.0)] == ["launch"]
    assert [act.kind for act in answered(Unknown(reason="")).acts_since(0.0)] == ["launch"]
    none = MemoryStore(acts=0)
    none.record_intent(a_launch(), at=1.0)
    assert (none.acts_since(0.0), len(none.unsettled())) == ([], 1)


def test_the_outcome_of_another_order_than_a_launch_closes_nothing() -> None:
    """A stop that was refused says nothing of offers."""
    store = MemoryStore()
    stop = StopJob(id="s", job="a", generation=1, reason="")
    store.record_intent(stop, at=1.0)
    for outcome in (Refused(reason="busy"), Accepted()):
        store.record_outcome(stop, outcome, at=2.0)
    assert (store.cooldowns(2.0), len(store.acts_since(0.0)), len(store.outcomes)) == ({}, 1, 2)


def test_the_budget_accrues_since_the_first_question_until_it_is_moved() -> None:
    """Ticks count from one; the policy's memory is the last one recorded."""
    store = MemoryStore()
    assert [store.books_opened_at(at) for at in (7.0, 9.0)] == [7.0, 7.0]
    store.reopen_books(3.0)
    assert (store.books_opened_at(9.0), store.standing_charged_until()) == (3.0, 0.0)
    assert [store.next_tick(), store.next_tick()] == [1, 2]
    assert store.memory() is None
    for at in (1.0, 2.0):
        store.record_memory((at,), at=at)
    assert store.memory() == ((2.0,), 2.0)
