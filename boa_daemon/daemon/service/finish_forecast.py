"""Forecast when each job ends and what it costs until then, with intervals.

Running jobs continue at their present width. Waiting jobs start in the order of the plan, as soon as enough
GPUs of their type are free or booted. A job whose nodes a cap per day or month does not pay for now starts on
GPUs that fall free, or on nodes of its own once the next day or month has begun. Where the budget is below
the load, the account is played on (`accrual_forecast`). A job that is told to stop waits again; nodes that go
back have no GPUs. Below a limit on nodes, those that may still be rented come after a boot. Three simulations
run: with the expected remaining work, and with the 5 % and 95 % quantiles of the class's sizes. Later
arrivals and changes of width are not modelled.

Cost: O(jobs log jobs), half a second for 11,000 (benchmarks/tick.py).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import floor, inf, isfinite

from boa_daemon.daemon.planner.dates import hours_on
from boa_daemon.daemon.service.accrual_forecast import Course, Machines, starts_by_accrual
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.reasons import WaitReason
from boa_daemon.tick.facts.state import ClusterState, JobState
from boa_daemon.tick.money.spending import live_nodes, price_of_next, prices_in_use
from boa_daemon.tick.room.service_order import waiting_in_order
from boa_daemon.units import SECONDS_PER_HOUR, format_hours, format_instant
from policies.model import InstanceType, JobClass, JobId, NodeId, Width
from policies.money_text import in_dollars
from policies.online.work_left import work_left_at

LEVELS = (0.05, 0.95)
_ROOM: frozenset[WaitReason] = frozenset(("node-limit", "cap-hour", "cap-instances"))
"""What jobs wait for where more nodes may come than are asked for."""
MOST_JOBS = 20_000
"""Largest number of jobs to forecast; running jobs come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEstimate:
    """What is known of a job: its class, its expected size before it began, and how much sizes vary."""

    job_class: JobClass
    size_gpu_hours: float
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishForecast:
    """When a job ends and what it costs until then, with 90 % intervals: epoch seconds and dollars.

    `starts_at` is when a waiting job starts, if jobs need as long as expected. `opens_at` is when its cap's
    day or month ends, if the job waits for that and not for other jobs. `accrues`: it waits for money.
    """

    at: float
    low: float
    high: float
    usd: float
    usd_low: float
    usd_high: float
    starts_at: float | None = None
    opens_at: float | None = None
    accrues: bool = False

    @property
    def document(self) -> dict[str, float | None]:
        """The forecast for programs."""
        return {
            "starts_at": self.starts_at,
            "opens_at": self.opens_at,
            "at": self.at,
            "low": self.low,
            "high": self.high,
            "usd": self.usd,
            "usd_low": self.usd_low,
            "usd_high": self.usd_high,
        }

    def sentence(self, now: float) -> str:
        """Return the forecast as a sentence."""
        low, at, high = (
            format_hours(max(end - now, 0.0) / SECONDS_PER_HOUR) for end in (self.low, self.at, self.high)
        )
        start = ""
        if self.starts_at is not None:
            wait = format_hours(max(self.starts_at - now, 0.0) / SECONDS_PER_HOUR)
            why = "by the jobs before it"
            if self.accrues:
                why = "when the jobs before it and the money that accrues leave room for its nodes"
            if self.opens_at is not None:
                why = f"a boot after its cap has room again at {format_instant(self.opens_at)}"
            start = f"It should start in {wait}, {why}. "
        return (
            f"{start}It should end in {at} ({low} to {high} in nine of ten "
            f"cases), for {in_dollars(self.usd)} more "
            f"({in_dollars(self.usd_low)} to {in_dollars(self.usd_high)})."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """A job in the simulation: its width, hours of work (low, expected, high), and dollars per hour."""

    width: Width
    hours: tuple[float, float, float]
    startup_hours: float
    usd_per_hour: float
    runs: bool


def forecast_finishes(
    state: ClusterState, plan: Plan, known: Mapping[JobId, JobEstimate], *, boot_hours: float
) -> dict[JobId, FinishForecast]:
    """Return when jobs end; a job whose width or start is unknown is left out."""
    courses = _courses(state, plan, known)
    names = dict.fromkeys((*plan.jobs.slots, *waiting_in_order(state, plan), *plan.jobs.waiting, *courses))
    queue = [
        (name, course) for name in names if (course := courses.get(name)) is not None and not course.runs
    ]
    opens = _opens(state, plan)
    play = _played if plan.accrual is None else _accrued
    (lows, _, _), (ends, starts, by_money), (highs, _, _) = (
        play(state, plan, courses, at, boot_hours=boot_hours, queue=queue, opens=opens) for at in range(3)
    )
    found: dict[JobId, FinishForecast] = {}
    for name, course in courses.items():
        if name not in lows or name not in ends or name not in highs:
            continue
        at, startup, rate = (
            state.now + SECONDS_PER_HOUR * ends[name],
            course.startup_hours,
            course.usd_per_hour,
        )
        low, expected, high = course.hours
        found[name] = FinishForecast(
            at=at,
            low=min(state.now + SECONDS_PER_HOUR * lows[name], at),
            high=max(state.now + SECONDS_PER_HOUR * highs[name], at),
            usd_low=(low + startup) * rate,
            usd=(expected + startup) * rate,
            usd_high=(high + startup) * rate,
            starts_at=None if course.runs else state.now + SECONDS_PER_HOUR * starts[name],
            opens_at=opens[name] if name in by_money else None,
            accrues=plan.jobs.waiting.get(name) == "budget",
        )
    return found


def _opens(state: ClusterState, plan: Plan) -> dict[JobId, float]:
    """Return when the day or month ends whose cap a job waits for.

    While nothing is rented, and a cap keeps the next node from being rented, nobody starts before it ends:
    also no job for which money has accrued.
    """
    ends: dict[str, float] = {}
    for note in plan.held:
        if note.money is not None and note.code in ("cap-day", "cap-month"):
            ends[note.code] = max(ends.get(note.code, 0.0), note.money.room_at)
    if ends and not plan.launches and not any(live_nodes(state)):
        ends["budget"] = min(ends.values())
    return {name: ends[code] for name, code in plan.jobs.waiting.items() if code in ends}


def _courses(state: ClusterState, plan: Plan, known: Mapping[JobId, JobEstimate]) -> dict[JobId, _Course]:
    """Return the jobs that have a width and a class, running jobs first."""
    jobs = sorted(state.jobs.items(), key=lambda item: not item[1].slots)[:MOST_JOBS]
    machines = {kind.gpu_type: kind for kind in plan.instance_types.values()}
    machines |= {node.instance_type.gpu_type: node.instance_type for node in state.nodes.values()}
    found = {}
    alike: dict[tuple[object, ...], _Course | None] = {}
    for name, job in jobs:
        runs = bool(job.slots) and name not in plan.jobs.stops
        width = job.job.width if runs else plan.jobs.widths.get(name) or plan.jobs.unpaid.get(name)
        about = known.get(name)
        if width is None or about is None:
            continue
        if job.slots:
            course = _course(state, machines, job, width, about, runs=runs)
        else:
            # Thousands of waiting jobs differ in nothing that counts here.
            like = id(about.job_class), about.size_gpu_hours, about.spread
            key = (*like, job.job.remaining_gpu_hours, job.job.scale, width)
            if key not in alike:
                alike[key] = _course(state, machines, job, width, about)
            course = alike[key]
        if course is not None:
            found[name] = course
    return found


def _course(
    state: ClusterState,
    machines: Mapping[str, InstanceType],
    job: JobState,
    width: Width,
    about: JobEstimate,
    *,
    runs: bool = False,
) -> _Course | None:
    """Return how a job continues at a width; None when one of its phases does not allow the width."""
    left, whole = job.job.remaining_gpu_hours, job.job.scale * about.job_class.size_gpu_hours
    took = hours_on(about.job_class, left, whole, width)
    if not isfinite(took) or left <= 0.0:
        return None
    low, high = _interval(about, whole - left)
    return _Course(
        width=width,
        hours=(took * min(low / left, 1.0), took, took * max(high / left, 1.0)),
        startup_hours=0.0 if runs else about.job_class.startup_hours,
        usd_per_hour=_usd_per_hour(state, machines, job, width),
        runs=runs,
    )


def _interval(about: JobEstimate, done: float) -> tuple[float, float]:
    """Return the low and high quantiles of a job's remaining GPU-hours after `done` GPU-hours."""
    if done <= 0.0:
        low, high = _of_one(about.spread)
        return low * about.size_gpu_hours, high * about.size_gpu_hours
    low, high = work_left_at(about.size_gpu_hours, done, spread=about.spread, levels=LEVELS)
    return low, high


@lru_cache(maxsize=256)
def _of_one(spread: float) -> tuple[float, float]:
    """Return the low and high quantiles of a job's size over the mean size."""
    low, high = work_left_at(1.0, 0.0, spread=spread, levels=LEVELS)
    return low, high


def _usd_per_hour(
    state: ClusterState, machines: Mapping[str, InstanceType], job: JobState, width: Width
) -> float:
    """Return the dollars per hour of a job's GPUs: their share of their nodes."""
    nodes = [state.nodes[slot.node] for slot in job.slots if slot.node in state.nodes]
    if nodes and len(nodes) == width.gpus:
        return sum(node.usd_per_hour / node.instance_type.gpus for node in nodes)
    machine = machines.get(width.gpu_type)
    if machine is None:
        return 0.0
    # The price of the offer in use: spot where the next node is rented on spot.
    return width.gpus * price_of_next(state, machine.name, machine.usd_per_hour) / machine.gpus


def _played(
    state: ClusterState,
    plan: Plan,
    courses: Mapping[JobId, _Course],
    at: int,
    *,
    boot_hours: float,
    queue: Sequence[tuple[JobId, _Course]],
    opens: Mapping[JobId, float],
) -> tuple[dict[JobId, float], dict[JobId, float], set[JobId]]:
    """Simulate once; `at` selects low, expected or high work, and `queue` has the jobs that wait, in order.

    Returns the hours until each job ends and until each waiting job starts, and the jobs that start on nodes
    for which a cap opens first.
    """
    free: dict[str, list[tuple[float, int]]] = {}
    leaving = _leaving(plan)
    for node in state.nodes.values():
        if node.id in leaving:
            continue
        if node.phase == "requested":
            waited = (state.now - node.launched_at) / SECONDS_PER_HOUR
            free.setdefault(node.instance_type.gpu_type, []).append(
                (max(boot_hours - waited, 0.0), node.instance_type.gpus)
            )
        elif node.phase == "ready" and node.ends_by is None and node.free_gpus:
            free.setdefault(node.instance_type.gpu_type, []).append((0.0, node.free_gpus))
    for name, count in plan.launches.items():
        machine = plan.instance_types[name]
        free.setdefault(machine.gpu_type, []).append((boot_hours, count * machine.gpus))
    for kind, gpus in _still_to_rent(state, plan, queue).items():
        free.setdefault(kind, []).append((boot_hours, gpus))
    ends = {name: course.hours[at] for name, course in courses.items() if course.runs}
    for name, job in state.jobs.items():
        # GPUs of a job that stops.
        gone = job.slots and name not in ends
        for slot in job.slots if gone else ():
            if slot.node in state.nodes and slot.node not in leaving:
                free.setdefault(state.nodes[slot.node].instance_type.gpu_type, []).append((0.0, 1))
    for name, end in ends.items():
        width = courses[name].width
        free.setdefault(width.gpu_type, []).append((end, width.gpus))
    in_all = {kind: sum(gpus for _, gpus in pool) for kind, pool in free.items()}
    for pool in free.values():
        heapq.heapify(pool)
    by_money: set[JobId] = set()
    starts: dict[JobId, float] = {}
    for name, course in queue:
        kind, gpus = course.width.gpu_type, course.width.gpus
        pool, opens_in = free.setdefault(kind, []), inf
        if name in opens:
            opens_in = max(opens[name] - state.now, 0.0) / SECONDS_PER_HOUR + boot_hours
        start = _taken(pool, gpus, by=opens_in) if gpus <= in_all.get(kind, 0) else inf
        if not isfinite(min(start, opens_in)):
            continue
        if opens_in < start:
            # It gets nodes of its own, which jobs after it may use once it has ended.
            start, in_all[kind] = opens_in, in_all.get(kind, 0) + gpus
            by_money.add(name)
        starts[name] = start
        ends[name] = start + course.startup_hours + course.hours[at]
        heapq.heappush(pool, (ends[name], gpus))
    return ends, starts, by_money


def _leaving(plan: Plan) -> set[NodeId]:
    """Return the nodes that go back, now or once their jobs have stopped."""
    noted = (note.what.removeprefix("node ") for note in plan.held if note.what.startswith("node "))
    return {*plan.releases, *plan.forced, *noted}


def _still_to_rent(state: ClusterState, plan: Plan, queue: Sequence[tuple[JobId, _Course]]) -> dict[str, int]:
    """Return the GPUs of nodes that a limit on nodes or dollars per hour leaves to the first waiting job."""
    first = next(
        (course.width.gpu_type for name, course in queue if plan.jobs.waiting.get(name) in _ROOM), None
    )
    caps = [cap for cap in plan.room_caps if first in cap.node_sizes]
    if first is None or not caps:
        return {}
    leaving = _leaving(plan)
    present = [node for node in state.nodes.values() if node.phase != "stopped" and node.id not in leaving]
    counts: dict[str, int] = {}
    for node in present:
        counts[node.instance_type.gpu_type] = counts.get(node.instance_type.gpu_type, 0) + 1
    for name, count in plan.launches.items():
        kind = plan.instance_types[name].gpu_type
        counts[kind] = counts.get(kind, 0) + count
    left = min(
        (cap.size - sum(size * counts.get(kind, 0) for kind, size in cap.node_sizes.items()))
        / cap.node_sizes[first]
        for cap in caps
    )
    nodes = floor(left + 1e-9)
    return {first: nodes * caps[0].gpus[first]} if nodes > 0 else {}


def _accrued(
    state: ClusterState,
    plan: Plan,
    courses: Mapping[JobId, _Course],
    at: int,
    *,
    boot_hours: float,
    queue: Sequence[tuple[JobId, _Course]],
    opens: Mapping[JobId, float],
) -> tuple[dict[JobId, float], dict[JobId, float], set[JobId]]:
    """Simulate once as `_played` does, where jobs wait for money to accrue."""
    assert plan.accrual is not None
    kinds = {kind.gpu_type: kind for kind in plan.instance_types.values()}
    kinds |= {node.instance_type.gpu_type: node.instance_type for node in state.nodes.values()}
    leaving = _leaving(plan)
    nodes = [node for node in live_nodes(state) if node.id not in leaving]
    rented = Counter(node.instance_type.gpu_type for node in nodes)
    ready_in: dict[str, float] = {}
    for node in nodes:
        if node.phase == "requested":
            waited = (state.now - node.launched_at) / SECONDS_PER_HOUR
            ready_in[node.instance_type.gpu_type] = max(boot_hours - waited, 0.0)
    ready_in |= {plan.instance_types[name].gpu_type: boot_hours for name in plan.launches}
    for name, count in plan.launches.items():
        rented[plan.instance_types[name].gpu_type] += count
    machines = Machines(
        gpus={kind: machine.gpus for kind, machine in kinds.items()},
        usd_per_hour=prices_in_use(state, kinds),
        rented=rented,
        ready_in=ready_in,
        limits=tuple(plan.room_caps),
    )

    def course(name: JobId) -> Course:
        one = courses[name]
        opens_in = max(opens.get(name, state.now) - state.now, 0.0) / SECONDS_PER_HOUR
        return Course(
            width=one.width, hours=one.hours[at], startup_hours=one.startup_hours, not_before=opens_in
        )

    order = [name for name in dict.fromkeys((*plan.order, *courses)) if name in courses]
    starts, ends = starts_by_accrual(
        plan.accrual,
        machines,
        {name: course(name) for name in order if courses[name].runs},
        {name: course(name) for name, _ in queue},
        boot_hours=boot_hours,
    )
    late = {name for name in starts if name in opens and starts[name] >= course(name).not_before > 0.0}
    return {name: end for name, end in ends.items() if courses[name].runs or name in starts}, starts, late


def _taken(pool: list[tuple[float, int]], gpus: int, *, by: float) -> float:
    """Take GPUs from a pool, which has enough, earliest first; return when the last one becomes free.

    If that is later than `by`, take none and return infinity.
    """
    start, count = pool[0]
    if count > gpus and start <= by:
        # The first GPUs are enough, and stay the first.
        pool[0] = (start, count - gpus)
        return start
    taken = []
    while gpus > 0:
        start, count = heapq.heappop(pool)
        taken.append((start, count))
        if start > by:
            for item in taken:
                heapq.heappush(pool, item)
            return inf
        if count > gpus:
            heapq.heappush(pool, (start, count - gpus))
        gpus -= count
    return start
