"""The EventBridge rules that fill the queue of warnings, and the events that they must let through."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

PATTERNS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "warnings": {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]},
        "ends": {
            "source": ["aws.ec2"],
            "detail-type": ["EC2 Instance State-change Notification"],
            "detail": {"state": ["shutting-down", "terminated", "stopping", "stopped"]},
        },
    }
)
"""The event pattern of each rule by its subject. EC2's events carry no tags: other instances' are dropped."""
SAID: Mapping[str, str] = MappingProxyType(
    {"warnings": "spot instances that are taken back", "ends": "instances that end"}
)


def lets_through(standing: str, wanted: Mapping[str, Any]) -> bool:
    """Return whether an existing rule's pattern, as JSON, lets through every event of the wanted pattern."""
    try:
        found = json.loads(standing)
    except ValueError:
        return False
    return _covers(found, wanted)


def _covers(standing: object, wanted: object) -> bool:
    """Return whether one part of a pattern covers another: a key narrows it, more values widen it."""
    if isinstance(standing, Mapping):
        return isinstance(wanted, Mapping) and all(
            key in wanted and _covers(value, wanted[key]) for key, value in standing.items()
        )
    if isinstance(standing, list) and isinstance(wanted, list):
        return {json.dumps(each) for each in wanted} <= {json.dumps(each) for each in standing}
    return False
