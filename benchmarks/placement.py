"""What placing is worth in the whole loop: LWF-kappa, first fit, list scheduling and random, links simulated.

    python benchmarks/placement.py [--traces N] [--data FILE]

Each placer runs the same traces under `boa simulate`: jobs slow each other down where they send through the
same links, and a job that lies scattered over nodes pays for that (`policies.links.link_share`). Two
workloads: the paper's (arXiv 2002.10105: its four models and widths of 1 to 32 GPUs, 160 jobs, 16 nodes of 4
GPUs under Tiresias), and jobs like those of Pollux's traces (six applications, widths of 1 to 8 GPUs as users
ask for them) on rented nodes that BOA's tick fills and empties. Each at 1, 10 and 100 Gbit/s. Ratios to LWF-1
are paired by trace; intervals are Student's t at 95 %.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from scipy import stats

from boa_daemon.cli.output import a_table
from boa_daemon.sim.wiring import SimulationSettings, simulate
from boa_daemon.traces.reader import Trace, TraceJob
from policies.model import AllReduce, Budget, GpuType, InstanceType, JobClass, Phase, Problem
from policies.registry import PolicyOptions
from policies.speedup import Table

PAPER_MODELS = {
    # message bytes, seconds of computing per iteration
    "vgg16": (526.4e6, 0.090),
    "resnet50": (99.2e6, 0.062),
    "inception3": (103.0e6, 0.087),
    "lstm": (251.8e6, 0.079),
}
PAPER_WIDTHS = (1,) * 80 + (2,) * 14 + (4,) * 26 + (8,) * 30 + (16,) * 8 + (32,) * 2
POLLUX_MODELS = {
    # share of jobs, GPU-hours, message bytes, seconds of computing per iteration on a T4
    "cifar10": (0.38, 0.5, 44.7e6, 0.055),
    "neumf": (0.38, 0.5, 125.0e6, 0.060),
    "deepspeech2": (0.14, 3.0, 212.0e6, 0.180),
    "bert": (0.08, 6.0, 440.0e6, 0.450),
    "yolov3": (0.015, 30.0, 248.0e6, 0.300),
    "imagenet": (0.005, 200.0, 102.2e6, 0.180),
}
POLLUX_WIDTHS, POLLUX_ODDS = (1, 2, 3, 4, 6, 8), (0.35, 0.25, 0.1, 0.15, 0.05, 0.1)
PLACERS = {
    **{f"LWF-{kappa}": ("lwf", float(kappa)) for kappa in (1, 2, 4, 8, 16, 32)},
    "first-fit": ("first-fit", 1.0),
    "list-scheduling": ("list-scheduling", 1.0),
    "random": ("random", 1.0),
}
NODES, GPUS = 16, 4


def a_class(name: str, gpus: int, need: AllReduce, size_gpu_hours: float, per_hour: float) -> JobClass:
    """Return a class whose jobs run at one width; alone on one node they waste nothing."""
    phase = Phase(size_gpu_hours=size_gpu_hours, speedups={"gpu": Table(gpus=(gpus,), speeds=(float(gpus),))})
    return JobClass(
        name=f"{name}-{gpus}",
        arrivals_per_hour=per_hour,
        phases=(phase,),
        startup_hours=30.0 / 3600.0,
        rescale_hours=30.0 / 3600.0,
        network=need,
    )


def settings_of(
    rows: list[tuple[float, str, int, float]], models: dict[str, AllReduce], gigabits: float
) -> SimulationSettings:
    """Return a run of jobs: arrival, model, width, GPU-hours; widths beyond a node pay for their own link."""
    machine = InstanceType(
        name="node",
        gpu_type="gpu",
        gpus=GPUS,
        usd_per_hour=4.0,
        link_gigabits_per_second=gigabits,
    )
    hours = max(row[0] for row in rows) / 3600.0
    kinds = sorted({(row[1], row[2]) for row in rows})
    classes = []
    for name, gpus in kinds:
        of_kind = [row for row in rows if (row[1], row[2]) == (name, gpus)]
        need = models[name]
        # A job that must span nodes always sends; one that need not does so only where it is scattered.
        sending = _share(need, gigabits) if gpus > GPUS else 0.0
        size = float(np.mean([row[3] for row in of_kind])) * (1.0 + sending)
        classes.append(a_class(name, gpus, need, size, len(of_kind) / hours))
    sizes = {f"{name}-{gpus}": 0.0 for name, gpus in kinds}
    for job_class in classes:
        sizes[job_class.name] = job_class.phases[0].size_gpu_hours
    jobs = []
    for n, (at, name, gpus, work) in enumerate(sorted(rows)):
        key = f"{name}-{gpus}"
        sending = _share(models[name], gigabits) if gpus > GPUS else 0.0
        jobs.append(TraceJob(f"j{n}", at, key, work * (1.0 + sending) / sizes[key]))
    problem = Problem(classes=tuple(classes), gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=1.0),))
    return SimulationSettings(
        trace=Trace(tuple(jobs)),
        problem=problem,
        instance_types={"gpu": machine},
        budget=Budget(amount=1e6),
        boot_seconds=180.0,
    )


def _share(need: AllReduce, gigabits: float) -> float:
    """Return seconds of sending per second of computing, alone."""
    return need.message_bytes * 8e-9 / gigabits / need.compute_seconds


def paper(seed: int, gigabits: float) -> SimulationSettings:
    """Return the paper's jobs on its 16 nodes: 1000 to 6000 iterations, arriving within 20 minutes."""
    draw = np.random.default_rng(seed)
    models = {
        name: AllReduce(message_bytes=size, compute_seconds=seconds)
        for name, (size, seconds) in PAPER_MODELS.items()
    }
    rows = []
    for gpus in draw.permutation(PAPER_WIDTHS).tolist():
        name = str(draw.choice(list(models)))
        work = draw.integers(1000, 6001) * models[name].compute_seconds * gpus / 3600.0
        rows.append((float(draw.uniform(1.0, 1200.0)), name, int(gpus), float(work)))
    base = settings_of(rows, models, gigabits)
    return replace(base, policy="tiresias", options=PolicyOptions(nodes=NODES), boot_seconds=0.0)


