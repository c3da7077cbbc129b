"""Limits on the room for all widths: on nodes, on dollars per hour, or on the nodes of one type.

A limit says how it is named where a person set it, so that a sentence about a width can name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import floor
from typing import Literal, TypeAlias

from boa_daemon.units import counted
from policies.model import Width
from policies.money_text import price_in_dollars

RoomCode: TypeAlias = Literal[
    "node-limit", "cap-hour", "quota", "out-of-stock", "denied", "throttled", "bad-request", "no-price"
]
_SLACK = 1.0 + 1e-9
NARROWS = "cannot hold"
"""What is said of a limit, after its name, in the reason of a width that it narrows."""


def node_limit_name(nodes: int) -> str:
    """Return how a limit on nodes is named."""
    return f"the limit of {counted(nodes, 'node')} (max_instances)"


def ceiling_name(usd_per_hour: float) -> str:
    """Return how a ceiling on dollars per hour is named."""
    return f"the ceiling of {price_in_dollars(usd_per_hour)}/hour"


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
        """Return whether a job fits at a width instead of `now`; `counts` are the GPUs of all jobs with room.

        A width that takes no more than the present one fits even where the limit was lowered since.
        """
        if width.gpu_type not in self.node_sizes:
            return True
        if now is not None and width.gpu_type == now.gpu_type and width.gpus <= now.gpus:
            return True
        after = {kind: counts.get(kind, 0) for kind in self.node_sizes}
        if now is not None and now.gpu_type in after:
            after[now.gpu_type] -= now.gpus
        after[width.gpu_type] += width.gpus
        return self._of_counts(after) <= self.size * _SLACK

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


def gpu_counts(widths: Iterable[Width]) -> dict[str, int]:
    """Return how many GPUs of each type the widths have together."""
    counts: dict[str, int] = {}
    for width in widths:
        counts[width.gpu_type] = counts.get(width.gpu_type, 0) + width.gpus
    return counts
