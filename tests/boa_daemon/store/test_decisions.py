"""Which decisions are about a job, a user, a node or a kind of action."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.store.database import Database
from boa_daemon.store.database_setup import migrate, open_engine
from boa_daemon.store.decisions import HELD, About, DaemonStore
from boa_daemon.store.queue import JobQueue
from boa_daemon.testing import a_node, a_state
from boa_daemon.tick.facts.actions import TerminateNode
from boa_daemon.tick.facts.limits import Held
from boa_daemon.tick.facts.plan import Plan


def decision(*, actions: tuple[dict[str, Any], ...] = (), held: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the parts of a recorded decision that are looked at."""
    return {"actions": list(actions), "held": [{"what": what, "code": "cap-day"} for what in held]}


START = {"id": "t1-start-a-10", "kind": "start", "target": "a-10", "user": "ann", "nodes": ["n-10"]}


@pytest.mark.parametrize(
    ("about", "actions", "held", "is_found"),
    [
        (About(job="a-1"), (), ("job a-10",), False),
        (About(job="a-10"), (), ("job a-10",), True),
        (About(job="a-10", kind=HELD), (START,), (), False),
        (About(job="a-10", kind=HELD), (), ("job a-10",), True),
        (About(job="job"), (START,), (), False),
        (About(node="n-1"), (), ("the end of node n-10",), False),
        (About(node="n-10"), (), ("the end of node n-10",), True),
        (About(node="n-1"), (START,), (), False),
        (About(user="ann"), (), ("job a-10",), False),
        (About(user="an"), (START,), (), False),
        (About(kind="start"), (), ("job a-10",), False),
        (About(kind=HELD), (START,), (), False),
    ],
)
def test_a_name_is_found_whole(
    about: About, actions: tuple[dict[str, Any], ...], held: tuple[str, ...], is_found: bool
) -> None:
    """In actions and in what was held back, of which no name but that of its job or node is known."""
    assert about.is_in(decision(actions=actions, held=held)) is is_found


def test_a_job_among_thousands_is_found_by_the_tick_that_began_to_hold_it_back(tmp_path: Path) -> None:
    """Each tick counts all and names some of each code; the first one alone records all names."""
    engine = open_engine(sqlite_url(tmp_path / "boa.db"))
    migrate(engine)
    database = Database(engine)
    store = DaemonStore(database, JobQueue(database))
    many = tuple(Held(what=f"job a-{number}", code="cap-day") for number in range(3000))
    one = Held(what="node n-7", code="moved-recently")
    for tick in (1, 2, 3):
        store.record_decision(replace(a_state(), tick=tick, now=60.0 * tick), [], Plan(held=(*many, one)))
    newest, _, first = store.decisions(limit=3)
    for decision in (newest, first):
        assert decision["held_counts"] == {"cap-day": 3000, "moved-recently": 1}
        assert len(decision["held"]) == 50
    assert {note["code"] for note in newest["held"]} == {"cap-day", "moved-recently"}
    assert len(json.dumps(newest)) < 10_000
    found = store.decisions(limit=9, about=About(job="a-2999"))
    assert [decision["tick"] for decision in found] == [1]
    assert found[0]["held"][0]["what"] == "job a-2999"
    engine.dispose()


@pytest.mark.parametrize("end", ["", ": stopped, for the warm pool"])
def test_a_record_of_an_earlier_release_says_no_idleness_of_0_seconds(tmp_path: Path, end: str) -> None:
    """Its answers have today's words; the database is not rewritten."""
    engine = open_engine(sqlite_url(tmp_path / "boa.db"))
    migrate(engine)
    database = Database(engine)
    store = DaemonStore(database, JobQueue(database))
    old = f"idle for 0 s, and no job needs it{end}"
    others = ("idle for 1.5 min, and no job needs it", "a job named idle for 0 s, and no job needs it")
    state = a_state(nodes=[a_node(f"n{number}") for number in range(3)])
    reasons = (old, *others)
    actions = [TerminateNode(id=f"t1-{at}", node=f"n{at}", reason=said) for at, said in enumerate(reasons)]
    store.record_decision(replace(state, tick=1, now=60.0), actions, Plan())
    (found,) = store.decisions(limit=1)
    assert [action["reason"] for action in found["actions"]] == [
        f"no job is left on it, and none needs it{end}",
        *others,
    ]
    engine.dispose()
