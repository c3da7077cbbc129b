"""Following a plan with whole nodes: where the GPU-hours go, and mean JCT at equal spend with and without.

    python benchmarks/following.py [DIR ...]

DIR holds `classes.yaml` and `trace.csv` as `boa trace import` writes them; the shipped workload always comes
first. For each multiple of the load: BOA's mean JCT in minutes with and without following, read off the lower
hull of runs with many plans, and the mean JCT of the tuned efficiency threshold and of the tuned equal width
over BOA's at that spend. The rules are tuned in their parameter and in the time for which idle nodes are
kept. Nodes boot in 180 s; idle nodes and boots are paid.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from boa_daemon.cli.plan.demo import shipped_settings
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.sim.bounds.lower_bound import lower_bound_hours
from boa_daemon.sim.simulation_result import Simulation
from boa_daemon.sim.wiring import SimulationSettings, prepare, settings_for, simulate, site_of
from boa_daemon.sim.world_settings import WrongBeliefs
from boa_daemon.traces.reader import read_trace
from boa_daemon.units import SECONDS_PER_HOUR
from policies.errors import InfeasibleBudget
from policies.model import Budget
from policies.optimum.boa import BudgetOptimal, solve
from policies.registry import PolicyOptions
from policies.rivals.width_menu import menu_of

MULTIPLES = (1.5, 2.0, 2.5, 3.0)
PLANS, THRESHOLDS = 14, 16
LOST = (0.05, 0.1, 0.15, 0.2)
HOLDS_SECONDS = (0.0, 60.0, 180.0, 400.0)


def load_of(settings: SimulationSettings) -> float:
    """Return the cost per hour of the work on single GPUs."""
    price = min(settings.problem.price_of(gpu.name) for gpu in settings.problem.gpu_types)
    return sum(c.arrivals_per_hour * c.size_gpu_hours * price for c in settings.problem.classes)


def not_following(settings: SimulationSettings) -> Simulation:
    """Return the run of the plain plan: nodes are rented at once and kept idle for the site's minute."""
    run = prepare(settings)
    site = site_of(settings)
    plain = BudgetOptimal.from_solution(solve(site.problem, site.budget.amount))
    return replace(run, controller=replace(run.controller, allocator=plain)).finish()


def plans(settings: SimulationSettings) -> list[SimulationSettings]:
    """Return the settings with budgets from one to three times the load."""
    load = load_of(settings)
    amounts = (load * np.geomspace(1.05, 3.2, PLANS)).tolist()
    return [replace(settings, budget=replace(settings.budget, amount=amount)) for amount in amounts]


def runs_of(
    settings: Iterable[SimulationSettings], how: Callable[[SimulationSettings], Simulation] = simulate
) -> list[Simulation]:
    """Return the runs of those settings whose budget is large enough."""
    found = []
    for one in settings:
        try:
            found.append(how(one))
        except InfeasibleBudget:
            continue
    return found


def rule(settings: SimulationSettings, name: str) -> list[Simulation]:
    """Return the runs of a rule with many parameters and idle times."""
    menu = menu_of(site_of(settings), settings.options)
    if name == "efficiency":
        all_of_them = menu.thresholds
        chosen = np.unique(np.linspace(0, len(all_of_them) - 1, THRESHOLDS).astype(int))
        options = [PolicyOptions(efficiency=all_of_them[n]) for n in chosen]
    else:
        options = [PolicyOptions(gpus_per_job=limit) for limit in menu.limits if limit <= 24]
    base = replace(settings, policy=name, budget=Budget(amount=9.0 * load_of(settings)))
    return runs_of(
        replace(base, options=option, idle_hold_seconds=hold) for option in options for hold in HOLDS_SECONDS
    )


def hours_at(runs: Sequence[Simulation], spend: float) -> float:
    """Return the least mean JCT at a spend, of a run or of two runs that share the time."""
    points = [(run.mean_usd_per_hour, run.mean_jct_hours) for run in runs]
    best = min((hours for spent, hours in points if spent <= spend), default=np.inf)
    for low in (point for point in points if point[0] < spend):
        for high in (point for point in points if point[0] > spend):
            share = (spend - low[0]) / (high[0] - low[0])
            best = min(best, low[1] + share * (high[1] - low[1]))
    return float(best)


def shares(run: Simulation) -> str:
    """Return the uses of the GPU-hours."""
    rented = run.gpu_hours_rented
    parts = {
        "used": run.gpu_hours_used,
        "start-up and rescale": run.gpu_hours_overhead,
        "booting": run.gpu_hours_booting,
        "idle or stranded": run.gpu_hours_idle,
    }
    return ", ".join(f"{name} {hours / rented:.0%}" for name, hours in parts.items())


