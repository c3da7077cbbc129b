"""All choices of real widths as terms, which `term_families` minimises over.

A group is a phase, or a whole coupled class. Its terms are its choices: one smooth curve per type, the
vertices of a table's concave envelope (without start-up), its chords (with start-up), or the plans on a
coupled class's hull over a fine grid of widths.

Cost: O(terms) memory; a coupled class costs one hull over phases x grid columns.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from policies.model import JobClass, Problem
from policies.optimum.coupled_plans import CoupledClass, best_costs, plan_hulls
from policies.optimum.hull import TIE
from policies.optimum.options import Columns
from policies.optimum.term_families import ChordTerms, FixedTerms, PowerTerms, RationalTerms, TermFamily
from policies.speedup import Amdahl, Floats, Ints, PowerLaw, SpeedupCurve, Table, UniversalScalability

GRID = 0.01
"""Relative distance of the widths on the grid of coupled plans."""
CELL = 2e-4
"""Relative width of the cells that bound what a finer grid could gain."""
WHOLE = 100
"""Whole widths up to this are also on the grid; from here on the grid's steps are 1 GPU or more."""
PLAN_TOLERANCE = 1e-9
"""Relative accuracy of the hull of coupled plans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealWidths:
    """All terms of a problem, grouped: a group is a phase, or a coupled class.

    Arrays of terms are sorted by group: `group`, `price`, `gpu_type` (terms,). Arrays of groups: `arrivals`,
    `weight`, `owner`, `starts` (groups,). `plans` holds, per coupled class, its columns and the plan that
    each of its terms stands for.
    """

    problem: Problem
    families: tuple[TermFamily, ...]
    group: Ints
    price: Floats
    gpu_type: Ints
    starts: Ints
    owner: Ints
    arrivals: Floats
    weight: Floats
    plans: dict[int, tuple[Columns, Ints]]

    def best(self, multiplier: Floats) -> BestTerms:
        """Return the best term of every group for each of several multipliers."""
        gpus, hours, spend = self._terms_at(multiplier)
        shape = hours.shape
        if len(self.group) == len(self.starts):
            return BestTerms(
                term=np.broadcast_to(np.arange(shape[1]), shape), gpus=gpus, hours=hours, spend=spend
            )
        cost = self.weight[self.group] * hours + multiplier[:, None] * spend
        least = np.minimum.reduceat(cost, self.starts, axis=1)
        is_best = cost <= least[:, self.group]
        term = np.minimum.reduceat(np.where(is_best, np.arange(shape[1]), shape[1]), self.starts, axis=1)
        rows = np.arange(len(multiplier))[:, None]
        return BestTerms(term=term, gpus=gpus[rows, term], hours=hours[rows, term], spend=spend[rows, term])

    @property
    def is_stepwise(self) -> bool:
        """Whether all terms are fixed (tables and plans), so that the spend changes in steps."""
        return all(isinstance(family, FixedTerms) for family in self.families)

    def fastest(self, multiplier: float) -> BestTerms:
        """Return the fastest term of every group, the cheapest of equals; `multiplier` must be tiny."""
        gpus, hours, spend = (values[0] for values in self._terms_at(np.array([multiplier])))
        slack = np.minimum.reduceat(hours, self.starts)[self.group] * (1.0 + TIE)
        order = np.lexsort((np.where(hours <= slack, spend, np.inf), self.group))
        term = order[self.starts][None, :]
        return BestTerms(term=term, gpus=gpus[term], hours=hours[term], spend=spend[term])

    def _terms_at(self, multiplier: Floats) -> tuple[Floats, Floats, Floats]:
        """Return (gpus, hours, spend) of every term at its best width, each (multipliers, terms)."""
        shape = (len(multiplier), len(self.group))
        gpus, hours = np.empty(shape), np.empty(shape)
        for family in self.families:
            gpus[:, family.term], hours[:, family.term] = family.best(multiplier)
        return gpus, hours, self.price * gpus * hours

    def total_spend(self, chosen: BestTerms) -> Floats:
        """Return the total spend of the choices, in the budget's unit, shape (multipliers,)."""
        return np.asarray(chosen.spend @ self.arrivals)

    def total_hours(self, chosen: BestTerms) -> Floats:
        """Return the sum of arrivals x weight x hours, shape (multipliers,)."""
        return np.asarray(chosen.hours @ (self.arrivals * self.weight))


