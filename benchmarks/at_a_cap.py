"""At a cap on nodes: BOA against rivals at the same cap, on public workloads.

    python benchmarks/at_a_cap.py [--only NAME ...] [--boot 180] [--data shared/data] [--quick]

What the plan would like is the most nodes that BOA holds at once without a cap, planning for 1.5 times the
load. At half, three quarters and all of that, with one line per policy and knob: mean JCT, p95, and what is
spent over the load. BOA's knob is its planning budget. The fixed fleets (Pollux, shortest remaining service
first at fixed widths, equal shares) hold all the nodes that the cap allows, always, and boot none; those that
rent (efficiency, equal width) do so within the cap.

Below each cap: BOA's best run that spends no more than the best rival, over that rival; and, for each of
BOA's plans, its best run within that spend over the best rival within that spend.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parent / "policies"))

from scenarios import SMALL_APPS, Source, pollux
from work import Task, settings_of

from boa_daemon.sim.wiring import SimulationSettings, simulate
from boa_daemon.tick.decision import Decision
from boa_daemon.traces.sources import SourceName
from boa_daemon.traces.workload import Options
from policies.model import Budget
from policies.registry import PolicyOptions

WANTED_AT = 1.5
"""Times the load: the plan whose peak says what the plan would like."""
PARTS = (0.5, 0.75, 1.0)
PLANS = (1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 12.0)
WIDTHS = (4, 8, 16, 32)
EFFICIENCIES = (0.9, 0.75, 0.6, 0.45, 0.3)
SOURCES: dict[str, tuple[Source, tuple[str, ...]]] = {
    "85 jobs": (pollux("", 1, SMALL_APPS), ()),
    "short jobs, other draw": (pollux("", 3, SMALL_APPS), ()),
    "Pollux 6": (pollux("", 6), ()),
    "Pollux 3": (pollux("", 3), ()),
    "Pollux 1": (pollux("", 1), ()),
    "Gavel, V100": (
        Source(
            kind=SourceName.gavel,
            path="gavel",
            options=Options(workload="physical_cluster/max_min_fairness.trace"),
        ),
        ("v100",),
    ),
    "ITP": (
        Source(
            kind=SourceName.itp,
            path="microsoft-itp/elasticflow/195job.csv",
            profiles="elasticflow",
            options=Options(),
        ),
        (),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run came to: minutes, spend over load, and its policy with the knob."""

    name: str
    mean_minutes: float
    p95_minutes: float
    spend_over_load: float


def a_run(settings: SimulationSettings, load: float, name: str) -> Run:
    """Return the figures of one run."""
    found = simulate(settings)
    return Run(
        name=name,
        mean_minutes=60.0 * found.mean_jct_hours,
        p95_minutes=60.0 * found.p95_jct_hours,
        spend_over_load=found.mean_usd_per_hour / load,
    )


def at_budget(settings: SimulationSettings, amount: float) -> SimulationSettings:
    """Return the settings with a budget."""
    return replace(settings, budget=Budget(amount=amount, unit=settings.budget.unit))


def wanted_nodes(settings: SimulationSettings, load: float) -> int:
    """Return the most nodes that BOA holds at once without a cap."""
    most = 0

    def count(decision: Decision) -> None:
        nonlocal most
        nodes = decision.state.nodes.values()
        most = max(most, sum(node.phase in ("ready", "requested") for node in nodes))

    simulate(at_budget(settings, WANTED_AT * load), count)
    return most


def boa_runs(settings: SimulationSettings, load: float, nodes: int) -> list[Run]:
    """Return BOA's runs at a cap, one per planning budget."""
    capped = replace(settings, max_nodes=nodes)
    return [a_run(at_budget(capped, plan * load), load, f"boa {plan:g}") for plan in PLANS]


