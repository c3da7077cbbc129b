"""Contract of every store: intents come before actions, launches are settled, bills are summed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import insert
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.schema import CreateTable

from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.store.database_setup import (
    HEAD,
    MIGRATIONS,
    StoreUnusable,
    check_integrity,
    migrate,
    open_engine,
)
from boa_daemon.store.memory import MemoryStore
from boa_daemon.store.sql import SqlStore
from boa_daemon.store.tables import METADATA, PLACEMENTS
from boa_daemon.testing import a_state, an_instance_type
from boa_daemon.tick.facts.actions import Action, LaunchNodes, StopJob
from boa_daemon.tick.facts.limits import DAY_SECONDS
from boa_daemon.tick.facts.offers import Cooldown
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.ports import Accepted, Charge, Launched, OpenLaunch, Refused, Store, Unknown

LAUNCH = LaunchNodes(id="t1-launch", instance_type=an_instance_type(), reason="needed", count=2)
Opener = Callable[[], Store]


def a_charge(node: str, micro_dollars: int = 5) -> Charge:
    """Return the final bill of a node."""
    return Charge(node=node, instance_type="x", started_at=0.0, ended_at=1.0, micro_dollars=micro_dollars)


def test_tick_numbers_continue_after_a_restart(new_store: Opener) -> None:
    """A number counts as used once its decision is recorded."""
    store = new_store()
    assert [store.next_tick(), store.next_tick()] == [1, 2]
    store.record_decision(a_state(), [], Plan())
    assert new_store().next_tick() == (3 if isinstance(store, MemoryStore) else 2)


def test_a_launch_is_settled_when_all_its_nodes_were_seen(new_store: Opener) -> None:
    """The intent, the outcome and the first node seen leave it open, also after a restart."""
    new_store().record_intent(LAUNCH, at=1.0)
    assert new_store().unsettled() == [OpenLaunch(action=LAUNCH, at=1.0)]
    new_store().record_outcome(LAUNCH, Launched(nodes=("n1", "n2")), at=2.0)
    assert new_store().unsettled() == [OpenLaunch(action=LAUNCH, at=1.0, nodes=("n1", "n2"))]
    new_store().record_seen(LAUNCH.id, ["n1"])
    assert new_store().unsettled()[0].unseen == ("n2",)
    new_store().record_seen(LAUNCH.id, ["n2"])
    assert new_store().unsettled() == []


def test_a_launch_without_an_answer_stays_open(new_store: Opener) -> None:
    """The nodes of the launch may exist; after it is given up, its offer has a cool-down of a minute."""
    store = new_store()
    store.record_intent(LAUNCH, at=0.0)
    store.record_outcome(LAUNCH, Unknown(reason="timeout"), at=1.0)
    assert [launch.unseen for launch in new_store().unsettled()] == [("t1-launch/0", "t1-launch/1")]
    new_store().give_up(LAUNCH.id, "never seen", at=300.0)
    store = new_store()
    assert store.unsettled() == []
    assert store.cooldowns(359.0).keys() == {LAUNCH.offer_key}


def test_a_refused_offer_has_a_cool_down_of_retry_after_seconds(new_store: Opener) -> None:
    """The offer can be requested again after 60 s, and a successful launch ends the cool-down."""
    store = new_store()
    store.record_intent(LAUNCH, at=0.0)
    refused = Refused(reason="no capacity", kind="no-capacity", retry_after_seconds=60.0)
    store.record_outcome(LAUNCH, refused, at=0.0)
    store = new_store()
    assert store.cooldowns(59.0) == {"gpu-x4//on-demand": Cooldown(until=60.0)}
    assert store.cooldowns(60.0) == {}
    again = LaunchNodes(id="t2-launch", instance_type=an_instance_type(), reason="needed")
    store.record_intent(again, at=60.0)
    store.record_outcome(again, Launched(nodes=("n9",)), at=60.0)
    assert new_store().cooldowns(0.0) == {}


def test_a_refused_gang_closes_only_orders_of_more_than_half_its_size(new_store: Opener) -> None:
    """After a gang of four is refused, a launched gang of two keeps the cool-down; one of four ends it."""
    gang = replace(LAUNCH, id="t1-gang", count=4, is_gang=True)
    new_store().record_intent(gang, at=0.0)
    new_store().record_outcome(gang, Refused(reason="no capacity", kind="no-capacity"), at=0.0)
    wide = {"gpu-x4//on-demand/3": Cooldown(until=600.0)}
    assert new_store().cooldowns(0.0) == wide
    half = replace(LAUNCH, id="t2-gang", count=2, is_gang=True)
    new_store().record_intent(half, at=1.0)
    new_store().record_outcome(half, Launched(nodes=("n1", "n2")), at=1.0)
    assert new_store().cooldowns(1.0) == wide
    new_store().record_outcome(gang, Launched(nodes=("n3", "n4", "n5", "n6")), at=2.0)
    assert new_store().cooldowns(2.0) == {}
    new_store().record_outcome(gang, Refused(reason="too many vCPUs", kind="quota"), at=3.0)
    assert new_store().cooldowns(3.0).keys() == {"gpu-x4//on-demand"}, "a quota is no matter of size"


def test_each_bill_counts_once(new_store: Opener) -> None:
    """A hundred bills are each recorded twice, the second time after a restart."""
    for _ in range(2):
        store = new_store()
        for number in range(100):
            store.record_charge(a_charge(f"n{number}"))
        assert store.settled_micro_dollars() == 100 * 5
    assert new_store().settled_micro_dollars() == 100 * 5


def test_a_bill_over_midnight_is_split_by_day(new_store: Opener) -> None:
    """Two micro-dollars are of the first day, three of the second."""
    days = ((10, 2), (11, 3))
    charge = Charge(node="n", instance_type="x", started_at=0.0, ended_at=1.0, micro_dollars=5, days=days)
    new_store().record_charge(charge)
    store = new_store()
    assert [store.settled_since(day * DAY_SECONDS + 5.0) for day in (9, 10, 11, 12)] == [5, 5, 3, 0]


def test_the_opening_time_of_the_ledger_stays_until_it_is_moved(new_store: Opener) -> None:
    """The policy's memory is the last one recorded."""
    store = new_store()
    assert (store.books_opened_at(5.0), store.books_opened_at(9.0), store.memory()) == (5.0, 5.0, None)
    store.reopen_books(7.0)
    store.record_memory((0.25, 1.5), at=9.0)
    store = new_store()
    assert (store.books_opened_at(9.0), store.memory()) == (7.0, ((0.25, 1.5), 9.0))


