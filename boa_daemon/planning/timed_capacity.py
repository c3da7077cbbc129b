"""Timed capacity in a calendar: each block is a machine of its own, there for a while and paid for already.

A block is one more GPU type of the problem, `h100@december`, as fast as the machine that it is made of, with
a quota, a window, and next to no price: its fee is paid whether a job is on it or not. A job is in it from
boot to end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType

from boa_daemon.errors import InputError
from boa_daemon.inputs.blocks_file import BoughtBlock
from boa_daemon.inputs.problem_file import ProblemFile
from policies.links.gpu_kinds import card_of, kind_on
from policies.model import GpuType
from policies.optimum.working_time import WorkingTime

PAID_USD = 1e-6
"""What an hour of an instance that is paid for costs: solvers want prices above nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCapacity:
    """The problem with its blocks, their quotas and windows (hours of work), and their fees together."""

    file: ProblemFile
    quota: Mapping[str, int]
    windows: Mapping[str, tuple[float, float]]
    usd: float

    @property
    def sentence(self) -> str:
        """Say what is paid beside the calendar; nothing where there is no block."""
        if not self.windows:
            return ""
        names = ", ".join(name.partition("@")[2] for name in self.windows)
        return f"Beside that ${self.usd:,.2f} were paid in advance for blocks: {names}."


def with_blocks(
    file: ProblemFile,
    blocks: Sequence[BoughtBlock],
    start: datetime | None,
    working: WorkingTime,
) -> TimedCapacity:
    """Return the file with blocks as machines.

    Raises:
        InputError: when there is no day to count from, or no class runs on a block's type.
    """
    if not blocks:
        return TimedCapacity(file=file, quota={}, windows={}, usd=0.0)
    if start is None:
        hint = "Add --start 2026-12-01, or a column submit_at"
        raise InputError("blocks need a day from which to count", file=file.path, hint=hint)
    machines, classes = dict(file.instance_types), list(file.problem.classes)
    quota, windows = {}, {}
    for block in blocks:
        base = next((k for k, one in file.instance_types.items() if one.name == block.instance_type), None)
        if base is None:
            hint = f"Add it under gpu_types; known: {', '.join(m.name for m in machines.values())}"
            said = f"block {block.name!r} is of {block.instance_type}, which no class has a speed on"
            raise InputError(said, file=file.path, hint=hint)
        kind = kind_on(card_of(base), block.name)
        name = f"{block.instance_type} ({block.name})"
        machines[kind] = replace(machines[base], name=name, gpu_type=kind, usd_per_hour=PAID_USD)
        for number, job_class in enumerate(classes):
            phases = tuple(
                replace(phase, speedups={**phase.speedups, kind: phase.speedups[base]})
                if base in phase.speedups
                else phase
                for phase in job_class.phases
            )
            classes[number] = replace(job_class, phases=phases)
        begin, end = block.hours(start)
        if not working.is_always:
            begin, end = working.worked(max(begin, 0.0)), working.worked(max(end, 0.0))
        quota[kind], windows[kind] = block.instances, (max(begin, 0.0), end)
    prices = tuple(
        GpuType(name=kind, usd_per_gpu_hour=machine.usd_per_gpu_hour) for kind, machine in machines.items()
    )
    problem = replace(file.problem, classes=tuple(classes), gpu_types=prices)
    return TimedCapacity(
        file=replace(file, problem=problem, instance_types=MappingProxyType(machines)),
        quota=quota,
        windows=windows,
        usd=sum(block.usd for block in blocks),
    )
