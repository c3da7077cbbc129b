"""Pacing against the budget: ten scenarios, three days each, a window of one day.

    python benchmarks/pacing.py [--only NAME] [--seeds 10 | --profiles | --plot docs/images/pacing.png]

For each scenario: what the paced policy spent in all and on each day, and its mean JCT; what the fixed plan
does when it believes the same; what it does when it is rehearsed on the very trace, which is foresight; and
what no policy can beat for what the paced policy spent. With --seeds, how far the spend of single windows is
from the budget over so many seeds, beside the fixed plan. With --profiles, spend over budget and mean JCT on
the classes of `boa demo`, and on the demo itself.

A window in which the load or the stock does not permit the budget is set apart: the cloud had none for a part
of it, or at its end money was left though every job had its widest width (or was lacking at the narrowest).
What was left over or lacking then is added to the money of the next window, which has to use it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from boa_daemon.cli.demo import shipped_settings
from boa_daemon.sim.report import Simulation
from boa_daemon.sim.scenarios import (
    BUDGET,
    PROBLEM,
    SCENARIOS,
    RunSamples,
    Scenario,
    a_trace_of,
    believed,
    paced_run,
    settings_of,
)
from boa_daemon.sim.wiring import prepare, rehearsed, simulate
from boa_daemon.tick.decision import Decision
from boa_daemon.tick.ledger import Ledger
from boa_daemon.units import SECONDS_PER_HOUR
from policies.errors import InfeasibleBudget
from policies.model import Budget

DEMO_BUDGETS = (25.0, 30.0, 40.0, 60.0)
DAYS = 3
HOURS = 24.0 * DAYS


DAY_USD = 24.0 * BUDGET.amount
TOLERANCE = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A day: spend over its money less one, and whether load and stock permitted more or less."""

    deviation: float
    is_permitted: bool


def windows_of(scenario: Scenario, books: RunSamples) -> list[Window]:
    """Return the days of a paced run; what one could not spend belongs to the next."""
    windows: list[Window] = []
    carried = 0.0
    for day in range(DAYS):
        begin, end = 24.0 * day, 24.0 * (day + 1)
        money = DAY_USD + carried
        rest = money - books.spent_between(begin, end)
        last = [sample for sample in books.samples if sample.hour <= end][-1]
        is_out = any(b < end and begin < e for b, e in scenario.outage_hours)
        is_at_end = last.is_at_end and (last.credit_usd > 0.0) == (rest > 0.0)
        windows.append(Window(deviation=-rest / money, is_permitted=not (is_out or is_at_end)))
        carried = 0.0 if windows[-1].is_permitted else rest
    return windows


def fixed_days(scenario: Scenario, *, seed: int) -> list[float]:
    """Return spend over budget less one for each day of the fixed plan; none where there is no plan."""
    spent: list[tuple[float, float]] = []

    def look(decision: Decision) -> None:
        spent.append((decision.state.now / SECONDS_PER_HOUR, Ledger.of(decision.state).committed_usd))

    if fixed_plan(scenario, seed=seed, on_tick=look) is None:
        return []
    hours, dollars = zip(*spent, strict=True)
    ends = np.interp([24.0 * day for day in range(DAYS + 1)], hours, dollars)
    return [float(day) / DAY_USD - 1.0 for day in np.diff(ends)]


def many(scenario: Scenario, seeds: Sequence[int]) -> str:
    """Run one scenario with several seeds and return its line: how far single days are from the budget."""
    windows: list[Window] = []
    runs: list[float] = []
    waits: list[float] = []
    fixed: list[float] = []
    for seed in seeds:
        result, books = paced_run(scenario, hours=HOURS, seed=seed)
        windows += windows_of(scenario, books)
        runs.append(books.spent_between(0.0, HOURS) / (DAYS * DAY_USD) - 1.0)
        waits.append(result.mean_jct_hours / result.lower_bound_mean_jct_hours)
        fixed += fixed_days(scenario, seed=seed)
    days = [window.deviation for window in windows if window.is_permitted]
    held = sum(abs(day) <= TOLERANCE for day in days)
    against = f"{_off(fixed)}" if fixed else "no plan"
    return (
        f"{scenario.name:32s} {_off(days)}  {held:3d} of {len(days):3d}  {len(windows) - len(days):3d}   "
        f"{100.0 * max(runs, key=abs):+6.1f}   {median(waits):5.2f}      {against}"
    )


def _off(days: Sequence[float]) -> str:
    """Return the median size and the worst of some deviations, in per cent."""
    return f"{100.0 * median(abs(day) for day in days):5.1f} {100.0 * max(days, key=abs):+6.1f}"


def fixed_plan(
    scenario: Scenario, *, seed: int, on_tick: Callable[[Decision], None] | None = None
) -> Simulation | None:
    """Return the run of the plan that follows from the beliefs; None where they make the budget too small."""
    truth = settings_of(scenario, hours=HOURS, seed=seed)
    try:
        plan = prepare(replace(truth, problem=believed(PROBLEM, scenario))).controller.allocator
    except InfeasibleBudget:
        return None
    run = prepare(truth)
    return replace(run, controller=replace(run.controller, allocator=plan)).finish(on_tick)


