"""`boa_daemon.job.gate.card_bytes`: bytes per card, checked against simulated rings."""

from __future__ import annotations

from collections import Counter

import pytest

from boa_daemon.job.gate.card_bytes import Collective, edges_out, per_byte

PLACES = [
    ["a", "b"],
    ["a", "b", "c"],
    ["a", "a", "b", "b"],
    ["a", "b", "a", "b"],
    ["a", "a", "a", "b", "b", "c"],
    ["a", "b", "c", "a", "b", "c"],
]


def pass_on(collective: Collective, ring: list[int], nodes: list[str], size: int) -> Counter[str]:
    """Simulate a ring step by step, and return the bytes that left each node."""
    ranks = len(ring)
    part = size // ranks
    left: Counter[str] = Counter()
    holds = [[{place} for _ in range(ranks)] for place in range(ranks)]
    rounds = {"all-gather": ["gather"], "reduce-scatter": ["reduce"], "all-reduce": ["reduce", "gather"]}
    for phase in rounds[collective]:
        shift = 0 if phase == "reduce" else 1
        for step in range(ranks - 1):
            moves = [(at, (at + shift - step) % ranks, (at + 1) % ranks) for at in range(ranks)]
            given = [set(holds[at][piece]) for at, piece, _ in moves]
            for (at, piece, to), sent in zip(moves, given, strict=True):
                holds[to][piece] |= sent
                if nodes[ring[at]] != nodes[ring[to]]:
                    left[nodes[ring[at]]] += part
    if collective == "all-reduce":
        assert all(parts == set(range(ranks)) for held in holds for parts in held), "nothing is left out"
    return left


@pytest.mark.parametrize("nodes", PLACES, ids="".join)
@pytest.mark.parametrize("collective", ["all-reduce", "all-gather", "reduce-scatter"])
def test_the_bytes_of_the_busiest_card_match_a_simulated_ring(
    collective: Collective, nodes: list[str]
) -> None:
    """Rings by rank, as in gloo, and by node, as in NCCL."""
    size = 60 * len(nodes)
    by_rank = list(range(len(nodes)))
    by_node = sorted(by_rank, key=lambda rank: (nodes[rank], rank))

    for ring, walks in ((by_rank, False), (by_node, True)):
        counted = pass_on(collective, ring, nodes, size)
        assert per_byte(collective, nodes, walks_nodes=walks) * size == pytest.approx(max(counted.values()))


def test_a_hierarchical_all_reduce_sends_each_byte_once_around_the_nodes() -> None:
    """Each rank's ring has a quarter of the tensor, and a node's card carries all four quarters."""
    nodes = ["a"] * 4 + ["b"] * 4 + ["c"] * 4
    quarter = per_byte("all-reduce", ["a", "b", "c"], walks_nodes=True, everywhere=nodes)
    assert quarter / 4 == pytest.approx(2 * 2 / 3)
    assert quarter / 4 < per_byte("all-reduce", nodes, walks_nodes=True)


def test_a_collective_within_a_node_sends_no_bytes_over_cards() -> None:
    """A broadcast over two nodes sends each byte once."""
    assert per_byte("all-reduce", ["a"] * 8, walks_nodes=False) == 0.0
    assert edges_out(["a"] * 8) == 0
    assert per_byte("broadcast", ["a", "b", "b"], walks_nodes=True) == 1.0
