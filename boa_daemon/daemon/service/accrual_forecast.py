"""Forecast when jobs start that wait for money to accrue: best effort, played on.

Under best effort (`policies.online.best_effort`) an account accrues the budget and pays what is rented. Jobs
are served in order as long as whole nodes for them cost no more than the budget and a share of the balance;
the first that does not fit is saved for. This module plays the same rule from the present jobs and balance:
between two events the balance changes evenly, and an event is an end of a job, or an instant at which the
balance pays for the next job or no longer for what is rented. Jobs pack whole nodes without gaps, idle nodes
go back at once, limits on nodes hold as in the plan. Later arrivals and changes of width are not modelled.

Cost: O(events x jobs), for at most `MOST_WAITING` waiting jobs and `MOST_EVENTS` events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, inf

from boa_daemon.tick.facts.room_caps import RoomCap
from boa_daemon.tick.money.spending import SLACK
from policies.answer import Accrual
from policies.model import JobId, Width

MOST_WAITING = 100
"""Waiting jobs whose starts are foretold, the first in the order of service."""
MOST_EVENTS = 1000
_EPSILON = 1e-9


@dataclass(slots=True, kw_only=True)
class Course:
    """A job on its way: its width, the hours that it still works there, and the hours before it begins."""

    width: Width
    hours: float
    startup_hours: float = 0.0
    not_before: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Nodes by GPU type: GPUs and dollars per hour of one, and how many are rented now.

    `ready_in` are the hours until the rented nodes of a type have booted; `limits` bound the nodes that
    may be rented at once.
    """

    gpus: Mapping[str, int]
    usd_per_hour: Mapping[str, float]
    rented: Mapping[str, int]
    ready_in: Mapping[str, float] = field(default_factory=dict)
    limits: tuple[RoomCap, ...] = ()

    def hold(self, used: Mapping[str, int], width: Width) -> bool:
        """Return whether the limits on nodes leave room for a width beside GPUs in use."""
        return all(cap.holds_instead(used, width, None) for cap in self.limits)

    def cost(self, used: Mapping[str, int]) -> float:
        """Return what whole nodes for GPUs cost per hour."""
        return sum(ceil(gpus / self.gpus[kind]) * self.usd_per_hour[kind] for kind, gpus in used.items())


def starts_by_accrual(
    accrual: Accrual,
    machines: Machines,
    running: Mapping[JobId, Course],
    waiting: Mapping[JobId, Course],
    *,
    boot_hours: float,
) -> tuple[dict[JobId, float], dict[JobId, float]]:
    """Return in how many hours waiting jobs start, and in how many all jobs end; some may be left out.

    `running` and `waiting` are in the order of service.
    """
    play = _Play(accrual=accrual, machines=machines, boot_hours=boot_hours, balance=accrual.balance)
    for name, course in running.items():
        if course.width.gpu_type in machines.gpus:
            play.running[name] = course
            play.ends[name] = course.hours
    first = [name for name, course in waiting.items() if course.width.gpu_type in machines.gpus]
    play.waiting = {name: waiting[name] for name in first[:MOST_WAITING]}
    play.rented = {kind: machines.rented.get(kind, 0) for kind in machines.gpus}
    for _ in range(MOST_EVENTS):
        play.serve()
        if not play.waiting or not play.go_on():
            break
    # What runs on when nobody waits runs to its end.
    return play.starts, {**play.ended, **{name: play.ends[name] for name in play.running}}


