"""Lives of an instance: each node id is one life, from a launch or a start to a stop or the end.

An instance that is stopped and started again is a new node each time, because its meter starts anew: `i-1` is
its first run, `i-1~2` the stop after it, `i-1~3` the run after that. Odd lives run, even ones are stopped.
"""

from __future__ import annotations

from policies.model import NodeId

MARK = "~"


def instance_of(node: NodeId) -> str:
    """Return the instance that a node is a life of."""
    return node.partition(MARK)[0]


def life_of(node: NodeId) -> int:
    """Return the number of a node's life, from 1."""
    number = node.partition(MARK)[2]
    return int(number) if number.isascii() and number.isdigit() else 1


def life_named(instance: str, life: int) -> NodeId:
    """Return the name of a life of an instance."""
    return instance if life <= 1 else f"{instance}{MARK}{life}"


def next_life(node: NodeId) -> NodeId:
    """Return the name of the life that follows."""
    return life_named(instance_of(node), life_of(node) + 1)
