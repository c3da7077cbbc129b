"""All options of all jobs in flat arrays: an option is a (type, width) of a phase, or a whole-job plan.

Each phase whose width does not depend on other phases is a group. A class whose phases are coupled by a
rescale cost is one group, whose options are the plans on its hull (see `coupled_plans`).

    symbol   here        meaning
    T        hours       x / s(k), plus the start-up in the first phase, hours per job
    C        spend       price x k x T, budget units x hours per job
    lambda   arrivals    jobs per hour of the class
    w        weight      priority of the class

Cost: O(options); memory O(options).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from policies.fast_dataclasses import fast_init
from policies.model import JobClass, Problem
from policies.optimum.coupled_plans import CoupledClass, PlanHull, plan_hulls
from policies.speedup import Floats, Ints, SpeedupCurve, Table, whole_speeds


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseOption:
    """One phase at one width: hours and spend per job, overheads included."""

    gpu_type: str
    gpus: float
    hours: float
    spend: float


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The (type, width) pairs of a coupled class, with its times and rates in `arrays`."""

    gpu_type: Ints
    gpus: Floats
    arrays: CoupledClass


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSet:
    """All options of a problem. Arrays have shape (options,); those of a group have shape (groups,).

    `hours` and `spend` are per job. `gpu_type` is an index into the problem's types. For a plan of a coupled
    class, `gpu_type` is -1 and `gpus` is the plan's number in `plan_hulls[class]`.
    """

    problem: Problem
    group: Ints
    gpu_type: Ints
    gpus: Floats
    hours: Floats
    spend: Floats
    owner: Ints  # class of each group
    phase: Ints  # phase of each group, -1 for a coupled class
    columns: dict[int, Columns]
    plan_hulls: dict[int, PlanHull]

    @property
    def arrivals(self) -> Floats:
        """Jobs per hour of each group's class, shape (groups,)."""
        return np.array([c.arrivals_per_hour for c in self.problem.classes])[self.owner]

    @property
    def weights(self) -> Floats:
        """Weight of each group's class, shape (groups,)."""
        return np.array([c.weight for c in self.problem.classes])[self.owner]

    @property
    def cost(self) -> Floats:
        """Arrivals x spend of each option: what it takes from the budget, shape (options,)."""
        return self.arrivals[self.group] * self.spend

    def time(self, *, is_weighted: bool = True) -> Floats:
        """Return arrivals x weight x hours of each option, or without the weights, shape (options,)."""
        plain = self.arrivals[self.group] * self.hours
        return self.weights[self.group] * plain if is_weighted else plain

    def steps_of(self, groups: Sequence[int], options: Ints) -> list[tuple[PhaseOption, ...]]:
        """Return the phases of an option of each group: one phase, or all phases of a coupled class."""
        names = [gpu.name for gpu in self.problem.gpu_types]
        columns = (self.gpu_type, self.gpus, self.hours, self.spend)
        rows = zip(
            self.owner[list(groups)].tolist(), *(column[options].tolist() for column in columns), strict=True
        )
        found = []
        for owner, gpu_type, gpus, hours, spend in rows:
            if owner in self.plan_hulls:
                plan = self.plan_hulls[owner].columns[int(gpus)]
                found.append(plan_steps(self.problem, self.columns[owner], plan))
            else:
                found.append(
                    (PhaseOption(gpu_type=names[gpu_type], gpus=_tidy(gpus), hours=hours, spend=spend),)
                )
        return found


def _tidy(gpus: float) -> float:
    """Return a whole number as an int, so that it prints as one."""
    return int(gpus) if gpus.is_integer() else gpus


def plan_steps(problem: Problem, columns: Columns, plan: Sequence[int] | Ints) -> tuple[PhaseOption, ...]:
    """Return the phases of a whole-job plan; start-up and rescales count in the phase that pays them."""
    steps, arrays, before = [], columns.arrays, -1
    for number, column in enumerate(np.asarray(plan).tolist()):
        hours = arrays.phase_time.item(number, column)
        if number == 0:
            hours += arrays.startup_hours
        elif column != before:
            hours += arrays.rescale_hours
        steps.append(
            PhaseOption(
                gpu_type=problem.gpu_types[columns.gpu_type.item(column)].name,
                gpus=_tidy(columns.gpus.item(column)),
                hours=hours,
                spend=hours * arrays.rate.item(column),
            )
        )
        before = column
    return tuple(steps)


def whole_width_options(problem: Problem) -> OptionSet:
    """Return all options at whole widths; coupled classes are reduced to their hulls."""
    coupled = [i for i, c in enumerate(problem.classes) if c.is_coupled]
    columns = {i: whole_columns(problem, problem.classes[i]) for i in coupled}
    hulls = plan_hulls([columns[i].arrays for i in coupled]) if coupled else []
    return assemble(problem, columns=columns, hulls=dict(zip(coupled, hulls, strict=True)))


