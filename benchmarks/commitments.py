"""Commitments advised on one stretch of time, priced on the next: their saving beside the best in hindsight.

    python benchmarks/commitments.py [--weeks 2] [--budget 45] [--seeds 3] [--policy boa-paced]
        [--trace FILE ...] [--growth 0 0.05 -0.05] [--times 1.5] [--out FOLDER]

The jobs are those of the demo's classes (Pollux's jobs on T4), which arrive at random for twice `--weeks`
weeks, steadily or 1.6 times as often by day and 0.4 times by night. They run under `--policy`, by default the
daemon's own, with beliefs from the first half only. Levels advised from the GPUs rented in the first half are
priced on the second half, beside a commitment to the mean and the best commitment in hindsight. Discounts are
inputs, not facts.

With `--trace` the arrivals are those of each trace, as `boa trace import` writes it with its classes.yaml
beside it. With `--growth` the arrivals are `--seeds` draws from the load that is fitted to each trace (`boa
trace fit`), which grows by this fraction a week. `--times` is the budget over the least that the jobs of the
first half need.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean, median
from time import process_time

from rent import least_of

from boa_daemon.inputs.commitments_file import CommitmentTerms
from boa_daemon.inputs.problem_file import ProblemFile, load_problem
from boa_daemon.lab.traces.load_model import fit_load
from boa_daemon.planning.commitment_backtest import (
    first_part,
    loads_around,
    rentals_of,
    settings_from_known_part,
    split_instant,
)
from boa_daemon.planning.commitments import AdviceBacktest, backtests
from boa_daemon.tasks.tasks import AnswerCache, Tasks
from boa_daemon.traces.reader import Trace, TraceJob, read_trace
from policies.model import Budget
from policies.optimum.commitments import LoadDistribution, bill_of
from policies.registry import DEFAULT_POLICY

DEMO = Path(__file__).resolve().parents[1] / "boa_daemon" / "data" / "demo" / "classes.yaml"
DISCOUNTS = (0.27, 0.40, 0.55)
HOURS_PER_WEEK = 168.0
DAY, NIGHT = 1.6, 0.4


def arrivals(file: ProblemFile, hours: float, seed: int, *, swings: bool) -> Trace:
    """Return Poisson arrivals of the classes, with day and night if `swings` is set."""
    rng, jobs = Random(seed), []
    for job_class in file.problem.classes:
        at = 0.0
        while True:
            at += rng.expovariate(DAY * job_class.arrivals_per_hour)
            if at >= hours:
                break
            factor = (DAY if at % 24.0 < 12.0 else NIGHT) if swings else 1.0
            if rng.random() < factor / DAY:
                jobs.append((at, job_class.name))
    ordered = sorted(jobs)
    return Trace(tuple(TraceJob(f"j{n}", 3600.0 * at, name) for n, (at, name) in enumerate(ordered)))


def drawn(trace: Trace, growth: float, seed: int) -> Trace:
    """Return a draw from a load like the trace's that grows by this fraction a week."""
    return replace(fit_load(trace), growth_per_week=growth).draw(trace.window_hours, seed=seed)


def halves(
    file: ProblemFile, trace: Trace, words: argparse.Namespace, tasks: Tasks
) -> tuple[LoadDistribution, LoadDistribution]:
    """Return the loads of the two halves of a run."""
    at = split_instant(trace, 0.5)
    settings = replace(
        settings_from_known_part(file, trace, first_part(trace, at), Budget(amount=words.budget)),
        policy=words.policy,
    )
    if words.times is not None:
        settings = replace(settings, budget=Budget(amount=round(words.times * least_of(settings), 6)))
    rentals = tasks.run(rentals_of, settings)
    _, early, late = loads_around(rentals, tuple(file.instance_types), trace, at)
    usd = [
        sum(
            mean * machine.usd_per_gpu_hour
            for mean, machine in zip(load.mean_gpus, file.instance_types.values(), strict=True)
        )
        for load in (early, late)
    ]
    print(
        f"  {len(trace.jobs)} jobs in {trace.window_hours / 24.0:.1f} days; "
        f"{settings.budget.amount:.1f} USD/h, of which {usd[0]:.1f} and {usd[1]:.1f} were spent on GPUs"
    )
    return early, late


