"""Lives of an instance: each run, and each stop between two runs, is a node of its own.

The tag `boa:life` holds the number of the life that was ordered last. It is written before EC2 is asked to
stop or start, so that an order interrupted by a crash can be finished. The state in EC2 decides whether the
ordered life has begun: odd lives run, even lives are stopped, since `boa:stopped-at`. EC2 resets LaunchTime
at each start, so each run is billed from its own start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from boa_daemon.backends.aws.instances.node_from_instance import ended_at, node_of, tags_of_instance
from boa_daemon.tick.facts.node_lives import life_named, life_of
from boa_daemon.tick.facts.state import DISK_USD_PER_HOUR, NodeState
from boa_daemon.tick.facts.warm_pool import disk_extras
from policies.model import InstanceType

LIFE_TAG, STOPPED_TAG = "boa:life", "boa:stopped-at"
_RUNNING, _STOPPED = ("pending", "running"), ("stopping", "stopped")


def ordered_life(instance: Mapping[str, Any]) -> int:
    """Return the number of the life that was ordered last; 1 if no tag can be read."""
    text = tags_of_instance(instance).get(LIFE_TAG, "")
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 6 and int(text) else 1


def life_now(instance: Mapping[str, Any], known: int | None) -> int:
    """Return the life that an instance is in; `known` is the life in which it was last seen.

    Somebody else may stop or start an instance without a tag of ours: that begins a life too.
    """
    ordered, state = ordered_life(instance), instance["State"]["Name"]
    is_even = ordered % 2 == 0
    if known is not None and known > ordered and state in (*_RUNNING, *_STOPPED):
        is_in_kind = (known % 2 == 1) == (state in _RUNNING)
        return known if is_in_kind else known + 1
    if state in _RUNNING:
        if not is_even:
            return ordered
        # Ordered to stop, and runs: not stopped yet, unless it was stopped and somebody else has started it.
        return ordered + 1 if known == ordered else ordered - 1
    if state in _STOPPED:
        if is_even:
            return ordered
        # Ordered to run, and stopped: not started yet, unless it ran and somebody else has stopped it.
        stopped = _stopped_at(instance)
        has_run = stopped is None or instance["LaunchTime"].timestamp() > stopped
        return ordered + 1 if ordered in (1, known) or (known is None and has_run) else ordered - 1
    return known or ordered


def was_stopped_by_others(instance: Mapping[str, Any], life: int) -> bool:
    """Whether an instance is in a stopped life that we did not order."""
    return life % 2 == 0 and instance["State"]["Name"] in _STOPPED and ordered_life(instance) < life


def is_stop_open(instance: Mapping[str, Any], life: int) -> bool:
    """Whether a running instance was ordered to stop and has not stopped yet."""
    return instance["State"]["Name"] == "running" and ordered_life(instance) == life + 1


def as_life(
    instance: Mapping[str, Any], life: int, *, known: NodeState | None, now: float, **of_listing: Any
) -> NodeState:
    """Return an instance as the node of its current life; `of_listing` goes to `node_of`."""
    node = node_of(instance, name=life_named(instance["InstanceId"], life), **of_listing)
    if life % 2:
        return node
    is_stopped = instance["State"]["Name"] in _STOPPED
    ordered = _stopped_at(instance)
    if ordered is not None and ordered < instance["LaunchTime"].timestamp():
        # The tag is about an earlier stop: this one was not ours.
        ordered = None
    told = (ended_at(instance) if is_stopped else None) or ordered or now
    since = told if known is None else known.launched_at
    return _on_disk(node, since=since, ended_at=node.ended_at, is_stopped=is_stopped)


def life_before(
    instance: Mapping[str, Any], node: NodeState, kinds: Mapping[str, InstanceType]
) -> NodeState | None:
    """Return the ended life before a node's own, from EC2's description and our tags alone.

    None if there was none, or if its length is not known.
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
    """Return when we ordered the last stop, from the tag; None if it cannot be read."""
    text = tags_of_instance(instance).get(STOPPED_TAG, "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _on_disk(node: NodeState, *, since: float, ended_at: float | None, is_stopped: bool) -> NodeState:
    """Return a node as a stopped life since an instant, at the price of its disk."""
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
        tags=node.tags,
    )
