"""Wrong class files: errors and intervals of the learnt values, and what learning gains.

    python benchmarks/estimates.py [--seeds 24] [--hours 36] [--only errors | worth | left | first] [--quick]

`errors`: the error of rates, sizes and speed-ups after a number of jobs of a class, beside the error of the
class file, and how often the truth lies in the 95 % interval. `worth`: spend over budget and mean JCT of the
fixed plan and the paced policy with the true numbers, with the wrong ones, and with the wrong ones corrected
as the daemon does. `left`: jobs that do not state their size. The work left is believed to be the stated size
less the work done, at least 2 % of it (before), or the mean of the work left given the work done (now).
`first`: the spend of the first 6, 12 and 24 hours over their budget with rates, sizes and speed-ups wrong by
given factors, told and learning; the speed-ups' elasticities are multiplied. In `left`: the believed over
the true work left, of all running jobs at all ticks, and of the jobs that have outrun their stated size.
Classes, machine and load are those of `benchmarks/pacing.py`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from boa_daemon.sim.learning_policy import LearningPolicy
from boa_daemon.sim.simulation_result import Simulation
from boa_daemon.sim.wiring import SimulationSettings, prepare, site_of
from boa_daemon.sim.world_settings import WorldSettings, WrongBeliefs
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.money.ledger import Ledger
from boa_daemon.traces.reader import Trace
from boa_daemon.units import SECONDS_PER_HOUR
from policies.errors import InfeasibleBudget
from policies.model import Budget, Job

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from load_scenarios import PROBLEM, SCENARIOS, settings_of

SPREAD = 0.4
"""The log-normal error of each job's stated scale."""
MILESTONES = (3, 10, 30, 100, 300)
"""Numbers of arrived or ended jobs of a class at which its estimate is recorded."""
OFF: tuple[tuple[str, WrongBeliefs], ...] = (
    ("rates twice too high", WrongBeliefs(rates={"": 2.0})),
    ("rates half", WrongBeliefs(rates={"": 0.5})),
    ("sizes twice too high", WrongBeliefs(sizes={"": 2.0}, size_spread=SPREAD)),
    ("sizes half", WrongBeliefs(sizes={"": 0.5}, size_spread=SPREAD)),
    (
        "all, by class in different ways",
        WrongBeliefs(
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
    """The error of a figure in logarithms, estimated and stated, and whether the interval held the truth."""

    estimated: float
    stated: float
    holds: bool


def wrong(beliefs: WrongBeliefs, *, policy: str, hours: float, seed: int) -> SimulationSettings:
    """Return a steady load under beliefs."""
    settings = settings_of(SCENARIOS[0], hours=hours, seed=seed)
    return replace(settings, policy=policy, world=replace(WorldSettings(), beliefs=beliefs))


def taught_run(
    settings: SimulationSettings,
    look: Callable[[LearningPolicy, Decision], None] | None = None,
    *,
    kind: type[LearningPolicy] = LearningPolicy,
) -> tuple[Simulation, LearningPolicy]:
    """Run a policy that learns; `look` is called after every tick."""
    run = prepare(settings)
    taught = kind(
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
    """Records the estimates of each class when a number of its jobs have arrived or ended."""

    def __init__(self, beliefs: WrongBeliefs) -> None:
        self._beliefs = beliefs
        self._truth = {c.name: c for c in PROBLEM.classes}
        self._done: set[tuple[str, str, int]] = set()
        self.found: dict[tuple[str, int], list[Look]] = defaultdict(list)

    def __call__(self, taught: LearningPolicy, _decision: Decision) -> None:
        """Record the estimates if a milestone was reached."""
        for name, belief in taught.learning.beliefs.known.items():
            truth = self._truth[name]
            # The true size per stated scale: jobs differ from the class by a log-normal error.
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
        """Return the error of the speed-up at each measured width at the end."""
        looks = []
        for (name, kind), curve in taught.classes.curves.items():
            measured = [width for width in curve.widths if width.measurements]
            true, stated = (
                self._truth[name].phases[0].speedups[kind],
                taught.classes.stated[name].phases[0].speedups[kind],
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
    """Print the errors of the estimates and of the class file, and the coverage of the intervals."""
    found: dict[tuple[str, int], list[Look]] = defaultdict(list)
    for seed in range(1, seeds + 1):
        looks = Looks(MIXED)
        _, taught = taught_run(wrong(MIXED, policy="boa-paced", hours=hours, seed=seed), looks)
        for key, values in looks.found.items():
            found[key] += values
        found["speed-up", 0] += looks.speedups(taught)
    print(f"{seeds} runs of {hours:g} h, three classes, class file wrong in a different way for each class")
    print("figure     jobs  estimate off  class file off   truth in the 95 % interval   cases")
    for (what, mark), values in sorted(found.items()):
        jobs = "end" if what == "speed-up" else str(mark)
        print(
            f"{what:9s} {jobs:>5s}  {off([v.estimated for v in values]):>12s}"
            f"  {off([v.stated for v in values]):>14s}"
            f"   {100.0 * fmean(v.holds for v in values):8.0f} %                  {len(values):6d}"
        )


def worth(*, seeds: int, hours: float) -> None:
    """Print spend over budget and mean JCT with true numbers, wrong ones, and corrected ones."""
    print("\nspend over budget, mean JCT in minutes: medians over the seeds; plans = how often one was made")
    print(f"{'class file':34s} {'policy':10s} {'true numbers':>16s} {'wrong':>16s} {'corrected':>16s}  plans")
    for name, beliefs in OFF:
        for policy in ("boa", "boa-paced"):
            columns: dict[str, list[tuple[float, float]]] = defaultdict(list)
            plans = []
            for seed in range(1, seeds + 1):
                settings = wrong(beliefs, policy=policy, hours=hours, seed=seed)
                unbiased = replace(WrongBeliefs(), size_spread=beliefs.size_spread)
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


class Clipped(LearningPolicy):
    """The same policy with the former belief of the work left: planned size less work done, at least 2 %."""

    def _as_believed(self, job: Job) -> Job:
        """Return a job with the work left by its class's believed size."""
        running = self._jobs.running.get(job.id)
        if running is None:
            return job
        size = self.classes.planned[job.class_name].size_gpu_hours * job.scale
        done = sum(running.physics.sizes) * running.trace.scale / SECONDS_PER_HOUR
        done -= job.remaining_gpu_hours / running.told_size
        return replace(job, remaining_gpu_hours=max(size - done, 0.02 * size))


def with_sizes(settings: SimulationSettings, shape: float) -> SimulationSettings:
    """Return the run with sizes of another law: Gamma of this shape, or log-normal of spread 2."""
    rng = np.random.default_rng(settings.seed)
    count = len(settings.trace.jobs)
    sigma = math.sqrt(math.log(5.0))
    if shape > 0.0:
        scales = rng.gamma(shape, 1.0 / shape, count)
    else:
        scales = rng.lognormal(-0.5 * sigma**2, sigma, count)
    jobs = (
        replace(job, scale=max(float(scale), 0.01))
        for job, scale in zip(settings.trace.jobs, scales, strict=True)
    )
    return replace(settings, trace=Trace(tuple(jobs)))


LAWS = (
    ("spread 0.3", 11.0),
    ("spread 1 (exponential)", 1.0),
    ("spread 2 (Gamma)", 0.25),
    ("spread 2 (log-n.)", 0.0),
)


class Lefts:
    """Adds up the believed and the true work left of running jobs."""

    def __init__(self) -> None:
        self.sums = np.zeros((2, 2))

    def __call__(self, taught: LearningPolicy, decision: Decision) -> None:
        """Add every running job; the second row is for jobs that have outrun their stated size."""
        for name, state in decision.state.jobs.items():
            running = taught._jobs.running.get(name)
            if running is None or not state.slots:
                continue
            truth = state.job.remaining_gpu_hours / running.told_size
            done = sum(running.physics.sizes) * running.trace.scale / SECONDS_PER_HOUR - truth
            pair = taught._told(state.job).remaining_gpu_hours, truth
            self.sums[0] += pair
            if done > taught.classes.stated[state.job.class_name].size_gpu_hours * state.job.scale:
                self.sums[1] += pair

    @property
    def ratios(self) -> str:
        """Believed over true work left, of all jobs and of those that have outrun their size."""
        return " ".join(f"{believed / max(true, 1e-12):5.2f}" for believed, true in self.sums)


def left(*, seeds: int, hours: float) -> None:
    """Print spend over budget and mean JCT: sizes known, unknown as before, unknown as now."""
    print(
        "\nsizes not told; spend over budget, mean JCT in minutes: means over the seeds; believed / true left"
    )
    print(
        f"{'sizes':24s} {'budget':>6s} {'sizes known':>14s} {'stated less done':>18s} {'left':>12s}"
        f" {'mean left':>15s} {'left':>12s}"
    )
    for name, shape in LAWS:
        for budget in (40.0, 60.0):
            found: dict[str, list[tuple[float, float]]] = defaultdict(list)
            before, now = Lefts(), Lefts()
            for seed in range(1, seeds + 1):
                known = with_sizes(wrong(WrongBeliefs(), policy="boa-paced", hours=hours, seed=seed), shape)
                known = replace(known, budget=Budget(amount=budget))
                untold = replace(known, world=replace(known.world, beliefs=WrongBeliefs(tells_scales=False)))
                found["known"].append(figures(taught_run(known)[0]))
                found["before"].append(figures(taught_run(untold, before, kind=Clipped)[0]))
                found["now"].append(figures(taught_run(untold, now)[0]))
            means = {key: np.mean(np.array(values), axis=0) for key, values in found.items()}
            cells = {key: f"{means[key][0]:.3f} {means[key][1]:7.2f}" for key in means}
            print(
                f"{name:24s} {budget:6.0f}  {cells['known']}      {cells['before']}  {before.ratios}"
                f"   {cells['now']}  {now.ratios}",
                flush=True,
            )


FACTORS: tuple[tuple[str, WrongBeliefs], ...] = (
    ("true", WrongBeliefs()),
    *((f"rates x {f:g}", WrongBeliefs(rates={"": f})) for f in (0.1, 0.25, 0.5, 2.0, 4.0, 10.0)),
    *((f"sizes x {f:g}", WrongBeliefs(sizes={"": f})) for f in (0.1, 0.25, 0.5, 2.0, 4.0, 10.0)),
    *((f"speed-ups ^ {f:g}", WrongBeliefs(speedup_exponents={"": f})) for f in (0.5, 0.75, 1.25, 1.5)),
)
FIRST_HOURS = (6.0, 12.0, 24.0)


def first(*, seeds: int) -> None:
    """Print the spend of the first hours over their budget, and mean JCT in minutes: told and learning."""
    hours = " ".join(f"{h:5.0f} h" for h in FIRST_HOURS)
    print(f"\nspend until then over the budget until then, mean JCT in minutes; means over {seeds} seeds")
    print(f"{'stated':18s} told: {hours}    JCT   learning: {hours}    JCT")
    for name, beliefs in FACTORS:
        cells = []
        for learns in (False, True):
            rows = []
            for seed in range(1, seeds + 1):
                settings = wrong(beliefs, policy="boa-paced", hours=36.0, seed=seed)
                at, spent = list[float](), list[float]()

                def look(decision: Decision, at: list[float] = at, spent: list[float] = spent) -> None:
                    at.append(decision.state.now / SECONDS_PER_HOUR)
                    spent.append(Ledger.of(decision.state).committed_usd)

                result = prepare(replace(settings, learns=learns)).finish(look)
                paid = np.interp(FIRST_HOURS, at, spent) / np.array(FIRST_HOURS) / settings.budget.amount
                rows.append((*paid.tolist(), 60.0 * result.mean_jct_hours))
            *parts, jct = np.mean(np.array(rows), axis=0)
            cells.append(" ".join(f"{part:7.2f}" for part in parts) + f" {jct:6.1f}")
        print(f"{name:18s}      {cells[0]}             {cells[1]}", flush=True)


def figures(result: Simulation) -> tuple[float, float]:
    """Return (spend over budget, mean JCT in minutes)."""
    return result.mean_usd_per_hour / result.budget_usd_per_hour, 60.0 * result.mean_jct_hours


def said(values: Sequence[tuple[float, float]]) -> str:
    """Return the medians, or a dash if no plan was possible."""
    if not values:
        return "no plan"
    spend, jct = np.median(np.array(values), axis=0)
    return f"{spend:.2f} {jct:7.1f}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--hours", type=float, default=36.0)
    parser.add_argument("--quick", action="store_true", help="two seeds, twelve hours")
    parser.add_argument("--only", choices=("errors", "worth", "left", "first"), help="one of the tables")
    words = parser.parse_args()
    seeds, hours = (2, 12.0) if words.quick else (words.seeds, words.hours)
    if words.only in (None, "errors"):
        errors(seeds=seeds, hours=hours)
    if words.only in (None, "worth"):
        worth(seeds=max(2, seeds // 6), hours=hours)
    if words.only in (None, "first"):
        first(seeds=max(1, seeds // 12))
    if words.only in (None, "left"):
        left(seeds=max(2, seeds // 4), hours=hours)


if __name__ == "__main__":
    main()
