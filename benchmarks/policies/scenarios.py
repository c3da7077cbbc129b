"""What is compared: public workloads, multiples of their load, and boot times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from boa_daemon.traces.sources import SourceName
from boa_daemon.traces.workload import Options

RIVALS = (
    "efficiency",
    "equal-width",
    "boa-authors",
    "asked",
    "asked-hold",
    "pollux-autoscale",
    "pollux",
    "tiresias",
)
ALL_RIVALS = (*RIVALS, "greedy-marginal", "static-srsf", "static-equal", "static-fifo")
QUICK_RIVALS = ("efficiency", "equal-width", "pollux-autoscale", "pollux")
SMALL_APPS = ("cifar10", "deepspeech2", "bert")
WORKLOADS = (1, 2, 3, 6)
BOOTS = ((0.0, "0 s"), (180.0, "180 s"))


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
    factor: float
    boot_seconds: float
    rivals: tuple[str, ...] = RIVALS
    gpu_types: tuple[str, ...] = ()
    seeds: int = 1
    on_spot: bool = False


def pollux(load: str, number: int, apps: tuple[str, ...] | None = None) -> Source:
    """Return one of Pollux's workloads; `load` is the end of its folder's name."""
    path = f"workloads{load}/workload-{number}.csv"
    return Source(kind=SourceName.pollux, path="pollux", options=Options(workload=path, apps=apps))


def scenarios(*, quick: bool) -> Iterator[Scenario]:
    """Yield the scenarios in the order of the tables."""
    rivals, seeds = (QUICK_RIVALS, 1) if quick else (RIVALS, 3)
    for factor in (1.5,) if quick else (1.5, 1.25, 2.0):
        for boot, said in BOOTS:
            yield Scenario(
                name=f"85 jobs, {factor:g} x load, boot {said}",
                sources=(pollux("", 1, SMALL_APPS),),
                factor=factor,
                boot_seconds=boot,
                seeds=seeds,
                rivals=ALL_RIVALS if factor == 1.5 and not quick else rivals,
            )
    for boot, said in BOOTS:
        for load in ("", "-0.5", "-1.5", "-2.0"):
            if load and (quick or boot == 0.0):
                continue
            yield Scenario(
                name=f"Pollux load {load.strip('-') or '1.0'}, 1.5 x load, boot {said}",
                sources=tuple(pollux(load, number) for number in ((6,) if quick else WORKLOADS)),
                factor=1.5,
                boot_seconds=boot,
                rivals=rivals,
            )
    yield Scenario(
        name="Pollux load 1.0 on spot, 1.5 x load, boot 180 s",
        sources=tuple(pollux("", number) for number in ((6,) if quick else WORKLOADS)),
        factor=1.5,
        boot_seconds=180.0,
        rivals=rivals,
        on_spot=True,
    )
    gavel = Options(workload="physical_cluster/max_min_fairness.trace")
    for types in (("v100",), ("v100", "p100"), ("v100", "p100", "k80")):
        yield Scenario(
            name=f"Gavel, {' + '.join(types)}, 1.5 x load, boot 180 s",
            sources=(Source(kind=SourceName.gavel, path="gavel", options=gavel),),
            factor=1.5,
            boot_seconds=180.0,
            gpu_types=types,
            seeds=seeds,
            rivals=rivals,
        )
    itp = Source(
        kind=SourceName.itp,
        path="microsoft-itp/elasticflow/195job.csv",
        profiles="elasticflow",
        options=Options(),
    )
    yield Scenario(
        name="ITP, 195 jobs, 1.5 x load, boot 180 s",
        sources=(itp,),
        factor=1.5,
        boot_seconds=180.0,
        rivals=rivals,
    )
