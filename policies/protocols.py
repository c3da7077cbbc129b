"""What a policy is: one method each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from policies.answer import Allocation, Placement
from policies.model import GpuSlot, Job, JobId, Money, Node, Width


class Allocator(Protocol):
    """Decides how many GPUs of which type each job should hold.

    One whose `reads_money` is False is not told what the books say, which costs a look at every node.
    """

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the width of each job at the instant `now` (seconds since the epoch); absent jobs wait.

        `money` is what the books say; None where nobody keeps any, or where one job is asked about alone.
        """
        ...


class JobByJob(Allocator, Protocol):
    """An allocator that says the width of one job, which no other changes, without a whole answer."""

    def alone(self, job: Job) -> Width:
        """Return what `allocate` gives this job where it is asked about alone, and nobody keeps books."""
        ...


class PhaseByPhase(JobByJob, Protocol):
    """An allocator that knows all widths of a job beforehand, whatever else happens."""

    def by_phase(self, job: Job) -> Sequence[Width]:
        """Return what `alone` gives this job in each of its phases."""
        ...


class KeepsWidths(JobByJob, Protocol):
    """An allocator that knows for how many phases a job surely keeps the width that it holds."""

    def keeps_until(self, job: Job) -> int:
        """Return the first later phase in which `alone` may not give a job the width that it holds.

        Before it `alone` gives that width, whatever is left of the phase; the number of phases for none.
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

        `held` is what jobs hold now: a job whose held slots match its width keeps them.
        """
        ...
