"""What is compared: public workloads, multiples of their load, and boot times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from boa_daemon.traces.sources import SourceName
from boa_daemon.traces.workload import Options

SIMPLE_RULES = ("efficiency", "equal-width")
RIVALS = ("efficiency", "equal-width", "pollux-autoscale", "pollux")
MORE_RIVALS = (*RIVALS, "boa-authors", "greedy-marginal", "asked")
ALL_RIVALS = (*MORE_RIVALS, "asked-hold", "tiresias", "static-srsf", "static-equal", "static-fifo")
SMALL_APPS = ("cifar10", "deepspeech2", "bert")
WORKLOADS = (1, 2, 3, 6)
BOOTS = (0.0, 180.0)
ORDERS = 5
"""Of one workload's jobs, where what is asked is whether a rule loses on that very workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A public workload: whose, where below DATA, and how it is cut."""

    kind: SourceName
    path: str
    options: Options
    profiles: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One column of the tables: traces that are alike, a multiple of their load, and a boot time.

    `on_spot` rents on a synthetic spot market first, whose nodes are taken away again, then on demand.
    """

    name: str
    sources: tuple[Source, ...]
    factor: float = 1.5
    boot_seconds: float = 180.0
    rivals: tuple[str, ...] = RIVALS
    gpu_types: tuple[str, ...] = ()
    seeds: int = 1
    on_spot: bool = False


def pollux(load: str, number: int, apps: tuple[str, ...] | None = None) -> Source:
    """Return one of Pollux's workloads; `load` is the end of its folder's name."""
    path = f"workloads{load}/workload-{number}.csv"
    return Source(kind=SourceName.pollux, path="pollux", options=Options(workload=path, apps=apps))


def scenarios(*, quick: bool) -> Iterator[Scenario]:
    """Yield the scenarios, those that say most first."""
    seeds = 1 if quick else 3
    for boot in BOOTS:
        yield Scenario(
            name=f"85 jobs, 1.5 x load, boot {boot:g} s",
            sources=(pollux("", 1, SMALL_APPS),),
            boot_seconds=boot,
            seeds=seeds,
            rivals=RIVALS if quick else ALL_RIVALS,
        )
    yield from _loads("", quick=quick)
    gavel = Options(workload="physical_cluster/max_min_fairness.trace")
    for types in (("v100",), ("v100", "p100")):
        yield Scenario(
            name=f"Gavel, {' and '.join(types)}, 1.5 x load, boot 180 s",
            sources=(Source(kind=SourceName.gavel, path="gavel", options=gavel),),
            gpu_types=types,
            seeds=seeds,
            rivals=RIVALS if quick else MORE_RIVALS,
        )
    itp = Source(
        kind=SourceName.itp,
        path="microsoft-itp/elasticflow/195job.csv",
        profiles="elasticflow",
        options=Options(),
    )
    yield Scenario(name="ITP, 195 jobs, 1.5 x load, boot 180 s", sources=(itp,))
    yield Scenario(
        name="Pollux load 1 on spot, 1.5 x load, boot 180 s",
        sources=tuple(pollux("", number) for number in ((6,) if quick else WORKLOADS)),
        on_spot=True,
    )
    if quick:
        return
    for factor in (1.25, 2.0):
        yield Scenario(
            name=f"85 jobs, {factor:g} x load, boot 180 s",
            sources=(pollux("", 1, SMALL_APPS),),
            factor=factor,
            seeds=seeds,
        )
    for load in ("-0.5", "-1.5", "-2.0"):
        yield from _loads(load, quick=False)
    for number in WORKLOADS:
        yield Scenario(
            name=f"Pollux workload-{number} in {ORDERS} orders, 1.5 x load, boot 180 s",
            sources=(pollux("", number),),
            rivals=SIMPLE_RULES,
            seeds=ORDERS,
        )


def _loads(load: str, *, quick: bool) -> Iterator[Scenario]:
    """Yield Pollux's workloads at one load; with and without boots where it is their own."""
    numbers = (6,) if quick else WORKLOADS
    for boot in BOOTS if not load else BOOTS[1:]:
        yield Scenario(
            name=f"Pollux load {load.strip('-') or '1'}, 1.5 x load, boot {boot:g} s",
            sources=tuple(pollux(load, number) for number in numbers),
            boot_seconds=boot,
            rivals=RIVALS if quick or load else MORE_RIVALS,
        )
