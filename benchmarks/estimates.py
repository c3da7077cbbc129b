"""Class files that are wrong: errors and intervals of what is learnt, and what that is worth.

    python benchmarks/estimates.py [--seeds 24] [--hours 36] [--only errors | --only worth] [--quick]

First: how far rates, sizes and speed-ups are off after so many jobs of a class, beside the class file, and
how often the truth lies in the 95 % interval. Then: spend over budget and mean JCT of the fixed plan and of
the paced policy with the true numbers, with the wrong ones, and with the wrong ones corrected as the daemon
corrects them. The classes, the machine and the load are those of `benchmarks/pacing.py`.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from boa_daemon.sim.learning_policy import LearningPolicy
from boa_daemon.sim.report import Simulation
from boa_daemon.sim.scenarios import PROBLEM, SCENARIOS, settings_of
from boa_daemon.sim.settings import Beliefs, WorldSettings
from boa_daemon.sim.wiring import SimulationSettings, prepare, site_of
from boa_daemon.tick.decision import Decision
from policies.errors import InfeasibleBudget

SPREAD = 0.4
"""Each job's stated scale is off by this much, besides."""
MILESTONES = (3, 10, 30, 100, 300)
"""Jobs of a class that have come, or ended, when its estimate is looked at."""
OFF: tuple[tuple[str, Beliefs], ...] = (
    ("rates twice too high", Beliefs(rates={"": 2.0})),
    ("rates half", Beliefs(rates={"": 0.5})),
    ("sizes twice too high", Beliefs(sizes={"": 2.0}, size_spread=SPREAD)),
    ("sizes half", Beliefs(sizes={"": 0.5}, size_spread=SPREAD)),
    (
        "all, by class in different ways",
        Beliefs(
            rates={"vision": 2.0, "language": 0.5, "stiff": 2.0},
            sizes={"vision": 0.5, "language": 2.0, "stiff": 0.5},
            speedup_exponents={"vision": 1.25, "language": 0.75, "stiff": 1.5},
            size_spread=SPREAD,
        ),
    ),
)
MIXED = OFF[-1][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How far off a figure was, in logarithms, estimated and stated; whether the interval held the truth."""

    estimated: float
    stated: float
    holds: bool


def wrong(beliefs: Beliefs, *, policy: str, hours: float, seed: int) -> SimulationSettings:
    """Return a steady load under beliefs."""
    settings = settings_of(SCENARIOS[0], hours=hours, seed=seed)
    return replace(settings, policy=policy, world=replace(WorldSettings(), beliefs=beliefs))


def taught_run(
    settings: SimulationSettings, look: Callable[[LearningPolicy, Decision], None] | None = None
) -> tuple[Simulation, LearningPolicy]:
    """Run a policy that learns; `look` sees it after every tick."""
    run = prepare(settings)
    taught = LearningPolicy(
        settings.policy,
        site_of(settings),
        settings.options,
        jobs=run.world.jobs,
        seed=settings.seed,
    )

    def on_tick(decision: Decision) -> None:
        taught.watch(decision)
        if look is not None:
            look(taught, decision)

    run = replace(run, controller=replace(run.controller, allocator=taught))
    return run.finish(on_tick), taught


class Looks:
    """Looks at the estimates of each class when so many of its jobs have come or ended."""

    def __init__(self, beliefs: Beliefs) -> None:
        self._beliefs = beliefs
        self._truth = {c.name: c for c in PROBLEM.classes}
        self._done: set[tuple[str, str, int]] = set()
        self.found: dict[tuple[str, int], list[Look]] = defaultdict(list)

    def __call__(self, taught: LearningPolicy, _decision: Decision) -> None:
        """Look where a milestone was reached."""
        for name, belief in taught.beliefs.known.items():
            truth = self._truth[name]
            # What a job really does per stated scale: its error is log-normal around the class's.
            size = truth.size_gpu_hours * math.exp(0.5 * self._beliefs.size_spread**2)
            for what, count, value, true, stated in (
                ("rate", belief.arrivals, belief.rate, truth.arrivals_per_hour, belief.stated_per_hour),
                ("size", belief.ended, belief.size, size, belief.stated_gpu_hours),
            ):
                mark = max((m for m in MILESTONES if m <= count), default=0)
                if mark and (what, name, mark) not in self._done:
                    self._done.add((what, name, mark))
                    self.found[what, mark].append(
                        Look(
                            estimated=abs(math.log(value.mean / true)),
                            stated=abs(math.log(stated / true)),
                            holds=value.low <= true <= value.high,
                        )
                    )

    def speedups(self, taught: LearningPolicy) -> list[Look]:
        """Return how far off the speed-up is at each width that was measured, at the end."""
        looks = []
        for (name, kind), curve in taught.curves.items():
            measured = [width for width in curve.widths if width.measurements]
            true, stated = (
                self._truth[name].phases[0].speedups[kind],
                taught.stated[name].phases[0].speedups[kind],
            )
            first = measured[0]
            for width in measured[1:]:
                real = math.log(true.speed_at(width.gpus) / true.speed_at(first.gpus))
                said = math.log(stated.speed_at(width.gpus) / stated.speed_at(first.gpus))
                found = math.log(width.samples_per_second / first.samples_per_second)
                reach = 1.96 * math.hypot(width.spread, first.spread)
                looks.append(
                    Look(
                        estimated=abs(found - real), stated=abs(said - real), holds=abs(found - real) <= reach
                    )
                )
        return looks


def off(values: Sequence[float]) -> str:
    """Return the mean distance in logarithms as a factor."""
    return f"{100.0 * (math.exp(fmean(values)) - 1.0):5.0f} %"


def errors(*, seeds: int, hours: float) -> None:
    """Print the errors of the estimates beside those of the class file, and the coverage of the intervals."""
    found: dict[tuple[str, int], list[Look]] = defaultdict(list)
    for seed in range(1, seeds + 1):
        looks = Looks(MIXED)
        _, taught = taught_run(wrong(MIXED, policy="boa-paced", hours=hours, seed=seed), looks)
        for key, values in looks.found.items():
            found[key] += values
        found["speed-up", 0] += looks.speedups(taught)
    print(f"{seeds} runs of {hours:g} h, three classes, class file off by class in different ways")
    print("figure     jobs  estimate off  class file off   truth in the 95 % interval   cases")
    for (what, mark), values in sorted(found.items()):
        jobs = "end" if what == "speed-up" else str(mark)
        print(
            f"{what:9s} {jobs:>5s}  {off([v.estimated for v in values]):>12s}"
            f"  {off([v.stated for v in values]):>14s}"
            f"   {100.0 * fmean(v.holds for v in values):8.0f} %                  {len(values):6d}"
        )


def worth(*, seeds: int, hours: float) -> None:
    """Print spend over budget and mean JCT with true numbers, wrong ones, and wrong ones corrected."""
    print("\nspend over budget, mean JCT in minutes: medians over the seeds; plans = how often one was made")
    print(f"{'class file':34s} {'policy':10s} {'true numbers':>16s} {'wrong':>16s} {'corrected':>16s}  plans")
    for name, beliefs in OFF:
        for policy in ("boa", "boa-paced"):
            columns: dict[str, list[tuple[float, float]]] = defaultdict(list)
            plans = []
            for seed in range(1, seeds + 1):
                settings = wrong(beliefs, policy=policy, hours=hours, seed=seed)
                unbiased = replace(Beliefs(), size_spread=beliefs.size_spread)
                columns["true"].append(
                    figures(prepare(wrong(unbiased, policy=policy, hours=hours, seed=seed)).finish())
                )
                try:
                    columns["wrong"].append(figures(prepare(settings).finish()))
                    result, taught = taught_run(settings)
                except InfeasibleBudget:
                    continue
                columns["corrected"].append(figures(result))
                plans.append(taught.plans)
            cells = " ".join(f"{said(columns[key]):>16s}" for key in ("true", "wrong", "corrected"))
            print(f"{name:34s} {policy:10s} {cells}  {np.median(plans) if plans else 0:5.0f}", flush=True)


def figures(result: Simulation) -> tuple[float, float]:
    """Return (spend over budget, mean JCT in minutes)."""
    return result.mean_usd_per_hour / result.budget_usd_per_hour, 60.0 * result.mean_jct_hours


def said(values: Sequence[tuple[float, float]]) -> str:
    """Return the medians; a dash where no plan was possible."""
    if not values:
        return "no plan"
    spend, jct = np.median(np.array(values), axis=0)
    return f"{spend:.2f} {jct:7.1f}"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--hours", type=float, default=36.0)
    parser.add_argument("--quick", action="store_true", help="two seeds, twelve hours")
    parser.add_argument("--only", choices=("errors", "worth"), help="one of the two tables")
    words = parser.parse_args()
    seeds, hours = (2, 12.0) if words.quick else (words.seeds, words.hours)
    if words.only != "worth":
        errors(seeds=seeds, hours=hours)
    if words.only != "errors":
        worth(seeds=max(2, seeds // 6), hours=hours)


if __name__ == "__main__":
    main()
