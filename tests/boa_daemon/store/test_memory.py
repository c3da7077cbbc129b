"""The store that forgets: sums exact, records bounded."""

from __future__ import annotations

from dataclasses import replace

from boa_daemon.actions import LaunchNodes, StopJob
from boa_daemon.offers import Cooldown
from boa_daemon.ports import Accepted, Charge, Launched, OpenLaunch, Refused
from boa_daemon.store.memory import MemoryStore
from boa_daemon.testing import a_state, an_instance_type

LAUNCH = LaunchNodes(id="t1-launch", instance_type=an_instance_type(), reason="needed")


def a_charge(node: str, micro_dollars: int = 5) -> Charge:
    """Return a bill."""
    return Charge(node=node, instance_type="x", started_at=0.0, ended_at=1.0, micro_dollars=micro_dollars)


def test_ticks_are_numbered() -> None:
    """Each tick has the next number."""
    store = MemoryStore()
    assert [store.next_tick() for _ in range(3)] == [1, 2, 3]


def test_a_launch_is_settled_when_its_node_is_seen() -> None:
    """Intent, outcome, then sight: only the last settles it."""
    store = MemoryStore()
    store.record_intent(LAUNCH, at=1.0)
    store.record_outcome(LAUNCH, Launched(nodes=("n1",)), at=2.0)
    assert store.unsettled() == [OpenLaunch(action=LAUNCH, at=1.0, nodes=("n1",))]
    store.record_seen(LAUNCH.id, ["n1"])
    assert store.unsettled() == []


def test_open_intents_are_those_without_an_outcome() -> None:
    """A stop that was done is closed; a launch without an answer is open."""
    store, stop = MemoryStore(), StopJob(id="t1-stop", job="a", generation=1, reason="moves")
    store.record_intent(stop, at=0.0)
    store.record_intent(LAUNCH, at=0.0)
    store.record_outcome(stop, Accepted(), at=0.0)
    assert store.open_intents() == [LAUNCH]


def test_a_refusal_holds_its_type_back_until_the_cloud_said() -> None:
    """At 60 s it may be asked for again."""
    store = MemoryStore()
    store.record_intent(LAUNCH, at=0.0)
    refused = Refused(reason="no capacity", kind="no-capacity", retry_after_seconds=60.0)
    store.record_outcome(LAUNCH, refused, at=0.0)
    assert store.cooldowns(59.0) == {"gpu-x4//on-demand": Cooldown(until=60.0)}
    assert store.cooldowns(60.0) == {}
    assert store.unsettled() == []


def test_sums_stay_exact_when_records_are_dropped() -> None:
    """A hundred bills, ten kept, all counted, none twice."""
    store = MemoryStore(keep=10)
    for number in range(100):
        store.record_charge(a_charge(f"n{number}"))
        store.record_charge(a_charge(f"n{number}"))
        store.record_decision(a_state(), [])
    assert (len(store.charges), store.settled_micro_dollars()) == (10, 500)
    assert len(store.decisions) == 10


def test_the_books_open_once_and_may_open_later() -> None:
    """The first instant counts until it is moved; the lean is the last one."""
    store = MemoryStore()
    assert (store.books_opened_at(5.0), store.books_opened_at(9.0), store.lean()) == (5.0, 5.0, None)
    store.reopen_books(7.0)
    store.record_lean(0.25, at=9.0)
    assert (store.books_opened_at(9.0), store.lean()) == (7.0, (0.25, 9.0))


def test_bills_are_kept_by_the_day_that_they_fall_into() -> None:
    """A bill over midnight is part of both days, and those of earlier days are left out."""
    store = MemoryStore()
    store.record_charge(replace(a_charge("n1"), micro_dollars=7, days=((3, 2), (4, 5))))
    store.record_charge(replace(a_charge("n2"), micro_dollars=10, days=((4, 10),)))
    store.record_charge(replace(a_charge("n2"), micro_dollars=10, days=((4, 10),)))

    assert store.settled_since(3 * 86_400.0 + 5.0) == 17
    assert store.settled_since(4 * 86_400.0) == 15
    assert store.settled_since(5 * 86_400.0) == 0
