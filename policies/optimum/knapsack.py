"""One whole width per phase, none randomised: a multiple-choice knapsack, solved to proven optimality.

The mixed optimum gives a multiplier mu and a bound. Relative to these, every option has a reduced cost, which
it adds to the bound. So only combinations whose reduced costs add up to less than (best found - bound) can be
better. These are enumerated group by group, keeping undominated (cost, time) states only: the "expanding
core" of Pisinger (1995) with lists instead of integer weights. A state whose spend differs from the budget is
charged the least reduced cost at which the remaining groups can correct it. A coupled class enters with all
its undominated plans of small reduced cost, found in the same way along its phases.

    symbol   here        meaning
    theta    reach       reduced costs up to this are enumerated; it grows until the optimum is proven
    L        bound       the mixed optimum: no pure answer is better

Cost: exponential at worst; in practice a few thousand states, because the gap is at most one edge of the
frontier. Stops with `ProblemTooLarge` beyond `STATE_LIMIT` states.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from policies.model import Problem
from policies.optimum.coupled_plans import CoupledClass, PlanHull
from policies.optimum.frontier import MixedFrontier, class_solutions
from policies.optimum.hull import TIE, undominated
from policies.optimum.options import OptionSet, assemble
from policies.optimum.solution import ProblemTooLarge, Solution
from policies.speedup import Floats, Ints

STATE_LIMIT = 400_000
"""Undominated states, or labels of one class, beyond which the search gives up."""
UNAVAILABLE_RATE = 1e100
"""Rate of a correction that is impossible; finite, so that zero times it is zero."""
GAP_FRACTIONS = (1.0 / 1024, 1.0 / 64, 1.0 / 8, 1.0)
"""Shares of the gap that are enumerated in turn; the search ends when one proves the optimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """A feasible choice: one option per group of `options`, and its totals."""

    options: OptionSet
    chosen: Ints
    cost: float
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidates:
    """Options of one group that may be in the optimum; costs and times are relative to the base option."""

    option: Ints
    cost: Floats
    time: Floats
    reduced: Floats

    def rate(self, moved: Floats) -> float:
        """Return the least reduced cost per unit of `moved`, over its positive entries; inf if none."""
        moves = moved > 0.0
        return float((self.reduced[moves] / moved[moves]).min(initial=np.inf))


