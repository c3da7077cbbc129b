"""The widths of a class that a job may use: those within the job's limits that divide its batch."""

from __future__ import annotations

from dataclasses import replace

from boa_daemon.errors import InputError
from boa_daemon.inputs.speedup_file import limited
from policies.model import JobClass, Phase


def phases_within(
    base: JobClass, least: int | None, most: int | None, batch: int | None
) -> tuple[Phase, ...]:
    """Return the phases of a class, restricted to the widths that a job may use.

    Raises:
        InputError: when a phase has no such width.
    """
    phases = []
    for phase in base.phases:
        curves = limited(phase.speedups, min_gpus=least, max_gpus=most, batch=batch)
        if not curves:
            raise InputError(
                f"class {base.name!r} has no width from {least or 1} to {most or 'any number of'} GPUs"
                + (f" that divides its batch of {batch}" if batch else ""),
                hint="Widen min_gpus and max_gpus, or raise max_instances",
            )
        phases.append(replace(phase, speedups=curves))
    return tuple(phases)


def narrowest(base: JobClass, least: int | None, batch: int | None) -> int | None:
    """Return the narrowest width, at least `least`, that all phases share; None when they share none."""
    widths: set[int] | None = None
    for phase in base.phases:
        curves = limited(phase.speedups, min_gpus=least, max_gpus=None, batch=batch).values()
        found = {int(width) for curve in curves for width in curve.whole_widths()}
        widths = found if widths is None else widths & found
    return min(widths, default=None) if widths else None
