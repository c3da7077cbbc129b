"""Prices for following a plan with whole nodes: when to wait, keep an idle node, or start narrow.

A plan gives widths, but the cloud rents whole nodes, which take a billed boot of b hours. The plan's own
price of money, mu hours per unit of budget, sets the value of each decision:

    patience    b (1 + min(mu P / w, 2))        a job waits for GPUs that become free within this time before
                                                it gets a new node: a saved boot is worth mu P b, an hour of
                                                waiting costs w
    idle nodes  n = sqrt(2 b (w D + mu P N) / (mu P)) - 1 - l, rounded down, for at most b (1 + w / (mu P))
    head start  a job starts on the GPUs that are free if  (wait - d) s(k) / s(K) > r - d

    symbol   here               meaning
    b        boot_hours         from launch to ready
    P        node_prices        what a node takes from the budget per hour
    w        weight             mean weight of the jobs that arrive
    D, N     NodeDemand         jobs that start (times weight: w D), and new nodes that jobs need, per hour
    l        LENT_NODES         nodes that lent GPUs replace; 0 for nodes with one GPU
    d, r     startup, rescale   hours; K the planned width, k the one for which there is room
    s        speed              in the job's phase

Derivation of n: in the long run nodes become idle and are needed again at the same rate, so the number of
idle nodes is a symmetric random walk. Kept between 0 and n it is uniform: n/2 nodes are idle on average,
which costs mu P n/2, and one demand in n + 1 finds none, which costs (w D + mu P N) b. The sum is least at
the n above: a square root, as in the economic order quantity. The time limit is that of ski rental: an idle
node never costs more than the boot and the wait that it may save, which also bounds the cost of a night
without jobs.

Without boots (b = 0) no idle node is kept and no job waits. Cost: O(columns) per job.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from policies.answer import LentWidth, NodeRetention
from policies.capacity_claims import Claims, PhaseWidths
from policies.fast_dataclasses import replace
from policies.links.contention import Link
from policies.links.link_share import network_share
from policies.memo import Memo
from policies.model import InstanceType, Job, JobClass, JobId, Problem, Width
from policies.online.cost_to_go import LEAST_PART, WidthColumns
from policies.online.lending import LENT_ARRIVALS, hours_lost, lent_width
from policies.optimum.solution import Solution
from policies.speedup import Floats

MOST_TIMES_ALONE = 10.0
"""With scarce room, a job comes first once its time in the system exceeds this many times its hours alone."""
NEW_PART = 0.5
"""Planning assumption: half of the GPUs that a job holds after a change of width are new and boot first."""
MOST_PATIENCE = 3.0
"""The longest wait for GPUs to become free, in boots: forecasts are not good enough for more."""
LENT_NODES = 1.0
"""GPUs lent to other jobs replace about one idle node if a node has several GPUs."""
LEAST_NODE_PRICE = 0.01
"""The least value of a node-hour, in hours: idle nodes are never free, even with a very large budget."""
LEAST_SHARE = 1e-4
"""The least price of a stopped node's disk, as a share of the node's price."""
MOST_KNOWN = 20_000
"""Cached values of hours left; when there are more, the cache is emptied."""
LONGEST_HOLD_HOURS = 1.0
"""An idle node goes back after this time, however large the budget is."""


def with_boots_at_changes(problem: Problem, boot_hours: float) -> Problem:
    """Return the problem with a share of a boot added to each rescale: growing rents nodes that boot first.

    In fact a job continues to work during that boot, so plans err towards fewer changes.
    """
    if boot_hours == 0.0:
        return problem
    classes = tuple(
        replace(c, rescale_hours=c.rescale_hours + NEW_PART * boot_hours) for c in problem.classes
    )
    return replace(problem, classes=classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDemand:
    """Jobs that start on one GPU type, times weight, and nodes for starting and growing jobs, per hour."""

    weighted_jobs_per_hour: float = 0.0
    nodes_per_hour: float = 0.0


def demands_of(
    problem: Problem, solution: Solution, instance_types: Mapping[str, InstanceType]
) -> dict[str, NodeDemand]:
    """Return the demand for nodes of each GPU type under a plan.

    Each start counts as a job; each start and each growth counts with the nodes that it adds.
    """
    weighted, nodes_wanted = dict.fromkeys(instance_types, 0.0), dict.fromkeys(instance_types, 0.0)
    for job_class, answer in zip(problem.classes, solution.classes, strict=True):
        for plan in answer.plans:
            jobs_per_hour = job_class.arrivals_per_hour * plan.job_fraction
            weighted[plan.widths[0].gpu_type] += jobs_per_hour * job_class.weight
            before, held = "", 0
            for width in plan.widths:
                kind = width.gpu_type
                more = width.gpus - held if kind == before else width.gpus
                if more > 0:
                    nodes_wanted[kind] += jobs_per_hour * (more / instance_types[kind].gpus)
                before, held = kind, width.gpus
    return {
        kind: NodeDemand(weighted_jobs_per_hour=weighted[kind], nodes_per_hour=nodes_wanted[kind])
        for kind in instance_types
    }


def idle_retention(
    node_price: float, demand: NodeDemand, *, boot_hours: float, weight: float, gpus_of_node: int
) -> NodeRetention:
    """Return how many idle nodes are worth keeping, and for how long, at a value `node_price` of a node-hour.

    `node_price` is the multiplier times what a node takes from the budget, in hours per hour. Nodes with one
    GPU have no spare GPUs to lend, so lending replaces no idle nodes there.
    """
    price = max(node_price, LEAST_NODE_PRICE)
    saved = boot_hours * (demand.weighted_jobs_per_hour + price * demand.nodes_per_hour)
    hours = min(boot_hours * (1.0 + weight / price), LONGEST_HOLD_HOURS)
    lent = LENT_NODES if gpus_of_node > 1 else 0.0
    idle = math.sqrt(2.0 * saved / price) - 1.0 - lent
    return NodeRetention(nodes=max(0, math.floor(idle)), seconds=3600.0 * hours)


def stopped_retention(
    node_price: float,
    demand: NodeDemand,
    *,
    saved_hours: float,
    share: float,
    weight: float,
    idle_nodes: int,
) -> NodeRetention:
    """Return how many stopped nodes are worth keeping, and for how long, at the price of their disks.

    As `idle_retention`, but a stopped node costs `share` of `node_price`, and saves `saved_hours` of waiting
    and of renting. Idle nodes are used first, so `idle_nodes` is subtracted.
    """
    if saved_hours <= 0.0:
        return NodeRetention(nodes=0, seconds=0.0)
    price = max(node_price, LEAST_NODE_PRICE)
    disk = max(price * share, LEAST_NODE_PRICE * LEAST_SHARE)
    saved = saved_hours * (demand.weighted_jobs_per_hour + price * demand.nodes_per_hour)
    nodes = math.sqrt(2.0 * saved / disk) - 1.0 - idle_nodes
    return NodeRetention(
        nodes=max(0, math.floor(nodes)), seconds=3600.0 * saved_hours * (weight + price) / disk
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeNodePrices:
    """Implements `NodePrices` for one multiplier; `priced` returns a copy for another.

    `overheads` are the start-up and rescale hours of each class, the start-up without the boot. `menus` are
    the widths of a class's phase up to a planned width. `known_left` caches hours left by job. None of these
    depends on the multiplier.
    """

    columns: Mapping[str, WidthColumns]
    overheads: Mapping[str, tuple[float, float]]
    node_prices: Mapping[str, float]
    node_gpus: Mapping[str, int]
    demands: Mapping[str, NodeDemand]
    boot_hours: float
    weight: float
    multiplier: float
    knows_messages: bool
    menus: Memo[tuple[str, int, Width], PhaseWidths] = field(repr=False, compare=False)
    known_left: dict[JobId, tuple[Job, float]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        problem: Problem,
        solution: Solution,
        instance_types: Mapping[str, InstanceType],
        *,
        boot_hours: float,
    ) -> WholeNodePrices:
        """Build the prices of a problem and a plan; the start-up hours of `problem` must include the boot."""
        counted = problem.budget_unit == "gpus"
        arrivals = sum(c.arrivals_per_hour for c in problem.classes)
        columns = WidthColumns.by_class(problem)
        return cls(
            columns=columns,
            menus=Memo(lambda question: _menu(columns[question[0]], *question[1:])),
            overheads={c.name: _overheads(c, boot_hours) for c in problem.classes},
            node_prices={
                name: float(kind.gpus) if counted else kind.usd_per_hour
                for name, kind in instance_types.items()
            },
            node_gpus={name: kind.gpus for name, kind in instance_types.items()},
            demands=demands_of(problem, solution, instance_types),
            boot_hours=boot_hours,
            weight=sum(c.arrivals_per_hour * c.weight for c in problem.classes) / arrivals,
            multiplier=solution.multiplier,
            knows_messages=any(c.network is not None for c in problem.classes),
        )

    def priced(self, multiplier: float) -> WholeNodePrices:
        """Return the same prices at another multiplier (hours per unit of budget)."""
        return replace(self, multiplier=multiplier)

    def at_part(self, parts: Mapping[str, float]) -> WholeNodePrices:
        """Return the same with node prices multiplied by `parts`, by GPU type."""
        prices = {kind: price * parts.get(kind, 1.0) for kind, price in self.node_prices.items()}
        return replace(self, node_prices=prices)

    def hold(self, gpu_type: str) -> NodeRetention:
        """Return how many idle nodes of a type are worth keeping, and for how long."""
        return idle_retention(
            self.multiplier * self.node_prices[gpu_type],
            self.demands[gpu_type],
            boot_hours=self.boot_hours,
            weight=self.weight,
            gpus_of_node=self.node_gpus[gpu_type],
        )

    def warm(self, gpu_type: str, *, saved_hours: float, share: float) -> NodeRetention:
        """Return how many stopped nodes of a type are worth keeping, and for how long."""
        return stopped_retention(
            self.multiplier * self.node_prices[gpu_type],
            self.demands[gpu_type],
            saved_hours=saved_hours,
            share=share,
            weight=self.weight,
            idle_nodes=self.hold(gpu_type).nodes,
        )

    def patience_hours(self, gpu_type: str) -> float:
        """Return how long a job should wait for GPUs to become free before a node is rented for it."""
        price = self.multiplier * self.node_prices[gpu_type] / self.weight
        return self.boot_hours * min(1.0 + price, MOST_PATIENCE)

    def hours_left(self, job: Job) -> float:
        """Return the hours that a job has left at its current width; infinite for a job without GPUs.

        The answer is cached by job, because several stages of a tick need it for every job.
        """
        known = self.known_left.get(job.id)
        if known is not None and known[0] is job:
            return known[1]
        hours = self._hours_left(job)
        if len(self.known_left) >= MOST_KNOWN:
            self.known_left.clear()
        self.known_left[job.id] = job, hours
        return hours

    def _hours_left(self, job: Job) -> float:
        columns = self.columns[job.class_name]
        held = None if job.width is None else columns.index.get(job.width)
        if held is None:
            return math.inf
        part = columns.part_left(job)
        return job.scale * (
            part * columns.hours.item(job.phase, held) + columns.hours_after.item(job.phase, held)
        )

    def head_start(self, job: Job, then: Width, *, most_gpus: int, wait_hours: float) -> Width | None:
        """Return the fastest width within `most_gpus` to start at while the planned one is not available.

        None if the later restart costs more than the work done until then.
        """
        columns = self.columns[job.class_name]
        hours = columns.hours[job.phase]
        goal = float(hours[columns.index[then]])
        options = [
            (goal / float(hours[number]), -width.gpus, width)
            for width, number in columns.index.items()
            if width.gpu_type == then.gpu_type
            and width.gpus <= min(most_gpus, then.gpus - 1)
            and math.isfinite(hours[number])
        ]
        if not options:
            return None
        relative_speed, _, width = max(options)
        startup, rescale = self.overheads[job.class_name]
        startup = startup if job.phase == 0 else 0.0
        saved = max(0.0, wait_hours - startup) * relative_speed
        return width if wait_hours > startup and saved > rescale - startup else None

    def stretch(self, job: Job, now: Width, *, most_gpus: int, hours_left: float | None) -> LentWidth | None:
        """Return a wider width on spare GPUs of rented nodes, if the time saved exceeds the restarts."""
        arrivals = self.demands[now.gpu_type].weighted_jobs_per_hour / self.weight
        return lent_width(
            self.columns[job.class_name],
            job,
            now,
            most_gpus=most_gpus,
            hours_left=hours_left,
            lent_hours=LENT_ARRIVALS / arrivals if arrivals > 0.0 else math.inf,
            rescale_hours=self.overheads[job.class_name][1],
        )

    def restarts_earned_hours(self, job: Job, one: Width, other: Width) -> float:
        """Return how long a job works at one of two widths before the faster one is worth two restarts.

        A change of width and the change back lose two restarts r; the difference in speed gains 1 - s/S per
        hour at the slower speed s: 2 r / (1 - s/S), at most `LONGEST_HOLD_HOURS`. A restart counts as a plan
        counts it, with a share of a boot (`with_boots_at_changes`).
        """
        columns = self.columns[job.class_name]
        restart = self.overheads[job.class_name][1] + NEW_PART * self.boot_hours
        numbers = [columns.index[width] for width in (one, other) if width in columns.index]
        if len(numbers) < 2 or restart <= 0.0:
            return 0.0
        fast, slow = sorted(columns.hours.item(job.phase, number) for number in numbers)
        gain = 1.0 - fast / slow if math.isfinite(slow) else 0.0
        return min(2.0 * restart / gain, LONGEST_HOLD_HOURS) if gain > 0.0 else LONGEST_HOLD_HOURS

    def hours_lost(self, job: Job, then: Width, *, hours_left: float, back_in_hours: float) -> float:
        """Return the weighted hours that a running job loses if it restarts at another width."""
        return hours_lost(
            self.columns[job.class_name],
            job,
            then,
            hours_left=hours_left,
            rescale_hours=self.overheads[job.class_name][1],
            multiplier=self.multiplier,
            back_in_hours=back_in_hours,
        )

    def hours_sending(self, job: Job, *, share: float | None, gigabits: float, hours_left: float) -> float:
        """Return the weighted hours that messages between nodes add to the rest of a running job."""
        columns = self.columns[job.class_name]
        there = None if job.width is None else columns.index.get(job.width)
        need = columns.job_class.network
        if there is None or (share is None and need is None):
            return 0.0
        if share is None:
            assert need is not None
            share = network_share(Link.of_gigabits(gigabits), need)
        worth = columns.job_class.weight + self.multiplier * float(columns.rate[there])
        return worth * hours_left * share

    def node_worth(self, gpu_type: str) -> float:
        """Return the weighted hours that the price of a node-hour would save if spent on other jobs."""
        return self.multiplier * self.node_prices[gpu_type]

    def claims(
        self, jobs: Sequence[Job], planned: Sequence[Width], *, size_per_gpu: Mapping[str, float], now: float
    ) -> Claims:
        """Return the claims of jobs on scarce room: the widths of their GPU types up to the planned ones."""
        numbers: dict[tuple[str, int, str, int], int] = {}
        asks: list[_Ask] = []
        of_job = []
        for job, width in zip(jobs, planned, strict=True):
            # Jobs of a class, phase and width have one menu.
            question = job.class_name, job.phase, width.gpu_type, width.gpus
            number = numbers.get(question)
            if number is None:
                number = numbers[question] = len(asks)
                asks.append(self._ask(job.class_name, job.phase, width, size_per_gpu[width.gpu_type]))
            of_job.append(number)
        menus = [ask.menu for ask in asks]
        of = np.array(of_job, dtype=np.int64)

        def column(name: str) -> Floats:
            return np.array([getattr(ask, name) for ask in asks], dtype=float)[of]

        scale = np.array([job.scale for job in jobs])
        left = np.array([job.remaining_gpu_hours for job in jobs]) - column("size_after") * scale
        part_left = np.minimum(np.maximum(left / (column("phase_size") * scale), LEAST_PART), 1.0)
        waited = np.maximum(0.0, now - np.array([job.arrived_at for job in jobs]))
        alone = scale * column("hours_alone") + column("startup_hours")
        return Claims(
            jobs=jobs,
            menus=menus,
            menu=of,
            held=np.array(
                [
                    -1 if job.width is None else menus[number].numbers.get(job.width, -1)
                    for job, number in zip(jobs, of_job, strict=True)
                ],
                dtype=np.int64,
            ),
            weight=column("weight"),
            work=scale * (part_left + column("later_phases")),
            size_per_gpu=column("size_per_gpu"),
            money_per_gpu=column("money_per_gpu"),
            restart_hours=column("restart_hours"),
            lasts_hours=column("lasts_hours"),
            overdue=waited / (3600.0 * MOST_TIMES_ALONE * alone),
        )

    def _ask(self, class_name: str, phase: int, planned: Width, size_per_gpu: float) -> _Ask:
        """Return the common part of the claims of jobs with the same class, phase and planned width."""
        columns, menu = self.columns[class_name], self.menus[class_name, phase, planned]
        best, widest = (_near(columns, phase, menu.widths[at]) for at in (menu.corners[0], -1))
        arrivals = self.demands[planned.gpu_type].weighted_jobs_per_hour / self.weight
        return _Ask(
            menu=menu,
            phase_size=columns.job_class.phases[phase].size_gpu_hours,
            size_after=columns.size_after[phase],
            later_phases=columns.hours_after.item(phase, best) / columns.hours.item(phase, best),
            hours_alone=columns.hours.item(0, widest) + columns.hours_after.item(0, widest),
            startup_hours=columns.job_class.startup_hours,
            weight=columns.job_class.weight,
            size_per_gpu=size_per_gpu,
            money_per_gpu=self.multiplier * columns.rate.item(widest) / menu.gpus[-1],
            restart_hours=self.overheads[class_name][1],
            lasts_hours=LENT_ARRIVALS / arrivals if arrivals > 0.0 else math.inf,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ask:
    """The common part of the claims of jobs with the same class, phase and planned width, at scale 1.

    `phase_size` and `size_after` are the GPU-hours of the phase and of all later ones. `later_phases` is the
    hours of the later phases over those of this phase, at the most efficient width. `hours_alone` is the
    hours of all phases at the widest width.
    """

    menu: PhaseWidths
    phase_size: float
    size_after: float
    later_phases: float
    hours_alone: float
    startup_hours: float
    weight: float
    size_per_gpu: float
    money_per_gpu: float
    restart_hours: float
    lasts_hours: float


def _menu(columns: WidthColumns, phase: int, planned: Width) -> PhaseWidths:
    """Return the widths of a phase up to the planned one that are faster than all narrower ones.

    A job may hold what the plan no longer offers to its class. Then this is the only width, as fast as the
    offered one nearest to it.
    """
    hours = columns.hours[phase]
    numbers = sorted(
        (
            number
            for width, number in columns.index.items()
            if width.gpu_type == planned.gpu_type
            and width.gpus <= planned.gpus
            and math.isfinite(hours[number])
        ),
        key=lambda number: columns.widths[number].gpus,
    )
    kept: list[int] = []
    for number in numbers:
        if not kept or hours[number] < hours[kept[-1]]:
            kept.append(number)
    if not kept:
        near = _near(columns, phase, planned)
        return PhaseWidths(widths=(planned,), speeds=(1.0 / hours.item(near),))
    return PhaseWidths(
        widths=tuple(columns.widths[number] for number in kept),
        speeds=tuple(1.0 / hours.item(number) for number in kept),
    )


def _near(columns: WidthColumns, phase: int, width: Width) -> int:
    """Return the column of a width, or the nearest one that the phase offers."""
    known = columns.index.get(width)
    if known is not None:
        return known
    offered = (number for number in columns.index.values() if math.isfinite(columns.hours[phase][number]))
    return min(offered, key=lambda number: (abs(columns.widths[number].gpus - width.gpus), number))


def _overheads(job_class: JobClass, boot_hours: float) -> tuple[float, float]:
    """Return (start-up, rescale) hours of a class without the boot that its plan counts in the start-up."""
    return max(0.0, job_class.startup_hours - boot_hours), job_class.rescale_hours
