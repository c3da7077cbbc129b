"""Real widths: one multiplier decouples all phases, and a one-dimensional search meets the budget.

For a multiplier mu each phase takes the (type, width) with the least  (w + mu c k) (x / s(k) + d)  (see
`term_families`); the total spend falls as mu rises. Tables are replaced by their concave envelope. Without a
start-up, a width on a chord equals the mix of its two ends, so only the vertices are needed. If the spend
jumps at the multiplier found (two types, or two plans, are equally good there), one phase or class is
randomised between the two.

Coupled classes (with a rescale cost) choose among the plans on a grid of widths with relative distance
`real_widths.GRID`; the reported gap then includes what a finer grid could still gain.

    symbol   here          meaning
    mu       multiplier    hours per hour that one more unit of budget saves
    B        budget        dollars per hour, or GPUs

Cost: O(terms) per step, about 60 steps; all budgets of a frontier are searched in the same steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from policies.model import Problem
from policies.optimum.frontier import infeasible_budget, plan_pair
from policies.optimum.hull import TIE
from policies.optimum.options import PhaseOption, plan_steps
from policies.optimum.real_widths import BestTerms, RealWidths, lay_out, least_lagrangian
from policies.optimum.solution import ClassSolution, Solution
from policies.speedup import Floats

STEPS = 400
"""Steps of the search on the multiplier; halving alone would need about four times 60."""
SAME = 1e-9
"""Relative difference below which two choices are the same."""
GAP_PROVEN = 1e-9
"""Relative gap below which an answer counts as optimal."""
NOTHING = 1e-18
"""At a multiplier this small, relative to prices, only time counts; at its inverse only spend counts."""
WIDENING = 4
"""First steps of the search, which move away from the middle until the budget is passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousFrontier:
    """Real widths at every budget; budgets are in the problem's unit."""

    terms: RealWidths
    fastest: BestTerms
    cheapest_feasible_spend: float
    largest_useful_spend: float
    scale: float

    @classmethod
    def of(cls, problem: Problem) -> ContinuousFrontier:
        """Build the terms and compute both ends of the curve."""
        terms = lay_out(problem)
        scale = 1.0 / float(np.mean(terms.price))
        fastest = terms.fastest(NOTHING * scale)
        cheapest = float(terms.total_spend(terms.best(np.array([scale / NOTHING])))[0])
        return cls(
            terms=terms,
            fastest=fastest,
            cheapest_feasible_spend=cheapest,
            largest_useful_spend=max(cheapest, float(terms.total_spend(fastest)[0])),
            scale=scale,
        )

    def multipliers_at(self, budgets: Floats) -> tuple[Floats, Floats, Floats]:
        """Return (under, over, multiplier) for each budget.

        The choices at `under` spend more than the budget, those at `over` at most the budget; both are
        optimal at `multiplier`. `under` and `over` are neighbouring floating-point numbers. If all terms are
        fixed, they may lie apart on both sides of a kink, and `multiplier` is then the exact value at which
        two choices are equally good.
        """
        low = np.full(len(budgets), np.log(NOTHING * self.scale))
        high = np.full(len(budgets), np.log(self.scale / NOTHING))
        f_low = np.log(self.largest_useful_spend / budgets)
        f_high = np.log(np.minimum(self.cheapest_feasible_spend / budgets, 1.0))
        # (spend, hours) of the choices at both ends; NaN until they are evaluated.
        at_low, at_high = np.full((2, len(budgets)), np.nan), np.full((2, len(budgets)), np.nan)
        kink = np.full(len(budgets), np.nan)
        # At the least budget the spend exceeds it by rounding only.
        rounding = np.where(budgets <= self.cheapest_feasible_spend * (1.0 + TIE), TIE, 0.0)
        was_over = np.zeros(len(budgets), dtype=np.int64)
        at = np.full(len(budgets), np.log(self.scale))
        is_kink = is_done = np.zeros(len(budgets), dtype=bool)
        for step in range(STEPS):  # pragma: no branch  It converges long before.
            chosen = self.terms.best(np.exp(at))
            totals = np.stack([self.terms.total_spend(chosen), self.terms.total_hours(chosen)])
            if is_kink.any():
                stands = is_kink & ((totals == at_low).all(axis=0) | (totals == at_high).all(axis=0))
                kink = np.where(stands, np.exp(at), kink)
                is_done = ~np.isnan(kink)
            f_at = np.log(totals[0] / budgets)
            is_over = np.where(f_at > rounding, 1, -1)
            # Illinois method: an end that stays twice counts half, so that both ends converge.
            stays = np.where(is_over == was_over, 0.5, 1.0)
            up, down = ~is_done & (is_over > 0), ~is_done & (is_over < 0)
            low, high = np.where(up, at, low), np.where(down, at, high)
            at_low, at_high = np.where(up, totals, at_low), np.where(down, totals, at_high)
            f_low = np.where(is_over > 0, f_at, f_low * stays)
            f_high = np.where(is_over > 0, f_high * stays, f_at)
            was_over = is_over
            if (is_done | ((high - low) <= 4e-16 * np.maximum(np.abs(high), 1.0))).all():
                break
            middle = 0.5 * (low + high)
            is_kink = np.zeros(len(budgets), dtype=bool)
            with np.errstate(divide="ignore", invalid="ignore"):
                if step < WIDENING:
                    at = np.clip(at + is_over * 2.0 ** (step + 1), low, high)
                elif self.terms.is_stepwise and step % 2 == 1:
                    at = np.log((at_high[1] - at_low[1]) / (at_low[0] - at_high[0]))
                    is_kink = (at > low) & (at < high)
                elif step % 4 == 0:
                    at = middle
                else:
                    # Secants are fast where the spend is smooth; every fourth step halves, for jumps.
                    at = low + (high - low) * (f_low / (f_low - f_high))
                at = np.where((at > low) & (at < high), at, middle)
        return np.exp(low), np.exp(high), np.where(np.isnan(kink), np.exp(high), kink)

    def curve_at(self, budgets: Floats) -> tuple[Floats, Floats]:
        """Return (weighted sum of hours, multiplier) of the optimum at each feasible budget."""
        budgets = np.clip(budgets, self.cheapest_feasible_spend, self.largest_useful_spend)
        low, high, multiplier = self.multipliers_at(budgets)
        more, less = self.terms.best(low), self.terms.best(high)
        spend_more, spend_less = self.terms.total_spend(more), self.terms.total_spend(less)
        hours_more, hours_less = self.terms.total_hours(more), self.terms.total_hours(less)
        step = spend_more - spend_less
        share = np.where(
            step > 0.0, np.clip((budgets - spend_less) / np.where(step > 0, step, 1.0), 0, 1), 0.0
        )
        is_full = budgets >= self.largest_useful_spend * (1.0 - TIE)
        hours = hours_less + share * (hours_more - hours_less)
        return (
            np.where(is_full, self.terms.total_hours(self.fastest)[0], hours),
            np.where(is_full, 0.0, multiplier),
        )

    def solution_at(self, budget: float) -> Solution:
        """Return the optimal plans at a budget, with the gap that the grid of coupled plans leaves.

        Raises:
            InfeasibleBudget: when the budget is below `cheapest_feasible_spend`.
        """
        terms, problem = self.terms, self.terms.problem
        if budget < self.cheapest_feasible_spend * (1.0 - TIE):
            raise infeasible_budget(budget, self.cheapest_feasible_spend, problem)
        spend = min(max(budget, self.cheapest_feasible_spend), self.largest_useful_spend)
        if spend >= self.largest_useful_spend * (1.0 - TIE):
            multiplier = 0.0
            classes = self._classes(self.fastest, self.fastest, spend)
        else:
            low, high, exact = self.multipliers_at(np.array([spend]))
            multiplier = float(exact[0])
            classes = self._classes(terms.best(low), terms.best(high), spend)
        arrivals = [c.arrivals_per_hour for c in problem.classes]
        weights = [c.arrivals_per_hour * c.weight for c in problem.classes]
        hours = [c.mean_jct_hours for c in classes]
        weighted = float(np.dot(weights, hours) / np.sum(weights))
        bound = min(weighted, self._dual_bound(max(multiplier, NOTHING * self.scale), spend))
        is_weighted = len({c.weight for c in problem.classes}) > 1
        mean = float(np.dot(arrivals, hours) / np.sum(arrivals))
        gap = (weighted - bound) / weighted
        return Solution(
            version="continuous",
            status="optimal" if gap <= GAP_PROVEN else "feasible",
            budget=budget,
            budget_unit=problem.budget_unit,
            mean_jct_hours=mean,
            weighted_mean_jct_hours=weighted,
            mean_spend=float(np.dot(arrivals, [c.mean_spend for c in classes])),
            multiplier=multiplier,
            dual_bound_hours=bound,
            gap=gap,
            cheapest_feasible_spend=self.cheapest_feasible_spend,
            largest_useful_spend=self.largest_useful_spend,
            lower_bound_mean_jct_hours=_plain_bound(problem, spend) if is_weighted else bound,
            is_weighted=is_weighted,
            classes=classes,
        )

    def _classes(self, more: BestTerms, less: BestTerms, budget: float) -> tuple[ClassSolution, ...]:
        """Return plans that mix the choices spending more and less than the budget, to spend it exactly.

        Groups move from `less` to `more` until the budget is used; the last group moves in part.
        """
        terms = self.terms
        room = budget - float(terms.total_spend(less)[0])
        extra = terms.arrivals * (more.spend[0] - less.spend[0])
        share = np.zeros(len(extra))
        for group in np.argsort(extra)[::-1].tolist():
            if extra[group] <= 0.0 or room <= 0.0:
                break
            share[group] = min(1.0, room / float(extra[group]))
            room -= float(extra[group] * share[group])
        share[(share < SAME) | (extra < SAME * budget)] = 0.0
        share[share > 1.0 - SAME] = 1.0
        mains: list[list[PhaseOption]] = [[] for _ in terms.problem.classes]
        others: dict[int, tuple[list[PhaseOption], float]] = {}
        fewer, further = self._steps(less), self._steps(more)
        for group, (owner, part) in enumerate(zip(terms.owner.tolist(), share.tolist(), strict=True)):
            steps = (further if part == 1.0 else fewer)[group]
            if 0.0 < part < 1.0:
                second = further[group]
                blend = self._blend(group, more, less, part)
                if blend is not None:
                    steps = (blend,)
                else:
                    others[owner] = ([*mains[owner], *second], part)
                    mains[owner].extend(steps)
                    continue
            if owner in others:
                others[owner][0].extend(steps)
            mains[owner].extend(steps)
        return tuple(
            ClassSolution(
                name=job_class.name,
                is_coupled=job_class.is_coupled,
                plans=plan_pair(tuple(mains[i]), *_second(others.get(i))),
            )
            for i, job_class in enumerate(terms.problem.classes)
        )

    def _steps(self, chosen: BestTerms) -> list[tuple[PhaseOption, ...]]:
        """Return the phases of each group's choice."""
        terms = self.terms
        names = [gpu.name for gpu in terms.problem.gpu_types]
        steps: list[tuple[PhaseOption, ...]] = [
            (PhaseOption(gpu_type=names[kind], gpus=gpus, hours=hours, spend=spend),)
            for kind, gpus, hours, spend in zip(
                terms.gpu_type[chosen.term[0]].tolist(),
                chosen.gpus[0].tolist(),
                chosen.hours[0].tolist(),
                chosen.spend[0].tolist(),
                strict=True,
            )
        ]
        for group, owner in enumerate(terms.owner.tolist()):
            if owner in terms.plans:
                columns, plans = terms.plans[owner]
                plan = plans[int(chosen.term[0, group] - terms.starts[group])]
                steps[group] = plan_steps(terms.problem, columns, plan)
        return steps

    def _blend(self, group: int, more: BestTerms, less: BestTerms, part: float) -> PhaseOption | None:
        """Return the real width that equals a mix of two widths of one type; None across types or plans."""
        terms = self.terms
        a, b = int(less.term[0, group]), int(more.term[0, group])
        if terms.gpu_type[a] != terms.gpu_type[b] or int(terms.owner[group]) in terms.plans:
            return None
        hours = (1.0 - part) * float(less.hours[0, group]) + part * float(more.hours[0, group])
        spend = (1.0 - part) * float(less.spend[0, group]) + part * float(more.spend[0, group])
        return PhaseOption(
            gpu_type=terms.problem.gpu_types[int(terms.gpu_type[a])].name,
            gpus=spend / (float(terms.price[a]) * hours),
            hours=hours,
            spend=spend,
        )

    def _dual_bound(self, multiplier: float, budget: float) -> float:
        """Return a lower bound on the weighted mean JCT of real widths at the budget (weak duality)."""
        terms = self.terms
        chosen = terms.best(np.array([multiplier]))
        least = terms.weight * chosen.hours[0] + multiplier * chosen.spend[0]
        for group, owner in enumerate(terms.owner.tolist()):
            if owner in terms.plans:
                least[group] = least_lagrangian(terms.problem, terms.problem.classes[owner], multiplier)
        weighted = sum(c.arrivals_per_hour * c.weight for c in terms.problem.classes)
        return float((terms.arrivals @ least - multiplier * budget) / weighted)


def _second(other: tuple[list[PhaseOption], float] | None) -> tuple[tuple[PhaseOption, ...] | None, float]:
    return (None, 0.0) if other is None else (tuple(other[0]), other[1])


def _plain_bound(problem: Problem, budget: float) -> float:
    """Return the least plain mean JCT at the budget: the dual bound with every weight one."""
    plain = replace(problem, classes=tuple(replace(c, weight=1.0) for c in problem.classes))
    return ContinuousFrontier.of(plain).solution_at(budget).dual_bound_hours


def solve_continuous(problem: Problem, budget: float) -> Solution:
    """Return the best allocation at real widths.

    Raises:
        InfeasibleBudget: when the budget is below the least that runs every job.
    """
    return ContinuousFrontier.of(problem).solution_at(budget)