def said(result: Simulation | None, budget: float = BUDGET.amount) -> str:
    """Return spend over budget and mean JCT in minutes."""
    if result is None:
        return "   no plan     "
    return f"{result.mean_usd_per_hour / budget:6.3f} {60.0 * result.mean_jct_hours:7.1f} "


def line(scenario: Scenario, *, seed: int) -> str:
    """Run one scenario and return its line of the table."""
    paced, books = paced_run(scenario, hours=HOURS, seed=seed)
    days = [books.spent_between(24.0 * d, 24.0 * (d + 1)) / (24.0 * BUDGET.amount) for d in range(DAYS)]
    foresight = simulate(rehearsed(settings_of(scenario, hours=HOURS, seed=seed)))
    bound = 60.0 * paced.lower_bound_mean_jct_hours
    return (
        f"{scenario.name:32s} {said(paced)} {' '.join(f'{day:.3f}' for day in days)}   "
        f"{said(fixed_plan(scenario, seed=seed))}  {said(foresight)} {bound:6.1f}"
    )


def profiles(*, seed: int) -> None:
    """Print the real profiles: three days of Poisson arrivals, then the demo's own trace."""
    shipped = shipped_settings("40/h")
    days = a_trace_of(Scenario(name="steady"), shipped.problem.classes, hours=HOURS, seed=seed)
    for name, trace, budgets in (("three days", days, (40.0, 30.0)), ("demo", shipped.trace, DEMO_BUDGETS)):
        for amount in budgets:
            settings = replace(shipped, trace=trace, budget=Budget(amount=amount), seed=seed)
            for policy, result in (
                ("paced", simulate(replace(settings, policy="boa-paced"))),
                ("fixed plan", simulate(settings)),
                ("rehearsed", simulate(rehearsed(settings))),
            ):
                print(f"{name:10s} {amount:3.0f} USD/hour  {policy:10s} {said(result, amount)}", flush=True)


def draw(books: RunSamples, path: Path, title: str) -> None:
    """Draw the multiplier, the burn and the credit over time."""
    import matplotlib as mpl  # noqa: PLC0415 - only --plot needs it

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415 - only --plot needs it

    samples = [sample for sample in books.samples if sample.hour <= HOURS]
    hours = [sample.hour for sample in samples]
    grid = np.arange(0.0, HOURS + 0.01, 2.0)
    spent = np.interp(grid, hours, [sample.spent_usd for sample in samples])
    figure, axes = plt.subplots(3, 1, figsize=(8.0, 6.5), sharex=True, layout="constrained")
    axes[0].semilogy(hours, [sample.multiplier for sample in samples], color="#1769aa", lw=0.9)
    axes[0].set_ylabel("multiplier\n(hours per USD)")
    axes[0].set_title(title, loc="left", fontsize=10)
    axes[1].stairs(np.diff(spent) / 2.0, grid, color="#d9480f", label="spend, 2 h means")
    axes[1].axhline(BUDGET.amount, color="#1f2933", lw=1.0, ls="--", label="budget")
    axes[1].set_ylabel("USD/hour")
    axes[1].legend(frameon=False, loc="upper right")
    axes[2].plot(hours, [sample.credit_usd for sample in samples], color="#2f9e44", lw=0.9)
    axes[2].axhline(0.0, color="#1f2933", lw=0.8)
    axes[2].set_ylabel("credit (USD)")
    axes[2].set_xlabel("hours")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Print the table, and draw the scenario with a load step, a night and a burst where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seeds", type=int, default=0, help="so many seeds, and how far single windows are off"
    )
    parser.add_argument("--profiles", action="store_true", help="the classes of boa demo instead")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    if arguments.profiles:
        profiles(seed=arguments.seed)
        return
    if arguments.plot is not None:
        eventful = Scenario(
            name="eventful",
            load=((0.0, 1.0), (14.0, 0.0), (22.0, 1.0), (56.0, 1.3)),
            bursts=((38.0, 100),),
            rate_belief=0.5,
        )
        _, books = paced_run(eventful, hours=HOURS, seed=arguments.seed)
        events = "no jobs 14-22 h, 100 jobs at 38 h, load +30 % from 56 h"
        draw(books, arguments.plot, f"Rates believed half of the truth; {events}")
        return
    if arguments.seeds:
        print(f"{'':32s} paced, per cent of a window's money                        fixed plan")
        print(f"{'':32s} median worst   within 3 %  set apart  run  JCT/bound   median worst")
        for scenario in SCENARIOS:
            if arguments.only in scenario.name:
                print(many(scenario, range(1, arguments.seeds + 1)), flush=True)
        return
    print(f"{'':32s} paced                                    fixed plan       rehearsed        bound")
    print(f"{'':32s}  spend     min   day 1 day 2 day 3      spend     min    spend     min     min")
    for scenario in SCENARIOS:
        if arguments.only in scenario.name:
            print(line(scenario, seed=arguments.seed), flush=True)


if __name__ == "__main__":
    main()
