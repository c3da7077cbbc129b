"""The scenarios of the study: public workloads, multiples of their load, boot times, caps on nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from boa_daemon.traces.importers import SourceName
from boa_daemon.traces.workload import Options

TUNED = "boa"
"""The fixed plan whose planning budget is tuned on the trace to spend what the daemon spent."""
SIMPLE_RULES = ("efficiency", "equal-width")
FAMILY = ("srpt", "a-srpt", "dally")
RIVALS = (TUNED, *SIMPLE_RULES, "pollux-autoscale", "pollux", *FAMILY)
SOME_RIVALS = (TUNED, *SIMPLE_RULES, "pollux-autoscale", "pollux", "srpt")
MORE_RIVALS = (*RIVALS, "boa-authors", "greedy-marginal", "asked")
ALL_RIVALS = (*MORE_RIVALS, "asked-hold", "tiresias", "static-srsf", "static-equal", "static-fifo")
AT_CAPS = (TUNED, *SIMPLE_RULES, "pollux-autoscale", "pollux", "srpt", "a-srpt", "static-equal")
SMALL_APPS = ("cifar10", "deepspeech2", "bert")
WORKLOADS = (1, 2, 3, 6)
BOOTS = (0.0, 180.0, 420.0)
BOOT = 180.0
CAP_PARTS = (0.5, 0.75, 1.0)
"""Caps as parts of the largest number of nodes that the tuned plan rents without a cap."""
NO_OBJECT = 4.0
"""A budget at a cap, x load, that is so high that only the cap limits the nodes."""
ORDERS = 3
"""The number of orders of one workload's jobs, to show whether a rule loses on that workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A public workload: its name, its folder below DATA, and its cut."""

    kind: SourceName
    path: str
    options: Options
    profiles: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One column of a table: similar traces, a multiple of their load, a boot time.

    `on_spot` rents first on a synthetic spot market, whose nodes are interrupted, then on demand. If
    `cap_factors` is set, the last `capped_sources` traces are run again under caps on nodes, with budgets of
    these multiples of the load.
    """

    group: str
    column: str
    sources: tuple[Source, ...]
    factor: float = 1.5
    boot_seconds: float = BOOT
    rivals: tuple[str, ...] = RIVALS
    gpu_types: tuple[str, ...] = ()
    seeds: int = 1
    on_spot: bool = False
    cap_factors: tuple[float, ...] = ()
    capped_sources: int = 1

    @property
    def name(self) -> str:
        """The scenario's name outside its table."""
        return f"{self.group}, {self.column}"


def pollux(load: str, number: int, apps: tuple[str, ...] | None = None) -> Source:
    """Return one of Pollux's workloads; `load` is the end of its folder's name."""
    path = f"workloads{load}/workload-{number}.csv"
    return Source(kind=SourceName.pollux, path="pollux", options=Options(workload=path, apps=apps))


SHORT = "85 short jobs"
WHOLE = "Pollux's workloads, 160 jobs"
HEADLINE = f"{SHORT}, boot {BOOT:g} s"
GAVEL = Source(
    kind=SourceName.gavel, path="gavel", options=Options(workload="physical_cluster/max_min_fairness.trace")
)
ITP = Source(
    kind=SourceName.itp,
    path="microsoft-itp/elasticflow/195job.csv",
    profiles="elasticflow",
    options=Options(),
)
SHOCKWAVE = Source(kind=SourceName.shockwave, path="shockwave", profiles="gavel", options=Options())
PHILLY = Source(
    kind=SourceName.philly,
    path="pollux/philly-2017-09-10.csv",
    profiles="pollux/traces",
    options=Options(limit=100),
)


def scenarios(*, quick: bool = False, everything: bool = False) -> Iterator[Scenario]:
    """Yield the scenarios table by table; `everything` adds traces, seeds, budgets and the spot market."""
    seeds = 2 if everything else 1
    boots = BOOTS[1:2] if quick else BOOTS
    for boot in boots:
        yield Scenario(
            group=SHORT,
            column=f"boot {boot:g} s",
            sources=(pollux("", 1, SMALL_APPS),),
            boot_seconds=boot,
            seeds=seeds,
            rivals=RIVALS if quick else ALL_RIVALS if boot == BOOT else SOME_RIVALS,
            cap_factors=((1.5, NO_OBJECT) if everything else (NO_OBJECT,)) if boot == BOOT else (),
        )
    workloads = (6,) if quick else WORKLOADS if everything else (3, 6)
    for boot in boots:
        yield Scenario(
            group=WHOLE,
            column=f"boot {boot:g} s",
            sources=tuple(pollux("", number) for number in workloads),
            boot_seconds=boot,
            rivals=RIVALS if quick else MORE_RIVALS if boot == BOOT and everything else SOME_RIVALS,
            cap_factors=(NO_OBJECT,) if boot == BOOT and not quick else (),
            capped_sources=2 if everything else 1,
        )
    for column, types, boot in (
        ("V100", ("v100",), BOOT),
        ("V100 and P100", ("v100", "p100"), BOOT),
        ("V100, boot 420 s", ("v100",), 420.0),
    )[: 1 if quick else 3 if everything else 2]:
        yield Scenario(
            group="Gavel's 96 jobs",
            column=column,
            sources=(GAVEL,),
            gpu_types=types,
            boot_seconds=boot,
            seeds=seeds,
            cap_factors=(NO_OBJECT,) if column == "V100" and not quick else (),
        )
    yield Scenario(
        group="Other traces",
        column="Shockwave, 120 jobs",
        sources=(SHOCKWAVE,),
        gpu_types=("v100",),
        cap_factors=(NO_OBJECT,) if everything else (),
    )
    if quick:
        return
    yield Scenario(group="Other traces", column="ITP, 195 jobs", sources=(ITP,), cap_factors=(NO_OBJECT,))
    if not everything:
        return
    yield Scenario(
        group="Other traces",
        column="ITP, boot 420 s",
        sources=(ITP,),
        boot_seconds=420.0,
        rivals=SOME_RIVALS,
    )
    yield Scenario(group="Other traces", column="Philly, 100 jobs", sources=(PHILLY,), rivals=SOME_RIVALS)
    for factor in (1.25, 2.0):
        yield Scenario(
            group="85 short jobs at other budgets",
            column=f"{factor:g} x load",
            sources=(pollux("", 1, SMALL_APPS),),
            factor=factor,
            seeds=seeds,
            rivals=SOME_RIVALS,
        )
    for load, jobs in (("-0.5", 80), ("-1.5", 240), ("-2.0", 320)):
        yield Scenario(
            group="Pollux's workloads with fewer and more jobs",
            column=f"{jobs} jobs",
            sources=tuple(pollux(load, number) for number in WORKLOADS),
            rivals=SOME_RIVALS,
        )
    for number in WORKLOADS:
        yield Scenario(
            group=f"Pollux's workloads, each in {ORDERS} orders",
            column=f"workload-{number}",
            sources=(pollux("", number),),
            rivals=(TUNED, *SIMPLE_RULES),
            seeds=ORDERS,
        )
    yield Scenario(
        group="On a spot market",
        column=WHOLE,
        sources=tuple(pollux("", number) for number in WORKLOADS),
        on_spot=True,
        rivals=SOME_RIVALS,
    )
