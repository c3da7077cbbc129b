"""`store/storage.py`: who may act for a database, and in which order it is closed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from boa_daemon.errors import BoaError
from boa_daemon.store import storage
from boa_daemon.store.storage import Storage


@pytest.fixture(autouse=True)
def _log_of_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the log of orders be known by its database, which is none."""
    monkeypatch.setattr(storage, "OrderLog", lambda database: ("orders of", database))


class Parts:
    """A database and a leadership that note what happens to them."""

    def __init__(self, *, leader: object = "me") -> None:
        self.said: list[str] = []
        self.leader = leader
        database = SimpleNamespace(close=lambda: self.said.append("closed"))
        self.store = cast(Any, SimpleNamespace(database=database))

    def check(self) -> None:
        """Refuse those who do not lead."""
        if self.leader is None:
            raise BoaError("another daemon leads")

    def give_up(self) -> None:
        """Note the end of the leadership."""
        self.said.append("gave up")

    def storage(self, *, is_led: bool = True) -> Storage:
        """Return the storage."""
        leadership = cast(Any, self if is_led else None)
        return Storage(store=self.store, queue=cast(Any, None), leadership=leadership)


def test_the_leadership_ends_while_its_database_is_open() -> None:
    """It is a row of the database; without one the database is closed all the same."""
    for is_led, said in ((True, ["gave up", "closed"]), (False, ["closed"])):
        parts = Parts()
        parts.storage(is_led=is_led).close()
        assert parts.said == said


def test_only_who_leads_may_act_and_who_opened_without_a_leadership() -> None:
    """A daemon that lost its leadership is deposed; a reader never led."""
    Parts().storage().check_leads()
    Parts(leader=None).storage(is_led=False).check_leads()
    with pytest.raises(BoaError, match="another daemon leads"):
        Parts(leader=None).storage().check_leads()
    assert [Parts(leader=one).storage().is_deposed for one in ("me", None)] == [False, True]
    assert not Parts(leader=None).storage(is_led=False).is_deposed


def test_orders_are_logged_in_the_same_database() -> None:
    """No second connection is opened for them."""
    parts = Parts()
    assert parts.storage().orders == ("orders of", parts.store.database)
