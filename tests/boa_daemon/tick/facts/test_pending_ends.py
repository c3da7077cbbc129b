"""Ends that the cloud refused or did not answer: when they are tried again, and when people are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boa_daemon.testing import a_node
from boa_daemon.tick.facts.offers import RefusalKind
from boa_daemon.tick.facts.pending_ends import LASTING_SECONDS, PendingEnds
from boa_daemon.tick.facts.ports import Accepted, Refused, Unknown

THROTTLED = Refused(reason="slow down", kind="throttled", retry_after_seconds=60.0)
NODE = a_node("n1")
NODES = {"n1": NODE}


def test_waits_double_from_two_seconds_to_a_minute_while_the_end_is_refused() -> None:
    """Each tick orders the end again; the order that is accepted ends the tries."""
    ends, at, waits = PendingEnds(), 100.0, []
    for _ in range(7):
        ends.note([("n1", THROTTLED)], at=at)
        again = ends.again_at(NODES, since=at, now=at)
        assert again is not None
        waits.append(again - at)
        at = again
    assert waits == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    ends.note([("n1", Accepted())], at=at)
    assert ends.again_at(NODES, since=at, now=at) is None


def test_a_node_that_is_wanted_again_or_gone_is_tried_no_more() -> None:
    """The tick that did not order its end has another use for it; a later order begins anew."""
    ends = PendingEnds()
    ends.note([("n1", THROTTLED), ("n2", THROTTLED)], at=100.0)
    assert ends.again_at(NODES, since=100.0, now=100.0) == 102.0
    assert ends.again_at(NODES, since=101.0, now=101.0) is None
    ends.note([("n1", THROTTLED)], at=110.0)
    assert ends.again_at(NODES, since=110.0, now=110.0) == 112.0


def test_an_end_without_an_answer_is_looked_at_while_the_node_costs_money() -> None:
    """The cloud repeats it by itself; a node that shuts down costs nothing and is left alone."""
    ends, going = PendingEnds(), replace(NODE, phase="terminating", prices=((0.0, 4.0),))
    ends.note([("n1", Unknown(reason="silence"))], at=100.0)
    assert ends.again_at({"n1": going}, since=200.0, now=102.0) == 102.0 + 4.0
    assert ends.again_at({"n1": going}, since=200.0, now=106.0) == 106.0 + 8.0
    down = replace(going, prices=((0.0, 4.0), (101.0, 0.0)))
    assert ends.again_at({"n1": down}, since=200.0, now=106.0) is None


@pytest.mark.parametrize(
    ("kind", "is_told_at_once"),
    [("denied", True), ("bad-request", True), ("throttled", False), ("no-capacity", False)],
)
def test_people_are_told_at_once_of_what_they_alone_can_mend(
    kind: RefusalKind, is_told_at_once: bool
) -> None:
    """Of what may pass they are told after a minute."""
    ends = PendingEnds()
    ends.note([("n1", Refused(reason="no", kind=kind, retry_after_seconds=60.0))], at=100.0)
    assert (ends.lasting(100.0).keys() == {"n1"}) is is_told_at_once
    assert ends.lasting(100.0 + LASTING_SECONDS).keys() == {"n1"}
