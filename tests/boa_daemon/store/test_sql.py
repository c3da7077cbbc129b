"""Facts that only the SQL store keeps, for people to read."""

from __future__ import annotations

from pathlib import Path

from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.store.database import Database
from boa_daemon.store.database_setup import migrate, open_engine
from boa_daemon.store.sql import SqlStore
from boa_daemon.testing import an_instance_type
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import Launched, Outcome, Refused


def test_the_last_refusal_of_an_offer_is_kept_for_an_hour_or_until_a_launch(tmp_path: Path) -> None:
    """A refusal survives a restart, and a full launch of the same type in any zone removes it."""
    engine = open_engine(sqlite_url(tmp_path / "boa.sqlite"))
    migrate(engine)
    store = SqlStore(Database(engine))

    def order(kind: str, zone: str, outcome: Outcome, at: float) -> None:
        offer = Offer(instance_type=kind, zone=zone)
        machine = an_instance_type(gpu_type=kind)
        launch = LaunchNodes(id=f"t{at}", instance_type=machine, reason="needed", count=2, offer=offer)
        store.record_intent(launch, at=at)
        store.record_outcome(launch, outcome, at=at)

    order("a", "x", Refused(reason="none left"), 10.0)
    order("a", "x", Refused(reason="still none"), 20.0)
    order("b", "x", Refused(reason="quota"), 30.0)
    store = SqlStore(store.database)
    store.look_at_launches(40.0)
    assert store.refused_launches(40.0) == {
        "a/x/on-demand": (20.0, "still none"),
        "b/x/on-demand": (30.0, "quota"),
    }
    assert store.refused_launches(3625.0).keys() == {"b/x/on-demand"}
    order("a", "y", Launched(nodes=("n1",), short=Refused(reason="one of two")), 50.0)
    store.look_at_launches(60.0)
    assert store.refused_launches(60.0) == {
        "b/x/on-demand": (30.0, "quota"),
        "a/y/on-demand": (50.0, "one of two"),
    }
    order("a", "y", Launched(nodes=("n2", "n3")), 70.0)
    store.look_at_launches(80.0)
    assert store.refused_launches(80.0).keys() == {"b/x/on-demand"}
    store.database.close()
