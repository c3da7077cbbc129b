"""The gain of placement in whole runs: LWF-kappa, first fit, list scheduling, random and the default.

    python benchmarks/placement.py [--workload W] [--traces N] [--minutes M] [--data FILE] [--write PAGE]

Each placer runs the same traces under `boa simulate`: jobs slow each other down where they send through the
same links, and a job scattered over nodes pays for that (`policies.links.link_share`). There are two
workloads, each at 1, 10 and 100 Gbit/s: the paper's (arXiv 2002.10105: its four models and widths of 1 to 32
GPUs, 160 jobs, 16 nodes of 4 GPUs under Tiresias), and jobs like those of Pollux's traces (six applications,
widths of 1 to 8 GPUs as users ask for them) on rented nodes that BOA's tick fills and empties. `default` is
the daemon's default: `boa-paced` and LWF-1 (on the paper's at most 16 nodes); `default, no moves` is the same
without the stage that brings scattered jobs together. `racks` are the paper's jobs on nodes in four random
racks, each with one uplink as fast as a card; `LWF-1, blind` does not know the racks. Among equal nodes
`LWF-1, least work` takes the node whose jobs have least work left, `LWF-1, most work` the node whose jobs
have most. Ratios to LWF-1 are paired by trace, with a 95 % interval (Student).

Every run is written to FILE at once, and the next call continues from there. All settings are run trace after
trace, so a table can be printed at any time (`--minutes 0` prints the present one). --write puts the tables
into a page, between its markers.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from boa_daemon.sim.wiring import SimulationSettings, simulate
from boa_daemon.sim.world_settings import Tier, WorldSettings
from boa_daemon.tick.decide import decision
from boa_daemon.tick.facts import placeable_nodes
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.stages.nodes.bring_together import bring_together
from boa_daemon.traces.reader import Trace, TraceJob
from policies.model import AllReduce, Budget, GpuType, InstanceType, JobClass, Phase, Problem
from policies.placement.kappa import widest_to_spread
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
    "default": ("lwf", 1.0),
    "default, no moves": ("lwf", 1.0),
    "LWF-1, least work": ("lwf", 1.0),
    "LWF-1, most work": ("lwf", 1.0),
    "LWF-1, blind": ("lwf", 1.0),
}
OF_RACKS = ("LWF-1", "LWF-1, blind", "first-fit", "random")
"""The rows of the workload with racks; the other workloads have all rows but the blind one."""
SPEEDS = (1.0, 10.0, 100.0)
DATA = Path(__file__).parent.parent / "docs" / "explanation" / "data" / "placement.json"
NODES, GPUS = 16, 4


def a_class(name: str, gpus: int, need: AllReduce, size_gpu_hours: float, per_hour: float) -> JobClass:
    """Return a class whose jobs run at one width; alone on one node they lose no time."""
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
    """Return a run of jobs (arrival, model, width, GPU-hours); jobs wider than a node always send."""
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
        # A job wider than a node always sends; another job sends only if it is scattered over nodes.
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
    """Return the seconds of sending per second of computing of a job alone."""
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
    """Return 160 jobs of Pollux's applications within 8 hours, on nodes rented on demand."""
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


def racks(seed: int, gigabits: float) -> SimulationSettings:
    """Return the paper's jobs on nodes in four racks with an uplink each."""
    world = WorldSettings(topology=(Tier(name="rack", groups=4, gigabits_per_second=gigabits),))
    return replace(paper(seed, gigabits), world=world, seed=seed)


WORKLOADS = {"paper": paper, "pollux": pollux, "racks": racks}
WIDEST = {"paper": max(PAPER_WIDTHS), "pollux": max(POLLUX_WIDTHS), "racks": max(PAPER_WIDTHS)}


Runs = dict[str, dict[str, dict[str, list[float]]]]
"""By setting, row and trace: mean JCT in hours, dollars, and how often a job changed its GPUs."""


