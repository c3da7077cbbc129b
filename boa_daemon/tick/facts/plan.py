"""What should be: the `Plan` of a tick, and in it one table of jobs, `PlannedJobs`.

A row (`PlannedJob`) says all that a tick plans for one job: its width beside the reason for it, and what
happens to it now. The table is stored by column, because most stages touch few of many thousand jobs: a row
is a view.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from boa_daemon.tick.facts.limits import Held
from boa_daemon.tick.facts.reasons import WaitReason
from boa_daemon.tick.facts.retries import GivenUp
from boa_daemon.tick.facts.room_caps import RoomCap
from boa_daemon.tick.facts.state import DateNote
from policies.answer import Accrual, Allocation, NodePrices, changed_widths, was_changed
from policies.fast_dataclasses import fast_init, field_replacer, replace
from policies.model import GpuSlot, InstanceType, JobId, NodeId, Width

_NOTHING: Mapping[Any, Any] = MappingProxyType({})
BY_POLICY = "by the policy"
"""The reason of a width for which a policy gives none."""


def lent_reason(why: str, planned: Width, reason: str) -> str:
    """Return why a job has more GPUs than planned, with what is planned and why."""
    return f"{why}; planned without them are {planned}: {reason}"


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJobs:
    """The jobs of a plan: a table with one row for each job, stored by column.

    `widths` is what each job should hold once the nodes are there; an absent job waits, and `waiting` says
    for what. `reasons` says why a job has its width or none. `slots` is what can be done now: a job absent
    from it keeps what it holds. `stops` are jobs that should hold nothing. `intended` are the planned widths
    of jobs that hold another for now: fewer GPUs until there is room, or more, on GPUs that no other job
    needs; for the latter `own_reasons` says why these are planned. `dates` is what the dates of jobs ask for,
    `unpaid` the widths of jobs that have none until money accrues. `given_up` says why waiting jobs are not
    started again, `ends` why hung generations are ended at once.

    Columns that depend on each other change together, by the methods of this class alone: a reason never
    outlives its width, and a job that starts or is ended does not wait or stop as well.
    """

    widths: Mapping[JobId, Width] = field(default_factory=lambda: _NOTHING)
    reasons: Mapping[JobId, str] = field(default_factory=lambda: _NOTHING)
    slots: Mapping[JobId, tuple[GpuSlot, ...]] = field(default_factory=lambda: _NOTHING)
    stops: tuple[JobId, ...] = ()
    waiting: Mapping[JobId, WaitReason] = field(default_factory=lambda: _NOTHING)
    intended: Mapping[JobId, Width] = field(default_factory=lambda: _NOTHING)
    own_reasons: Mapping[JobId, str] = field(default_factory=lambda: _NOTHING)
    dates: Mapping[JobId, DateNote] = field(default_factory=lambda: _NOTHING)
    unpaid: Mapping[JobId, Width] = field(default_factory=lambda: _NOTHING)
    given_up: Mapping[JobId, GivenUp] = field(default_factory=lambda: _NOTHING)
    ends: Mapping[JobId, str] = field(default_factory=lambda: _NOTHING)

    def __getitem__(self, job: JobId) -> PlannedJob:
        """Return the row of a job; of one that is not planned for, an empty row."""
        return PlannedJob(id=job, jobs=self)

    @property
    def start_nodes(self) -> set[NodeId]:
        """The nodes on which jobs start now."""
        return {slot.node for slots in self.slots.values() for slot in slots}

    def answered(self, allocation: Allocation) -> PlannedJobs:
        """Return the table with the widths of an allocation, and their reasons."""
        return _answered(self, allocation.widths, allocation.reasons)

    def with_widths(self, changes: Mapping[JobId, Width | None], why: Callable[[JobId], str]) -> PlannedJobs:
        """Return the table with some other widths (None: none), and their reasons."""
        return _answered(self, *changed_widths(self.widths, self.reasons, changes, why))

    def moving(self, slots: Mapping[JobId, tuple[GpuSlot, ...]], stops: tuple[JobId, ...]) -> PlannedJobs:
        """Return the table in which exactly these jobs start, and these stop to hold nothing."""
        return _moving(self, slots, stops)

    def placed(
        self,
        allocation: Allocation,
        slots: Mapping[JobId, tuple[GpuSlot, ...]],
        stops: tuple[JobId, ...],
    ) -> PlannedJobs:
        """Return the table with an allocation's widths, in which exactly these jobs start, and these stop."""
        return _placed(self, allocation.widths, allocation.reasons, slots, stops)

    def starting(self, slots: Mapping[JobId, tuple[GpuSlot, ...]]) -> PlannedJobs:
        """Return the table in which these jobs start now as well, and neither wait nor stop."""
        return _starting(
            self,
            {**self.slots, **slots},
            tuple(job for job in self.stops if job not in slots),
            _without(self.waiting, slots),
        )

    def only_waiting(self, codes: Mapping[JobId, WaitReason]) -> PlannedJobs:
        """Return the table in which exactly these jobs wait."""
        return _only_waiting(self, codes)

    def waiting_for(self, codes: Mapping[JobId, WaitReason]) -> PlannedJobs:
        """Return the table in which these jobs wait as well, or for something else than before."""
        return _only_waiting(self, {**self.waiting, **codes}) if codes else self

    def lending(self, planned: Mapping[JobId, Width], why: Callable[[JobId], str]) -> PlannedJobs:
        """Return the table in which these jobs hold GPUs beyond planned widths; `why` is of the latter."""
        reasons = {job: why(job) for job in planned}
        return _lending(self, {**self.intended, **planned}, {**self.own_reasons, **reasons})

    def stopping(self, jobs: Collection[JobId]) -> PlannedJobs:
        """Return the table in which these jobs stop as well; they start nowhere now."""
        stops = tuple(dict.fromkeys((*self.stops, *jobs)))
        return self._as_intended(jobs)._cut(jobs, stops)

    def held_back(self, jobs: Collection[JobId]) -> PlannedJobs:
        """Return the table in which these jobs start nowhere now; running ones keep what they hold."""
        started = self.slots.keys() & jobs
        return self._as_intended(started)._cut(started, self.stops)

    def _as_intended(self, jobs: Collection[JobId]) -> PlannedJobs:
        """Return the table in which these jobs have their planned widths instead of GPUs lent to them."""
        lent = {job: self.intended[job] for job in jobs if self[job].own_width is not None}
        if not lent:
            return self
        reasons = self.own_reasons
        return self.with_widths(lent, lambda job: reasons.get(job, BY_POLICY))

    def _cut(self, jobs: Collection[JobId], stops: tuple[JobId, ...]) -> PlannedJobs:
        """Return the table in which these jobs start nowhere, and exactly `stops` stop."""
        kept, reasons = _without(self.intended, jobs), _without(self.own_reasons, jobs)
        return _stopping(self, _without(self.slots, jobs), stops, kept, reasons)

    def ending(self, ends: Mapping[JobId, str]) -> PlannedJobs:
        """Return the table in which the running generations of these jobs are ended at once, for a reason."""
        stops = tuple(job for job in self.stops if job not in ends)
        return replace(self._cut(ends, stops), ends=ends)