def pollux(seed: int, gigabits: float) -> SimulationSettings:
    """Return 160 jobs of Pollux's applications within 8 hours, on nodes rented as they are needed."""
    draw = np.random.default_rng(seed)
    names = list(POLLUX_MODELS)
    odds = np.array([POLLUX_MODELS[name][0] for name in names])
    models = {
        name: AllReduce(message_bytes=size, compute_seconds=seconds)
        for name, (_, _, size, seconds) in POLLUX_MODELS.items()
    }
    rows = []
    for _ in range(160):
        name = str(draw.choice(names, p=odds / odds.sum()))
        gpus = int(draw.choice(POLLUX_WIDTHS, p=POLLUX_ODDS))
        work = POLLUX_MODELS[name][1] * float(draw.lognormal(0.0, 0.5))
        rows.append((float(draw.uniform(0.0, 8 * 3600.0)), name, gpus, work))
    return replace(settings_of(rows, models, gigabits), policy="boa")


WORKLOADS = {"paper": paper, "pollux": pollux}


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return a mean and half its 95 % interval."""
    half = float(stats.t.ppf(0.975, len(ratios) - 1)) * float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios))
    return float(np.mean(ratios)), half


def main() -> None:
    """Print the tables, and write the figures where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=100)
    parser.add_argument("--data", type=Path, help="JSON file for the figures")
    chosen = parser.parse_args()
    document: dict[str, dict[str, dict[str, float]]] = {}
    for workload, make in WORKLOADS.items():
        for gigabits in (1.0, 10.0, 100.0):
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in PLACERS}
            title = f"{workload}, {gigabits:g} Gbit/s"
            for seed in track(range(chosen.traces), title, console=Console(stderr=True), transient=True):
                base = make(seed, gigabits)
                for name, (placer, kappa) in PLACERS.items():
                    result = simulate(replace(base, placer=placer, kappa=kappa))
                    found[name].append((result.mean_jct_hours, result.spent_usd))
            table = a_table(
                f"{title}, {chosen.traces} traces", "placer", "mean JCT, min", "JCT / LWF-1", "spend"
            )
            rows = document[title] = {}
            for name, figures in found.items():
                jct, half = interval(
                    [own[0] / one[0] for own, one in zip(figures, found["LWF-1"], strict=True)]
                )
                spend, _ = interval(
                    [own[1] / one[1] for own, one in zip(figures, found["LWF-1"], strict=True)]
                )
                minutes = 60.0 * float(np.mean([figure[0] for figure in figures]))
                rows[name] = {"minutes": minutes, "ratio": jct, "half": half, "spend": spend}
                table.add_row(
                    name, f"{minutes:.1f}", f"{jct:.3f} [{jct - half:.3f}, {jct + half:.3f}]", f"{spend:.3f}"
                )
            Console().print(table)
    if chosen.data is not None:
        chosen.data.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
