"""The rules of EventBridge that fill the queue of the warnings: what they have to let through."""

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
"""By what it is about, the pattern of each rule. EC2's events bear no tags: what is not ours is dropped."""
SAID: Mapping[str, str] = MappingProxyType(
    {"warnings": "spot instances that are taken back", "ends": "instances that end"}
)


def lets_through(standing: str, wanted: Mapping[str, Any]) -> bool:
    """Return whether a rule's pattern, as JSON, lets through all that another one does."""
    try:
        found = json.loads(standing)
    except ValueError:
        return False
    return _covers(found, wanted)


def _covers(standing: object, wanted: object) -> bool:
    """Return whether a part of a pattern is as wide as another: a key narrows, a list of values widens."""
    if isinstance(standing, Mapping):
        return isinstance(wanted, Mapping) and all(
            key in wanted and _covers(value, wanted[key]) for key, value in standing.items()
        )
    if isinstance(standing, list) and isinstance(wanted, list):
        return {json.dumps(each) for each in wanted} <= {json.dumps(each) for each in standing}
    return False
