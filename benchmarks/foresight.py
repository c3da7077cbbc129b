"""A schedule that knows every job beforehand, improved a few jobs at a time.

It lives in the model of the bound with boots (docs/explanation/bound.md): a node is ready when it is needed
if its boot is paid, one whose GPUs are needed again within a boot may be kept instead, and the GPUs of a job
may be on any nodes. Time runs in steps. Each stint has one step more than its overhead, so its rounded units
fit into it.

`improved` takes a few jobs out that begin at about the same time and puts them back one by one, each at the
least of its end and `multiplier` times the money that it adds: by dynamic programming over units of work,
widths and steps (`_Planner`). What is no better is undone. Boots and the multiplier are varied at random for
the first pass, because jobs that could share a node find each other only if it is cheap at first.

Cost of a plan: O(units x widths^2 x steps).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from boa_daemon.sim.bounds.boot_bound import NodeSupply
from boa_daemon.sim.bounds.bound_arrays import choices_of, rounded_scales, times_of, wait_hours
from boa_daemon.traces.reader import Trace
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import Problem
from policies.speedup import Floats, Ints

STEP_SECONDS = 15.0
LONGEST_HOURS = 2.5
"""The longest that a job may take from the moment when it can start."""
UNITS = 16
"""Units of work of a job; its width changes only between them."""
MOST_GPUS = 16
"""Wider than that, no job of the traces here is worth its GPUs."""
NEVER = 1e9
BOOT_SHARES = (0.0, 0.3, 0.6, 1.0)
SPREAD = 0.4
"""Standard deviation of the logarithm by which the multiplier varies in a first pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownJob:
    """A job: hours of each unit at each width, shape (units, widths), overhead, arrival and first hour."""

    unit_hours: Floats
    overhead_hours: float
    arrived_at: float
    ready_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stint:
    """Units of work done at one width (its number), from a step on; the overhead comes first."""

    width: int
    first_unit: int
    end_unit: int
    begin: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The stints of a job, the GPUs that it holds in each step, and the hour of its end."""

    stints: tuple[Stint, ...]
    gpus: Ints
    end_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs in order of arrival, their widths in GPUs; and a node: GPUs, dollars per hour, boot in steps."""

    jobs: tuple[KnownJob, ...]
    widths: Ints
    node_gpus: int
    usd_per_hour: float
    boot_steps: float
    step_hours: float

    @classmethod
    def of(
        cls, trace: Trace, problem: Problem, supply: NodeSupply, *, step_seconds: float = STEP_SECONDS
    ) -> Workload:
        """Return the workload of a trace on one type of node without a cap."""
        ((name, kind),) = supply.instance_types.items()
        assert supply.max_nodes is None
        choices = choices_of(problem, [name])
        widths = np.array([width for _, width in choices])
        usable = np.flatnonzero(widths <= max(MOST_GPUS, int(widths.min())))
        by_name = {job_class.name: job_class for job_class in problem.classes}
        began = trace.jobs[0].arrived_at_seconds
        jobs = []
        for job, (class_name, scale) in zip(trace.jobs, rounded_scales(trace), strict=True):
            times = times_of(by_name[class_name], scale, [name], choices)
            arrived = (job.arrived_at_seconds - began) / SECONDS_PER_HOUR
            jobs.append(
                KnownJob(
                    unit_hours=_in_units(times.hours[:, usable]),
                    overhead_hours=times.overhead_hours,
                    arrived_at=arrived,
                    ready_at=max(arrived, supply.boot_hours) + wait_hours(by_name[class_name]),
                )
            )
        step_hours = step_seconds / SECONDS_PER_HOUR
        return cls(
            jobs=tuple(jobs),
            widths=widths[usable],
            node_gpus=kind.gpus,
            usd_per_hour=kind.gpus * problem.price_of(name),
            boot_steps=supply.boot_hours / step_hours,
            step_hours=step_hours,
        )

    @property
    def steps(self) -> int:
        """The number of steps in which a job may run."""
        return math.ceil((max(job.ready_at for job in self.jobs) + LONGEST_HOURS) / self.step_hours) + 2

    def nodes_paid(self, gpus: Ints) -> tuple[Ints, int]:
        """Return the nodes paid in each step, idle ones between two uses included, and the boots."""
        nodes = -(-gpus // self.node_gpus)
        paid, boots = nodes.copy(), 0
        for level in range(1, int(nodes.max(initial=0)) + 1):
            used = np.flatnonzero(nodes >= level)
            boots += 1
            for before in np.flatnonzero(np.diff(used) > 1):
                gap = slice(used[before] + 1, used[before + 1])
                if gap.stop - gap.start < self.boot_steps:
                    paid[gap] += 1
                else:
                    boots += 1
        return paid, boots

    def usd(self, gpus: Ints) -> float:
        """Return the bill of nodes with so many GPUs in use in each step."""
        paid, boots = self.nodes_paid(gpus)
        return self.usd_per_hour * self.step_hours * (float(paid.sum()) + boots * self.boot_steps)

    def plan_of(self, job: KnownJob, stints: Sequence[Stint]) -> Plan:
        """Return a plan: when the stints end, and the GPUs that they hold."""
        gpus = np.zeros(self.steps, dtype=np.int64)
        end = job.ready_at
        for stint in stints:
            hours = job.unit_hours[stint.first_unit : stint.end_unit, stint.width].sum()
            end = stint.begin * self.step_hours + job.overhead_hours + float(hours)
            gpus[stint.begin : math.ceil(end / self.step_hours - 1e-9)] += self.widths[stint.width]
        return Plan(stints=tuple(stints), gpus=gpus, end_hours=end)


def _in_units(hours: Floats) -> Floats:
    """Return the hours of a job in about `UNITS` units: neighbouring phases together, long ones in parts."""
    if len(hours) >= UNITS:
        return np.array([part.sum(axis=0) for part in np.array_split(hours, UNITS)])
    parts = math.ceil(UNITS / len(hours))
    return np.repeat(hours / parts, parts, axis=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A plan for each job; the mean JCT and the bill."""

    plans: tuple[Plan, ...]
    mean_jct_hours: float
    spent_usd: float

    @classmethod
    def of(cls, workload: Workload, plans: Iterable[Plan]) -> Schedule:
        """Return the schedule of these plans."""
        plans = tuple(plans)
        spans = [plan.end_hours - job.arrived_at for plan, job in zip(plans, workload.jobs, strict=True)]
        gpus = np.sum([plan.gpus for plan in plans], axis=0)
        return cls(plans=plans, mean_jct_hours=float(np.mean(spans)), spent_usd=workload.usd(gpus))


class _Planner:
    """The cheapest plan of one job beside the GPUs that others use."""

    def __init__(self, workload: Workload, job: KnownJob) -> None:
        """Count the steps of each unit of the job."""
        self._of, self._job = workload, job
        self._first = math.ceil(job.ready_at / workload.step_hours - 1e-9)
        self._count = round(LONGEST_HOURS / workload.step_hours)
        finite = np.where(np.isfinite(job.unit_hours), job.unit_hours, 2.0 * LONGEST_HOURS)
        sums = np.pad(finite.cumsum(axis=0), ((1, 0), (0, 0))) / workload.step_hours
        reached = np.rint(sums).astype(np.int64)
        self._steps = np.minimum(np.diff(reached, axis=0), self._count + 1)
        self._overhead = math.ceil(job.overhead_hours / workload.step_hours - 1e-9) + 1

    def best(self, others: Ints, multiplier: float, boot_share: float) -> Plan | None:
        """Return the plan of the least end plus `multiplier` times the bill; None if none ends in time."""
        of, size = self._of, self._count + 1
        window = slice(self._first, self._first + size)
        paid_nodes, _ = of.nodes_paid(others)
        now, before = paid_nodes[window], np.append(0, paid_nodes)[window]
        nodes = np.maximum(-(-(others[window] + of.widths[:, None]) // of.node_gpus), now)
        nodes_before = np.concatenate((np.broadcast_to(before[0], (len(nodes), 1)), nodes[:, :-1]), axis=1)
        # Boots are rises of all nodes beyond those of the others alone: fewer where this job keeps a node on.
        without = np.maximum(now - before, 0)
        rise = np.maximum(nodes - nodes_before, 0) - without
        from_nothing = np.maximum(nodes - before, 0) - without - rise
        from_width = np.maximum(nodes[None] - nodes_before[:, None], 0) - without - rise
        at_end = np.maximum(now - nodes_before, 0) - without
        per_step = multiplier * of.usd_per_hour * of.step_hours
        boot = per_step * of.boot_steps * boot_share
        costs = per_step * (nodes - now) + boot * rise
        paid = np.pad(np.cumsum(costs[:, :-1], axis=1), ((0, 0), (1, 0)))
        ends = of.step_hours * np.arange(size) + boot * at_end
        return self._walked(paid, boot * from_nothing, boot * from_width, ends)

    def _walked(self, paid: Floats, from_nothing: Floats, from_width: Floats, ends: Floats) -> Plan | None:
        """Return the best plan.

        Shapes: `from_width` (widths, widths, steps + 1), the others (widths, steps + 1).
        """
        units, (widths, size), staying = len(self._steps), paid.shape, ends
        # What a job that holds a width does before a unit: -1 stays, -2 pauses, else the width it changes to.
        then = np.full((units, widths, size), -1)
        begins, starts = np.zeros((units, size), dtype=np.int64), np.zeros((units, size), dtype=np.int64)
        for unit in range(units - 1, -1, -1):
            on = np.stack([_after(staying[k], paid[k], int(self._steps[unit, k])) for k in range(widths)])
            begun = np.stack([_after(on[k], paid[k], self._overhead) for k in range(widths)])
            cold = begun + from_nothing
            starts[unit], cheapest = cold.argmin(axis=0), cold.min(axis=0)
            idle = np.minimum.accumulate(cheapest[::-1])[::-1]
            here = np.where(cheapest <= idle, np.arange(size), size - 1)
            begins[unit] = np.minimum.accumulate(here[::-1])[::-1]
            changed = begun[None] + from_width
            then[unit] = np.where(changed.min(axis=1) < on - 1e-12, changed.argmin(axis=1), -1)
            staying = np.minimum(on, changed.min(axis=1))
            then[unit][idle < staying - 1e-12] = -2
            staying = np.minimum(staying, idle)
        step, width, stints = 0, -1, []
        for unit in range(units):
            choice = -2 if width < 0 else int(then[unit, width, step])
            if choice == -2:
                step = int(begins[unit, step])
                choice = int(starts[unit, step])
            if choice >= 0:
                width = choice
                stints.append(Stint(width=width, first_unit=unit, end_unit=unit, begin=self._first + step))
                step += self._overhead
            step += int(self._steps[unit, width])
            if step >= size:
                return None
            stints[-1] = replace(stints[-1], end_unit=unit + 1)
        return self._of.plan_of(self._job, stints)


def _after(costs: Floats, paid: Floats, steps: int) -> Floats:
    """Return the costs of going on after so many steps that are paid for, from each step on."""
    if steps == 0:
        return costs.copy()
    found = np.full_like(costs, NEVER)
    if steps < len(costs):
        found[:-steps] = costs[steps:] + paid[steps:] - paid[:-steps]
    return found


def first_schedule(workload: Workload, multiplier: float) -> Schedule:
    """Return a schedule of jobs planned one by one in order of arrival, at a number of hours for a dollar."""
    gpus = np.zeros(workload.steps, dtype=np.int64)
    plans = []
    for job in workload.jobs:
        plan = _Planner(workload, job).best(gpus, multiplier, 1.0)
        if plan is None:
            raise ValueError(f"A job needs more than {LONGEST_HOURS} hours.")
        plans.append(plan)
        gpus += plan.gpus
    return Schedule.of(workload, plans)


def improved(
    workload: Workload, schedule: Schedule, multiplier: float, *, tries: int, seed: int = 0
) -> Schedule:
    """Return a schedule with a lesser sum of ends and `multiplier` times the bill, or the same one."""
    rng = np.random.default_rng(seed)
    planners = [_Planner(workload, job) for job in workload.jobs]
    plans = list(schedule.plans)
    gpus = np.sum([plan.gpus for plan in plans], axis=0)
    bill = workload.usd(gpus)
    for _ in range(tries):
        centre = plans[int(rng.integers(len(plans)))].stints[0].begin
        apart = np.array([abs(plan.stints[0].begin - centre) for plan in plans], dtype=float)
        # One in five is left where it is, so that the same jobs do not always come together.
        apart[rng.random(len(plans)) < 0.2] = np.inf
        picked = np.argsort(apart, kind="stable")[: int(rng.integers(1, 7))].tolist()
        rng.shuffle(picked)
        rest = gpus - np.sum([plans[number].gpus for number in picked], axis=0)
        share, varied = float(rng.choice(BOOT_SHARES)), multiplier * math.exp(rng.normal(0.0, SPREAD))
        found: dict[int, Plan | None] = {}
        for at, of_boot in ((varied, share), (multiplier, 1.0)):
            for number in picked:
                old = found.get(number)
                rest = rest - old.gpus if old is not None else rest
                found[number] = planners[number].best(rest, at, of_boot)
                new = found[number]
                rest = rest + new.gpus if new is not None else rest
        new_plans = {number: plan for number, plan in found.items() if plan is not None}
        if len(new_plans) < len(picked):
            continue
        new_bill = workload.usd(rest)
        later = sum(plan.end_hours - plans[number].end_hours for number, plan in new_plans.items())
        if later + multiplier * (new_bill - bill) < -1e-9:
            gpus, bill = rest, new_bill
            for number, plan in new_plans.items():
                plans[number] = plan
    return Schedule.of(workload, plans)


def best_for(
    workload: Workload, most_usd: float, multiplier: float, *, rounds: int, tries: int
) -> Schedule | None:
    """Return the best schedule found that costs at most so much; None if none was found.

    After each round of tries the multiplier moves so that the bill nears the money.
    """
    schedule = first_schedule(workload, multiplier)
    best: Schedule | None = None
    for number in range(rounds):
        schedule = improved(workload, schedule, multiplier, tries=tries, seed=number)
        if schedule.spent_usd <= most_usd and (best is None or schedule.mean_jct_hours < best.mean_jct_hours):
            best = schedule
        multiplier *= (schedule.spent_usd / (0.998 * most_usd)) ** 1.5
    return best
