"""Capacity Blocks in a calendar: each block is a machine of its own, available for a time and already paid.

A block becomes one more GPU type of the problem, such as `h100@december`, as fast as its machine, with a
quota, a time window, and almost no price, because its fee is paid whether it is used or not. A job must boot
and end within the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType

from boa_daemon.errors import InputError
from boa_daemon.inputs.blocks_file import BoughtBlock
from boa_daemon.inputs.problem_file import ProblemFile
from policies.errors import InvalidProblem
from policies.kinds import Kind, kind_of
from policies.model import GpuType
from policies.money_text import in_dollars
from policies.optimum.working_time import WorkingTime

PAID_USD = 1e-6
"""Dollars per hour of a paid instance; not 0, because solvers need positive prices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCapacity:
    """The problem with its blocks, their quotas and windows (in working hours), and the sum of their fees."""

    file: ProblemFile
    quota: Mapping[str, int]
    windows: Mapping[str, tuple[float, float]]
    usd: float
    names: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The prepaid fees in a sentence; empty without blocks."""
        if not self.names:
            return ""
        names = ", ".join(self.names)
        return f"In addition {in_dollars(self.usd)} were paid in advance for blocks: {names}."


def with_blocks(
    file: ProblemFile,
    blocks: Sequence[BoughtBlock],
    start: datetime | None,
    working: WorkingTime,
) -> TimedCapacity:
    """Return the problem file with blocks added as machines.

    Raises:
        InputError: when the list has no begin date, no class runs on a block's type, or a block's name has
            another meaning in the name of a GPU type.
    """
    if not blocks:
        return TimedCapacity(file=file, quota={}, windows={}, usd=0.0)
    if start is None:
        hint = "Add --start 2026-12-01, or a column submit_at"
        raise InputError("blocks need a date at which the calendar begins", file=file.path, hint=hint)
    machines, classes = dict(file.instance_types), list(file.problem.classes)
    quota, windows = {}, {}
    for block in blocks:
        base = next((k for k, one in file.instance_types.items() if one.name == block.instance_type), None)
        if base is None:
            hint = f"Add it under gpu_types; known: {', '.join(m.name for m in machines.values())}"
            said = f"block {block.name!r} is of {block.instance_type}, which no class has a speed on"
            raise InputError(said, file=file.path, hint=hint)
        kind = _kind(kind_of(base).card, block, file)
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
        names=tuple(block.name for block in blocks),
    )


def _kind(card: str, block: BoughtBlock, file: ProblemFile) -> str:
    """Return the GPU type of a block."""
    try:
        return str(Kind(card, block.name))
    except InvalidProblem:
        hint = "Give it another name, such as december"
        raise InputError(f"no block can be named {block.name!r}", file=file.path, hint=hint) from None
