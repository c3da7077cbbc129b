"""One GPU for each job, of the type that does its work most cheaply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.answer import Allocation
from policies.model import Job, Money
from policies.rivals.width_menu import WidthMenu, menu_of
from policies.site import BuiltPolicy, PolicyEntry, PolicyOptions, Site


@dataclass(frozen=True)
class OneGpuEach:
    """Give each job its narrowest width."""

    menu: WidthMenu

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the width of each job."""
        widths = {job.id: self.menu.fastest_within(job.class_name, job.phase, 1) for job in jobs}
        return Allocation(widths=widths)


def build(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return the policy for a site."""
    return BuiltPolicy(allocator=OneGpuEach(menu_of(site, options)))


ONE_GPU_EACH = PolicyEntry(
    name="one-gpu-each",
    kind="rule",
    summary="rent on arrival, one GPU for each job",
    build=build,
    options=frozenset({"gpu_type"}),
    is_job_by_job=True,
)
