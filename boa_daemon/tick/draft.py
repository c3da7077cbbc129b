"""The plan so far: what the stages of a tick hand on to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from boa_daemon.tick.placeable_nodes import PlaceableNodes
from boa_daemon.tick.state import Plan, Rules, WaitReason
from policies.answer import Allocation
from policies.fast_dataclasses import fast_init, field_replacer, replace
from policies.model import JobId, NodeId, Width
from policies.protocols import Allocator, Placer

SOON_SECONDS = 1.0
"""Where this decision makes the next one necessary, that follows so soon."""
_NOTHING: Mapping[Any, Any] = MappingProxyType({})


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The widths of jobs that do not hold them, in the order of service, and the jobs to stop.

    Jobs in `leaving` must let go of their GPUs now, whether or not there is room for them elsewhere.
    """

    wishes: Mapping[JobId, Width] = field(default_factory=lambda: _NOTHING)
    stops: tuple[JobId, ...] = ()
    leaving: tuple[JobId, ...] = ()


_NO_ALLOCATION, _NO_CHANGES = Allocation(widths=_NOTHING), Changes()
_NO_PLAN = Plan(widths=_NOTHING, slots=_NOTHING)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The plan so far, and what later stages need to know of earlier ones.

    `rules`, `allocator` and `placer` are given and stay as they are. `set_aside` says why waiting jobs have
    no part in the decision. `allocation` is the policy's answer, as far as money, caps and rest allow it.
    `left_out` says why jobs that no longer have a width wait. `lent` are the planned widths of jobs that hold
    more GPUs than that. `room` is where the wishes may be placed; None where there is no wish. `claimed` are
    nodes that waiting jobs count on. `is_at_node_limit` says that jobs wait because no more nodes may be
    held. Jobs in `other_market` are to hold nodes of another market than theirs, at whatever width.
    """

    rules: Rules
    allocator: Allocator
    placer: Placer
    allocation: Allocation = _NO_ALLOCATION
    plan: Plan = _NO_PLAN
    set_aside: Mapping[JobId, WaitReason] = field(default_factory=lambda: _NOTHING)
    left_out: Mapping[JobId, WaitReason] = field(default_factory=lambda: _NOTHING)
    lent: Mapping[JobId, Width] = field(default_factory=lambda: _NOTHING)
    changes: Changes = _NO_CHANGES
    room: PlaceableNodes | None = None
    claimed: frozenset[NodeId] = frozenset()
    is_at_node_limit: bool = False
    other_market: frozenset[JobId] = frozenset()

    def giving_back(self, givers: Mapping[JobId, Width]) -> Draft:
        """Return the draft in which some jobs are to go back to their planned widths, before others move."""
        return replace(
            self,
            allocation=replace(self.allocation, widths={**self.allocation.widths, **givers}),
            changes=replace(self.changes, wishes={**givers, **self.changes.wishes}),
        )

    @property
    def has_fixed_fleet(self) -> bool:
        """Whether the policy says how many nodes to hold."""
        return self.allocation.nodes is not None

    @property
    def may_improve(self) -> bool:
        """Whether jobs may get other GPUs than asked for where that pays: not where nodes are limited."""
        return not self.is_at_node_limit and not self.has_fixed_fleet

    @property
    def unplaced(self) -> dict[JobId, Width]:
        """The wishes that have no GPUs in the plan so far."""
        slots = self.plan.slots
        return {job: width for job, width in self.changes.wishes.items() if job not in slots}


with_plan = field_replacer(Draft, "plan")
"""The draft with another plan: what most stages change."""


def shrinks(holds: Width | None, width: Width) -> bool:
    """Return whether a width is part of what is held."""
    return holds is not None and holds.gpu_type == width.gpu_type and width.gpus <= holds.gpus
