"""What the daemon remembers of a job and of a node, beside what a tick may see."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from boa_daemon.tick.ports import JobSpec
from boa_daemon.tick.state import NodeState
from policies.model import GpuSlot, JobId, Width

JobStatus: TypeAlias = Literal["queued", "running", "finished", "failed", "cancelled"]
ACTIVE: frozenset[JobStatus] = frozenset({"queued", "running"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job as submitted, and how far it is.

    `content` is its job file with defaults filled in, `class_name` the class that its widths are planned by.
    `remaining_gpu_hours` is the work left when the generation that runs was started, hours on one reference
    GPU. `starts` are the instants of its starts within the last hour. `slots` are held from the intent to
    start on until the generation has ended. `begun_step` is the step that the newest generation began after,
    `lost_steps` the steps of all generations that were done and are in no checkpoint. `settled_generation`
    is the one whose end was taken in last. `failed` are instant, step and cause of its failures,
    `not_before` until when it rests after one. `exit_code` and `last_lines` are those of the generation that
    ended last, `stalled_since` since when one that runs makes no step.
    `started_at` is when the newest generation started, of a job that waits None. `ran_seconds` is how long
    the generations that have ended held GPUs, `lost_gpu_hours` how much of that is in no checkpoint.
    `has_reported` says that it has reported a step or written a checkpoint: it can be resized.
    """

    id: JobId
    seq: int
    user: str
    class_name: str
    content: Mapping[str, Any]
    arrived_at: float
    remaining_gpu_hours: float
    size_gpu_hours: float
    status: JobStatus = "queued"
    generation: int = 0
    width: Width | None = None
    slots: tuple[GpuSlot, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    step: int | None = None
    cause: str = ""
    is_cancelled: bool = False
    failures: int = 0
    starts: tuple[float, ...] = ()
    micro_dollars: int = 0
    begun_step: int = 0
    lost_steps: int = 0
    settled_generation: int = 0
    failed: tuple[tuple[float, int, str], ...] = ()
    not_before: float = 0.0
    exit_code: int | None = None
    last_lines: tuple[str, ...] = ()
    stalled_since: float | None = None
    first_started_at: float | None = None
    ran_seconds: float = 0.0
    lost_gpu_hours: float = 0.0
    has_reported: bool = False

    @property
    def name(self) -> str:
        """The name in the job file."""
        return str(self.content["name"])

    @property
    def group(self) -> str:
        """The id of the group that it was submitted in; empty for a job of its own."""
        place = self.content.get("group")
        return "" if place is None else group_id(self.name, self.seq - int(place["index"]))

    @property
    def team(self) -> str:
        """The team whose purse it draws on; empty for none."""
        return str(self.content.get("team") or "")

    @property
    def draw(self) -> float:
        """A number on [0, 1) that is fixed for the job: where the optimum mixes two plans, it picks one."""
        return _draw_of(self.id)

    @property
    def is_active(self) -> bool:
        """Whether it waits or runs."""
        return self.status in ACTIVE

    @property
    def is_rigid(self) -> bool:
        """Whether it runs at one width: nothing says that it keeps its work when it is moved."""
        said = self.content.get("elastic")
        return not self.has_reported if said is None else not said

    @property
    def spec(self) -> JobSpec:
        """What an engine runs."""
        content = self.content
        return JobSpec(
            job=self.id,
            name=self.name,
            class_name=str(content["class"]),
            run=str(content["run"]),
            workdir=str(content["workdir"]),
            environment=dict(content["environment"]) | self._place(),
            stop_grace_seconds=float(content["stop_grace_seconds"]),
            result=str(content["result"]),
            gate=bool(content.get("gate", True)),
            weight=float(content.get("weight", 1.0)),
            is_rigid=self.is_rigid,
            keep_checkpoints=int(content.get("keep_checkpoints", 2)),
            code=str((content.get("code") or {}).get("digest", "")),
            setup=str(content.get("setup") or ""),
            image=str(content.get("image") or ""),
            cpus=float(content.get("cpus") or 0.0),
            memory_gb=float(content.get("memory_gb") or 0.0),
            artifacts=tuple(content.get("artifacts") or ()),
            user=self.user,
            secrets=dict(content.get("secrets", {})),
            data=dict(content.get("data") or {}),
        )

    def _place(self) -> dict[str, str]:
        """Return what a member of a group is told of its place in it."""
        place = self.content.get("group")
        if place is None:
            return {}
        index, size = str(place["index"]), str(place["size"])
        return {"BOA_GROUP": self.group, "BOA_INDEX": index, "BOA_GROUP_SIZE": size}


@lru_cache(maxsize=1 << 16)
def _draw_of(job: JobId) -> float:
    """Return the number of a job; kept, as each tick asks for that of every job which runs."""
    return int.from_bytes(hashlib.sha256(job.encode()).digest()[:6], "big") / 2.0**48


def job_id(name: str, seq: int) -> JobId:
    """Return the id of the job with a name and a number: readable, and never given twice."""
    return f"{_slug(name)}-{seq}"


def group_id(name: str, first: int) -> str:
    """Return the id of the group with a name whose first job has a number; no job has such an id."""
    return f"{_slug(name)}-g{first}"


def first_of_group(name: str) -> int | None:
    """Return the number of the first job of a group; None for what is the id of none."""
    found = re.fullmatch(r"[a-z0-9-]+-g([1-9][0-9]{0,15})", name)
    return None if found is None else int(found[1])


def _slug(name: str) -> str:
    """Return a name as part of an id."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-").lower()[:40] or "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRecord:
    """A node as last listed, and what the daemon adds to that.

    `idle_since` is since when it is ready and carries no job; `was_used` whether it ever carried one.
    """

    node: NodeState
    ready_at: float | None = None
    idle_since: float | None = None
    was_used: bool = False
    last_seen_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRecord:
    """One generation of a job: the GPUs that it held, from when to when, and what they cost in the end."""

    job: JobId
    generation: int
    width: Width
    slots: tuple[GpuSlot, ...] = field(repr=False)
    started_at: float
    ended_at: float | None = None
    end: str = ""
