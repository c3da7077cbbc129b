"""Commitments advised from one stretch of time, priced on the next: what they save of the best in hindsight.

    python benchmarks/commitments.py [--weeks 2] [--budget 45] [--seeds 3] [--policy boa-paced]
        [--trace FILE --classes FILE]

The classes of the demo (Pollux's jobs on T4) come at random for twice so many weeks, steadily or 1.6 times as
often by day and 0.4 times by night; `--policy`, by default the daemon's own, runs them with what the first
half says alone. Levels advised from the GPUs rented in the first half are priced on the second, beside
committing the mean and the best in hindsight. With a trace, its own arrivals are taken. Discounts are inputs,
not facts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import perf_counter

from boa_daemon.comparing.hindsight import first_part, loads, rentals_of, split
from boa_daemon.inputs.commitments_file import Terms
from boa_daemon.inputs.problem_file import ProblemFile, load_problem
from boa_daemon.planning.commitments import Proof, proofs
from boa_daemon.traces.reader import Trace, TraceJob, read_trace
from policies.model import Budget
from policies.optimum.commitments import Load, bill_of

DEMO = Path(__file__).resolve().parents[1] / "boa_daemon" / "data" / "demo" / "classes.yaml"
DISCOUNTS = (0.27, 0.40, 0.55)
HOURS_PER_WEEK = 168.0
DAY, NIGHT = 1.6, 0.4


def arrivals(file: ProblemFile, hours: float, seed: int, *, swings: bool) -> Trace:
    """Return Poisson arrivals of the classes, with day and night where asked for."""
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


def halves(file: ProblemFile, trace: Trace, usd_per_hour: float, policy: str) -> tuple[Load, Load]:
    """Return the loads of the two halves of a run."""
    at = split(trace, 0.5)
    rentals = rentals_of(file, trace, first_part(trace, at), Budget(amount=usd_per_hour), policy=policy)
    _, early, late = loads(rentals, tuple(file.instance_types), trace, at)
    return early, late


def priced(file: ProblemFile, early: Load, late: Load) -> Iterator[tuple[float, Proof, float]]:
    """Yield, for each discount, the proof, and the bill of committing the mean."""
    machines = list(file.instance_types.values())
    for discount in DISCOUNTS:
        names = {machine.name.partition(".")[0]: discount for machine in machines}
        terms = Terms(name="plan", kind="compute", discounts=names, term_years=1)
        (proof,) = proofs(early, late, machines, [terms])
        commitment = terms.on(machines)
        assert commitment is not None
        level = sum(
            mean * rate
            for mean, rate in zip(early.mean_gpus, commitment.rates, strict=True)
            if rate is not None
        )
        prices = [machine.usd_per_gpu_hour for machine in machines]
        yield discount, proof, bill_of(late, prices, [commitment], [level]).total


def main() -> None:
    """Print one line per load, draw and discount."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weeks", type=float, default=2.0)
    parser.add_argument("--budget", type=float, default=45.0, help="dollars per hour")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--policy", choices=["boa", "boa-paced"], default="boa-paced")
    parser.add_argument("--classes", type=Path, default=DEMO)
    parser.add_argument("--trace", type=Path)
    args = parser.parse_args()
    file = load_problem(args.classes, require_rates=args.trace is None)
    runs: list[tuple[str, Trace]] = []
    if args.trace is not None:
        runs.append((args.trace.name, read_trace(args.trace)))
    else:
        hours = 2.0 * args.weeks * HOURS_PER_WEEK
        runs = [
            (f"{name}, draw {seed}", arrivals(file, hours, seed, swings=name == "day and night"))
            for name in ("steady", "day and night")
            for seed in range(args.seeds)
        ]
    print("load                  discount  GPUs  on demand  advised    mean    best  of the best's saving")
    for name, trace in runs:
        began = perf_counter()
        early, late = halves(file, trace, args.budget, args.policy)
        for discount, proof, mean in priced(file, early, late):
            print(
                f"{name:20}  {discount:8.0%}  {late.mean_gpus.sum():4.1f}  {proof.on_demand:9.2f}"
                f"  {proof.advised / proof.on_demand - 1.0:+7.1%}  {mean / proof.on_demand - 1.0:+6.1%}"
                f"  {proof.best / proof.on_demand - 1.0:+6.1%}  {proof.share_of_best:8.1%}"
            )
        print(f"  {len(trace.jobs)} jobs in {perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
