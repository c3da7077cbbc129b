"""`aws/instances/event_rules.py`: whether somebody's rule lets through the events that we need."""

from __future__ import annotations

import json
from typing import Any

import pytest

from boa_daemon.backends.aws.instances.event_rules import PATTERNS, lets_through

ENDS = PATTERNS["ends"]
SOURCE = {"source": ["aws.ec2"]}


@pytest.mark.parametrize(
    ("standing", "is_enough"),
    [
        (ENDS, True),
        (SOURCE, True),
        (SOURCE | {"detail": {}}, True),
        ({"source": ["aws.ec2", "aws.health"]}, True),
        (ENDS | {"detail": {"state": [*ENDS["detail"]["state"], "running"]}}, True),
        (ENDS | {"detail": {"state": ["terminated", "stopped"]}}, False),
        (ENDS | {"detail": {**ENDS["detail"], "instance-id": ["i-1"]}}, False),
        (ENDS | {"region": ["us-east-1"]}, False),
        ({"source": ["aws.health"]}, False),
        ({"source": "aws.ec2"}, False),
        ({"source": []}, False),
        (SOURCE | {"detail-type": PATTERNS["warnings"]["detail-type"]}, False),
        ({"source": {"any": []}}, False),
    ],
)
def test_a_key_narrows_a_pattern_and_a_value_widens_it(standing: dict[str, Any], is_enough: bool) -> None:
    """A rule is enough if no event that we want is left out."""
    assert lets_through(json.dumps(standing), ENDS) == is_enough


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '"aws.ec2"', "1"])
def test_what_is_no_pattern_lets_nothing_through(text: str) -> None:
    """It is not an error either: somebody else wrote it."""
    assert not lets_through(text, ENDS)


def test_the_events_that_we_want_tell_every_end_and_every_warning() -> None:
    """A stop ends a node as surely as a termination, and is told while it happens."""
    assert set(ENDS["detail"]["state"]) == {"shutting-down", "terminated", "stopping", "stopped"}
    assert PATTERNS["warnings"]["detail-type"] == ["EC2 Spot Instance Interruption Warning"]
    assert all(pattern["source"] == ["aws.ec2"] for pattern in PATTERNS.values())
