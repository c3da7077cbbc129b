"""Find the planning budget with which a run spends the actual budget: try several, then refine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from boa_daemon.sim.simulation_result import Simulation
from boa_daemon.sim.wiring import SimulationSettings, simulate, site_of
from policies.errors import InfeasibleBudget
from policies.registry import build_policy

RunAll: TypeAlias = Callable[[Sequence[SimulationSettings]], Sequence[Simulation]]
"""A function that does independent runs."""
REHEARSALS = 14
"""The number of planning budgets tried over the whole range."""
REFINEMENTS = 5
"""The number of further ones, each halving the gap above the best."""
WIDER_TRIALS, WIDER_STEP = 4, 1.08
"""Plans above the budget, tried while the largest is the best, and the factor between them."""
CAPPED_TRIALS, CAPPED_STEP = 8, 1.35
"""The same if nodes are capped: a cap holds back spending, and much larger plans may use the money."""
NEARLY = 1.02
"""If no run is within the budget, spends within this factor of the least count as equally good."""
LEAST_BUDGET = 1e-9
"""A budget too small for any plan: the refusal names the least sufficient one."""


def one_by_one(settings: Sequence[SimulationSettings]) -> list[Simulation]:
    """Return the results of the runs, done one after the other."""
    return [simulate(one) for one in settings]


def tune_planning_budget(settings: SimulationSettings, run_all: RunAll = one_by_one) -> SimulationSettings:
    """Return the settings with the planning budget whose run has the least mean JCT within the budget.

    The spend of a run does not rise smoothly with its planning budget, so the whole range from the least
    feasible plan to the budget is tried, and then the gap above the best trial. If every run spends more than
    the budget, the result is the run with the least mean JCT among those that spend least.
    """
    most = settings.budget.amount
    plans = np.geomspace(most, min(_least_plan(settings), most), REHEARSALS).tolist()
    trials = dict(zip(plans, _rehearse(settings, plans, run_all), strict=True))
    capped = settings.max_nodes_with_quotas is not None
    wider, step = (CAPPED_TRIALS, CAPPED_STEP) if capped else (WIDER_TRIALS, WIDER_STEP)
    for _ in range(wider):
        # Plans count a boot for every job; if most jobs need none, a larger plan spends the budget.
        widest = max(trials)
        if _best_plan(trials, most) != widest:
            break
        (result,) = _rehearse(settings, [widest * step], run_all)
        if result == trials[widest]:
            break
        trials[widest * step] = result
    for _ in range(REFINEMENTS):
        best = _best_plan(trials, most)
        above = min((planned for planned in trials if planned > best), default=best)
        if above > best:
            middle = 0.5 * (best + above)
            (trials[middle],) = _rehearse(settings, [middle], run_all)
    best = _best_plan(trials, most)
    return replace(settings, planning_budget=replace(settings.budget, amount=best))


def _rehearse(
    settings: SimulationSettings, plans: Sequence[float], run_all: RunAll
) -> list[tuple[float, float]]:
    """Return (money per hour, mean JCT in hours) of runs with these planning budgets."""
    budgets = [replace(settings.budget, amount=planned) for planned in plans]
    runs = run_all([replace(settings, planning_budget=budget) for budget in budgets])
    return [(run.mean_usd_per_hour, run.mean_jct_hours) for run in runs]


def _best_plan(trials: Mapping[float, tuple[float, float]], budget: float) -> float:
    """Return the plan with the least mean JCT within the budget, or else near the least spend."""
    allowed = max(budget, NEARLY * min(spent for spent, _ in trials.values()))
    within = [planned for planned, (spent, _) in trials.items() if spent <= budget] or [
        planned for planned, (spent, _) in trials.items() if spent <= allowed
    ]
    return min(within, key=lambda planned: (trials[planned][1], -planned))


def _least_plan(settings: SimulationSettings) -> float:
    """Return the least budget that the policy can plan for; the budget itself if the policy names none."""
    try:
        build_policy(
            settings.policy,
            site_of(replace(settings, planning_budget=replace(settings.budget, amount=LEAST_BUDGET))),
            settings.options,
        )
    except InfeasibleBudget as error:
        return error.least_spend * (1.0 + 1e-9)
    return settings.budget.amount