def solve_pure(problem: Problem, budget: float, *, state_limit: int = STATE_LIMIT) -> Solution:
    """Return the best allocation with one whole width for each phase.

    Raises:
        InfeasibleBudget: when the budget is below the least that runs every job.
        ProblemTooLarge: beyond `state_limit`; `best` is the best `Solution` found, `gap` its unproven gap.
    """
    frontier = MixedFrontier.of(problem)
    frontier.check(budget)
    spend = np.array([min(max(budget, frontier.cheapest_feasible_spend), frontier.largest_useful_spend)])
    bound = float(frontier.merged.time_at(spend)[0])
    multiplier = float(frontier.multiplier_at(spend)[0])
    best = _rounded_down(frontier, budget)
    proven = bound
    for part in GAP_FRACTIONS:
        reach = (best.time - bound) * part
        if best.time - proven <= TIE * best.time:
            break
        search = _Search(
            multiplier=multiplier, budget=budget, bound=bound, reach=reach, state_limit=state_limit
        )
        try:
            best = _enumerate(_with_near_plans(frontier, search), search, best)
        except TooManyStatesError:
            solution = _solution(frontier, budget, best, proven)
            raise ProblemTooLarge(
                f"integer-pure stopped at {state_limit} states: the best found has a mean JCT of "
                f"{solution.mean_jct_hours:.6g} hours and is within {solution.gap:.3%} of the optimum. "
                "Take version integer-mixed, which is exact at any size, or fewer widths",
                best=solution,
                gap=solution.gap,
            ) from None
        # Every answer within `reach` of the bound has been considered.
        proven = min(best.time, bound + reach)
    return _solution(frontier, budget, best, best.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """Inputs of one pass, which enumerates reduced costs (at `multiplier`) up to `reach` above `bound`."""

    multiplier: float
    budget: float
    bound: float
    reach: float
    state_limit: int


class TooManyStatesError(Exception):
    """The search has more states than its limit."""


def _rounded_down(frontier: MixedFrontier, budget: float) -> _Answer:
    """Return the mixed optimum without its partial edge, improved by every later edge that still fits."""
    merged = frontier.merged
    taken, _ = merged.split(budget)
    vertices = merged.vertices_after(taken)
    cost, time = float(merged.cost[taken]), float(merged.time[taken])
    blocked = np.zeros(len(vertices), dtype=bool)
    steps_cost, steps_time = np.diff(merged.cost), np.diff(merged.time)
    room = budget * (1.0 + TIE) - cost
    for edge in np.flatnonzero(steps_cost[taken:] <= room).tolist():
        at = taken + edge
        group = int(merged.edge_group[at])
        if blocked[group] or vertices[group] != merged.edge_vertex[at] or steps_cost[at] > room:
            blocked[group] = True
            continue
        vertices[group] += 1
        room -= float(steps_cost[at])
        cost, time = cost + float(steps_cost[at]), time + float(steps_time[at])
    return _Answer(options=frontier.options, chosen=merged.chains.option[vertices], cost=cost, time=time)


def _with_near_plans(frontier: MixedFrontier, search: _Search) -> OptionSet:
    """Return the options with each coupled class's hull replaced by all its plans within reach."""
    options = frontier.options
    if not options.columns:
        return options
    hulls = {}
    for i, columns in options.columns.items():
        job_class = options.problem.classes[i]
        hulls[i] = near_plans(
            columns.arrays,
            search.multiplier / job_class.weight,
            search.reach / (job_class.arrivals_per_hour * job_class.weight),
            state_limit=search.state_limit,
        )
    return assemble(options.problem, columns=options.columns, hulls=hulls)


def _enumerate(options: OptionSet, search: _Search, best: _Answer) -> _Answer:
    """Return the best answer with a reduced cost within reach, or `best` if no answer is better."""
    cost, time = options.cost, options.time()
    base, candidates = _candidates(options, cost, time, search.multiplier, search.reach)
    base_cost, base_time = float(cost[base].sum()), float(time[base].sum())
    room = search.budget * (1.0 + TIE) - base_cost
    state_cost, state_time, state_reduced = np.zeros(1), np.zeros(1), np.zeros(1)
    # The most that the remaining groups can give back: a state further over the budget is never affordable.
    relief = np.cumsum([0.0] + [max(0.0, -float(c.cost.min())) for _, c in reversed(candidates)])[::-1]
    # The least reduced cost per unit of budget at which the remaining groups can give back, and take up.
    give = _from_each_on([c.rate(-c.cost) for _, c in candidates], UNAVAILABLE_RATE)
    take = _from_each_on([c.rate(c.cost) for _, c in candidates], search.multiplier)
    blur = 2.0 * TIE * search.budget
    history: list[tuple[Ints, Ints]] = []
    known = best.time
    for number, (_, group) in enumerate(candidates):
        if len(state_cost) * len(group.cost) > 64 * search.state_limit:
            raise TooManyStatesError
        c = (state_cost[:, None] + group.cost).ravel()
        t = (state_time[:, None] + group.time).ravel()
        r = (state_reduced[:, None] + group.reduced).ravel()
        allowed = min(search.reach, known - search.bound) * (1.0 + 1e-9) + TIE * abs(search.bound)
        # Overspend must be given back; budget left over is taken up, or lost at the multiplier.
        to_come = give[number + 1] * np.maximum(c - room - blur, 0.0)
        to_come += take[number + 1] * np.maximum(room - c - blur, 0.0)
        alive = np.flatnonzero((r + to_come <= allowed) & (c <= room + relief[number + 1]))
        alive = alive[np.lexsort((t[alive], c[alive]))]
        falling = t[alive] < np.concatenate([[np.inf], np.minimum.accumulate(t[alive])[:-1]])
        alive = alive[falling]
        if len(alive) > search.state_limit:
            raise TooManyStatesError
        history.append(np.divmod(alive, len(group.cost)))
        state_cost, state_time, state_reduced = c[alive], t[alive], r[alive]
        fits = state_time[state_cost <= room]
        known = min(known, base_time + float(fits.min(initial=np.inf)))
    affordable = np.flatnonzero(state_cost <= room)
    if not len(affordable):
        return best
    state = int(affordable[np.argmin(state_time[affordable])])
    if base_time + float(state_time[state]) >= best.time:
        return best
    totals = base_cost + float(state_cost[state]), base_time + float(state_time[state])
    chosen = base.copy()
    for (group_number, group), (parents, picks) in zip(reversed(candidates), reversed(history), strict=True):
        chosen[group_number] = group.option[picks[state]]
        state = int(parents[state])
    return _Answer(options=options, chosen=chosen, cost=totals[0], time=totals[1])


def _from_each_on(rates: list[float], last: float) -> list[float]:
    """Return the suffix minima of the rates, with `last` as an additional last element."""
    return list(itertools.accumulate(reversed(rates), min, initial=last))[::-1]


def _candidates(
    options: OptionSet, cost: Floats, time: Floats, multiplier: float, reach: float
) -> tuple[Ints, list[tuple[int, _Candidates]]]:
    """Return each group's base option, and the groups with other options within reach, nearest first."""
    lagrangian = time + multiplier * cost
    order = np.lexsort((cost, lagrangian, options.group))
    groups = len(options.owner)
    base = order[np.searchsorted(options.group[order], np.arange(groups))]
    reduced = lagrangian - lagrangian[base][options.group]
    near = np.flatnonzero(reduced <= reach * (1.0 + 1e-9))
    near = near[np.argsort(options.group[near], kind="stable")]
    bounds = np.searchsorted(options.group[near], np.arange(groups + 1))
    found = []
    for group in np.flatnonzero(np.diff(bounds) > 1).tolist():
        own = near[bounds[group] : bounds[group + 1]]
        found.append(
            (
                group,
                _Candidates(
                    option=own,
                    cost=cost[own] - cost[base[group]],
                    time=time[own] - time[base[group]],
                    reduced=np.maximum(reduced[own], 0.0),
                ),
            )
        )
    found.sort(key=lambda pair: pair[1].rate(np.abs(pair[1].cost)))
    return base, found


def near_plans(
    job_class: CoupledClass, multiplier: float, reach: float, *, state_limit: int = STATE_LIMIT
) -> PlanHull:
    """Return all undominated plans of one coupled class whose reduced cost is within reach.

    Labels (column, cost, time) are extended phase by phase. A shortest path from the far end bounds the rest
    from below, so a label that cannot end within reach is dropped at once.

    Raises:
        TooManyStatesError: when there are more than `state_limit` labels.
    """
    time, rate = job_class.phase_time, job_class.rate
    price = 1.0 + multiplier * rate
    to_go = _shortest_to_go(job_class, price)
    start = (time[0] + job_class.startup_hours) * price + to_go[0]
    limit = float(start.min()) + reach * (1.0 + 1e-9) + TIE * float(start.min())
    column = np.flatnonzero(start <= limit)
    spent = (time[0, column] + job_class.startup_hours) * rate[column]
    taken = time[0, column] + job_class.startup_hours
    history: list[tuple[Ints, Ints]] = [(np.zeros(len(column), dtype=np.int64), column)]
    every = np.arange(len(rate))
    for p in range(1, len(time)):
        hours = time[p] + job_class.rescale_hours * (column[:, None] != every)
        c = spent[:, None] + rate * hours
        t = taken[:, None] + hours
        parent, to = np.nonzero(t + multiplier * c + to_go[p] <= limit)
        spent, taken = c[parent, to], t[parent, to]
        order = np.lexsort((taken, spent, to))
        parent, to, spent, taken = parent[order], to[order], spent[order], taken[order]
        keep = undominated(to, taken)
        parent, column, spent, taken = parent[keep], to[keep], spent[keep], taken[keep]
        if len(column) > state_limit:
            raise TooManyStatesError
        history.append((parent, column))
    order = np.lexsort((taken, spent))
    order = order[undominated(np.zeros(len(order), dtype=np.int64), taken[order])]
    plans = np.empty((len(order), len(time)), dtype=np.int64)
    label = order
    for p in range(len(time) - 1, -1, -1):
        parents, columns = history[p]
        plans[:, p] = columns[label]
        label = parents[label]
    return PlanHull(cost=spent[order], time=taken[order], columns=plans)


def _shortest_to_go(job_class: CoupledClass, price: Floats) -> Floats:
    """Return the least Lagrangian cost of all later phases from each (phase, column), same shape as times."""
    time = job_class.phase_time
    to_go = np.zeros_like(time)
    for p in range(len(time) - 2, -1, -1):
        ahead = time[p + 1] * price + to_go[p + 1]
        to_go[p] = np.minimum(ahead, float((ahead + job_class.rescale_hours * price).min()))
    return to_go


def _solution(frontier: MixedFrontier, budget: float, best: _Answer, proven: float) -> Solution:
    """Return the answer as a `Solution`; `proven` is a lower bound on the weighted sum of hours."""
    classes = class_solutions(best.options, best.chosen, None)
    problem = frontier.problem
    mixed = frontier.solution_at(budget)
    hours = sum(c.arrivals_per_hour * s.mean_jct_hours for c, s in zip(problem.classes, classes, strict=True))
    gap = max(0.0, (best.time - proven) / best.time)
    return replace(
        mixed,
        version="integer-pure",
        status="optimal" if gap <= TIE else "feasible",
        mean_jct_hours=hours / frontier.arrivals_per_hour,
        weighted_mean_jct_hours=best.time / frontier.weighted_arrivals,
        mean_spend=best.cost,
        dual_bound_hours=min(proven, best.time) / frontier.weighted_arrivals,
        gap=gap if gap > TIE else 0.0,
        classes=classes,
    )
