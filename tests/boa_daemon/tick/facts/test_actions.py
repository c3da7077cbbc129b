"""Launches have a count and an offer, and the history records each action with its target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boa_daemon.testing import an_instance_type
from boa_daemon.tick.facts.actions import LaunchNodes, StartJob, StopJob, TerminateNode, act_of
from boa_daemon.tick.facts.offers import Offer
from policies.errors import InvalidProblem
from policies.model import Width

MACHINE = an_instance_type()


def test_a_launch_has_at_least_one_node_and_an_offer_key() -> None:
    """Zero nodes are an error; without an offer the key names the instance type."""
    with pytest.raises(InvalidProblem, match="x: a launch asks for at least one node, got 0"):
        LaunchNodes(id="x", instance_type=MACHINE, count=0, reason="")
    one = LaunchNodes(id="x", instance_type=MACHINE, reason="")
    assert (one.count, one.offer_key) == (1, "gpu-x4//on-demand")
    there = LaunchNodes(id="x", instance_type=MACHINE, reason="", offer=Offer(instance_type="m", zone="z"))
    assert there.offer_key == "m/z/on-demand"


def test_the_history_records_the_target_of_an_action() -> None:
    """The target is a job id, a node id, or the instance type of a launch."""
    width = Width("gpu", 1)
    acts = [
        act_of(action, at=7.0)
        for action in (
            StopJob(id="x", job="a", generation=1, reason=""),
            StartJob(id="x", job="b", generation=1, width=width, slots=(), reason=""),
            TerminateNode(id="x", node="n1", reason=""),
            LaunchNodes(id="x", instance_type=MACHINE, reason=""),
        )
    ]
    assert [(act.kind, act.target, act.at) for act in acts] == [
        ("stop", "a", 7.0),
        ("start", "b", 7.0),
        ("terminate", "n1", 7.0),
        ("launch", "gpu-x4", 7.0),
    ]


def test_only_the_nodes_of_a_gang_are_requested_together() -> None:
    """Three nodes of a gang are one request for three."""
    three = LaunchNodes(id="x", instance_type=MACHINE, count=3, reason="")
    assert (three.together, replace(three, is_gang=True).together) == (1, 3)
