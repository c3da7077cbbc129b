"""Hard caps of teams on a plan: no job starts or runs on that could break a cap of its team's purse.

A job costs its team its GPUs' part of their nodes' prices. Jobs are projected as nodes are for the site's
caps (`boa_daemon.tick.money.caps`): a job that goes on, until the next tick can have stopped it; a job that
stops, until its grace is over and its node is gone. If that could break a cap, jobs stop until none can
break, first those that lose least: those with the most work left per weight. A start is allowed only if the
job could run for as long as a launch must be affordable. If a stop was ordered and there is no time left for
it, the nodes of these jobs end under them.

Cost: O(jobs log jobs) for each team.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from boa_daemon.tick.facts.limits import Caps, Held, HeldMoney, HeldNumber, Window
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, JobState
from boa_daemon.tick.facts.team_money import TeamCap, TeamMoney
from boa_daemon.tick.money.cap_projection import most_per_second
from boa_daemon.units import MICRO_DOLLARS_PER_DOLLAR
from policies.fast_dataclasses import replace
from policies.model import GpuSlot, JobId, NodeId


@dataclass(slots=True, kw_only=True)
class _Purse:
    """A cap of a team in one window, and what is left of it after the projection."""

    code: TeamCap
    window: Window
    cap: float
    left: float
    spent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamVerdict:
    """What the caps of teams require: jobs that stop, jobs that do not start, nodes that end, and why."""

    stops: dict[JobId, TeamCap]
    waits: dict[JobId, TeamCap]
    forced: tuple[NodeId, ...]
    held: tuple[Held, ...]


def judge_teams(state: ClusterState, plan: Plan, caps: Caps) -> TeamVerdict:
    """Return what must be done so that no cap of a team can break."""
    stops: dict[JobId, TeamCap] = {}
    waits: dict[JobId, TeamCap] = {}
    forced: set[NodeId] = set()
    held: list[Held] = []
    for name, money in state.teams.items():
        if money.day_cap_usd is None and money.month_cap_usd is None:
            continue
        jobs = {job: found for job, found in state.all_jobs.items() if found.terms.team == name}
        projection = _TeamProjection(state, caps, money)
        ending = {job for job, found in jobs.items() if found.is_stopping or job in plan.jobs.stops}
        running = [job for job, found in jobs.items() if found.slots]
        forced |= projection.overdue(jobs[job] for job in running)
        for job in running:
            projection.take(jobs[job], stops_now=job in ending)
        staying = sorted((job for job in running if job not in ending), key=lambda job: _loss(jobs[job]))
        for job in staying:
            code = projection.broken
            if code is None:
                break
            projection.stop(jobs[job])
            stops[job] = code
            held.append(projection.held(jobs[job], jobs[job].slots, code))
        for job, slots in plan.jobs.slots.items():
            if job not in jobs or job in stops or slots == jobs[job].slots:
                continue
            code = projection.start(jobs[job], slots)
            if code is not None:
                waits[job] = code
                held.append(projection.held(jobs[job], slots, code))
    return TeamVerdict(stops=stops, waits=waits, forced=tuple(sorted(forced)), held=tuple(held))


def usd_per_hour(state: ClusterState, slots: Iterable[GpuSlot]) -> float:
    """Return the most that GPUs may cost per hour: their parts of their nodes' prices."""
    nodes = (state.nodes.get(slot.node) for slot in slots)
    rates = (most_per_second(node) / node.instance_type.gpus for node in nodes if node is not None)
    return sum(rates) * 3600.0 / MICRO_DOLLARS_PER_DOLLAR


