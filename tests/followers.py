"""A policy with fixed answers, for the stages of a tick that follow a plan with whole nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from plain_narrowing import Claim, claims_of

from boa_daemon.testing import rules
from boa_daemon.tick.decide.decision import decide
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, Rules
from policies.answer import Allocation, LentWidth, NodeRetention
from policies.capacity_claims import Claims, PhaseWidths
from policies.model import Job, JobId, Money, Width
from policies.placement.first_fit import FirstFit

BOOT_SECONDS = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Node prices and an allocator whose answers are the fields."""

    widths: Mapping[JobId, int]
    left_hours: Mapping[JobId, float] = field(default_factory=dict)
    nodes: int = 0
    starts: bool = False
    boot_hours: float = BOOT_SECONDS / 3600.0
    stretches: bool = False
    loses: float = 1.0
    sends: float = 0.0
    worth: float = 0.0
    overdue: float = 0.0
    weights: Mapping[JobId, float] = field(default_factory=dict)

    def hold(self, gpu_type: str) -> NodeRetention:
        """Return `nodes` to keep for ten minutes."""
        return NodeRetention(nodes=self.nodes, seconds=600.0)

    def patience_hours(self, gpu_type: str) -> float:
        """Return the time of one boot."""
        return self.boot_hours

    def hours_left(self, job: Job) -> float:
        """Return the job's `left_hours`, by default one hour."""
        return self.left_hours.get(job.id, 1.0)

    def head_start(self, job: Job, then: Width, *, most_gpus: int, wait_hours: float) -> Width | None:
        """Return all free GPUs below the later width, if head starts pay and the wait is positive."""
        return Width("gpu", min(most_gpus, then.gpus - 1)) if self.starts and wait_hours > 0.0 else None

    def stretch(self, job: Job, now: Width, *, most_gpus: int, hours_left: float | None) -> LentWidth | None:
        """Return all GPUs, if stretching pays; a job with fewer GPUs saves more hours."""
        if not self.stretches or most_gpus <= now.gpus:
            return None
        return LentWidth(width=Width("gpu", most_gpus), saved_hours=1.0 / now.gpus)

    def hours_lost(self, job: Job, then: Width, *, hours_left: float, back_in_hours: float) -> float:
        """Return `loses` for any move."""
        return self.loses

    def warm(self, gpu_type: str, *, saved_hours: float, share: float) -> NodeRetention:
        raise AssertionError("no pool here")

    @property
    def knows_messages(self) -> bool:
        """Whether `sends` was given."""
        return self.sends > 0.0

    def hours_sending(self, job: Job, *, share: float | None, gigabits: float, hours_left: float) -> float:
        """Return the given or measured share of the hours left."""
        return hours_left * (self.sends if share is None else share)

    def node_worth(self, gpu_type: str) -> float:
        """Return `worth`."""
        return self.worth

    def claims(
        self, jobs: Sequence[Job], planned: Sequence[Width], *, size_per_gpu: Mapping[str, float], now: float
    ) -> Claims:
        """Return a claim of each job on every width up to its planned one; the speed is the square root."""
        del now
        return claims_of(
            [
                Claim(
                    job=job,
                    menu=self.menu_of(width),
                    weight=self.weights.get(job.id, 1.0),
                    work=self.left_hours.get(job.id, 1.0),
                    size_per_gpu=size_per_gpu[width.gpu_type],
                    money_per_gpu=0.0,
                    overdue=self.overdue,
                )
                for job, width in zip(jobs, planned, strict=True)
            ]
        )

    def menu_of(self, planned: Width) -> PhaseWidths:
        """Return every width up to a planned one; the speed is the square root of the GPUs."""
        gpus = range(1, planned.gpus + 1)
        return PhaseWidths(
            widths=tuple(Width(planned.gpu_type, n) for n in gpus), speeds=tuple(n**0.5 for n in gpus)
        )

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return `widths`; a job without an entry gets no GPUs."""
        widths = {job.id: Width("gpu", self.widths[job.id]) for job in jobs if job.id in self.widths}
        return Allocation(widths=widths, node_prices=self)


def plan_of(state: ClusterState, known: Known, site: Rules | None = None) -> Plan:
    """Return the plan with first fit on nodes of four GPUs."""
    return decide(state, allocator=known, placer=FirstFit(), rules=rules() if site is None else site).plan