@contextmanager
def changed(row: str) -> Iterator[None]:
    """Change a decision within the context, as a row says.

    Without the stage that moves scattered jobs together; without knowing racks; or with the workload of
    servers as a tie-break between equal nodes, as LWF has it on shared GPUs.
    """
    stages, as_placed, collect = (
        decision.STAGES,
        placeable_nodes._as_placed,
        placeable_nodes.PlaceableNodes.__init__,
    )
    sign = {"least": 1.0, "most": -1.0}.get(row.rpartition(", ")[2].partition(" ")[0])

    def by_work(self: placeable_nodes.PlaceableNodes, state: ClusterState, **known: Any) -> None:
        collect(self, state, **known)
        work = {name: (sign or 0.0) * _work(state, name) for name in self._nodes}
        self._nodes = {name: self._nodes[name] for name in sorted(self._nodes, key=work.__getitem__)}

    if row.endswith("no moves"):
        decision.STAGES = tuple(stage for stage in stages if stage is not bring_together)
    if row.endswith("blind"):
        placeable_nodes._as_placed = lambda node: replace(as_placed(node), tiers=())
    if sign is not None:
        placeable_nodes.PlaceableNodes.__init__ = by_work  # type: ignore[assignment, method-assign]
    yield
    decision.STAGES, placeable_nodes._as_placed = stages, as_placed
    placeable_nodes.PlaceableNodes.__init__ = collect  # type: ignore[method-assign]


def _work(state: ClusterState, node: str) -> float:
    """Return the sum over the GPUs of a node of the hours of work left of their jobs."""
    jobs = [state.jobs[job] for job in state.nodes[node].gpus if job is not None]
    return sum(job.job.remaining_gpu_hours / max(len(job.slots), 1) for job in jobs)


def rows_of(workload: str) -> list[str]:
    """Return the rows of a workload."""
    if workload == "racks":
        return list(OF_RACKS)
    return [row for row in PLACERS if not row.endswith("blind")]


def run(base: SimulationSettings, row: str) -> list[float]:
    """Return the figures of one run."""
    placer, kappa = PLACERS[row]
    if row.startswith("default"):
        nodes = NODES if base.policy == "tiresias" else None
        base = replace(base, policy="boa-paced", options=PolicyOptions(), max_nodes=nodes)
    with changed(row):
        result = simulate(replace(base, placer=placer, kappa=kappa))
    return [result.mean_jct_hours, result.spent_usd, float(result.rescales)]


def same_as(row: str, widest: int) -> str:
    """Return the row with the same runs: if no job is wider than kappa, LWF equals list scheduling."""
    placer, kappa = PLACERS[row]
    return "list-scheduling" if placer == "lwf" and kappa >= widest else row


