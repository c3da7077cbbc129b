"""Equal spend: tune each rival's knob until it spends what the reference spent on the same jobs.

    policy understands    knob                          settings tried
    efficiency            the least efficiency          thresholds at which some width changes, by bisection
    utility               the middle of the band        by bisection
    nodes                 the size of the fleet         from what the money rents, for limits of 1, 2, 4, ...
    gpus_per_job          the limit on widths           widths that some class allows, by bisection
    share                 jobs that go a step further   between the two settings found, by bisection
    none of these         the budget it plans for       by chords and bisection

Spend is that of the run per hour of arrivals, boots and idle nodes included. Cost: 5 to 12 runs a cell, a few
times that for fleets with a limit on widths. Idle workers run settings that the search may need next, which
does not change any answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from boa_daemon.lab.compare.cells import REFERENCE, Cell, CellResult, Comparison, Knob, with_knob
from boa_daemon.sim.bounds.boot_bound import SearchEffort
from boa_daemon.sim.budget_tuning import tune_planning_budget
from boa_daemon.sim.simulation_result import Simulation
from boa_daemon.sim.wiring import SimulationSettings, prepare, site_of
from boa_daemon.tasks.tasks import Tasks
from policies.errors import InfeasibleBudget
from policies.registry import find_policy
from policies.rivals.width_menu import WidthMenu, menu_of

TOLERANCE = 0.01
"""Spends that differ by at most this fraction are equal."""
PLANNING_RUNS = 10
UTILITY_RUNS = 9
SHARE_RUNS = 10
DEEPEST_DISCOUNT = 0.25
"""Fleets on spot are sized for prices down to this fraction of on demand."""
WIDEST_FLEET_LIMIT = 64
"""Largest limit on widths tried for fleets; limits are powers of two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobTrial:
    """One run at one setting of the knob."""

    knob: Knob
    result: Simulation

    @property
    def spend(self) -> float:
        """Its spend per hour of arrivals."""
        return self.result.mean_usd_per_hour

    @property
    def hours(self) -> float:
        """Its mean JCT."""
        return self.result.mean_jct_hours

    def is_equal(self, target: float) -> bool:
        """Return whether it spent the target within the tolerance."""
        return abs(self.spend / target - 1.0) <= TOLERANCE


@dataclass(slots=True)
class CellTrials:
    """Runs of one cell at settings of its knob, each run once."""

    settings: SimulationSettings
    target: float
    tasks: Tasks
    trials: dict[tuple[tuple[str, float], ...], KnobTrial | None] = field(default_factory=dict)

    def ahead(self, *knobs: Knob) -> None:
        """Run settings that may be needed next on idle workers."""
        for knob in knobs:
            if self.tasks.has_idle:
                self.tasks.submit(run_of, with_knob(self.settings, knob))

    def spend(self, **knob: float) -> float:
        """Return the spend of a setting; 0 if it cannot run all jobs."""
        key = tuple(knob.items())
        if key not in self.trials:
            try:
                result = self.tasks.run(run_of, with_knob(self.settings, knob))
                self.trials[key] = KnobTrial(knob=knob, result=result)
            except InfeasibleBudget:
                self.trials[key] = None
        trial = self.trials[key]
        return 0.0 if trial is None else trial.spend

    def runs(self) -> list[KnobTrial]:
        """Return every run so far."""
        return [trial for trial in self.trials.values() if trial is not None]


def run_of(settings: SimulationSettings, effort: SearchEffort | None = None) -> Simulation:
    """Run one simulation: the task of comparisons. `effort` adds the bound with boots."""
    run = prepare(settings)
    result = run.finish()
    return result if effort is None else run.with_boot_bound(result, effort=effort)


def run_cell(comparison: Comparison, cell: Cell, tasks: Tasks) -> CellResult:
    """Run a cell and return its row: the reference at its budget, a rival at the reference's spend.

    The planning budget of the fixed-plan reference (boa) is tuned so that it spends its budget. A paced
    reference is run as the daemon runs it, and is not tuned.
    """
    settings = comparison.settings(cell)
    if cell.target is None:
        chosen = settings
        if cell.policy == REFERENCE:
            chosen = tune_planning_budget(settings, lambda some: _all_of(some, tasks))
        planned = chosen.planning_budget or chosen.budget
        result = tasks.run(run_of, chosen, comparison.bound_effort)
        trial = KnobTrial(knob={"planning_budget": planned.amount}, result=result)
        return _row(cell, trial, target=trial.spend, equal=trial.hours, runs=1)
    bench = CellTrials(settings, cell.target, tasks)
    _search(bench)
    trials = bench.runs()
    best = _chosen(trials, cell.target)
    return _row(
        cell, best, target=cell.target, equal=equal_spend_hours(trials, cell.target), runs=len(trials)
    )


def _all_of(settings: Sequence[SimulationSettings], tasks: Tasks) -> list[Simulation]:
    """Run simulations side by side."""
    return [future.result() for future in [tasks.submit(run_of, one) for one in settings]]


