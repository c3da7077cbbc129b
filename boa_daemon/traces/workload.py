"""The result of every importer: a trace, the classes of its jobs, and their GPU types."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.traces.reader import Trace, TraceFault, TraceJob
from policies.kinds import kind_of
from policies.model import JobClass, Phase

Arrival = TypeVar("Arrival")

RESTART_SECONDS = 30.0
"""Seconds of a start or a change of width in the Pollux simulator."""
SHORTEST_WINDOW_HOURS = 1.0 / 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSource:
    """The source of a GPU type's price: an instance type of the catalogue, or dollars per GPU-hour.

    With the latter go `gpus_per_instance` (None: one) and the network's gigabits per second. Jobs that had
    parts of a GPU share it: it has `places_per_gpu`.
    """

    instance_type: str | None = None
    usd_per_gpu_hour: float | None = None
    gpus_per_instance: int | None = None
    link_gigabits_per_second: float | None = None
    places_per_gpu: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of an import; None means "as in the source"."""

    workload: str | None = None
    apps: tuple[str, ...] | None = None
    profiles: Path | None = None
    seed: int | None = None
    startup_seconds: float | None = None
    rescale_seconds: float | None = None
    from_hours: float | None = None
    to_hours: float | None = None
    limit: int | None = None
    time_zone: str | None = None
    gpus: int | None = None
    gpu_types: Mapping[str, GpuSource] = field(default_factory=lambda: MappingProxyType({}))

    def startup_hours(self, default_seconds: float) -> float:
        """Return the paid hours before the first phase."""
        return (default_seconds if self.startup_seconds is None else self.startup_seconds) / 3600.0

    def rescale_hours(self, default_seconds: float) -> float:
        """Return the paid hours at each change of width."""
        return (default_seconds if self.rescale_seconds is None else self.rescale_seconds) / 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A trace and the classes of its jobs; `dropped` counts omitted jobs by reason.

    A class's `arrivals_per_hour` is the rate in the trace, and meaningless (`rates_known` is false) if all
    jobs arrive within a second.
    """

    source: str
    trace: Trace
    classes: tuple[JobClass, ...]
    gpu_types: Mapping[str, GpuSource]
    dropped: Mapping[str, int]
    notes: tuple[str, ...] = ()

    @property
    def rates_known(self) -> bool:
        """Whether the arrivals span at least a second, so that they have a rate."""
        return self.trace.window_hours >= SHORTEST_WINDOW_HOURS

    def on_gpu_types(self, names: Sequence[str]) -> Workload:
        """Return the same jobs on fewer GPU types; each type is one of `gpu_types`.

        Raises:
            InputError: when a class runs on none of them.
        """

        def narrowed(job_class: JobClass, phase: Phase) -> Phase:
            speedups = {name: phase.speedups[name] for name in names if name in phase.speedups}
            if not speedups:
                raise InputError(f"class {job_class.name} does not run on {' or '.join(names)}")
            return dataclasses.replace(phase, speedups=speedups)

        classes = tuple(
            dataclasses.replace(c, phases=tuple(narrowed(c, phase) for phase in c.phases))
            for c in self.classes
        )
        return dataclasses.replace(
            self, classes=classes, gpu_types={name: self.gpu_types[name] for name in names}
        )

    def work_gpu_hours(self) -> dict[str, float]:
        """Return the work of all jobs of each class, in hours on one reference GPU."""
        sizes = {job_class.name: job_class.size_gpu_hours for job_class in self.classes}
        work = dict.fromkeys(sizes, 0.0)
        for job in self.trace.jobs:
            work[job.class_name] += sizes[job.class_name] * job.scale
        return work


def assemble(
    source: str,
    jobs: Iterable[TraceJob],
    classes: Iterable[JobClass],
    gpu_types: Mapping[str, GpuSource],
    *,
    path: Path,
    options: Options,
    dropped: Mapping[str, int] | None = None,
    notes: Sequence[str] = (),
) -> Workload:
    """Return the workload of `jobs`, sorted by time, with the rate of each class that has a job.

    `gpu_types` are the source's own prices; prices in the options override them.

    Raises:
        InputError: when no job is left, an id occurs twice, or a price is for a type that no class uses.
    """
    ordered = tuple(sorted(jobs, key=lambda job: job.arrived_at_seconds))
    if not ordered:
        reasons = ", ".join(f"{count} {reason}" for reason, count in (dropped or {}).items() if count)
        raise InputError(f"no job is left to import{f' ({reasons})' if reasons else ''}", file=path)
    try:
        trace = Trace(ordered)
    except TraceFault as fault:
        raise InputError(str(fault), file=path, hint="Every job needs its own id") from fault
    counts = Counter(job.class_name for job in ordered)
    hours = trace.window_hours
    spans = hours >= SHORTEST_WINDOW_HOURS
    with_rates = tuple(
        dataclasses.replace(job_class, arrivals_per_hour=counts[job_class.name] / hours if spans else 1.0)
        for job_class in classes
        if counts[job_class.name]
    )
    kinds = {gpu for job_class in with_rates for phase in job_class.phases for gpu in phase.speedups}
    used = kinds | {kind_of(kind).card for kind in kinds}
    for name in options.gpu_types:
        if name not in used:
            raise InputError(
                f"a price for GPU type {name!r}, which no class uses", hint=did_you_mean(name, used)
            )
    return Workload(
        source=source,
        trace=trace,
        classes=with_rates,
        gpu_types={name: gpu for name, gpu in {**gpu_types, **options.gpu_types}.items() if name in used},
        dropped={reason: count for reason, count in (dropped or {}).items() if count},
        notes=tuple(notes),
    )


def cut(
    items: Iterable[Arrival],
    seconds_of: Callable[[Arrival], float],
    options: Options,
    dropped: Counter[str],
) -> list[tuple[float, Arrival]]:
    """Return (seconds, item) of the arrivals in the options' window, in order, at most `options.limit`.

    Seconds count from the start of the window, which is the source's time 0 unless `from_hours` is set.
    Omitted arrivals are counted in `dropped`.
    """
    start = (options.from_hours or 0.0) * 3600.0
    end = math.inf if options.to_hours is None else options.to_hours * 3600.0
    inside, outside = [], 0
    for item in items:
        seconds = seconds_of(item)
        if start <= seconds < end:
            inside.append((seconds - start, item))
        else:
            outside += 1
    inside.sort(key=lambda pair: pair[0])
    kept = inside if options.limit is None else inside[: options.limit]
    dropped["outside the window"] += outside
    dropped["beyond the limit"] += len(inside) - len(kept)
    return kept
