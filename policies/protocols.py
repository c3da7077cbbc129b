"""Interfaces of policies: allocators choose widths, placers choose GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from policies.answer import Allocation, Placement
from policies.model import GpuSlot, Job, JobId, Money, Node, Width


class Allocator(Protocol):
    """Decides how many GPUs of which type each job should hold.

    An allocator with the attribute `reads_money = False` gets no `money`; this saves a sum over all nodes.
    """

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the width of each job at the instant `now` (seconds since the epoch); absent jobs wait.

        `money` is the state of the ledger; None without a ledger, or for a question about a single job.
        """
        ...


class JobByJob(Allocator, Protocol):
    """An allocator that computes the width of a job without looking at the other jobs."""

    def alone(self, job: Job) -> Width:
        """Return the width that `allocate` gives this job when called with it alone and without `money`."""
        ...


class PhaseByPhase(JobByJob, Protocol):
    """An allocator that knows the widths of a job in all its phases in advance."""

    def by_phase(self, job: Job) -> Sequence[Width]:
        """Return the width that `alone` gives this job in each of its phases."""
        ...


class KeepsWidths(JobByJob, Protocol):
    """An allocator that knows for how many phases a job certainly keeps its current width."""

    def keeps_until(self, job: Job) -> int:
        """Return the first later phase in which `alone` may change the job's current width.

        In the phases before, `alone` gives the current width whatever work is left of the phase. The number
        of phases means that it never changes.
        """
        ...


class Placer(Protocol):
    """Decides which GPUs of which nodes each job gets."""

    def place(
        self,
        widths: Mapping[JobId, Width],
        *,
        nodes: Sequence[Node],
        held: Mapping[JobId, tuple[GpuSlot, ...]],
    ) -> Placement:
        """Return the slots of each job that fits on ready nodes, in the order of `widths`.

        `held` are the current slots of jobs: a job whose slots match its width keeps them.
        """
        ...


class PlacesBeside(Placer, Protocol):
    """A placer that is told which job holds each GPU, instead of the slots of every job."""

    def place_beside(
        self,
        wishes: Mapping[JobId, Width],
        *,
        nodes: Sequence[Node],
        holders: Sequence[Sequence[JobId | None]],
    ) -> Mapping[JobId, tuple[GpuSlot, ...]]:
        """Return the slots that `place` gives the wishes on ready nodes if all other jobs keep their GPUs.

        `holders` are the jobs on the GPUs of the first nodes, node by node; on the other nodes all GPUs are
        free.
        """
        ...