def equal_spend_hours(trials: Iterable[KnobTrial], target: float) -> float | None:
    """Return the least mean JCT that these settings reach at the target spend, or None.

    It is the JCT of a run that spent no more, or is interpolated between such a run and one that spent more:
    the result of mixing both settings, for example by a coin toss per job.
    """
    runs = list(trials)
    below = [trial for trial in runs if trial.spend <= target * (1.0 + TOLERANCE)]
    reached = [trial.hours for trial in below]
    for under in (trial for trial in below if trial.spend < target):
        for over in (trial for trial in runs if trial.spend > target):
            share = (target - under.spend) / (over.spend - under.spend)
            reached.append(under.hours + share * (over.hours - under.hours))
    return min(reached, default=None)


def _chosen(trials: list[KnobTrial], target: float) -> KnobTrial:
    """Return the run to show: nearest in spend, among those with the best limit on widths."""
    by_limit: dict[float | None, list[KnobTrial]] = {}
    for trial in trials:
        limit = trial.knob.get("gpus_per_job") if "nodes" in trial.knob else None
        by_limit.setdefault(limit, []).append(trial)
    groups = list(by_limit.values())
    hours = [equal_spend_hours(group, target) for group in groups]
    reached = [(h, n) for n, h in enumerate(hours) if h is not None]
    return _nearest(groups[min(reached)[1]] if reached else trials, target)


def _nearest(trials: list[KnobTrial], target: float) -> KnobTrial:
    """Return the fastest run of equal spend; if there is none, the one nearest in spend."""
    equal = [trial for trial in trials if trial.is_equal(target)]
    if equal:
        return min(equal, key=lambda trial: trial.hours)
    return min(trials, key=lambda trial: (abs(trial.spend - target), trial.hours))


def _search(bench: CellTrials) -> None:
    """Run the settings around the target spend, by the policy's knob."""
    options = find_policy(bench.settings.policy).options
    menu = menu_of(site_of(bench.settings), bench.settings.options)
    if "efficiency" in options:
        _search_steps(bench, "efficiency", menu.thresholds, can_mix="share" in options)
    elif "utility" in options:
        _search_utilities(bench)
    elif "nodes" in options:
        _search_fleets(bench, menu, has_limit="gpus_per_job" in options)
    elif "gpus_per_job" in options:
        _search_steps(bench, "gpus_per_job", menu.limits, can_mix="share" in options)
    else:
        _search_plans(bench)


def _search_steps(bench: CellTrials, name: str, steps: Sequence[float], *, can_mix: bool) -> None:
    """Run the settings around the target, then mix the two nearest by the share of jobs at the next step."""

    def knob(n: int, share: float = 0.0) -> Knob:
        return {name: steps[n], "share": share} if can_mix else {name: steps[n]}

    def spend(n: int, share: float = 0.0) -> float:
        return bench.spend(**knob(n, share))

    last = _bracket(
        spend, bench.target, len(steps), margin=1, ahead=lambda ns: bench.ahead(*(knob(n) for n in ns))
    )
    if not can_mix or not 0 <= last < len(steps) - 1:
        return
    low, high = 0.0, 1.0
    below, above = spend(last), spend(last + 1)
    for _ in range(SHARE_RUNS):
        if any(trial.is_equal(bench.target) for trial in bench.runs()):
            return
        # If the cheaper setting cannot run, there are no two points to interpolate.
        share = (bench.target - below) / (above - below) if 0.0 < below < above else 0.5
        share = low + (high - low) * min(max(share, 0.1), 0.9)
        spent = spend(last, share)
        if spent < bench.target:
            low, below = share, spent
        else:
            high, above = share, spent


def _search_utilities(bench: CellTrials) -> None:
    """Bisect the target utility of the node count: a lower utility rents more."""
    low, high = 0.0, 1.0
    for _ in range(UTILITY_RUNS):
        utility = (low + high) / 2.0
        bench.ahead(*({"utility": one} for one in (utility, (low + utility) / 2.0, (utility + high) / 2.0)))
        spent = bench.spend(utility=utility)
        if abs(spent / bench.target - 1.0) <= TOLERANCE / 2.0:
            return
        low, high = (low, utility) if spent < bench.target else (utility, high)


def _search_fleets(bench: CellTrials, menu: WidthMenu, *, has_limit: bool) -> None:
    """Run the two fleets around the target, for each limit on widths."""
    kind = bench.settings.instance_types[menu.gpu_type]
    least = math.ceil(_widest_need(menu) / kind.gpus)
    # A fleet is held for the whole window, so one that costs more than the target is too large. The discount
    # of a spot market is not known in advance.
    usd_per_hour = kind.usd_per_hour * (1.0 if bench.settings.world.spot is None else DEEPEST_DISCOUNT)
    most = max(least, math.ceil(bench.target / usd_per_hour) + 1)
    if bench.settings.max_nodes is not None:
        most = max(least, min(most, bench.settings.max_nodes))
    widest = min(most * kind.gpus, menu.limits[-1], WIDEST_FLEET_LIMIT)
    limits = [2**n for n in range(widest.bit_length())] if has_limit else [None]
    guess = math.floor(bench.target / kind.usd_per_hour) - least
    for limit in limits:
        _search_fleet(bench, range(least, most + 1), {} if limit is None else {"gpus_per_job": limit}, guess)


