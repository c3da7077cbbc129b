"""A lower bound for policies that rent whole nodes, beside the bound for single GPUs and BOA.

    python benchmarks/whole_nodes.py DIR [MULTIPLE ...]

DIR holds `classes.yaml` and `trace.csv`, as `boa trace import` writes them: one GPU type, one phase per
class. Start-ups, restarts and boots are left out of the bound for whole nodes.

While the largest job runs, at least one node of P GPUs is rented, whether other jobs use it or not. So at
each instant, for any price q up to the price of money mu,

    mu x rented  >=  q x used + (mu - q) x P     while that job runs

and with q = mu before an instant tau and theta mu after it, the sum over the jobs of

    hours until it is done + the price of what it uses + (mu - q) P per hour, for the largest job alone

can be minimised job by job. That sum less mu times the money is a lower bound on the waiting of any policy
(weak duality), for every mu, theta and tau. A search finds large bounds; a search that stops early gives a
weaker bound that still holds.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from following import hours_at, load_of, plans, runs_of
from scipy.optimize import minimize

from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.sim.bounds.lower_bound import lower_bound_hours
from boa_daemon.sim.wiring import SimulationSettings, settings_for
from boa_daemon.traces.reader import read_trace
from policies.model import Budget
from policies.speedup import Floats

MULTIPLES = (1.4, 1.5, 1.56, 1.75, 2.0)
VALUES = 40
"""The number of values of work that are tried for a job in the bound before tau."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneJob:
    """A job: hours of arrival, GPU-hours, and its widths with their speeds."""

    arrived_at: float
    work: float
    gpus: Floats
    speeds: Floats


def jobs_of(settings: SimulationSettings) -> list[OneJob]:
    """Return the jobs of the trace, the largest one first."""
    classes = {c.name: c for c in settings.problem.classes}
    found = []
    for job in settings.trace.jobs:
        (phase,) = classes[job.class_name].phases
        (curve,) = phase.speedups.values()
        gpus = np.asarray(curve.whole_widths(), dtype=float)
        work = job.scale * phase.size_gpu_hours
        at = job.arrived_at_seconds / 3600.0
        found.append(OneJob(arrived_at=at, work=work, gpus=gpus, speeds=curve.speed_at(gpus)))
    return sorted(found, key=lambda job: -job.work)


def least_hours(job: OneJob, mu: float, theta: float, tau: float, node: float) -> float:
    """Return the least of a job's hours plus its payments in hours; `node` is paid per hour after tau."""
    before = (1.0 + mu * job.gpus) / job.speeds
    after = float(((1.0 + theta * mu * job.gpus + node) / job.speeds).min())
    hours = max(0.0, tau - job.arrived_at)
    can_end_before = job.work <= hours * float(job.speeds.max())
    ends_before = job.work * float(before.min()) if can_end_before else np.inf
    # Until tau the job pays for a width or waits at one per hour. Work is worth at most its later cost;
    # any such value gives a lower bound, even if the job would do more than all of its work by then.
    paid, done = np.append(1.0 + mu * job.gpus, 1.0), np.append(job.speeds, 0.0)
    values = np.linspace(min(after, float(before.min())), after, VALUES)
    ends_after = max(hours * float((paid - value * done).min()) + value * job.work for value in values)
    return min(ends_before, ends_after)


def bound_hours(jobs: list[OneJob], node_gpus: int, money: float) -> float:
    """Return the largest bound on the mean JCT that the search finds; `money` is in GPU-hours."""

    def bound(at: Floats) -> float:
        mu, theta, tau = float(np.exp(at[0])), float(1.0 / (1.0 + np.exp(-at[1]))), float(at[2])
        nodes = [(1.0 - theta) * mu * node_gpus] + [0.0] * (len(jobs) - 1)
        paid = sum(least_hours(job, mu, theta, tau, node) for job, node in zip(jobs, nodes, strict=True))
        return (paid - mu * money) / len(jobs)

    last = max(job.arrived_at for job in jobs)
    grid = product(np.linspace(-4.0, 1.5, 12), (-2.0, 0.0, 2.0), last * np.array([1.0, 1.2, 1.5, 2.0]))
    start = max((np.array(point) for point in grid), key=bound)
    return -float(minimize(lambda at: -bound(at), start, method="Nelder-Mead", options={"maxiter": 150}).fun)


def main() -> None:
    """Print a line for each multiple of the load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("multiples", nargs="*", type=float, default=MULTIPLES, metavar="MULTIPLE")
    arguments = parser.parse_args()
    file = load_problem(arguments.folder / "classes.yaml", require_rates=False)
    settings = settings_for(file, read_trace(arguments.folder / "trace.csv"), Budget(amount=1.0, unit="gpus"))
    (machine,) = settings.instance_types.values()
    jobs, load, runs = jobs_of(settings), load_of(settings), runs_of(plans(settings))
    for multiple in arguments.multiples:
        money = multiple * load * settings.trace.window_hours
        one_by_one = lower_bound_hours(settings.trace, settings.problem, money)
        whole = max(one_by_one, bound_hours(jobs, machine.gpus, money))
        mine = hours_at(runs, multiple * load)
        print(
            f"{multiple:.2f} x load: GPUs one by one {60.0 * one_by_one:.0f} min, whole nodes "
            f"{60.0 * whole:.0f} ({whole / one_by_one:.2f}), BOA {60.0 * mine:.0f} "
            f"({mine / one_by_one:.2f}, {mine / whole:.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