@dataclass(frozen=True, slots=True, kw_only=True)
class BestTerms:
    """The best term of every group, for several multipliers: shapes (multipliers, groups)."""

    term: Ints
    gpus: Floats
    hours: Floats
    spend: Floats


@dataclass(slots=True)
class _Builder:
    """Collects terms in group order; `families` turns the rows into the arrays of each family."""

    group: list[int] = field(default_factory=list)
    price: list[float] = field(default_factory=list)
    gpu_type: list[int] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)
    fixed: list[tuple[float, ...]] = field(default_factory=list)
    rational: list[tuple[float, ...]] = field(default_factory=list)
    power: list[tuple[float, ...]] = field(default_factory=list)
    chord: list[tuple[float, ...]] = field(default_factory=list)

    def open_group(self, owner: int) -> None:
        self.owner.append(owner)

    def terms(self, gpu_type: int, price: float, *, count: int) -> int:
        """Add terms to the open group and return the position of the first."""
        first = len(self.group)
        self.group += [len(self.owner) - 1] * count
        self.price += [price] * count
        self.gpu_type += [gpu_type] * count
        return first

    def families(self) -> tuple[TermFamily, ...]:
        """Return the families that have terms; a row lists its family's fields in order."""
        kinds: tuple[tuple[Any, list[tuple[float, ...]]], ...] = (
            (FixedTerms, self.fixed),
            (RationalTerms, self.rational),
            (PowerTerms, self.power),
            (ChordTerms, self.chord),
        )
        return tuple(_family(kind, rows) for kind, rows in kinds if rows)


def _family(kind: Any, rows: list[tuple[float, ...]]) -> TermFamily:
    names = [column.name for column in fields(kind)]
    columns = dict(zip(names, np.array(rows, dtype=float).T, strict=True))
    family: TermFamily = kind(**columns | {"term": columns["term"].astype(np.int64)})
    return family


