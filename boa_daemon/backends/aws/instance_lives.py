"""Which life of an instance EC2 describes: its runs, and the stops between them, are nodes of their own.

The tag `boa:life` says which life was ordered last; it is written before EC2 is asked to stop or start, so
that what a crash cuts off can be finished. What EC2 says of the state decides whether it came to be: odd
lives run, even ones are stopped, since `boa:stopped-at`. EC2 resets LaunchTime with a start, so each run has
a meter of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from boa_daemon.backends.aws.node_from_instance import ended_at, node_of, tags_of_instance
from boa_daemon.tick.node_lives import life_named, life_of
from boa_daemon.tick.state import DISK_USD_PER_HOUR, NodeState
from boa_daemon.tick.warm_pool import disk_extras
from policies.model import InstanceType

LIFE_TAG, STOPPED_TAG = "boa:life", "boa:stopped-at"
_RUNNING, _STOPPED = ("pending", "running"), ("stopping", "stopped")


def ordered_life(instance: Mapping[str, Any]) -> int:
    """Return which life was ordered last; the first where no tag can be read."""
    text = tags_of_instance(instance).get(LIFE_TAG, "")
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 6 and int(text) else 1


def life_now(instance: Mapping[str, Any], known: int | None) -> int:
    """Return which life an instance is in; `known` is the one that it was in when it was last seen."""
    ordered, state = ordered_life(instance), instance["State"]["Name"]
    is_even = ordered % 2 == 0
    if state in _RUNNING:
        if not is_even:
            return ordered
        # Ordered to stop, and runs: not stopped yet, unless it was, and a stranger has started it.
        return ordered + 1 if known in (ordered, ordered + 1) else ordered - 1
    if state in _STOPPED:
        # Ordered to start, and stopped: not started yet, unless it ran, and a stranger has stopped it.
        return ordered if is_even or ordered in (1, known) else ordered - 1
    return known or ordered


def is_stop_open(instance: Mapping[str, Any], life: int) -> bool:
    """Whether an instance that runs was ordered to stop, and did not yet."""
    return instance["State"]["Name"] == "running" and ordered_life(instance) == life + 1


def as_life(
    instance: Mapping[str, Any], life: int, *, known: NodeState | None, now: float, **of_listing: Any
) -> NodeState:
    """Return an instance as a node, in the life that it is in; `of_listing` goes to `node_of`."""
    node = node_of(instance, name=life_named(instance["InstanceId"], life), **of_listing)
    if life % 2:
        return node
    is_stopped = instance["State"]["Name"] in _STOPPED
    told = (ended_at(instance) if is_stopped else None) or _stopped_at(instance) or now
    since = told if known is None else known.launched_at
    return _on_disk(node, since=since, ended_at=node.ended_at, is_stopped=is_stopped)


def life_before(
    instance: Mapping[str, Any], node: NodeState, kinds: Mapping[str, InstanceType]
) -> NodeState | None:
    """Return the life before the one that a node is, which is over: from EC2's word and our tags alone.

    None where there was none, or nobody knows how long it was.
    """
    life = life_of(node.id)
    if life == 1:
        return None
    before = node_of(instance, kinds, name=life_named(instance["InstanceId"], life - 1))
    if life % 2 == 0:
        ended = max(node.launched_at, before.launched_at)
        return replace(before, phase="terminated", ended_at=ended, idle_since=None)
    since = _stopped_at(instance)
    return (
        None if since is None else _on_disk(before, since=since, ended_at=node.launched_at, is_stopped=False)
    )


def _stopped_at(instance: Mapping[str, Any]) -> float | None:
    """Return when we ordered the last stop, by the tag."""
    text = tags_of_instance(instance).get(STOPPED_TAG, "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _on_disk(node: NodeState, *, since: float, ended_at: float | None, is_stopped: bool) -> NodeState:
    """Return a node as the life that waits, stopped since then, at the price of its disk."""
    since = since if ended_at is None else min(since, ended_at)
    return NodeState(
        id=node.id,
        instance_type=node.instance_type,
        phase="terminated" if ended_at is not None else "stopped" if is_stopped else "terminating",
        launched_at=since,
        gpus=(),
        ended_at=ended_at,
        zone=node.zone,
        market=node.market,
        prices=((since, 0.0),),
        extras=disk_extras(node.extras, otherwise=DISK_USD_PER_HOUR),
    )