class _TeamProjection:
    """What the caps of one team leave while jobs are projected."""

    def __init__(self, state: ClusterState, caps: Caps, money: TeamMoney) -> None:
        self._state, self._caps = state, caps
        self._purses = [
            _Purse(code=code, window=window, cap=cap, left=left, spent=cap - left)
            for code, window, cap, left in money.left(state.now)
        ]

    def _stop_seconds(self, job: JobState) -> float:
        """Return how long a job may hold its GPUs after it is told to stop."""
        caps = self._caps
        grace = max(caps.checkpoint_seconds, job.terms.grace_seconds)
        return grace + caps.gap_seconds + caps.end_seconds

    def _charge(self, rate: float, seconds: float) -> None:
        """Count GPUs of `rate` dollars per hour for some seconds from now."""
        for purse in self._purses:
            purse.left -= self._cost(purse, rate, seconds)

    def _cost(self, purse: _Purse, rate: float, seconds: float) -> float:
        """Return the part of a cost that falls into a purse's window."""
        now = self._state.now
        return rate * purse.window.overlap_seconds(now, now + seconds) / 3600.0

    def overdue(self, jobs: Iterable[JobState]) -> set[NodeId]:
        """Return the nodes of jobs that cannot go on until the next tick; to be called first."""
        slots = [slot for job in jobs for slot in job.slots]
        rate, wait = usd_per_hour(self._state, slots), self._caps.gap_seconds + self._caps.end_seconds
        if all(purse.left >= self._cost(purse, rate, wait) for purse in self._purses):
            return set()
        return {slot.node for slot in slots} & self._state.nodes.keys()

    def take(self, job: JobState, *, stops_now: bool) -> None:
        """Count a running job: until it has stopped, or until the next tick can have stopped it."""
        more = 0.0 if stops_now else self._caps.gap_seconds
        self._charge(usd_per_hour(self._state, job.slots), self._stop_seconds(job) + more)

    def stop(self, job: JobState) -> None:
        """Count a job that was to go on as one that stops."""
        rate, seconds = usd_per_hour(self._state, job.slots), self._stop_seconds(job)
        self._charge(rate, seconds)
        self._charge(-rate, seconds + self._caps.gap_seconds)

    def start(self, job: JobState, slots: Iterable[GpuSlot]) -> TeamCap | None:
        """Count a start if every cap has room for it; otherwise return the cap without room."""
        rate, seconds = usd_per_hour(self._state, slots), self._start_seconds(job)
        for purse in self._purses:
            if self._cost(purse, rate, seconds) > max(purse.left, 0.0):
                return purse.code
        self._charge(rate, seconds)
        return None

    def _start_seconds(self, job: JobState) -> float:
        """Return for how long a start must be affordable."""
        return max(self._caps.start_seconds, self._stop_seconds(job) + 2.0 * self._caps.gap_seconds)

    @property
    def broken(self) -> TeamCap | None:
        """The cap that could break, if any."""
        return next((purse.code for purse in self._purses if purse.left < 0.0), None)

    def numbers(self, code: TeamCap) -> dict[HeldNumber, float]:
        """Return the numbers behind a refusal."""
        purse = next(purse for purse in self._purses if purse.code == code)
        return {"cap_usd": purse.cap, "left_usd": round(purse.left, 6)}

    def held(self, job: JobState, slots: Iterable[GpuSlot], code: TeamCap) -> Held:
        """Return why a job stops or does not start, with the numbers and the money behind it.

        `slots` are the GPUs that it leaves, or does not get.
        """
        numbers, money = self.numbers(code), self._money(job, slots, code)
        return Held(what=f"job {job.job.id}", code=code, numbers=numbers, money=money)

    def _money(self, job: JobState, slots: Iterable[GpuSlot], code: TeamCap) -> HeldMoney:
        purse = min((purse for purse in self._purses if purse.code == code), key=lambda purse: purse.left)
        needed = self._cost(purse, usd_per_hour(self._state, slots), self._start_seconds(job))
        return HeldMoney(
            spent_usd=round(purse.spent, 6),
            reserved_usd=round(max(purse.cap - purse.spent - purse.left, 0.0), 6),
            room_at=purse.window.ends_at,
            needed_usd=needed,
        )


def _loss(job: JobState) -> float:
    """Return what a stop of a job loses: weight over remaining work."""
    left = job.job.remaining_gpu_hours
    return job.job.weight / left if left > 0 else inf


def with_verdict(plan: Plan, verdict: TeamVerdict) -> Plan:
    """Return the plan with jobs stopped and waiting by a verdict; their slots were removed before."""
    waiting = {job: code for job, code in (verdict.stops | verdict.waits).items() if job in plan.jobs.widths}
    return replace(
        plan,
        forced=tuple(dict.fromkeys((*plan.forced, *verdict.forced))),
        jobs=plan.jobs.stopping(verdict.stops).waiting_for(waiting),
        held=(*plan.held, *verdict.held),
    )
