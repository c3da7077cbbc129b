"""The draft of a plan that the stages of a tick hand on to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from boa_daemon.tick.facts.placeable_nodes import PlaceableNodes
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.reasons import WaitReason
from boa_daemon.tick.facts.state import Rules
from policies.answer import Allocation
from policies.fast_dataclasses import fast_init, field_replacer, replace
from policies.model import JobId, NodeId, Width
from policies.protocols import Allocator, Placer

SOON_SECONDS = 1.0
"""Seconds until the next decision where this one makes it necessary."""
_NOTHING: Mapping[Any, Any] = MappingProxyType({})


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Wanted widths of jobs that do not hold them yet (`wishes`, in order of service), and jobs to stop.

    Jobs in `leaving` must release their GPUs now, whether or not there is room for them elsewhere.
    """

    wishes: Mapping[JobId, Width] = field(default_factory=lambda: _NOTHING)
    stops: tuple[JobId, ...] = ()
    leaving: tuple[JobId, ...] = ()


_NO_ALLOCATION, NO_CHANGES = Allocation(widths=_NOTHING), Changes()
_NO_PLAN = Plan()


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The plan so far, and what later stages need from earlier ones.

    No stage changes `rules`, `allocator` and `placer`. `set_aside` gives the reason for each waiting job that
    this tick does not plan for. `allocation` is the policy's answer, reduced to what money, caps and rests
    allow. `left_out` gives the reason for each job that lost its width, `unpaid` the widths of those that
    wait for money to accrue. `lent` holds the planned widths of
    jobs that hold more GPUs than planned. `room` is where wishes may be placed; None if there are no wishes.
    `claimed` are nodes reserved for waiting jobs. `is_at_node_limit`: jobs wait because no more nodes may be
    rented. Jobs in `other_market` must move to nodes of the other market, at any width. `planned_reasons` are
    the reasons of the widths in `lent`.
    """

    rules: Rules
    allocator: Allocator
    placer: Placer
    allocation: Allocation = _NO_ALLOCATION
    plan: Plan = _NO_PLAN
    set_aside: Mapping[JobId, WaitReason] = field(default_factory=lambda: _NOTHING)
    left_out: Mapping[JobId, WaitReason] = field(default_factory=lambda: _NOTHING)
    unpaid: Mapping[JobId, Width] = field(default_factory=lambda: _NOTHING)
    lent: Mapping[JobId, Width] = field(default_factory=lambda: _NOTHING)
    changes: Changes = NO_CHANGES
    room: PlaceableNodes | None = None
    claimed: frozenset[NodeId] = frozenset()
    is_at_node_limit: bool = False
    other_market: frozenset[JobId] = frozenset()
    planned_reasons: Mapping[JobId, str] = field(default_factory=lambda: _NOTHING)

    def giving_back(self, givers: Mapping[JobId, Width]) -> Draft:
        """Return the draft in which the given jobs shrink to their planned widths before other jobs move."""
        reasons = self.planned_reasons

        def why(job: JobId) -> str:
            return f"another job needs the GPUs that were lent to it: {reasons.get(job, 'by the policy')}"

        return replace(
            self,
            allocation=self.allocation.with_widths(givers, why),
            changes=replace(self.changes, wishes={**givers, **self.changes.wishes}),
        )

    @property
    def has_fixed_fleet(self) -> bool:
        """Whether the policy itself sets the number of nodes."""
        return self.allocation.nodes is not None

    @property
    def may_improve(self) -> bool:
        """Whether later stages may move jobs where that pays: not at the node limit or in a fixed fleet."""
        return not self.is_at_node_limit and not self.has_fixed_fleet

    @property
    def unplaced(self) -> dict[JobId, Width]:
        """The wishes that have no GPUs in the plan so far."""
        slots = self.plan.jobs.slots
        return {job: width for job, width in self.changes.wishes.items() if job not in slots}


with_plan = field_replacer(Draft, "plan")
"""Return the draft with another plan."""


def shrinks(holds: Width | None, width: Width) -> bool:
    """Return whether a width fits within what the job holds: the same GPU type, and no more GPUs."""
    return holds is not None and holds.gpu_type == width.gpu_type and width.gpus <= holds.gpus
