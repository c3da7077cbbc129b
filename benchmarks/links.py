"""The gain of ordering messages on links, and of placing with LWF, in whole runs on rented nodes.

    python benchmarks/links.py [--quick]

Traces have the four models of arXiv 2002.10105 at widths of 3, 6 and 8 GPUs on nodes of 4. Each trace is run
with jobs that send in the plan's order and with jobs that all send at once, placed by LWF and by first fit.
Ratios are paired by trace; intervals are Student's t at 95 %.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from scipy import stats

from boa_daemon.cli.common.output import a_table
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.sim.wiring import SimulationSettings, settings_for, simulate
from boa_daemon.traces.reader import Trace, TraceJob
from policies.model import Budget
from policies.registry import PolicyOptions

CLASSES = Path(__file__).parents[1] / "examples" / "shared-links.yaml"
JOBS, WINDOW_SECONDS = 60, 4 * 3600.0


def a_trace(seed: int) -> Trace:
    """Return 60 jobs that arrive within four hours, with a size spread of one half."""
    draw = np.random.default_rng(seed)
    names = draw.choice(["vgg16", "resnet50", "inception3", "lstm"], JOBS)
    arrivals = np.sort(draw.uniform(0.0, WINDOW_SECONDS, JOBS))
    scales = draw.lognormal(0.0, 0.5, JOBS)
    rows = zip(arrivals.tolist(), names.tolist(), scales.tolist(), strict=True)
    return Trace(tuple(TraceJob(f"j{n}", at, name, scale) for n, (at, name, scale) in enumerate(rows)))


def settings(seed: int, gpus_per_job: int) -> SimulationSettings:
    """Return a run with one width for all jobs; jobs share nodes unless the width is a multiple of four."""
    file = load_problem(CLASSES, require_rates=False)
    base = settings_for(file, a_trace(seed), Budget(amount=100.0))
    return replace(base, policy="equal-width", options=PolicyOptions(gpus_per_job=gpus_per_job))


def interval(ratios: list[float]) -> str:
    """Return a mean with its 95 % interval."""
    half = float(stats.t.ppf(0.975, len(ratios) - 1)) * float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios))
    mean = float(np.mean(ratios))
    return f"{mean:.3f} [{mean - half:.3f}, {mean + half:.3f}]"


def main() -> None:
    """Print the paired ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="8 traces instead of 100")
    traces = 8 if parser.parse_args().quick else 100
    console = Console()
    table = a_table(
        f"{traces} paired traces of {JOBS} jobs",
        *("GPUs per job", "what changes", "JCT ratio", "spend ratio"),
        right=("GPUs per job",),
    )
    for gpus in (3, 6, 8):
        order: list[tuple[float, float]] = []
        place: list[tuple[float, float]] = []
        for seed in track(
            range(traces), f"{gpus} GPUs per job", console=Console(stderr=True), transient=True
        ):
            base = settings(seed, gpus)
            ours = simulate(base)
            unordered = simulate(replace(base, links_in_order=False))
            first_fit = simulate(replace(base, placer="first-fit"))
            for found, other in ((order, unordered), (place, first_fit)):
                found.append((ours.mean_jct_hours / other.mean_jct_hours, ours.spent_usd / other.spent_usd))
        for what, found in (("in order / all at once", order), ("LWF / first fit", place)):
            jct, spend = zip(*found, strict=True)
            table.add_row(str(gpus), what, interval(list(jct)), interval(list(spend)))
    console.print(table)


if __name__ == "__main__":
    main()