_answered = field_replacer(PlannedJobs, "widths", "reasons")
_placed = field_replacer(PlannedJobs, "widths", "reasons", "slots", "stops")
_moving = field_replacer(PlannedJobs, "slots", "stops")
_starting = field_replacer(PlannedJobs, "slots", "stops", "waiting")
_stopping = field_replacer(PlannedJobs, "slots", "stops", "intended", "own_reasons")
_lending = field_replacer(PlannedJobs, "intended", "own_reasons")
_only_waiting = field_replacer(PlannedJobs, "waiting")


def _without(column: Mapping[JobId, Any], jobs: Collection[JobId]) -> Mapping[JobId, Any]:
    """Return a column without the entries of some jobs; the column itself if it has none of them."""
    if not column or column.keys().isdisjoint(jobs):
        return column
    gone = frozenset(jobs)
    return {job: value for job, value in column.items() if job not in gone}


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """What a tick plans for one job: a row of `PlannedJobs`."""

    id: JobId
    jobs: PlannedJobs

    @property
    def width(self) -> Width | None:
        """What the job should hold once the nodes are there; None if it is to hold nothing."""
        return self.jobs.widths.get(self.id)

    @property
    def reason(self) -> str | None:
        """Why it has its width or none; None if nobody said."""
        return self.jobs.reasons.get(self.id)

    @property
    def changed_reason(self) -> str | None:
        """The reason, where it is not the policy's own: a later stage changed the width."""
        return self.reason if was_changed(self.jobs.reasons, self.id) else None

    @property
    def slots(self) -> tuple[GpuSlot, ...] | None:
        """The GPUs on which the job starts now; None if it starts nowhere now."""
        return self.jobs.slots.get(self.id)

    @property
    def stops(self) -> bool:
        """Whether the job is told to stop, to hold nothing."""
        return self.id in self.jobs.stops

    @property
    def waits_for(self) -> WaitReason | None:
        """What the job waits for; None if it does not wait."""
        return self.jobs.waiting.get(self.id)

    @property
    def head_start(self) -> Width | None:
        """The planned width of a job that starts on other GPUs for now; None for all other jobs."""
        intended = self.jobs.intended.get(self.id)
        return None if intended is None or self._is_lent(intended) else intended

    @property
    def own_width(self) -> Width | None:
        """The planned width of a job that holds lent GPUs beyond it; None for all other jobs."""
        intended = self.jobs.intended.get(self.id)
        return intended if intended is not None and self._is_lent(intended) else None

    def _is_lent(self, intended: Width) -> bool:
        width = self.width
        return width is not None and width.gpu_type == intended.gpu_type and width.gpus > intended.gpus

    @property
    def date(self) -> DateNote | None:
        """What the job's date asks for, if it has one."""
        return self.jobs.dates.get(self.id)

    @property
    def unpaid(self) -> Width | None:
        """The width that the job gets once money has accrued."""
        return self.jobs.unpaid.get(self.id)

    @property
    def given_up(self) -> GivenUp | None:
        """Why the job, which waits, is not started again."""
        return self.jobs.given_up.get(self.id)

    @property
    def end(self) -> str | None:
        """Why the job's running generation, which hangs, is ended at once."""
        return self.jobs.ends.get(self.id)


