"""What a tick may do: five small acts, each with an id and a reason.

The id comes from the tick and the target, so that the same decision taken twice is the same request: it
doubles as the cloud's idempotency token. Changing a job's width is a stop and then a start of the next
generation, because the GPUs that one job leaves may be those that another one needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from policies.model import GpuSlot, InstanceType, JobId, NodeId, Width


@dataclass(frozen=True, slots=True, kw_only=True)
class StopJob:
    """Checkpoint a job and free its GPUs."""

    id: str
    job: JobId
    generation: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateNode:
    """Give a node back."""

    id: str
    node: NodeId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartJob:
    """Start a generation of a job on the given GPUs."""

    id: str
    job: JobId
    generation: int
    width: Width
    slots: tuple[GpuSlot, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchNode:
    """Rent one instance."""

    id: str
    instance_type: InstanceType
    reason: str


Action: TypeAlias = StopJob | TerminateNode | StartJob | LaunchNode