def at_once(settings: SimulationSettings) -> Simulation:
    """Return the run in which nodes are ready at once, though their boots are paid."""
    believed = WrongBeliefs(boot_seconds=settings.boot_seconds)
    world = replace(settings.world, beliefs=believed)
    run = simulate(replace(settings, boot_seconds=0.0, world=world))
    (kind,) = settings.instance_types.values()
    boots = run.nodes_launched * kind.usd_per_hour * settings.boot_seconds / SECONDS_PER_HOUR
    spent = run.spent_usd + boots
    return replace(run, spent_usd=spent, mean_usd_per_hour=spent / run.arrival_window_hours)


def distance(run: Simulation, settings: SimulationSettings) -> str:
    """Return the bounds for the whole spend and for its part on work and start-ups, and BOA's mean JCT."""
    money, rented = run.mean_usd_per_hour * run.arrival_window_hours, run.gpu_hours_rented
    part = (run.gpu_hours_used + run.gpu_hours_overhead) / rented
    bounds = [lower_bound_hours(settings.trace, settings.problem, money * share) for share in (1.0, part)]
    whole, worked, waited = (60.0 * hours for hours in (*bounds, run.mean_jct_hours))
    return f"bound {whole:.1f}, for that part {worked:.1f}, BOA {waited:.1f} min"


def lost(settings: SimulationSettings, spend: float) -> str:
    """Return the bound after a loss of fractions of the GPU-hours, over the bound without loss."""
    money = spend * settings.trace.window_hours
    least = lower_bound_hours(settings.trace, settings.problem, money)
    bounds = {
        part: lower_bound_hours(settings.trace, settings.problem, money * (1.0 - part)) for part in LOST
    }
    return ", ".join(f"{part:.0%} lost {bound / least:.2f}" for part, bound in bounds.items())


def over_bound(settings: SimulationSettings, runs: Sequence[Simulation]) -> str:
    """Return the mean JCT of the runs over the bound, at each multiple of the load."""
    spends = {multiple: multiple * load_of(settings) for multiple in MULTIPLES}
    hours = settings.trace.window_hours
    bounds = {at: lower_bound_hours(settings.trace, settings.problem, spends[at] * hours) for at in MULTIPLES}
    return ", ".join(f"{at:.1f} x {hours_at(runs, spends[at]) / bounds[at]:.2f}" for at in MULTIPLES)


def main() -> None:
    """Print the table of each workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR")
    workloads = {"shipped": shipped_settings("30/h")}
    for folder in parser.parse_args().folders:
        file = load_problem(folder / "classes.yaml", require_rates=False)
        trace = read_trace(folder / "trace.csv")
        workloads[folder.name] = settings_for(file, trace, Budget(amount=1.0))
    for name, settings in workloads.items():
        load = load_of(settings)
        now, before = runs_of(plans(settings)), runs_of(plans(settings), not_following)
        rules = {knob: rule(settings, knob) for knob in ("efficiency", "equal-width")}
        print(f"{name}: {len(settings.trace.jobs)} jobs, load {load:.1f} USD/hour")
        for multiple in MULTIPLES:
            spend = multiple * load
            mine = hours_at(now, spend)
            ratios = "  ".join(f"{knob} {hours_at(runs, spend) / mine:.3f}" for knob, runs in rules.items())
            print(
                f"  {multiple:.1f} x load  {60.0 * mine:6.1f} min, not following "
                f"{hours_at(before, spend) / mine:.3f}  {ratios}"
            )
        nearest = min(now, key=lambda run: abs(run.mean_usd_per_hour - 1.5 * load))
        print(f"  near 1.5 x load: {shares(nearest)}; {distance(nearest, settings)}")
        print(f"  at 1.5 x load, least mean JCT over the bound: {lost(settings, 1.5 * load)}")
        paid = runs_of(plans(settings), at_once)
        print(
            f"  over the bound: {over_bound(settings, now)}; "
            f"nodes at once, boots paid: {over_bound(settings, paid)}"
        )
        for label, runs in (("following", now), ("not following", before)):
            nearest = min(runs, key=lambda run: abs(run.mean_usd_per_hour - 2.0 * load))
            print(f"  near 2 x load, {label}: {shares(nearest)}", flush=True)


if __name__ == "__main__":
    main()