_NO_JOBS = PlannedJobs()


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What should be: the table of `jobs`, the nodes to rent and to give back, and what bounds them.

    Nodes: `launches` counts new nodes by the name of their type, which `instance_types` explains; `gangs` are
    the sizes of the groups among them that are useful only together. `releases` names nodes to give back;
    those in `stopping` are stopped instead of terminated. `forced` are nodes to give back with jobs on them,
    because a cap would break otherwise.

    `held` is what may not be done, and why. `wake_at` is when to decide again even if nothing happens.
    `link_order` lists, for each link with an enforced order, its jobs, the first sender first. `memory` is
    what the policy remembers. `node_prices` is what widths and nodes are worth to the policy, if known, for
    comparing alternatives.

    `order` is the order of service of the jobs that compete for scarce room, by `order_rule` in words;
    `room_caps` are the limits on the room for all widths together. `accrual` is the money that jobs wait for
    where the budget is below the load.
    """

    jobs: PlannedJobs = _NO_JOBS
    launches: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    releases: tuple[NodeId, ...] = ()
    gangs: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: _NOTHING)
    instance_types: Mapping[str, InstanceType] = field(default_factory=lambda: _NOTHING)
    wake_at: float | None = None
    link_order: Mapping[NodeId, tuple[JobId, ...]] = field(default_factory=lambda: _NOTHING)
    memory: tuple[float, ...] | None = None
    held: tuple[Held, ...] = ()
    forced: tuple[NodeId, ...] = ()
    node_prices: NodePrices | None = None
    stopping: tuple[NodeId, ...] = ()
    order: tuple[JobId, ...] = ()
    room_caps: tuple[RoomCap, ...] = ()
    order_rule: str = ""
    accrual: Accrual | None = None

    def with_jobs(self, jobs: PlannedJobs) -> Plan:
        """Return the plan with another table of jobs."""
        return self if jobs is self.jobs else _with_jobs(self, jobs)

    def looked_at_by(self, *instants: float | None) -> Plan:
        """Return the plan with a wake-up at the earliest of its own and these instants."""
        wake_at = self.wake_at
        for at in instants:
            if at is not None and (wake_at is None or at < wake_at):
                wake_at = at
        return self if wake_at == self.wake_at else replace(self, wake_at=wake_at)


_with_jobs = field_replacer(Plan, "jobs")
