"""What a collective sends through a node's network card, per byte of the tensor that it is about.

A ring of N ranks passes N - 1 of N parts of the tensor over each of its edges, twice for an all-reduce. An
edge within a node crosses no card. NCCL walks a ring node by node, so one edge leaves each node however many
ranks it has; gloo walks it by rank, so where ranks of a node are not neighbours several do. A broadcast
crosses each card once at most. In a hierarchical all-reduce several rings run at once, each over one rank of
every node.

    collective                   through the busiest card, per byte
    all-reduce                   2 (N - 1) / N x edges
    all-gather, reduce-scatter     (N - 1) / N x edges
    broadcast                    1

Bytes are those of the whole tensor: what an all-gather makes, what a reduce-scatter takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

Collective = Literal["all-reduce", "all-gather", "reduce-scatter", "broadcast"]


def edges_out(nodes: Sequence[str]) -> int:
    """Return how many edges of the ring over these ranks leave the node that most leave; 0 on one node."""
    following = [*nodes[1:], *nodes[:1]]
    leaving = Counter(a for a, b in zip(nodes, following, strict=True) if a != b)
    return max(leaving.values(), default=0)


def per_byte(
    collective: Collective, nodes: Sequence[str], *, walks_nodes: bool, everywhere: Sequence[str] = ()
) -> float:
    """Return what crosses the busiest card; `nodes` has the node of each rank of the group, in order.

    `walks_nodes` says that a ring goes from node to node, as NCCL's does, and not from rank to rank.
    `everywhere` has the nodes of all ranks, where groups like this one send at once and make up all of them.
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