def run_all(runs: Runs, path: Path, *, workloads: list[str], traces: int, until: float) -> None:
    """Run what is missing, trace by trace, and write it down; stop when the time is over."""
    for seed in range(traces):
        for workload in workloads:
            for gigabits in SPEEDS:
                cell = runs.setdefault(f"{workload}, {gigabits:g} Gbit/s", {})
                base = WORKLOADS[workload](seed, gigabits)
                for row in dict.fromkeys(same_as(row, WIDEST[workload]) for row in rows_of(workload)):
                    found = cell.setdefault(row, {})
                    if str(seed) in found:
                        continue
                    if time.monotonic() > until:
                        return
                    found[str(seed)] = [float(f"{figure:.6g}") for figure in run(base, row)]
                    path.write_text(json.dumps(runs, separators=(",", ":")) + "\n", encoding="utf-8")


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return a mean and half its 95 % interval; a single ratio has no interval."""
    if len(ratios) < 2:
        return float(np.mean(ratios)), math.inf
    half = float(stats.t.ppf(0.975, len(ratios) - 1)) * float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios))
    return float(np.mean(ratios)), half


def tables_of(runs: Runs) -> dict[str, str]:
    """Return the tables of mean JCT and spend over those of LWF-1 by block of the page, and of moves."""
    figures = {"jct": "mean JCT / LWF-1", "spend": "spend / LWF-1", "moves": "changes of GPUs, mean"}
    found = {}
    for part, workloads in (("", ("paper", "pollux")), ("racks-", ("racks",))):
        cells = {title: cell for title, cell in runs.items() if title.partition(",")[0] in workloads}
        for of, (block, what) in enumerate(figures.items()):
            lines = [f"| {what} | {' | '.join(cells)} |", f"|---{'|---' * len(cells)}|"]
            lines.append(f"| traces | {' | '.join(str(len(cell['LWF-1'])) for cell in cells.values())} |")
            for row in PLACERS:
                values = [
                    _cell(cell, row, WIDEST[title.partition(",")[0]], of) for title, cell in cells.items()
                ]
                if any(values):
                    lines.append(f"| {row} | {' | '.join(values)} |")
            if block == "jct" and not part:
                bounds = [str(kappa_bound(title)) for title in cells]
                lines.append(f"| above this κ spreading cannot pay for every model | {' | '.join(bounds)} |")
            found[part + block] = "\n".join(lines)
    return found


def kappa_bound(title: str) -> int:
    """Return the largest kappa that may pay for every model of a workload at the speed of its title."""
    workload, _, speed = title.partition(", ")
    sizes = [(row[-2], row[-1]) for row in (POLLUX_MODELS if workload == "pollux" else PAPER_MODELS).values()]
    needs = [AllReduce(message_bytes=size, compute_seconds=seconds) for size, seconds in sizes]
    gigabits = float(speed.split()[0])
    return min(widest_to_spread(GPUS, _share(need, gigabits)) for need in needs)


def moves_worth(runs: Runs) -> Iterator[str]:
    """Yield the default's loss without the stage that moves scattered jobs together, paired by trace."""
    for title, cell in runs.items():
        with_moves, without = cell.get("default", {}), cell.get("default, no moves", {})
        seeds = [seed for seed in without if seed in with_moves]
        if seeds:
            parts = [interval([without[seed][of] / with_moves[seed][of] for seed in seeds]) for of in (0, 1)]
            said = " and ".join(f"{mean:.3f} ± {half:.3f}" for mean, half in parts)
            yield f"{title}: without moves {said} of the default's mean JCT and spend"


def write(page: Path, tables: dict[str, str]) -> None:
    """Put the tables between the lines `<!-- placement: BLOCK -->` and `<!-- end -->` of a page."""
    block = re.compile(r"(<!-- placement: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
    text = page.read_text(encoding="utf-8")
    page.write_text(block.sub(lambda at: f"{at[1]}\n{tables[at[2]]}\n\n{at[3]}", text), encoding="utf-8")


def _cell(cell: dict[str, dict[str, list[float]]], row: str, widest: int, of: int) -> str:
    """Return one figure of one row: a ratio to LWF-1 with its interval, or a mean of counts."""
    one, found = cell["LWF-1"], cell.get(same_as(row, widest), {})
    seeds = [seed for seed in found if seed in one]
    if not seeds:
        return ""
    if of == 2:
        return f"{np.mean([found[seed][of] for seed in seeds]):.0f}"
    mean, half = interval([found[seed][of] / one[seed][of] for seed in seeds])
    if row == "LWF-1":
        return "1"
    return f"{mean:.2f} ± {half:.2f}" + (f" ({len(seeds)})" if len(seeds) < len(one) - 1 else "")


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=int, default=100)
    parser.add_argument("--workload", choices=WORKLOADS, action="append", help="only this; may be repeated")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after this many minutes")
    parser.add_argument("--data", type=Path, default=DATA, help="JSON file of all runs")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this page")
    chosen = parser.parse_args()
    runs: Runs = json.loads(chosen.data.read_text(encoding="utf-8")) if chosen.data.exists() else {}
    run_all(
        runs,
        chosen.data,
        workloads=chosen.workload or list(WORKLOADS),
        traces=chosen.traces,
        until=time.monotonic() + 60.0 * chosen.minutes,
    )
    tables = tables_of(runs)
    for table in tables.values():
        print(f"\n{table}")
    print(*moves_worth(runs), sep="\n")
    if chosen.write is not None:
        write(chosen.write, tables)


if __name__ == "__main__":
    main()