def _search_fleet(bench: CellTrials, sizes: Sequence[int], limit: Knob, guess: int) -> None:
    """Run the two fleets around the target under one limit on widths."""

    def knob(n: int) -> Knob:
        return {"nodes": sizes[n], **limit}

    _bracket(
        lambda n: bench.spend(**knob(n)),
        bench.target,
        len(sizes),
        guess=guess,
        ahead=lambda ns: bench.ahead(*(knob(n) for n in ns)),
    )


def _search_plans(bench: CellTrials) -> None:
    """Tune the planning budget until the run spends the target, by the secant method and bisection."""
    low, high, planned = 0.0, 2.0 * bench.target, bench.target
    below, above = 0.0, math.inf
    for trial in range(PLANNING_RUNS):
        spent = bench.spend(planning_budget=planned)
        if abs(spent / bench.target - 1.0) <= TOLERANCE / 4.0:
            return
        if spent < bench.target:
            low, below = planned, spent
        else:
            high, above = planned, spent
        planned = (low + high) / 2.0
        if 0.0 < below < above < math.inf and trial % 3 != 2:
            share = (bench.target - below) / (above - below)
            planned = low + (high - low) * min(max(share, 0.1), 0.9)
        if high - low <= 1e-3 * bench.target:
            break
    if not bench.runs():
        least = _least_plan(bench)
        bench.spend(planning_budget=least)


def _least_plan(bench: CellTrials) -> float:
    """Return the least feasible planning budget, if the target is not feasible."""
    try:
        prepare(with_knob(bench.settings, {"planning_budget": bench.target * 1e-6}))
    except InfeasibleBudget as error:
        return error.least_spend * (1.0 + 1e-9)
    return bench.target * 1e-6


def _bracket(
    spend: Callable[[int], float],
    target: float,
    count: int,
    *,
    margin: int = 0,
    guess: int | None = None,
    ahead: Callable[[Sequence[int]], None] = lambda ns: None,
) -> int:
    """Run the settings around the first of `count` ascending ones that spends the target, by bisection.

    With a guess the search begins there, in doubling steps. Returns the last setting that spends less; -1 if
    the first one already spends the target. `ahead` is called with the next setting and the two that may
    follow.
    """
    low, high = -1, count
    near, step = guess or 0, 1

    def middle_of(low: int, high: int, near: int) -> int:
        is_between = low >= 0 and high < count
        return (low + high) // 2 if guess is None or is_between else min(max(near, low + 1), high - 1)

    while high - low > 1:
        middle = middle_of(low, high, near)
        after = (low, middle, middle - step), (middle, high, middle + step)
        ahead([middle, *(middle_of(*ends) for ends in after if ends[1] - ends[0] > 1)])
        if spend(middle) < target:
            low, near = middle, middle + step
        else:
            high, near = middle, middle - step
        step *= 2
    last = range(max(0, low - margin), min(count, high + margin + 1))
    ahead(last)
    for n in last:
        spend(n)
    return low


def _widest_need(menu: WidthMenu) -> int:
    """Return the fewest GPUs on which every job can run at its narrowest width."""
    phases = (phase for job_class in menu.classes.values() for phase in job_class.phases)
    return max(phase.speedups[menu.gpu_type].min_gpus for phase in phases)


def _row(cell: Cell, trial: KnobTrial, *, target: float, equal: float | None, runs: int) -> CellResult:
    result = trial.result
    return CellResult(
        policy=cell.policy,
        budget=cell.budget.amount,
        max_nodes=cell.max_nodes,
        seed=cell.seed,
        knob=dict(trial.knob),
        mean_jct_hours=result.mean_jct_hours,
        p50_jct_hours=result.p50_jct_hours,
        p95_jct_hours=result.p95_jct_hours,
        p99_jct_hours=result.p99_jct_hours,
        mean_usd_per_hour=result.mean_usd_per_hour,
        target_usd_per_hour=target,
        at_equal_spend=trial.is_equal(target),
        equal_spend_mean_jct_hours=equal,
        lower_bound_mean_jct_hours=result.lower_bound_mean_jct_hours,
        lower_bound_with_boots_mean_jct_hours=result.lower_bound_with_boots_mean_jct_hours,
        gpu_hours_rented=result.gpu_hours_rented,
        gpu_hours_used=result.gpu_hours_used,
        gpu_hours_overhead=result.gpu_hours_overhead,
        gpu_hours_booting=result.gpu_hours_booting,
        gpu_hours_idle=result.gpu_hours_idle,
        rescales=result.rescales,
        most_nodes=result.most_nodes,
        runs=runs,
    )