def assemble(problem: Problem, *, columns: dict[int, Columns], hulls: dict[int, PlanHull]) -> OptionSet:
    """Return the options of all groups in class and phase order."""
    number_of = {gpu.name: i for i, gpu in enumerate(problem.gpu_types)}
    price = [problem.price_of(gpu.name) for gpu in problem.gpu_types]
    widths: list[Ints] = []
    speeds: list[Sequence[float]] = []
    scalars: list[tuple[int, int, float, float, float]] = []  # group, type, size, start-up, price
    owner: list[int] = []
    phase_of: list[int] = []
    for i, job_class in enumerate(problem.classes):
        if i in hulls:
            plans = hulls[i]
            widths.append(np.arange(len(plans.cost)))
            # hours = 1 / speed gives the plan's hours; its spend is filled in below.
            speeds.append((1.0 / plans.time).tolist())
            scalars.append((len(owner), -1, 1.0, 0.0, np.nan))
            owner.append(i)
            phase_of.append(-1)
            continue
        for number, phase in enumerate(job_class.phases):
            startup = job_class.startup_hours if number == 0 else 0.0
            for name, curve in phase.speedups.items():
                whole = curve.whole_widths()
                widths.append(whole)
                speeds.append(curve.speeds if isinstance(curve, Table) else curve.speed_at(whole).tolist())
                t = number_of[name]
                scalars.append((len(owner), t, phase.size_gpu_hours, startup, price[t]))
            owner.append(i)
            phase_of.append(number)
    lengths = np.array([len(w) for w in widths])
    per_block = _one_after_the_other(scalars).reshape(len(scalars), -1)
    group, gpu_type = (np.repeat(per_block[:, c].astype(np.int64), lengths) for c in (0, 1))
    size, startup_hours, unit_price = (np.repeat(per_block[:, c], lengths) for c in (2, 3, 4))
    gpus = np.concatenate(widths).astype(float)
    hours = size / _one_after_the_other(speeds) + startup_hours
    spend = unit_price * gpus * hours
    is_plan = gpu_type < 0
    if is_plan.any():
        spend[is_plan] = np.concatenate([hulls[i].cost for i in sorted(hulls)])
    return OptionSet(
        problem=problem,
        group=group,
        gpu_type=gpu_type,
        gpus=gpus,
        hours=hours,
        spend=spend,
        owner=np.array(owner),
        phase=np.array(phase_of),
        columns=columns,
        plan_hulls=hulls,
    )


def _one_after_the_other(parts: Sequence[Sequence[float]]) -> Floats:
    """Return the numbers of all parts; faster than an array for each of many short parts."""
    return np.fromiter(chain.from_iterable(parts), dtype=float, count=sum(map(len, parts)))


def whole_columns(problem: Problem, job_class: JobClass) -> Columns:
    """Return the union of the (type, width) pairs of all phases; time is inf where a phase lacks a pair."""
    number_of = {gpu.name: i for i, gpu in enumerate(problem.gpu_types)}
    price = np.array([problem.price_of(gpu.name) for gpu in problem.gpu_types])
    first = job_class.phases[0].speedups
    if len(first) == 1 and all(phase.speedups == first for phase in job_class.phases):
        ((name, curve),) = first.items()
        return _columns_of(job_class, curve, kind=number_of[name], price=price)
    pairs: dict[tuple[int, int], int] = {}
    known: dict[tuple[str, int], tuple[Floats, list[int]]] = {}  # phases often share their curves
    places: dict[tuple[int, tuple[int, ...]], list[int]] = {}  # or at least their widths
    blocks: list[tuple[int, Floats, list[int]]] = []
    for number, phase in enumerate(job_class.phases):
        for name, curve in phase.speedups.items():
            found = known.get((name, id(curve)))
            if found is None:
                whole, kind = curve.whole_widths(), number_of[name]
                listed = tuple(whole.tolist())
                at = places.get((kind, listed))
                if at is None:
                    at = [pairs.setdefault((kind, width), len(pairs)) for width in listed]
                    places[kind, listed] = at
                found = known[name, id(curve)] = whole_speeds(curve), at
            blocks.append((number, phase.size_gpu_hours / found[0], found[1]))
    time = np.full((len(job_class.phases), len(pairs)), np.inf)
    for number, hours, at in blocks:
        time[number, at] = hours
    types, gpus = (np.array(part) for part in zip(*pairs, strict=True))
    return Columns(
        gpu_type=types,
        gpus=gpus.astype(float),
        arrays=CoupledClass(
            phase_time=time,
            rate=price[types] * gpus,
            startup_hours=job_class.startup_hours,
            rescale_hours=job_class.rescale_hours,
        ),
    )


def _columns_of(job_class: JobClass, curve: SpeedupCurve, *, kind: int, price: Floats) -> Columns:
    """Return the columns of a class whose phases all have the same curve, on one type."""
    whole = curve.whole_widths()
    sizes = [[phase.size_gpu_hours] for phase in job_class.phases]
    return Columns(
        gpu_type=np.full(len(whole), kind),
        gpus=whole.astype(float),
        arrays=CoupledClass(
            phase_time=np.array(sizes) / curve.speed_at(whole),
            rate=price[kind] * whole,
            startup_hours=job_class.startup_hours,
            rescale_hours=job_class.rescale_hours,
        ),
    )
