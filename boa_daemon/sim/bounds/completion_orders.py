"""A lower bound on the sum of completion times of few jobs: a search over the orders in which they end.

Between two events (jobs become ready to run, a job ends) the same jobs are present. There, a schedule is the
time spent in each configuration: a width or none for each job, which fixes the whole nodes that are needed.
So for one order of events the best schedule solves a mixed-integer linear program over durations, and the
bound is the least over all orders. Orders are built event by event; what follows the events fixed so far is
relaxed to a tail in which jobs run without regard to one another. The search looks at the most promising
prefix first, so the least value still open is a bound whenever it stops.

    symbol   here        meaning
    x_ec     spent       hours in configuration c between events e and e + 1
    T_e      instants    the time of event e
    z_jk     uses        whether job j ever works at choice k: then it pays one overhead there
    f_jpk    shares      the part of phase p of job j that is done at choice k
    y_jk     started     hours that a start-up takes beyond a rescale
    H_le     held        hours that the l-th node of a type is on between e and e + 1
    q_le     at_event    whether it is on at event e
    B_le     booted      boots of it between e and e + 1

What is relaxed: GPUs may be anywhere on the nodes; a job pays one overhead per width, however often it
returns to it; the phases of a job may be in any order.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, product

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from boa_daemon.sim.bounds.solver_output import on_stderr
from policies.speedup import Floats, Ints

MOST_CONFIGURATIONS = 1_100
"""More configurations than this at once make a program too slow."""
MOST_JOBS = 10
"""More jobs than this have more configurations even at one width each."""
MOST_PEAKS = 256
"""More numbers of nodes than this are too many to begin from."""
WHOLE_COSTS = 10
"""Programs without integers that take as long as one with them."""
MOST_NODES = 2_000
"""A limit on branching within a program with integers; its answer is a bound wherever it stops."""
GAP = 1e-3
"""The relative gap at which such a program stops."""
TOLERANCE = 2e-6
"""The relative error allowed for the solver's tolerances: the bound is lowered by it."""
SCALE = 1e3
"""What the longest schedule and the money count in the solver's units. Its tolerances are absolute: in hours
and dollars, the bound of a job of a minute for ten cents was above what the job took."""
INFEASIBLE = 2
"""The status of a program without a solution, in scipy's numbers."""
Order = tuple[int, ...]
"""Events so far: a job number means that the job ends; READY that the next jobs become ready."""
READY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FewJob:
    """A job: when it arrives and is ready, hours of each phase at each choice (inf: cannot), overheads.

    `kind` is equal for jobs that differ in times of arrival only.
    """

    arrived_at: float
    ready_at: float
    hours: Floats
    overhead_hours: float
    startup_excess_hours: float
    kind: tuple[object, ...]

    def can_swap(self, other: FewJob) -> bool:
        """Return whether swapping the two jobs from some moment on changes nothing but their names."""
        if self.kind != other.kind:
            return False
        is_free = self.overhead_hours + self.startup_excess_hours <= 0.0 and len(self.hours) == 1
        return is_free or (self.ready_at, self.arrived_at) == (other.ready_at, other.arrived_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastHours:
    """A lower bound on the sum of completion times; `is_least`: the search ended, so no order has less."""

    hours: float
    is_least: bool


@dataclass(frozen=True, kw_only=True)
class FewJobs:
    """Few jobs, the choices (a type of GPU and a width) and the supply of nodes. Hours from one origin."""

    jobs: Sequence[FewJob]
    gpu_type: Ints
    gpus: Ints
    node_gpus: Ints
    node_price: Floats
    boot_hours: float
    max_nodes: int | None
    money: float
    _memo: dict[tuple[int, ...], _Configurations] = field(default_factory=dict)

    @property
    def is_small(self) -> bool:
        """Whether there are few configurations of all jobs together, and few numbers of nodes."""
        ways = (1 + len(self.choices_for(job)) for job in range(len(self.jobs)))
        return (
            math.prod(ways) <= MOST_CONFIGURATIONS
            and math.prod(1 + most for most in self.most_nodes) <= MOST_PEAKS
        )

    @cached_property
    def ready_times(self) -> list[float]:
        """The distinct times at which jobs become ready."""
        return sorted({job.ready_at for job in self.jobs})

    @cached_property
    def longest(self) -> float:
        """An upper bound on the end of some best schedule.

        Some job always runs while one is present. A best schedule needs at most one configuration more
        between two events than there are jobs and limits on money, and each may restart every job.
        """
        count = len(self.jobs)
        stints = (count + 2) * 2 * count
        return self.ready_times[-1] + sum(
            float(np.where(np.isfinite(job.hours), job.hours, 0.0).max(axis=1).sum())
            + job.startup_excess_hours
            + stints * job.overhead_hours
            for job in self.jobs
        )

    def choices_for(self, job: int) -> Ints:
        """Return the choices at which a job can do some phase."""
        return np.flatnonzero(np.isfinite(self.jobs[job].hours).any(axis=0))

    def configurations(self, present: tuple[int, ...]) -> _Configurations:
        """Return every way to run some of the jobs that are present under the cap."""
        if present not in self._memo:
            self._memo[present] = _Configurations.of(self, present)
        return self._memo[present]

    def least_hours(self, most_programs: int) -> LeastHours:
        """Return a lower bound on the sum of completion times by solving at most about so many programs."""
        unit_hours = self.longest / SCALE
        found = self._in_units(unit_hours, self.money / SCALE)._searched(most_programs)
        return replace(found, hours=found.hours * unit_hours)

    def _in_units(self, unit_hours: float, unit_usd: float) -> FewJobs:
        """Return the same workload in other units."""
        jobs = [
            replace(
                job,
                arrived_at=job.arrived_at / unit_hours,
                ready_at=job.ready_at / unit_hours,
                hours=job.hours / unit_hours,
                overhead_hours=job.overhead_hours / unit_hours,
                startup_excess_hours=job.startup_excess_hours / unit_hours,
            )
            for job in self.jobs
        ]
        return replace(
            self,
            jobs=jobs,
            node_price=self.node_price * (unit_hours / unit_usd),
            boot_hours=self.boot_hours / unit_hours,
            money=self.money / unit_usd,
            _memo={},
        )

    def _searched(self, most_programs: int) -> LeastHours:
        """Return what the search over orders finds, in the units of this workload."""
        tie, solved = count(), 0
        open_orders: list[tuple[float, int, Order, tuple[int, ...], bool]] = []
        root: Order = (READY,)
        for peaks in self.all_peaks():
            hours = self.solve(root, peaks, whole=False)
            solved += 1
            heapq.heappush(open_orders, (hours, next(tie), root, peaks, False))
        best = math.inf
        while open_orders:
            hours, _, order, peaks, is_solved = heapq.heappop(open_orders)
            if is_solved or math.isinf(hours):
                return LeastHours(hours=hours, is_least=True)
            if solved >= most_programs:
                return LeastHours(hours=hours, is_least=False)
            is_complete = self.is_complete(order)
            for further in (order,) if is_complete else self.next_orders(order):
                value = max(hours, self.solve(further, peaks, whole=is_complete))
                solved += WHOLE_COSTS if is_complete else 1
                if is_complete:
                    best = min(best, value)
                if value <= best:
                    heapq.heappush(open_orders, (value, next(tie), further, peaks, is_complete))
        return LeastHours(hours=best, is_least=True)

    def is_complete(self, order: Order) -> bool:
        """Return whether all jobs have ended."""
        return len(order) == len(self.jobs) + len(self.ready_times)

    def next_orders(self, order: Order) -> Iterator[Order]:
        """Yield the order with each event that may come next."""
        arrived = order.count(READY)
        if arrived < len(self.ready_times):
            yield (*order, READY)
        present = self.present_after(order)
        for job in present:
            earlier = (other for other in present if other < job)
            if not any(self.jobs[other].can_swap(self.jobs[job]) for other in earlier):
                yield (*order, job)

    def present_after(self, order: Order) -> tuple[int, ...]:
        """Return the jobs that are ready and have not ended."""
        until = self.ready_times[order.count(READY) - 1]
        return tuple(
            number for number, job in enumerate(self.jobs) if job.ready_at <= until and number not in order
        )

    def solve(self, order: Order, peaks: tuple[int, ...], *, whole: bool) -> float:
        """Return the least sum of completion times for an order; not `whole`: a relaxation of it."""
        return _Program(few=self, order=order, peaks=peaks).solve(whole=whole)

    @cached_property
    def most_nodes(self) -> list[int]:
        """The most nodes of each type that all jobs together can use and the cap and the money allow."""
        found = []
        for of_type, price in enumerate(self.node_price):
            gpus = sum(
                int(
                    self.gpus[
                        [choice for choice in self.choices_for(job) if self.gpu_type[choice] == of_type]
                    ].max(initial=0)
                )
                for job in range(len(self.jobs))
            )
            most = -(-gpus // int(self.node_gpus[of_type]))
            if self.max_nodes is not None:
                most = min(most, self.max_nodes)
            if self.boot_hours > 0.0:
                most = min(most, int(self.money / (float(price) * self.boot_hours)))
            found.append(most)
        return found

    def all_peaks(self) -> Iterator[tuple[int, ...]]:
        """Yield the most nodes of each type that are on at any time, and hence the least boots of each."""
        if self.boot_hours <= 0.0:
            yield tuple(self.most_nodes)
            return
        for peaks in product(*(range(most + 1) for most in self.most_nodes)):
            boots = float(self.node_price @ np.array(peaks)) * self.boot_hours
            if any(peaks) and boots <= self.money:
                yield peaks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Configurations:
    """Configurations: the nodes each needs by type, (configurations, types), and pairs of job and choice."""

    nodes: Ints
    runs: Sequence[tuple[tuple[int, int], ...]]

    @classmethod
    def of(cls, few: FewJobs, present: tuple[int, ...]) -> _Configurations:
        """Return every one of them that the cap allows."""
        ways = [(None, *few.choices_for(job).tolist()) for job in present]
        runs, needs = [], []
        for picked in product(*ways):
            run = tuple(
                (job, choice) for job, choice in zip(present, picked, strict=True) if choice is not None
            )
            gpus = np.zeros(len(few.node_gpus), dtype=np.int64)
            for _, choice in run:
                gpus[few.gpu_type[choice]] += few.gpus[choice]
            nodes = -(-gpus // few.node_gpus)
            if few.max_nodes is None or nodes.sum() <= few.max_nodes:
                runs.append(run)
                needs.append(nodes)
        return cls(nodes=np.array(needs), runs=runs)


@dataclass(kw_only=True)
class _Program:
    """The program of one order of events, built row by row."""

    few: FewJobs
    order: Order
    peaks: tuple[int, ...]
    cost: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    is_integer: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    entries: list[float] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)

    def solve(self, *, whole: bool) -> float:
        """Return a lower bound on the least value; infinite if there is no schedule in this order."""
        self.build()
        shape = (len(self.least), len(self.cost))
        matrix = csr_array((self.entries, (self.rows, self.columns)), shape=shape)
        with on_stderr():
            found = milp(
                np.array(self.cost),
                integrality=np.array(self.is_integer) * int(whole),
                bounds=Bounds(np.array(self.low), np.array(self.high)),
                constraints=LinearConstraint(matrix, np.array(self.least), np.array(self.most)),
                options={"mip_rel_gap": GAP, "node_limit": MOST_NODES},
            )
        if found.status == INFEASIBLE:
            return math.inf
        value = found.mip_dual_bound if whole else found.fun
        if value is None:
            # Not solved for some other reason: nothing is known.
            return -math.inf
        return float(value) * (1.0 - TOLERANCE) - sum(job.arrived_at for job in self.few.jobs)

    def variable(
        self, *, cost: float = 0.0, low: float = 0.0, high: float = math.inf, integer: bool = False
    ) -> int:
        """Add a variable and return its number."""
        self.cost.append(cost)
        self.low.append(low)
        self.high.append(high)
        self.is_integer.append(int(integer))
        return len(self.cost) - 1

    def flag(self) -> int:
        """Add a variable of 0 or 1."""
        return self.variable(high=1.0, integer=True)

    def row(self, terms: Sequence[tuple[int, float]], least: float, most: float = math.inf) -> None:
        """Add a constraint."""
        number = len(self.least)
        for column, entry in terms:
            self.rows.append(number)
            self.columns.append(column)
            self.entries.append(entry)
        self.least.append(least)
        self.most.append(most)

    def build(self) -> None:
        """Add everything."""
        few = self.few
        instants = []
        arrived = 0
        for event in self.order:
            if event == READY:
                at = few.ready_times[arrived]
                instants.append(self.variable(low=at, high=at))
                arrived += 1
            else:
                instants.append(self.variable(cost=1.0))
        hours: dict[tuple[int, int], list[tuple[int, float]]] = {
            (job, int(choice)): [] for job in range(len(few.jobs)) for choice in few.choices_for(job)
        }
        paid: list[tuple[int, float]] = []
        intervals = []
        for number in range(len(self.order) - 1):
            configurations = few.configurations(few.present_after(self.order[: number + 1]))
            fits = np.all(configurations.nodes <= np.array(self.peaks), axis=1).tolist()
            spent = [self.variable(high=math.inf if fit else 0.0) for fit in fits]
            length = [(instants[number + 1], 1.0), (instants[number], -1.0)]
            self.row([*((column, 1.0) for column in spent), *((c, -v) for c, v in length)], 0.0, 0.0)
            for column, run in zip(spent, configurations.runs, strict=True):
                for pair in run:
                    hours[pair].append((column, 1.0))
            intervals.append((configurations, spent, length))
        self._nodes(intervals, paid)
        self._tail(instants[-1], hours, paid)
        self._work(hours)
        self.row(paid, -math.inf, few.money)

    def _nodes(
        self,
        intervals: Sequence[tuple[_Configurations, list[int], list[tuple[int, float]]]],
        paid: list[tuple[int, float]],
    ) -> None:
        """Add the hours and boots of the l-th node of each type."""
        few = self.few
        is_complete = few.is_complete(self.order)
        for of_type, price in enumerate(few.node_price):
            for level in range(1, self.peaks[of_type] + 1):
                before: int | None = None
                # Lower nodes are on whenever this one is, and each is booted: money limits its hours.
                longest = few.money / float(price) / level - few.boot_hours
                all_booted = []
                for number, (found, spent, length) in enumerate(intervals):
                    users = [c for c, n in zip(spent, found.nodes[:, of_type], strict=True) if n >= level]
                    is_last = is_complete and number == len(intervals) - 1
                    after = None if is_last else self.flag()
                    held, booted = self.variable(), self.variable()
                    ends = [(flag, 1.0) for flag in (before, after) if flag is not None]
                    self.row([(held, 1.0), *((column, -1.0) for column in users)], 0.0)
                    self.row([(held, -1.0), *length], 0.0)
                    paid += [(held, float(price)), (booted, float(price) * few.boot_hours)]
                    all_booted.append((booted, 1.0))
                    if users:
                        is_used = self.flag()
                        self.row([(is_used, longest), (held, -1.0)], 0.0)
                        self.row([(booted, 1.0), (is_used, -1.0), *ends], 0.0)
                    if after is not None:
                        starts = [(before, 1.0)] if before is not None else []
                        self.row([(booted, 1.0), (after, -1.0), *starts], 0.0)
                    if before is not None and after is not None:
                        is_kept = self.flag()
                        self.row([(booted, 1.0), (before, -1.0), (after, -1.0), (is_kept, 1.0)], -1.0)
                        backwards = [(column, -entry) for column, entry in length]
                        self.row([(held, 1.0), *backwards, (is_kept, -few.longest)], -few.longest)
                    before = after
                tail = self.variable()
                paid.append((tail, float(price) * few.boot_hours))
                self.row([*all_booted, (tail, 1.0)], 1.0)

    def _tail(
        self,
        last: int,
        hours: dict[tuple[int, int], list[tuple[int, float]]],
        paid: list[tuple[int, float]],
    ) -> None:
        """Add what follows the last event: each job runs as it likes, its GPUs are shares of nodes."""
        few = self.few
        left = [job for job in range(len(few.jobs)) if job not in self.order]
        if not left:
            return
        held = [self.variable() for _ in few.node_price]
        paid += [(column, float(price)) for column, price in zip(held, few.node_price, strict=True)]
        shares: list[list[tuple[int, float]]] = [[] for _ in held]
        present = few.present_after(self.order)
        for job in left:
            own: list[list[tuple[int, float]]] = [[] for _ in held]
            runs = []
            for choice in few.choices_for(job).tolist():
                of_type, gpus = int(few.gpu_type[choice]), int(few.gpus[choice])
                nodes = -(-gpus // int(few.node_gpus[of_type]))
                if nodes > self.peaks[of_type]:
                    continue
                column = self.variable()
                hours[job, choice].append((column, 1.0))
                runs.append((column, -1.0))
                shares[of_type].append((column, -gpus / int(few.node_gpus[of_type])))
                own[of_type].append((column, -float(nodes)))
            for column, terms in zip(held, own, strict=True):
                self.row([(column, 1.0), *terms], 0.0)
            ends = self.variable(cost=1.0)
            if job in present:
                self.row([(ends, 1.0), (last, -1.0), *runs], 0.0)
            else:
                self.row([(ends, 1.0), *runs], few.jobs[job].ready_at)
                self.row([(ends, 1.0), (last, -1.0)], 0.0)
        for column, terms in zip(held, shares, strict=True):
            self.row([(column, 1.0), *terms], 0.0)

    def _work(self, hours: dict[tuple[int, int], list[tuple[int, float]]]) -> None:
        """Add the work of each job: its hours at a choice are overheads and parts of its phases."""
        for number, job in enumerate(self.few.jobs):
            parts: list[list[int]] = [[] for _ in job.hours]
            starts = []
            for choice in self.few.choices_for(number).tolist():
                uses, started = self.flag(), self.variable()
                starts.append((started, 1.0))
                terms = [*hours[number, choice], (uses, -job.overhead_hours), (started, -1.0)]
                for phase, length in enumerate(job.hours[:, choice].tolist()):
                    if math.isfinite(length):
                        part = self.variable()
                        parts[phase].append(part)
                        terms.append((part, -length))
                        self.row([(uses, 1.0), (part, -1.0)], 0.0)
                self.row(terms, 0.0)
            for found in parts:
                self.row([(part, 1.0) for part in found], 1.0, 1.0)
            self.row(starts, job.startup_excess_hours, job.startup_excess_hours)