def test_several_actions_are_recorded_together(new_store: Opener) -> None:
    """All intents are recorded in one call, and so are all outcomes."""
    store = new_store()
    stops = [StopJob(id=f"t1-stop-{job}", job=job, generation=1, reason="moves") for job in "ab"]
    store.record_intents(stops, at=0.0)
    answers: list[tuple[Action, Accepted | Refused]] = [
        (stops[0], Accepted()),
        (stops[1], Refused(reason="x")),
    ]
    store.record_outcomes(answers, at=0.0)
    assert new_store().unsettled() == []


def test_the_memory_store_keeps_the_last_bills_and_the_exact_sum() -> None:
    """Of a hundred bills, each recorded twice, ten are kept and all are counted once."""
    store = MemoryStore(keep=10)
    for number in range(100):
        store.record_charge(a_charge(f"n{number}"))
        store.record_charge(a_charge(f"n{number}"))
    assert (len(store.charges), store.settled_micro_dollars()) == (10, 500)


def test_reopened_charges_are_removed_from_the_sum(new_store: Opener) -> None:
    """Two of three bills are removed, and a removed bill can be recorded again."""
    store = new_store()
    for name in ("a", "b", "c"):
        store.record_charge(a_charge(name))
    store.reopen_charges({"c": 1, "unknown": 1, "a": 1})
    assert store.settled_micro_dollars() == 5
    store.record_charge(a_charge("a"))
    assert store.settled_micro_dollars() == 10


def test_a_gpu_cannot_have_two_jobs(new_store: Opener) -> None:
    """The primary key of the table of placements refuses the second job."""
    store = new_store()
    if isinstance(store, MemoryStore):
        return
    assert isinstance(store, SqlStore)
    row = {"node": "n", "gpu": 0, "job": "a", "generation": 1}
    with store.database.write() as connection:
        connection.execute(insert(PLACEMENTS), [row])
    with pytest.raises(IntegrityError), store.database.write() as connection:
        connection.execute(insert(PLACEMENTS), [row | {"job": "b"}])


def test_the_tables_equal_those_of_the_migrations(tmp_path: object) -> None:
    """Alembic finds no difference after the last revision, and `HEAD` names that revision."""
    from alembic.autogenerate import compare_metadata
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD
    engine = open_engine(f"sqlite:///{tmp_path}/new.sqlite")
    migrate(engine)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    engine.dispose()


def test_every_table_compiles_for_sqlite_and_postgresql() -> None:
    """The schema compiles for each dialect."""
    for table in METADATA.sorted_tables:
        for dialect in (sqlite.dialect(), postgresql.dialect()):
            assert table.name in str(CreateTable(table).compile(dialect=dialect))


def test_the_integrity_check_finds_a_damaged_file(tmp_path: object) -> None:
    """Noise in the middle of the file makes the store unusable."""
    path = f"{tmp_path}/bad.sqlite"
    engine = open_engine(sqlite_url(path))  # type: ignore[arg-type]
    migrate(engine)
    engine.dispose()
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"noise" * 4000)
    engine = open_engine(sqlite_url(path))  # type: ignore[arg-type]
    with pytest.raises(StoreUnusable):
        check_integrity(engine)
    engine.dispose()