def rival_runs(settings: SimulationSettings, load: float, nodes: int, *, quick: bool) -> Iterator[Run]:
    """Yield the rivals' runs at a cap."""
    rich = at_budget(settings, 1e6 * load)
    fixed = [("pollux", PolicyOptions(nodes=nodes)), ("static-equal", PolicyOptions(nodes=nodes))]
    fixed += [("static-srsf", PolicyOptions(nodes=nodes, gpus_per_job=width)) for width in WIDTHS]
    for policy, options in fixed:
        yield a_run(
            replace(rich, policy=policy, options=options), load, f"{policy} {options.gpus_per_job or ''}"
        )
    if quick:
        return
    capped = replace(rich, max_nodes=nodes)
    for width in WIDTHS:
        options = PolicyOptions(gpus_per_job=width)
        yield a_run(replace(capped, policy="equal-width", options=options), load, f"equal-width {width}")
    for efficiency in EFFICIENCIES:
        options = PolicyOptions(efficiency=efficiency)
        yield a_run(replace(capped, policy="efficiency", options=options), load, f"efficiency {efficiency}")


def best_within(runs: list[Run], spend: float) -> Run | None:
    """Return the run of least mean JCT among those that spend no more."""
    return min(
        (run for run in runs if run.spend_over_load <= spend * 1.005),
        key=lambda run: run.mean_minutes,
        default=None,
    )


def main() -> None:
    """Print a table per workload and cap."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--boot", type=float, default=180.0)
    parser.add_argument("--data", type=Path, default=Path("shared/data"))
    parser.add_argument("--quick", action="store_true", help="half of the nodes only, and no renting rivals")
    args = parser.parse_args()
    ratios, equal_ratios = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for name in args.only:
            source, types = SOURCES[name]
            task = Task(
                scenario=name, source=source, boot_seconds=args.boot, factor=1.0, rivals=(), gpu_types=types,
                seeds=1, on_spot=False, data=args.data, scratch=Path(scratch) / name.replace(" ", "-"),
            )  # fmt: skip
            settings, load = settings_of(task)
            wanted = wanted_nodes(settings, load)
            print(
                f"\n{name}: load {load:.1f} GPUs; the plan would like {wanted} nodes at {WANTED_AT:g} x load"
            )
            for part in PARTS[:1] if args.quick else PARTS:
                nodes = max(1, round(part * wanted))
                ours = boa_runs(settings, load, nodes)
                rivals = list(rival_runs(settings, load, nodes, quick=args.quick))
                ratio, equal = report(nodes, ours, rivals)
                ratios.append(ratio)
                equal_ratios += equal
    print(f"\nBOA over the best rival at the same cap: mean {fmean(ratios):.3f}, worst {max(ratios):.3f}")
    print(f"the same at equal money, over all of BOA's plans: mean {fmean(equal_ratios):.3f}, worst "
          f"{max(equal_ratios):.3f}")  # fmt: skip


def report(nodes: int, ours: list[Run], rivals: list[Run]) -> tuple[float, list[float]]:
    """Print one cap; return BOA over the best rival, and over the best that spends no more, by plan."""
    print(f"  {nodes} nodes")
    for run in (*ours, *rivals):
        print(
            f"    {run.name:18} {run.mean_minutes:8.1f} min  p95 {run.p95_minutes:8.1f}  "
            f"@ {run.spend_over_load:5.2f} x load"
        )
    rival = min(rivals, key=lambda run: run.mean_minutes)
    boa = best_within(ours, rival.spend_over_load) or ours[0]
    ratio = boa.mean_minutes / rival.mean_minutes
    print(
        f"    -> {boa.name} over {rival.name}: mean {ratio:.3f}, p95 "
        f"{boa.p95_minutes / rival.p95_minutes:.3f}, spend {boa.spend_over_load / rival.spend_over_load:.3f}"
    )
    equal = []
    for run in ours:
        cheap = best_within(rivals, run.spend_over_load)
        if cheap is not None:
            best = best_within(ours, run.spend_over_load)
            equal.append((best or run).mean_minutes / cheap.mean_minutes)
    said = f"{min(equal):.3f} to {max(equal):.3f}" if equal else "no rival spends so little"
    print(f"    -> at equal money, by plan: {said}")
    return ratio, equal


if __name__ == "__main__":
    main()
