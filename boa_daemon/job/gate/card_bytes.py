"""Bytes that a collective sends through a node's network card, per byte of its tensor.

A ring of N ranks passes N - 1 of N parts of the tensor over each of its edges, twice for an all-reduce. An
edge within a node crosses no card. NCCL orders a ring by node, so one edge leaves each node, however many
ranks it has. Gloo orders it by rank, so several edges leave a node whose ranks are not neighbours. A
broadcast crosses each card at most once. In a hierarchical all-reduce, several rings run at once, each over
one rank of every node.

    collective                   through the busiest card, per byte
    all-reduce                   2 (N - 1) / N x edges
    all-gather, reduce-scatter     (N - 1) / N x edges
    broadcast                    1

The tensor is the whole one: the output of an all-gather, the input of a reduce-scatter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

Collective = Literal["all-reduce", "all-gather", "reduce-scatter", "broadcast"]


def edges_out(nodes: Sequence[str]) -> int:
    """Return the largest number of ring edges that leave a node, for ranks in order; 0 on a single node."""
    following = [*nodes[1:], *nodes[:1]]
    leaving = Counter(a for a, b in zip(nodes, following) if a != b)
    return max(leaving.values(), default=0)


def per_byte(
    collective: Collective, nodes: Sequence[str], *, walks_nodes: bool, everywhere: Sequence[str] = ()
) -> float:
    """Return the bytes through the busiest card per byte; `nodes` is the node of each rank of the group.

    `walks_nodes` is whether rings are ordered by node, as in NCCL, and not by rank. `everywhere` is the node
    of each rank of the job, if groups like this one make up the whole job and send at the same time.
    """
    if len(set(nodes)) < 2:
        return 0.0
    mine, all_of_them = Counter(nodes), Counter(everywhere or nodes)
    rings = max(all_of_them[node] / mine[node] for node in mine)
    if collective == "broadcast":
        return rings
    edges = 1 if walks_nodes else edges_out(nodes)
    passes = 2 if collective == "all-reduce" else 1
    return rings * passes * (len(nodes) - 1) / len(nodes) * edges
