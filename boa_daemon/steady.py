"""Against flapping: jobs that keep their width for now, and launches that are not tried once more.

Constant load must give no moves. The policy weighs the cost of a move already where it knows that of the
class; here stand the rules that hold whatever the policy: a minimum hold after each start, so many starts per
hour, and an end to loops. A job on a node that ends is always free to move.

Cost: O(jobs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from boa_daemon.limits import Held, Steady
from boa_daemon.state import ClusterState, JobState, Plan, Rules
from policies.model import Allocation, Job, JobId, Money, Width
from policies.protocols import Allocator


@dataclass(frozen=True, slots=True, kw_only=True)
class Steadied:
    """An allocator that lets jobs move only where the rules allow it.

    `held` collects what was held.
    """

    allocator: Allocator
    state: ClusterState
    steady: Steady
    held: list[Held] = field(default_factory=list)

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the policy's widths, those of held jobs as they are."""
        wanted = self.allocator.allocate(jobs, now=now, money=money)
        changed: dict[JobId, Width | None] = {}
        for job_id, job in self.state.jobs.items():
            width = wanted.widths.get(job_id)
            holds = job.job.width
            if width == holds:
                continue
            reason = self._why_held(job, width)
            if reason is not None:
                self.held.append(reason)
                changed[job_id] = holds
        if not changed:
            return wanted
        widths = {job.id: changed[job.id] if job.id in changed else wanted.widths.get(job.id) for job in jobs}
        return replace(wanted, widths={job: width for job, width in widths.items() if width is not None})

    def _why_held(self, job: JobState, width: Width | None) -> Held | None:
        """Return why a job keeps what it holds; None where it may change."""
        steady, now = self.steady, self.state.now
        what = f"job {job.job.id} from {job.job.width or 'nothing'} to {width or 'nothing'}"
        if not job.slots:
            if width is not None and job.recent_starts >= steady.loop_starts:
                return Held(what=what, code="loop", numbers={"starts_last_hour": float(job.recent_starts)})
            return None
        if job.started_at is None or _must_move(self.state, job):
            return None
        age = now - job.started_at
        if 0.0 <= age < steady.minimum_hold_seconds:
            return Held(
                what=what,
                code="minimum-hold",
                numbers={"seconds_held": age, "minimum_seconds": steady.minimum_hold_seconds},
            )
        if job.recent_starts >= steady.starts_per_hour:
            return Held(
                what=what, code="moves-per-hour", numbers={"starts_last_hour": float(job.recent_starts)}
            )
        return None


def _must_move(state: ClusterState, job: JobState) -> bool:
    """Return whether a node of the job ends anyway."""
    nodes = [state.nodes.get(slot.node) for slot in job.slots]
    return any(node is None or node.phase == "terminating" or node.ends_by is not None for node in nodes)


def without_loops(state: ClusterState, plan: Plan, rules: Rules) -> Plan:
    """Return the plan without launches of types whose nodes keep ending unused."""
    steady = rules.steady
    if steady is None or not plan.launches:
        return plan
    looping = {name: n for name, n in state.short_lived.items() if n >= steady.loop_nodes}
    stopped = [name for name in plan.launches if name in looping]
    if not stopped:
        return plan
    held = tuple(
        Held(what=f"{plan.launches[name]} {name}", code="loop", numbers={"unused_last_hour": looping[name]})
        for name in stopped
    )
    gpu_types = {plan.instance_types[name].gpu_type for name in stopped}
    waiting = {
        job: "loop" if job in plan.widths and plan.widths[job].gpu_type in gpu_types else reason
        for job, reason in plan.waiting.items()
    }
    kept: Mapping[str, int] = {name: n for name, n in plan.launches.items() if name not in looping}
    return replace(plan, launches=kept, waiting=waiting, held=(*plan.held, *held))
