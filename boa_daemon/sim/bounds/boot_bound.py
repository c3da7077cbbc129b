"""A lower bound on the mean JCT of any policy that boots whole nodes under a cap on nodes: by weak duality.

Time-varying prices replace the limits on money, on ready GPUs and on nodes. Each job then finds its own
cheapest schedule and each node its own best times. The sum of what they find, less the worth of the money and
the cap, is below the sum of the completion times of every policy, whatever the prices
(docs/explanation/bound.md has the proof). A search looks for prices that make it large; a search that ends
early gives a weaker bound, but still a bound. Few jobs have a closer bound: a search over the orders in which
they end (`completion_orders.py`).

    symbol   here             meaning
    mu       multiplier       hours that one more unit of money saves; all other prices are in units of it
    v_m      warm             worth of a node that is ready when cell m begins, over the price of a boot
    rho_m    scarce           price of the cap, per node and hour
    nu_m     node_price       income of a ready node: P (1 + b (v_m - v_(m+1)) / d_m) + rho_m >= 0
    s_m      shares           part of nu_m that the anchor pays for each node that it is on
    p_m      gpu_price        (1 - s_m) nu_m / g, the income of a GPU
    y        time_values      price per hour of one job's window: the bound holds for any values

The anchor of a cell is one job, chosen beforehand: it is on at least ceil(k / g) nodes, whatever other jobs
do.

Cost: `SearchEffort.steps` times O(groups x values x cells x choices + jobs x values x cells).
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from boa_daemon.sim.bounds.bound_arrays import (
    CELLS,
    LEAST_CELL_HOURS,
    EqualJobs,
    anchors_of,
    choices_of,
    edges_of,
    rounded_scales,
    times_of,
    wait_hours,
)
from boa_daemon.sim.bounds.completion_orders import MOST_JOBS, FewJob, FewJobs
from boa_daemon.sim.bounds.lower_bound import SLACK, groups_of, lower_bound_hours
from boa_daemon.sim.bounds.stint_costs import least_costs
from boa_daemon.sim.bounds.stint_paths import Resolution, near_paths
from boa_daemon.traces.reader import Trace
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import InstanceType, Problem
from policies.optimum.boa import solve
from policies.optimum.solution import Solution
from policies.speedup import Floats, Ints

STEP = 0.1
"""First step of the search, as a fraction of each price's range; it falls as 1 / (1 + n / 20)."""
LEAST_STEPS = 12
MOST_WORK = 2e10
"""A limit on work: the search takes fewer steps for very many jobs, so that it ends in a minute or two."""
LAST_FACTORS = (0.96, 0.98, 1.0, 1.02, 1.04)
USUAL = 1.0 - 1e-6
"""y times mu at flat prices, slightly reduced, so that rounding makes no extra hour pay for itself."""
COARSE = np.concatenate(
    (
        np.geomspace(0.03, 0.8, 12),
        np.geomspace(0.85, 1.0, 5) * USUAL,
        np.geomspace(1.04, 1.18, 4),
        np.geomspace(1.25, 40.0, 12),
    )
)
SEARCH = Resolution(steps_per_overhead=3.0, most_steps=4_000, units_per_overhead=1.0, most_units=60)
FINAL = Resolution(steps_per_overhead=20.0, most_steps=30_000, units_per_overhead=5.0, most_units=600)
"""For jobs of several phases."""
FINE = np.concatenate((np.geomspace(0.02, 1.0, 60) * USUAL, np.geomspace(1.0, 60.0, 60)[1:]))
"""Values of y times mu, where 1 is exact at flat prices: in the search, and for the bound itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEffort:
    """How long to search, and the resolution for jobs of several phases: in the search, and at its end.

    With few jobs, about `programs` programs are solved before that; 0: none.
    """

    steps: int = 60
    programs: int = 400
    search: Resolution = SEARCH
    final: Resolution = FINAL


THOROUGH = SearchEffort()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSupply:
    """The supply of nodes: types by GPU type, the least hours of any boot, and the most nodes at once."""

    instance_types: Mapping[str, InstanceType]
    boot_hours: float
    max_nodes: int | None = None


def lower_bound_with_boots_hours(
    trace: Trace, problem: Problem, money: float, renting: NodeSupply, *, effort: SearchEffort = THOROUGH
) -> float:
    """Return the least mean JCT, hours, that any policy can reach for `money` in all.

    Infinite when the money cannot run the jobs.
    """
    one_by_one = lower_bound_hours(trace, problem, money)
    if math.isinf(one_by_one):
        return one_by_one
    few = None
    if effort.programs and len(trace.jobs) <= MOST_JOBS:
        few = few_jobs(trace, problem, money * (1.0 + SLACK), renting)
    if few is not None and few.is_small:
        found = few.least_hours(effort.programs)
        one_by_one = max(one_by_one, found.hours / len(trace.jobs))
        if found.is_least and all(len(job_class.phases) == 1 for job_class in problem.classes):
            return one_by_one
    flat = solve(groups_of(trace, problem), money * (1.0 + SLACK))
    # At a cap the search starts from the prices of a queue, which coarse cells would blur.
    cells = CELLS if renting.max_nodes is None else CELLS[-1:]
    levels = [_Dual.of(trace, problem, money * (1.0 + SLACK), renting, flat, cells=each) for each in cells]
    return max(one_by_one, _search(levels, effort) / len(trace.jobs))


def few_jobs(trace: Trace, problem: Problem, money: float, renting: NodeSupply) -> FewJobs:
    """Return a workload for the search over orders of completion."""
    names = [gpu.name for gpu in problem.gpu_types if gpu.name in renting.instance_types]
    choices = choices_of(problem, names)
    by_name = {job_class.name: job_class for job_class in problem.classes}
    began = trace.jobs[0].arrived_at_seconds
    jobs = []
    for job, (name, scale) in zip(trace.jobs, rounded_scales(trace), strict=True):
        arrived = (job.arrived_at_seconds - began) / SECONDS_PER_HOUR
        times = times_of(by_name[name], scale, names, choices)
        jobs.append(
            FewJob(
                arrived_at=arrived,
                ready_at=max(arrived, renting.boot_hours),
                hours=times.hours,
                overhead_hours=times.overhead_hours,
                startup_excess_hours=wait_hours(by_name[name]),
                kind=(name, scale),
            )
        )
    kinds = [renting.instance_types[name] for name in names]
    return FewJobs(
        jobs=jobs,
        gpu_type=np.array([number for number, _ in choices]),
        gpus=np.array([width for _, width in choices]),
        node_gpus=np.array([kind.gpus for kind in kinds]),
        node_price=np.array(
            [kind.gpus * problem.price_of(name) for name, kind in zip(names, kinds, strict=True)]
        ),
        boot_hours=renting.boot_hours,
        max_nodes=renting.max_nodes,
        money=money,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prices:
    """A point of the search. Shapes: warm (types, cells + 1), scarce (cells,), shares (types, cells)."""

    multiplier: float
    warm: Floats
    scarce: Floats
    shares: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Value:
    """The dual function at some prices, in hours over all jobs, and its slopes in the order of `_Prices`."""

    hours: float
    multiplier: float
    warm: Floats
    scarce: Floats
    shares: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """For a group of single-phase jobs and each y: a job's worth, and what each choice earns per hour."""

    worth: Floats
    per_hour: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Earnings:
    """The earnings of a group at some prices, in each cell.

    `best` is the choice that earns most, `profit` is what it earns beyond its price per hour (0 if nothing
    does), and `until` is the cumulative profit up to each edge of the cells.
    """

    values: _Values
    best: Ints
    profit: Floats
    until: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dual:
    """The workload in arrays. Hours count from the first arrival; a node's price is per hour."""

    edges: Floats
    node_gpus: Floats
    node_price: Floats
    gpu_type: Ints
    gpus: Floats
    groups: tuple[EqualJobs, ...]
    boot_hours: float
    max_nodes: int | None
    money: float
    flat_multiplier: float
    flat_hours: float
    resolution: Resolution = SEARCH
    is_final: bool = False

    @classmethod
    def of(
        cls,
        trace: Trace,
        problem: Problem,
        money: float,
        renting: NodeSupply,
        flat: Solution,
        *,
        cells: int,
    ) -> _Dual:
        """Return the arrays of a workload; `flat` is its optimum with single GPUs, to start from."""
        names = [gpu.name for gpu in problem.gpu_types if gpu.name in renting.instance_types]
        choices = choices_of(problem, names)
        gpu_type = np.array([number for number, _ in choices])
        gpus = np.array([float(width) for _, width in choices])
        gpu_price = np.array([problem.price_of(name) for name in names])
        node_gpus = np.array([float(renting.instance_types[name].gpus) for name in names])
        by_name = {job_class.name: job_class for job_class in problem.classes}
        flat_hours = {share.name: share.mean_jct_hours for share in flat.classes}
        keys = rounded_scales(trace)
        began = trace.jobs[0].arrived_at_seconds
        arrived = np.array([job.arrived_at_seconds - began for job in trace.jobs]) / SECONDS_PER_HOUR
        hours = np.array([flat_hours[f"{name} x {scale!r}"] for name, scale in keys])
        waits = np.array([wait_hours(by_name[name]) for name, _ in keys])
        starts = np.maximum(arrived + waits, renting.boot_hours)
        until = float((starts + 2.0 * hours).max())
        if renting.max_nodes is not None:
            # At a cap jobs may wait for one another: all of them could be in one queue.
            until += 2.0 * float(hours.sum()) / renting.max_nodes
        edges = edges_of(float(arrived[-1]), until, cells)
        cell = np.searchsorted(edges, starts, side="right") - 1
        anchors = anchors_of(edges, arrived, hours)
        members: dict[tuple[str, float, int], list[int]] = defaultdict(list)
        for number, (name, scale) in enumerate(keys):
            is_alone = len(by_name[name].phases) == 1 and bool((anchors == number).any())
            members[name, scale, number if is_alone else -1].append(number)
        groups = tuple(
            EqualJobs(
                times=times_of(by_name[name], scale, names, choices),
                arrived_at=arrived[jobs],
                starts_at=starts[jobs],
                cell=cell[jobs],
                anchors=np.flatnonzero(anchors == alone) if alone >= 0 else np.zeros(0, dtype=np.int64),
            )
            for (name, scale, alone), jobs in members.items()
        )
        return cls(
            edges=edges,
            node_gpus=node_gpus,
            node_price=node_gpus * gpu_price,
            gpu_type=gpu_type,
            gpus=gpus,
            groups=groups,
            boot_hours=renting.boot_hours,
            max_nodes=renting.max_nodes,
            money=money,
            flat_multiplier=flat.multiplier,
            flat_hours=float(hours.sum()),
        )

    @property
    def cells(self) -> Floats:
        """The length of each cell, hours."""
        return np.diff(self.edges)

    @property
    def flat_rates(self) -> Floats:
        """The cost of an hour at each choice if every GPU costs its share of its node."""
        return np.asarray((self.node_price / self.node_gpus)[self.gpu_type] * self.gpus)

    def values(self, grid: Floats, multiplier: float) -> list[_Values | None]:
        """Return the values of each group's jobs for values of y; None for jobs of several phases.

        A stint at choice k does a fraction f of the work in at least f (overhead + t_k) hours, so an hour of
        it earns at most worth / (overhead + t_k), whatever a job is worth.
        """
        rates = grid[:, None] / multiplier + self.flat_rates
        found: list[_Values | None] = []
        for group in self.groups:
            if len(group.times.hours) > 1:
                found.append(None)
                continue
            hours = group.times.hours[0] + group.times.overhead_hours
            worth = (rates * hours).min(axis=1)
            found.append(_Values(worth=worth, per_hour=worth[:, None] / hours))
        return found

    def climbed(self, at: _Prices, steps: int, step: float) -> _Prices:
        """Return the best prices found by so many steps of Adam from `at`."""
        values, found = self.values(COARSE, at.multiplier), (-math.inf, at)
        first: Floats | float = 0.0
        second: Floats | float = 0.0
        for number in range(1, steps + 1):
            here = self.evaluate(at, values)
            found = max(found, (here.hours, at), key=lambda pair: pair[0])
            slopes = np.concatenate(
                ([here.multiplier * at.multiplier], here.warm.ravel(), here.scarce, here.shares.ravel())
            )
            first = 0.8 * first + 0.2 * slopes
            second = 0.98 * second + 0.02 * slopes**2
            move = (first / (1.0 - 0.8**number)) / (np.sqrt(second / (1.0 - 0.98**number)) + 1e-12)
            at = self._moved(at, step / (1.0 + number / 20.0) * move)
        return found[1]

    def least(self, at: _Prices) -> float:
        """Return the bound at some prices, in hours over all jobs, at the best of a few multipliers."""
        is_dear = any(len(group.times.hours) > 1 for group in self.groups)
        factors = (1.0,) if is_dear else LAST_FACTORS
        tried = (replace(at, multiplier=at.multiplier * factor) for factor in factors)
        return max(self.evaluate_afresh(prices, FINE) for prices in tried)

    def taken_from(self, coarse: _Dual, at: _Prices) -> _Prices:
        """Return the prices of other cells at the cells of this one; nodes cost about the same."""
        middles = 0.5 * (self.edges[1:] + self.edges[:-1])
        cell = np.minimum(np.searchsorted(coarse.edges, middles, side="right") - 1, len(coarse.cells) - 1)
        warm = np.array([np.interp(self.edges, coarse.edges, row) for row in at.warm])
        prices = replace(at, warm=warm, scarce=at.scarce[cell], shares=at.shares[:, cell])
        return self._moved(prices, np.zeros(1 + warm.size + len(cell) + prices.shares.size))

    def affordable(self, steps: int) -> int:
        """Return the number of steps, reduced if each is expensive."""
        cells = len(self.cells)
        by_group = len(self.groups) * len(self.gpus) * len(COARSE) * cells
        by_job = sum(len(group.cell) for group in self.groups) * len(COARSE) * cells
        in_phases = sum(
            len(group.times.in_units(self.resolution)) * len(self.gpus) * self.steps
            for group in self.groups
            if len(group.times.hours) > 1
        )
        return min(steps, max(LEAST_STEPS, round(MOST_WORK / (by_group + 4.0 * by_job + 16.0 * in_phases))))

    def starts(self) -> list[_Prices]:
        """Return candidate prices to start the search from.

        Their multipliers are the one without boots, and a usual one if that is small. At a cap there are also
        candidates with the price of a place in a single queue, shortest job first.
        """
        usual = self.flat_hours / self.money
        if self.max_nodes is None and self.flat_multiplier > 0.1 * usual:
            return [self._start(self.flat_multiplier)]
        flat = [
            self._start(multiplier)
            for multiplier in (max(self.flat_multiplier, 1e-6 * usual), 0.01 * usual, usual)
        ]
        if self.max_nodes is None:
            return flat
        in_line = self._in_line() / self.max_nodes
        return flat + [
            replace(
                prices,
                scarce=np.maximum(part * in_line / prices.multiplier - self.node_price.min(), 0.0),
            )
            for prices in flat
            for part in (0.5, 1.0)
        ]

    def _in_line(self) -> Floats:
        """Return the jobs present in each cell if all nodes work on the one with least left, at best speed.

        At that price of a place, over the nodes, equal jobs that arrive together are indifferent to their
        order.
        """
        per_node = self.gpus / self.node_gpus[self.gpu_type]
        arrivals = sorted(
            (float(begins), float((group.times.hours * per_node).min(axis=1).sum()) / (self.max_nodes or 1))
            for group in self.groups
            for begins in group.starts_at
        )
        changes = np.zeros(len(self.edges) + 1)
        left: list[float] = []
        now = 0.0

        def work_until(then: float) -> None:
            """Serve the jobs with least left until then."""
            nonlocal now
            while left and now < then:
                served = min(left[0], then - now)
                now += served
                left[0] -= served
                if left[0] <= 1e-12:
                    heapq.heappop(left)
                    changes[np.searchsorted(self.edges, now)] -= 1.0
            now = max(now, then) if math.isfinite(then) else now

        for begins, hours in arrivals:
            work_until(begins)
            changes[np.searchsorted(self.edges, begins, side="right") - 1] += 1.0
            heapq.heappush(left, hours)
        work_until(math.inf)
        return np.maximum(np.cumsum(changes)[: len(self.cells)], 0.0)

    def evaluate_afresh(self, at: _Prices, grid: Floats) -> float:
        """Return the dual function at some prices, in hours over all jobs, for values on a grid."""
        return self.evaluate(at, self.values(grid, at.multiplier)).hours

    def _start(self, multiplier: float) -> _Prices:
        """Return flat prices."""
        types, cells = len(self.node_gpus), len(self.cells)
        return _Prices(
            multiplier=multiplier,
            warm=np.full((types, cells + 1), 0.5),
            scarce=np.zeros(cells),
            shares=np.zeros((types, cells)),
        )

    def _moved(self, at: _Prices, move: Floats) -> _Prices:
        """Return the prices after a step, clipped to their ranges."""
        types, cells = at.shares.shape
        to_multiplier, to_warm, to_scarce, to_shares = np.split(
            move, np.cumsum([1, types * (cells + 1), cells])
        )
        scarce = np.zeros(cells)
        if self.max_nodes is not None:
            scarce = np.maximum(at.scarce + to_scarce * (self.node_price.mean() + 3.0 * at.scarce), 0.0)
        warm = np.clip(at.warm + to_warm.reshape(at.warm.shape), 0.0, 1.0)
        if self.boot_hours > 0.0:
            # Node prices are never negative: the worth of a ready node cannot rise faster than its cost.
            rise = (1.0 + scarce / self.node_price[:, None]) * self.cells / self.boot_hours
            for cell in range(cells - 1, -1, -1):
                warm[:, cell] = np.maximum(warm[:, cell], warm[:, cell + 1] - rise[:, cell])
        shares = np.clip(at.shares + to_shares.reshape(at.shares.shape), 0.0, 1.0)
        shares[self.node_gpus <= 1.0] = 0.0
        multiplier = at.multiplier * math.exp(0.5 * float(to_multiplier[0]))
        return _Prices(multiplier=multiplier, warm=warm, scarce=scarce, shares=shares)

    def evaluate(self, at: _Prices, values: Sequence[_Values | None]) -> _Value:
        cells, mu = self.cells, at.multiplier
        boots = self.boot_hours * (at.warm[:, :-1] - at.warm[:, 1:]) / cells
        node_price = np.maximum(self.node_price[:, None] * (1.0 + boots) + at.scarce, 0.0)
        gpu_price = (1.0 - at.shares) * node_price / self.node_gpus[:, None]
        rates = gpu_price[self.gpu_type] * self.gpus[:, None]
        nodes = np.ceil(self.gpus / self.node_gpus[self.gpu_type])
        anchor_rates = rates + (at.shares * node_price)[self.gpu_type] * nodes[:, None]
        use = _Use(used=np.zeros_like(node_price), anchored=np.zeros_like(node_price))
        hours = 0.0
        for group, mine in zip(self.groups, values, strict=True):
            if mine is None:
                hours += self._least_along(group, rates, mu, use)
                continue
            its_rates = rates
            if len(group.anchors):
                its_rates = rates.copy()
                its_rates[:, group.anchors] = anchor_rates[:, group.anchors]
            earnings = self._earnings(mine, its_rates)
            for job in range(len(group.cell)):
                hours += self._least_hours(group, job, earnings, mu, nodes, use)
        by_node = use.used / self.node_gpus[:, None]
        taken = (1.0 - at.shares) * by_node + at.shares * use.anchored
        most = 0 if self.max_nodes is None else self.max_nodes
        worth = self.money + most * float((at.scarce * cells).sum())
        by_boot = mu * self.node_price[:, None] * self.boot_hours * taken / cells
        return _Value(
            hours=hours - mu * worth,
            multiplier=float((taken * node_price).sum()) + use.paid_later - worth,
            warm=np.pad(by_boot, ((0, 0), (0, 1))) - np.pad(by_boot, ((0, 0), (1, 0))),
            scarce=mu * (taken.sum(axis=0) - most * cells) * float(self.node_price.mean()),
            shares=mu * node_price * (use.anchored - by_node),
        )

    def _earnings(self, values: _Values, rates: Floats) -> _Earnings:
        """Return what the stints of a group earn beyond the rates of each choice and cell."""
        profit = np.zeros((len(values.worth), rates.shape[1]))
        best = np.full(profit.shape, -1)
        for choice, rate in enumerate(rates):
            gain = values.per_hour[:, choice, None] - rate
            is_better = gain > profit
            np.copyto(profit, gain, where=is_better)
            best[is_better] = choice
        until = np.pad(np.cumsum(profit * self.cells, axis=1), ((0, 0), (1, 0)))
        return _Earnings(values=values, best=best, profit=profit, until=until)

    def _least_hours(  # noqa: PLR0917 - a job, its earnings and the prices
        self, group: EqualJobs, job: int, mine: _Earnings, mu: float, nodes: Floats, use: _Use
    ) -> float:
        """Return the least of a job's hours plus its payments, over all ends of its window.

        For a value y of the hours in the window, an end at F costs at least F + mu (worth - profit until F).
        This is linear in F within a cell, and y may differ between cells.
        """
        first, edges, begins = int(group.cell[job]), self.edges, float(group.starts_at[job])
        values = mine.values
        before = mine.until[:, first] + mine.profit[:, first] * (begins - edges[first])
        costs = edges[first:] + mu * ((values.worth + before)[:, None] - mine.until[:, first:])
        costs[:, 0] = begins + mu * values.worth
        by_cell = np.minimum(costs[:, :-1], costs[:, 1:])
        best = by_cell.argmax(axis=0)
        least = by_cell[best, np.arange(by_cell.shape[1])]
        end = int(least.argmin())
        value, hours = int(best[end]), float(least[end])
        # The tail's prices are flat: a value of y is valid there if an extra hour never pays for itself.
        tail = np.maximum(values.per_hour - self.flat_rates, 0.0).max(axis=1)
        later = np.where(mu * tail <= 1.0, costs[:, -1], edges[-1])
        if float(later.max()) < hours:
            value, hours, end = int(later.argmax()), float(later.max()), len(least)
        self._count(mine, value, begins, first, first + end, nodes, use, group.anchors)
        return hours - float(group.arrived_at[job])

    def _count(  # noqa: PLR0917 - a schedule, and where to count it
        self,
        mine: _Earnings,
        value: int,
        begins: float,
        first: int,
        end: int,
        nodes: Floats,
        use: _Use,
        anchors: Ints,
    ) -> None:
        """Count a schedule near the least one: the GPUs a job holds until it has earned its worth."""
        cells, values = self.cells, mine.values
        span = np.arange(first, min(end + 1, len(cells)))
        choice = mine.best[value, span]
        held = np.where(choice >= 0, cells[span], 0.0)
        held[0] *= (self.edges[first + 1] - begins) / cells[first]
        income = held * values.per_hour[value, choice]
        worth = float(values.worth[value])
        if end < len(cells):
            before, last = float(income[:-1].sum()), float(income[-1])
            part = min(max((worth - before) / last, 0.0), 1.0) if last > 0.0 else 1.0
            held[-1] *= part
            done = before + part * last
            held *= min(worth / done, 2.0) if done > 0.0 else 1.0
        else:
            left = max(worth - float(income.sum()), 0.0)
            use.paid_later += left * float(
                (self.flat_rates / np.maximum(values.per_hour[value], 1e-300)).min()
            )
        kinds = self.gpu_type[choice]
        np.add.at(use.used, (kinds, span), held * self.gpus[choice])
        if len(anchors):
            is_mine = np.isin(span, anchors)
            where = (kinds[is_mine], span[is_mine])
            np.add.at(use.anchored, where, (held * nodes[choice])[is_mine])

    def _least_along(self, group: EqualJobs, rates: Floats, mu: float, use: _Use) -> float:
        """Return the least hours and prices of a group of jobs of several phases."""
        step, steps = self.step_hours, self.steps
        cell = np.searchsorted(self.edges, step * (np.arange(steps) + 0.5), side="right") - 1
        # A step that touches several cells has the least of their prices.
        low, high = (
            np.searchsorted(self.edges, step * (np.arange(steps) + at), side="right") - 1 for at in (0, 1)
        )
        top = rates.shape[1] - 1
        prices = rates[:, np.minimum(low, top)]
        for further in range(1, int((high - low).max()) + 1):
            prices = np.minimum(prices, rates[:, np.minimum(np.minimum(low + further, high), top)])
        first = np.minimum((group.starts_at / step + 1e-9).astype(np.int64), steps)
        if self.is_final:
            costs = least_costs(
                group.times, prices, self.flat_rates, mu, step_hours=step, resolution=self.resolution
            )
            return float((costs[first] - group.arrived_at).sum())
        ends, stints = near_paths(
            group.times, prices, self.flat_rates, mu, first, step_hours=step, resolution=self.resolution
        )
        changes = np.zeros((len(self.node_gpus), steps + 1))
        kinds, gpus = self.gpu_type[stints.choices], self.gpus[stints.choices]
        np.add.at(changes, (kinds, stints.begins), gpus)
        np.add.at(changes, (kinds, stints.ends), -gpus)
        held = np.cumsum(changes, axis=1)[:, :-1] * step
        for kind, row in enumerate(held):
            use.used[kind] += np.bincount(np.minimum(cell, top), weights=row, minlength=top + 1)
        return float((ends - group.arrived_at).sum())

    @property
    def steps(self) -> int:
        """The number of steps of the dynamic programme for jobs of several phases."""
        return math.floor(float(self.edges[-1]) / self.step_hours)

    @property
    def step_hours(self) -> float:
        """The length of one step of that programme, in hours."""
        overheads = [group.times.overhead_hours for group in self.groups if group.times.overhead_hours > 0.0]
        shortest = min(overheads, default=LEAST_CELL_HOURS) / self.resolution.steps_per_overhead
        return max(shortest, float(self.edges[-1]) / self.resolution.most_steps)


def _search(levels: Sequence[_Dual], effort: SearchEffort) -> float:
    """Return the largest value found, in hours over all jobs: from coarse cells to fine ones."""
    first = replace(levels[0], resolution=effort.search)
    at = max(first.starts(), key=lambda prices: first.evaluate_afresh(prices, COARSE))
    for number, level in enumerate(levels):
        if number:
            at = level.taken_from(levels[number - 1], at)
        search = replace(level, resolution=effort.search)
        steps = search.affordable(math.ceil(effort.steps / len(levels)))
        at = search.climbed(at, steps, STEP * 0.2**number)
    return replace(levels[-1], resolution=effort.final, is_final=True).least(at)


@dataclass(slots=True, kw_only=True)
class _Use:
    """The usage of all jobs: GPU-hours and anchors' node-hours, by type and cell, and the tail's price."""

    used: Floats
    anchored: Floats
    paid_later: float = 0.0