def priced(
    file: ProblemFile, early: LoadDistribution, late: LoadDistribution
) -> Iterator[tuple[float, AdviceBacktest, float]]:
    """Yield for each discount the proof and the bill of a commitment to the mean."""
    machines = list(file.instance_types.values())
    for discount in DISCOUNTS:
        names = {machine.name.partition(".")[0]: discount for machine in machines}
        terms = CommitmentTerms(name="plan", kind="compute", discounts=names, term_years=1)
        (proof,) = backtests(early, late, machines, [terms])
        commitment = terms.on(machines)
        assert commitment is not None
        level = sum(
            mean * rate
            for mean, rate in zip(early.mean_gpus, commitment.rates, strict=True)
            if rate is not None
        )
        prices = [machine.usd_per_gpu_hour for machine in machines]
        yield discount, proof, bill_of(late, prices, [commitment], [level]).total


def runs_of(words: argparse.Namespace) -> Iterator[tuple[str, ProblemFile, Trace]]:
    """Yield a name, the classes and the arrivals of each run."""
    if words.trace:
        for path in words.trace:
            file, own = load_problem(path.with_name("classes.yaml"), require_rates=False), read_trace(path)
            if words.growth is None:
                yield path.parent.name, file, own
            for growth in words.growth or ():
                for seed in range(words.seeds):
                    yield f"{path.parent.name} {growth:+.0%} {seed}", file, drawn(own, growth, seed)
        return
    file = load_problem(DEMO)
    for name in ("steady", "day and night"):
        for seed in range(words.seeds):
            hours = 2.0 * words.weeks * HOURS_PER_WEEK
            yield f"{name}, draw {seed}", file, arrivals(file, hours, seed, swings=name == "day and night")


def main() -> None:
    """Print one line per load, draw and discount, and a summary per discount."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weeks", type=float, default=2.0)
    parser.add_argument("--budget", type=float, default=45.0, help="dollars per hour")
    parser.add_argument("--times", type=float)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--policy", choices=["boa", "boa-paced"], default=DEFAULT_POLICY)
    parser.add_argument("--trace", type=Path, nargs="+")
    parser.add_argument("--growth", type=float, nargs="+")
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    shares = defaultdict[float, list[float]](list)
    print("load                  discount  GPUs  on demand  advised    mean    best  of the best's saving")
    with Tasks(kept=AnswerCache(words.out)) as tasks:
        for name, file, trace in runs_of(words):
            began = process_time()
            early, late = halves(file, trace, words, tasks)
            for discount, proof, mean in priced(file, early, late):
                # If nothing can be saved, committing to nothing counts as the full saving.
                lost = proof.saved_fraction < 0.0
                share = proof.share_of_best if proof.share_of_best is not None else float(not lost)
                print(
                    f"{name:20}  {discount:8.0%}  {late.mean_gpus.sum():4.1f}  {proof.on_demand:9.2f}"
                    f"  {proof.advised / proof.on_demand - 1.0:+7.1%}  {mean / proof.on_demand - 1.0:+6.1%}"
                    f"  {proof.best / proof.on_demand - 1.0:+6.1%}  {share:8.1%}"
                )
                shares[discount].append(share)
            print(f"  {process_time() - began:.1f} s of processor", flush=True)
    for discount, found in shares.items():
        print(
            f"{discount:.0%} off: of {len(found)} loads {min(found):.1%} at least, {median(found):.1%} in "
            f"the middle, {fmean(found):.1%} on average, {sum(one >= 0.95 for one in found)} at 95 % or more"
        )


if __name__ == "__main__":
    main()
