"""The gain of sharing GPUs in whole runs: exclusive GPUs, two places on each GPU, and both on offer.

    python benchmarks/gpu_sharing.py [--traces N] [--minutes M] [--data FILE]

The paper's jobs (arXiv 2002.10105, as in `benchmarks/placement.py`) run under `boa simulate` with simulated
links and shared GPUs: jobs slow each other down where they meet (`policies.links.link_share`,
`policies.links.gpu_share`). The paper's cluster has at most 16 nodes of 4 GPUs, under Tiresias and under the
default policy; `by money` is the default policy at a budget that pays for as many nodes on average, and for
half of them. `exclusive` gives each GPU to one job, `shared` has two places on each, `both` lets the plan
choose for each job. Ratios to `exclusive` are paired by trace, with a 95 % interval (Student).

Every run is written to FILE at once; the next call continues from there.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import replace
from pathlib import Path

from placement import GPUS, NODES, interval, paper

from boa_daemon.sim.wiring import SimulationSettings, simulate
from policies.links.gpu_kinds import on_machines
from policies.model import Budget, GpuType, InstanceType
from policies.registry import PolicyOptions

SPEEDS = (10.0, 25.0)
SETTINGS = ("Tiresias, 16 nodes", "default, 16 nodes", "default, by money", "default, half the money")
OFFERS = ("exclusive", "shared", "both")
PLACES = 2
DATA = Path(__file__).parent.parent / "docs" / "explanation" / "data" / "gpu_sharing.json"

Runs = dict[str, dict[str, dict[str, list[float]]]]
"""By setting, offer and trace: mean JCT in hours, and dollars."""


def with_offer(base: SimulationSettings, offer: str) -> SimulationSettings:
    """Return a run on exclusive GPUs, shared ones, or either; a place costs its part of a GPU."""
    (alone,) = base.instance_types.values()
    kind = str(alone.kind.on(alone.name, places=PLACES))
    shared: InstanceType = replace(
        alone, name=f"{alone.name}-shared", gpu_type=kind, gpus=PLACES * alone.gpus, places_per_gpu=PLACES
    )
    on_offer = {
        "exclusive": {alone.gpu_type: alone},
        "shared": {kind: shared},
        "both": {alone.gpu_type: alone, kind: shared},
    }[offer]
    if offer != "exclusive":
        classes = tuple(
            on_machines(replace(one, may_share=True), on_offer, {alone.gpu_type: alone})
            for one in base.problem.classes
        )
        classes = tuple(
            replace(
                one,
                phases=tuple(
                    replace(phase, speedups={name: phase.speedups[name] for name in on_offer})
                    for phase in one.phases
                ),
            )
            for one in classes
        )
        prices = tuple(
            GpuType(name=name, usd_per_gpu_hour=machine.usd_per_gpu_hour)
            for name, machine in on_offer.items()
        )
        base = replace(base, problem=replace(base.problem, classes=classes, gpu_types=prices))
    return replace(base, instance_types=on_offer)


def settings_of(setting: str, seed: int, gigabits: float) -> SimulationSettings:
    """Return a run on exclusive GPUs."""
    base = paper(seed, gigabits)
    if setting.startswith("Tiresias"):
        return base
    if setting.endswith("nodes"):
        return replace(base, policy="boa-paced", options=PolicyOptions(), max_nodes=NODES)
    nodes = NODES * (0.5 if setting.endswith("half the money") else 1.0)
    return replace(
        base,
        policy="boa-paced",
        options=PolicyOptions(),
        budget=Budget(amount=nodes * GPUS),
        boot_seconds=180.0,
        best_effort=True,
    )


def cells() -> list[tuple[str, str, float, str]]:
    """Return the cells of the table: name, setting, link speed, offer."""
    return [
        (f"{setting}, {gigabits:g} Gbit/s", setting, gigabits, offer)
        for gigabits in SPEEDS
        for setting in SETTINGS
        for offer in OFFERS
        if offer != "both" or not setting.startswith("Tiresias")
    ]


def run_all(runs: Runs, path: Path, *, traces: int, until: float) -> None:
    """Run what is missing, trace by trace, and write it down; stop when the time is over."""
    for seed in range(traces):
        for name, setting, gigabits, offer in cells():
            found = runs.setdefault(name, {}).setdefault(offer, {})
            if str(seed) in found:
                continue
            if time.monotonic() > until:
                return
            result = simulate(with_offer(settings_of(setting, seed, gigabits), offer))
            found[str(seed)] = [float(f"{x:.6g}") for x in (result.mean_jct_hours, result.spent_usd)]
            path.write_text(json.dumps(runs, separators=(",", ":")) + "\n", encoding="utf-8")


def show(runs: Runs) -> None:
    """Print mean JCT and spend over those of exclusive GPUs as a Markdown table."""
    print("| | traces | shared: JCT | shared: spend | both: JCT | both: spend |\n|---|---|---|---|---|---|")
    for name, cell in runs.items():
        one, parts = cell["exclusive"], list[str]()
        for offer in OFFERS[1:]:
            found = cell.get(offer, {})
            for of in (0, 1):
                ratios = [found[seed][of] / one[seed][of] for seed in found if seed in one]
                parts.append("{:.2f} ± {:.2f}".format(*interval(ratios)) if ratios else "")
        print(f"| {name} | {len(cell.get(OFFERS[1], {}))} | {' | '.join(parts)} |")


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after this many minutes")
    parser.add_argument("--data", type=Path, default=DATA, help="JSON file of all runs")
    chosen = parser.parse_args()
    runs: Runs = json.loads(chosen.data.read_text(encoding="utf-8")) if chosen.data.exists() else {}
    until = time.monotonic() + 60.0 * chosen.minutes
    run_all(runs, chosen.data, traces=chosen.traces, until=until)
    show(runs)


if __name__ == "__main__":
    main()