@dataclass(slots=True, kw_only=True)
class _Play:
    """The account, the jobs and the nodes at an instant, in hours from now."""

    accrual: Accrual
    machines: Machines
    boot_hours: float
    balance: float
    now: float = 0.0
    running: dict[JobId, Course] = field(default_factory=dict)
    waiting: dict[JobId, Course] = field(default_factory=dict)
    rented: dict[str, int] = field(default_factory=dict)
    ends: dict[JobId, float] = field(default_factory=dict)
    ended: dict[JobId, float] = field(default_factory=dict)
    starts: dict[JobId, float] = field(default_factory=dict)
    needed: float = inf
    """What the first job costs per hour that money accrues for, with all before it."""

    @property
    def burn(self) -> float:
        """What the rented nodes cost per hour."""
        return sum(count * self.machines.usd_per_hour[kind] for kind, count in self.rented.items())

    def serve(self) -> None:
        """Stop and start jobs as the balance allows."""
        accrual = Accrual(
            per_hour=self.accrual.per_hour, balance=self.balance, spread_hours=self.accrual.spread_hours
        )
        may_use, burn = self.balance > _EPSILON, self.burn
        most = accrual.most_per_hour
        room = SLACK * (max(most, burn) if may_use else most) + _EPSILON
        used: dict[str, int] = {}
        for name in [*self.running]:
            course = self.running[name]
            more = self._with(used, course.width)
            if accrual.is_spent and self.machines.cost(more) > room:
                self._stop(name)
            else:
                used = more
        self.needed, is_full = inf, False
        for name in [*self.waiting]:
            course = self.waiting[name]
            if course.not_before > self.now + _EPSILON:
                continue
            more = self._with(used, course.width)
            cost = self.machines.cost(more)
            if not self.machines.hold(used, course.width):
                # It waits for an end, not for money, and nobody behind it takes nodes that it could have.
                is_full = True
            elif is_full and cost > self.machines.cost(used) + _EPSILON:
                continue
            elif cost <= room and (self.needed == inf or cost <= burn * SLACK):
                used = more
                self._start(name, used)
            elif self.needed == inf:
                self.needed = cost
        self.rented = {kind: ceil(used.get(kind, 0) / gpus) for kind, gpus in self.machines.gpus.items()}

    def go_on(self) -> bool:
        """Go to the next event; return whether there is one."""
        rate = self.accrual.per_hour - self.burn
        spread, per_hour = self.accrual.spread_hours, self.accrual.per_hour
        events = [end for name, end in self.ends.items() if name in self.running]
        levels: list[float] = []
        if rate > _EPSILON and self.needed < inf:
            levels = [max(spread * (self.needed - per_hour), 2.0 * _EPSILON)]
        elif rate < -_EPSILON and self.running:
            levels = [0.0, self.accrual.least_balance]
        for level in levels:
            hours = (level - self.balance) / rate
            if hours > _EPSILON:
                events.append(self.now + hours)
        later = (course.not_before for course in self.waiting.values())
        events += [at for at in later if at > self.now + _EPSILON]
        if not events:
            return False
        at = max(min(events), self.now)
        self.balance += rate * (at - self.now)
        self.now = at
        for name in [name for name in self.running if self.ends[name] <= at + _EPSILON]:
            del self.running[name]
            self.ended[name] = self.ends.pop(name)
        return True

    @staticmethod
    def _with(used: Mapping[str, int], width: Width) -> dict[str, int]:
        return {**used, width.gpu_type: used.get(width.gpu_type, 0) + width.gpus}

    def _start(self, name: JobId, used: Mapping[str, int]) -> None:
        course = self.waiting.pop(name)
        kind = course.width.gpu_type
        is_there = used[kind] <= self.rented[kind] * self.machines.gpus[kind]
        waits = max(self.machines.ready_in.get(kind, 0.0) - self.now, 0.0) if is_there else self.boot_hours
        self.starts.setdefault(name, self.now + waits)
        self.running[name] = course
        self.ends[name] = self.now + waits + course.startup_hours + course.hours

    def _stop(self, name: JobId) -> None:
        """Put a running job back before the others that wait."""
        course = self.running.pop(name)
        course.hours = min(course.hours, max(self.ends.pop(name) - self.now, 0.0))
        self.waiting = {name: course, **self.waiting}
