"""Classes of elastic jobs: one phase per epoch, with the measured speed-ups of its profile.

Speed at n GPUs of a type is the best goodput over the measured placements on the fewest nodes, divided by the
goodput of one GPU of the reference type; an epoch's size is its progress divided by the goodput of that GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.lab.traces.profiles import (
    ApplicationFacts,
    Floats,
    Statistics,
    StepTimes,
    goodput,
    read_statistics,
    read_step_times,
)
from policies.model import JobClass, Phase
from policies.speedup import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """A job's batch and GPU count; None if the scheduler may change it."""

    batch: int | None = None
    gpus: int | None = None


ADAPTIVE = JobShape()
ONE_GPU = JobShape(gpus=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationProfile:
    """Measurements of one application on one or more GPU types, the reference type first."""

    name: str
    facts: ApplicationFacts
    statistics: Statistics
    times: Mapping[str, Mapping[int, tuple[StepTimes, ...]]]

    def goodputs(self, gpu_type: str, shape: JobShape = ADAPTIVE) -> dict[int, Floats]:
        """Return GPUs -> goodput of each epoch in steps per second, for every width that a job may use."""
        batch = shape.batch if self.facts.fixed_batch is None else self.facts.fixed_batch
        best: dict[int, Floats] = {}
        for gpus, placements in sorted(self.times[gpu_type].items()):
            if shape.gpus not in (None, gpus) or gpus > (self.facts.max_gpus or gpus):
                continue
            found = [goodput(times, self.statistics, self.facts, batch) for times in placements]
            rows = [row for row in found if row is not None]
            if rows:
                best[gpus] = np.max(rows, axis=0)
        return best

    def job_class(
        self, name: str, *, shape: JobShape = ADAPTIVE, startup_hours: float, rescale_hours: float
    ) -> JobClass | None:
        """Return the class, one phase per epoch, or None if no measurement fits the shape."""
        reference = next(iter(self.times))
        one_gpu = self.goodputs(reference, ONE_GPU).get(1)
        if one_gpu is None:
            raise InputError(f"{self.name} was not measured on one GPU of {reference}, so it has no size")
        tables = {gpu_type: self.goodputs(gpu_type, shape) for gpu_type in self.times}
        tables = {gpu_type: table for gpu_type, table in tables.items() if table}
        if not tables:
            return None
        sizes = self.statistics.epoch_steps / one_gpu / 3600.0
        phases = tuple(
            Phase(
                size_gpu_hours=float(size),
                speedups={
                    gpu_type: Table(
                        gpus=tuple(table),
                        speeds=tuple(float(row[epoch] / one_gpu[epoch]) for row in table.values()),
                    )
                    for gpu_type, table in tables.items()
                },
            )
            for epoch, size in enumerate(sizes)
        )
        return JobClass(name=name, phases=phases, startup_hours=startup_hours, rescale_hours=rescale_hours)


def applications_in(directory: Path) -> list[str]:
    """Return the applications with a profile below `directory`, sorted by name."""
    return sorted({path.parent.name for path in directory.glob("*/validation-*.csv")})


def profile_directory(source: Path) -> Path:
    """Return the directory of profiles: ``traces`` in `source`, or `source` itself.

    Raises:
        InputError: when neither holds ``APP/validation-*.csv``.
    """
    for directory in (source / "traces", source):
        if applications_in(directory):
            return directory
    raise InputError(
        "no profiles here", file=source, hint="Expected traces/APP/validation-BATCH.csv and placements.csv"
    )


def read_profile(
    directory: Path, application: str, gpu_types: Mapping[str, str], facts_of: Mapping[str, ApplicationFacts]
) -> ApplicationProfile:
    """Return the profile of an application; `gpu_types` maps a type's name to its file suffix.

    Types without a file are left out.

    Raises:
        InputError: when the application has no profile, or a file is damaged.
    """
    known = applications_in(directory)
    if application not in known:
        raise InputError(
            f"no profile of application {application!r}",
            file=directory,
            hint=did_you_mean(application, known),
        )
    facts = facts_of.get(application, ApplicationFacts())
    home = directory / application
    times = {
        name: read_step_times(home, suffix)
        for name, suffix in gpu_types.items()
        if (home / f"placements{suffix}.csv").exists()
    }
    if not times:
        raise InputError(
            f"{application} has no step times for {', '.join(gpu_types)}",
            file=home,
            hint="Expected placements.csv, or placements-TYPE.csv",
        )
    return ApplicationProfile(
        name=application, facts=facts, statistics=read_statistics(home, facts), times=times
    )