def lay_out(problem: Problem) -> RealWidths:
    """Return all terms of a problem.

    Raises:
        TypeError: when a speed-up curve is of an unknown type.
    """
    number_of = {gpu.name: i for i, gpu in enumerate(problem.gpu_types)}
    prices = [problem.price_of(gpu.name) for gpu in problem.gpu_types]
    coupled = [i for i, c in enumerate(problem.classes) if c.is_coupled]
    columns = {i: _grid_columns(problem, problem.classes[i]) for i in coupled}
    hulls = dict(
        zip(coupled, plan_hulls([columns[i].arrays for i in coupled], tolerance=PLAN_TOLERANCE), strict=True)
        if coupled
        else ()
    )
    rows = _Builder()
    for i, job_class in enumerate(problem.classes):
        if i in hulls:
            rows.open_group(i)
            for spend, hours in zip(hulls[i].cost.tolist(), hulls[i].time.tolist(), strict=True):
                rows.fixed.append((rows.terms(-1, 1.0, count=1), spend / hours, hours))
            continue
        for number, phase in enumerate(job_class.phases):
            rows.open_group(i)
            startup = job_class.startup_hours if number == 0 else 0.0
            for name, curve in phase.speedups.items():
                _add_terms(
                    rows,
                    curve,
                    _PhaseOnType(
                        gpu_type=number_of[name],
                        price=prices[number_of[name]],
                        weight=job_class.weight,
                        size=phase.size_gpu_hours,
                        startup=startup,
                    ),
                )
    group = np.array(rows.group)
    owner = np.array(rows.owner)
    return RealWidths(
        problem=problem,
        families=rows.families(),
        group=group,
        price=np.array(rows.price),
        gpu_type=np.array(rows.gpu_type),
        starts=np.searchsorted(group, np.arange(len(owner))).astype(np.int64),
        owner=owner,
        arrivals=np.array([c.arrivals_per_hour for c in problem.classes])[owner],
        weight=np.array([c.weight for c in problem.classes])[owner],
        plans={i: (columns[i], hulls[i].columns) for i in coupled},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _PhaseOnType:
    """The data that all terms of one phase on one GPU type share."""

    gpu_type: int
    price: float
    weight: float
    size: float
    startup: float


def _add_terms(rows: _Builder, curve: SpeedupCurve, phase: _PhaseOnType) -> None:
    if isinstance(curve, Table):
        widths, speeds = curve.corners()
        if phase.startup > 0.0 and curve.min_gpus < widths[0]:
            # With a start-up, fewer GPUs than those of the best speed per GPU may be cheaper: add the ray
            # from that width down to the narrowest.
            speeds.insert(0, speeds[0] * (curve.min_gpus / widths[0]))
            widths.insert(0, curve.min_gpus)
        if phase.startup == 0.0 or len(widths) == 1:
            first = rows.terms(phase.gpu_type, phase.price, count=len(widths))
            hours = [phase.size / speed + phase.startup for speed in speeds]
            rows.fixed.extend(zip(itertools.count(first), widths, hours, strict=False))
            return
        shared = phase.weight, phase.price, phase.size, phase.startup
        for (k, s), (wider, faster) in itertools.pairwise(zip(widths, speeds, strict=True)):
            beta = (faster - s) / (wider - k)
            term = rows.terms(phase.gpu_type, phase.price, count=1)
            rows.chord.append((term, *shared, s - beta * k, beta, k, wider))
        return
    if not isinstance(curve, Amdahl | UniversalScalability | PowerLaw):
        raise TypeError(f"no continuous form for {type(curve).__name__}")
    term = rows.terms(phase.gpu_type, phase.price, count=1)
    scaled = phase.weight, phase.price, phase.size / curve.speed, phase.startup
    ends = float(curve.min_gpus), float(curve.max_gpus)
    if isinstance(curve, PowerLaw):
        rows.power.append((term, *scaled, curve.exponent, *ends))
    elif isinstance(curve, Amdahl):
        rows.rational.append((term, *scaled, 1.0 - curve.parallel_fraction, 0.0, *ends))
    else:
        rows.rational.append((term, *scaled, curve.contention, curve.crosstalk, *ends))


def _grid_columns(problem: Problem, job_class: JobClass) -> Columns:
    """Return the columns of a coupled class: a fine grid of real widths per type (see `_breakpoints`)."""
    gpu_type, gpus = _breakpoints(problem, job_class, step=GRID)
    price = np.array([problem.price_of(gpu.name) for gpu in problem.gpu_types])
    return Columns(
        gpu_type=gpu_type,
        gpus=gpus,
        arrays=CoupledClass(
            phase_time=_phase_times(problem, job_class, gpu_type, gpus, gpus),
            rate=price[gpu_type] * gpus,
            startup_hours=job_class.startup_hours,
            rescale_hours=job_class.rescale_hours,
        ),
    )


def _breakpoints(problem: Problem, job_class: JobClass, *, step: float) -> tuple[Ints, Floats]:
    """Return (type, width) pairs by rising width: a geometric grid, tables' widths, small whole widths."""
    types: list[Ints] = []
    widths: list[Floats] = []
    for t, gpu in enumerate(problem.gpu_types):
        curves = [phase.speedups[gpu.name] for phase in job_class.phases if gpu.name in phase.speedups]
        if not curves:
            continue
        least, most = min(c.min_gpus for c in curves), max(c.max_gpus for c in curves)
        ends = [np.array([c.min_gpus, c.max_gpus], dtype=float) for c in curves]
        listed = [c.whole_widths().astype(float) for c in curves if isinstance(c, Table)]
        whole = np.arange(least, min(most, WHOLE) + 1, dtype=float)
        steps = 1 + int(np.ceil(np.log(most / least) / np.log1p(step)))
        grid = np.unique(np.concatenate([np.geomspace(least, most, steps)[1:-1], whole, *ends, *listed]))
        # Merge points that differ by rounding errors.
        grid = grid[np.concatenate([np.diff(grid) > TIE * grid[1:], [True]])]
        types.append(np.full(len(grid), t))
        widths.append(grid)
    return np.concatenate(types), np.concatenate(widths)


def _phase_times(
    problem: Problem, job_class: JobClass, gpu_type: Ints, least: Floats, most: Floats
) -> Floats:
    """Return the hours of each phase at the best speed in each cell of widths [least, most].

    Shape (phases, cells); inf where the lower end is not allowed.
    """
    time = np.full((len(job_class.phases), len(least)), np.inf)
    for number, phase in enumerate(job_class.phases):
        for t, gpu in enumerate(problem.gpu_types):
            if gpu.name not in phase.speedups:
                continue
            curve = phase.speedups[gpu.name]
            at = np.flatnonzero(
                (gpu_type == t)
                & (least >= curve.min_gpus * (1.0 - TIE))
                & (least <= curve.max_gpus * (1.0 + TIE))
            )
            inside = np.clip(best_width(curve), least[at], most[at])
            speed = real_speed(curve, np.clip(inside, curve.min_gpus, curve.max_gpus))
            time[number, at] = phase.size_gpu_hours / speed
    return time


def best_width(curve: SpeedupCurve) -> float:
    """Return the width with the highest speed: the widest, or the peak of a USL curve.

    The peak may lie outside the range of the curve.
    """
    if isinstance(curve, UniversalScalability) and curve.crosstalk > 0.0:
        return float(np.sqrt((1.0 - curve.contention) / curve.crosstalk))
    return float(curve.max_gpus)


def real_speed(curve: SpeedupCurve, gpus: Floats) -> Floats:
    """Return the speed at real widths: that of the curve, or of a table's concave envelope from (0, 0)."""
    if not isinstance(curve, Table):
        return curve.speed_at(gpus)
    widths, speeds = curve.envelope()
    return np.asarray(np.interp(gpus, np.append(0.0, widths), np.append(0.0, speeds)))


def least_lagrangian(problem: Problem, job_class: JobClass, multiplier: float) -> float:
    """Return a lower bound on weight x hours + multiplier x spend of a coupled class, per job.

    A shortest path over cells of widths. In a cell, the best speed gives the least time and the narrow end
    the least spend (speed per GPU never rises), so each phase takes at least this time and this spend.
    """
    gpu_type, least = _breakpoints(problem, job_class, step=CELL)
    most = np.append(least[1:], 0.0)
    most = np.where(np.append(gpu_type[1:], -1) == gpu_type, most, least)
    price = np.array([problem.price_of(gpu.name) for gpu in problem.gpu_types])
    rate = price[gpu_type] * least
    per_hour = multiplier / job_class.weight
    fast = _phase_times(problem, job_class, gpu_type, least, most)
    thrifty = _phase_times(problem, job_class, gpu_type, least, least)
    cells_of = CoupledClass(
        # Hours whose cost, at the narrow end's price, equals the sum of both bounds.
        phase_time=(fast + per_hour * rate * thrifty) / (1.0 + per_hour * rate),
        rate=rate,
        startup_hours=job_class.startup_hours,
        rescale_hours=job_class.rescale_hours,
    )
    return job_class.weight * float(best_costs(cells_of, np.array([per_hour]))[0])
