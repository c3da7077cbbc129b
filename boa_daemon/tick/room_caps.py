"""Limits on the room for all widths: on nodes, on dollars per hour, or on the nodes of one type.

A limit says how it is named where a person set it, so that a sentence about a width can name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import floor
from typing import Literal, TypeAlias

from policies.model import JobId, Width

RoomCode: TypeAlias = Literal[
    "node-limit", "cap-hour", "quota", "out-of-stock", "denied", "throttled", "bad-request", "no-price"
]
_SLACK = 1.0 + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomCap:
    """A limit: its `code`, its `name` for people, and its `size`.

    A node of a GPU type takes `node_sizes` of it (types that are not named take nothing) and has `gpus` GPUs.
    """

    code: RoomCode
    name: str
    size: float
    node_sizes: Mapping[str, float]
    gpus: Mapping[str, int]

    def taken(self, widths: Iterable[Width]) -> float:
        """Return what whole nodes for the widths take."""
        counts = dict.fromkeys(self.node_sizes, 0)
        for width in widths:
            if width.gpu_type in counts:
                counts[width.gpu_type] += width.gpus
        return self._of_counts(counts)

    def holds(self, widths: Iterable[Width]) -> bool:
        """Return whether whole nodes for the widths fit."""
        return self.taken(widths) <= self.size * _SLACK

    def holds_instead(self, counts: Mapping[str, int], width: Width, now: Width | None) -> bool:
        """Return whether a job fits at a width instead of `now`, beside all others; `counts` are all GPUs.

        A width that takes no more than the present one fits even where the limit was lowered since.
        """
        mine = {kind: counts.get(kind, 0) for kind in self.node_sizes}
        before = self._of_counts(mine)
        if now is not None and now.gpu_type in mine:
            mine[now.gpu_type] -= now.gpus
        if width.gpu_type in mine:
            mine[width.gpu_type] += width.gpus
        after = self._of_counts(mine)
        return after <= max(self.size * _SLACK, before if now is not None else 0.0)

    def _of_counts(self, counts: Mapping[str, int]) -> float:
        return sum(self.node_sizes[kind] * -(-count // self.gpus[kind]) for kind, count in counts.items())

    def of_gpus(self, used: frozenset[str]) -> float:
        """Return the room for GPUs in whole nodes; with several types, the last node of each is part full."""
        sizes = sorted(self.node_sizes[kind] for kind in used)
        if len(sizes) == 1:
            return sizes[0] * floor(self.size / sizes[0] * _SLACK)
        return max(
            0.0, self.size - sum(self.node_sizes[kind] * (1.0 - 1.0 / self.gpus[kind]) for kind in used)
        )

    def size_per_gpu(self, kind: str) -> float:
        """Return what one GPU of a type takes."""
        return self.node_sizes[kind] / self.gpus[kind]


def gpu_counts(widths: Mapping[JobId, Width]) -> dict[str, int]:
    """Return how many GPUs of each type the widths have together."""
    counts: dict[str, int] = {}
    for width in widths.values():
        counts[width.gpu_type] = counts.get(width.gpu_type, 0) + width.gpus
    return counts
