"""An allocator that lets a few jobs try a width whose speed nobody knows yet, for a while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from boa_daemon.estimate import Exploration
from policies.model import Allocation, Job, JobId, Money, Width
from policies.protocols import Allocator


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploring:
    """Follow another allocator, but for the jobs in `tries`; who tries what is decided elsewhere."""

    base: Allocator
    tries: Mapping[JobId, Exploration] = field(default_factory=lambda: MappingProxyType({}))

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the base's allocation with the widths that are tried; a job that waits tries nothing."""
        found = self.base.allocate(jobs, now=now, money=money)
        tried = {job: self.tries[job] for job in found.widths if job in self.tries}
        if not tried:
            return found
        widths = {
            job: Width(width.gpu_type, tried[job].gpus) if job in tried else width
            for job, width in found.widths.items()
        }
        reasons = {job: tried[job].reason if job in tried else found.reasons.get(job, "") for job in widths}
        return replace(found, widths=widths, reasons=reasons)
