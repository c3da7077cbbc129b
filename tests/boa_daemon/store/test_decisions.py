"""Which decisions are about a job, a user, a node or a kind of action."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.store.decisions import HELD, About


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
