"""The daemon's records of jobs, nodes and generations, beyond what a tick sees."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from boa_daemon.tick.facts.job_spec import JobSpec
from boa_daemon.tick.facts.state import NodeState
from policies.model import GpuSlot, JobId, Width

NODE_KEY = "slurm_node"
"""Key of a job's content with the node of Slurm that the job is; no job file can have it."""
JobStatus: TypeAlias = Literal["queued", "running", "finished", "failed", "cancelled"]
ACTIVE: frozenset[JobStatus] = frozenset({"queued", "running"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job as submitted, with its present state; instants are seconds since the Unix epoch.

    `content` is its job file with defaults filled in, `class_name` the class that its widths are planned by.
    `remaining_gpu_hours` is the work left when the present generation started, in hours on one reference GPU.
    `starts` are the instants of its starts within the last hour. `slots` are held from the intent to start
    until the generation has ended. `begun_step` is the step after which the newest generation began,
    `lost_steps` counts steps of all generations that are in no checkpoint. `settled_generation` is the last
    generation whose end was processed. `failed` lists instant, step and cause of its failures. `not_before`
    is the earliest start that its file allows, 0 if it names none. `exit_code` and `last_lines` are those of
    the last ended generation, `stalled_since` is since when a running job makes no step.

    `started_at` is the start of the newest generation, None for a waiting job. `ran_seconds` is how long
    ended generations held GPUs, `lost_gpu_hours` the part of that work that is in no checkpoint.
    `has_reported` says that the job has reported a step or written a checkpoint, so it can be resized.
    `width_before` is the GPU type and the GPUs of the last ended generation, `checkpoint_bytes` the size of
    its last save, if reported.
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
    width_before: tuple[str, int] | None = None
    checkpoint_bytes: int | None = None

    @property
    def name(self) -> str:
        """The name in the job file."""
        return str(self.content["name"])

    @property
    def group(self) -> str:
        """The id of the job's group; empty without one."""
        place = self.content.get("group")
        return "" if place is None else group_id(self.name, self.seq - int(place["index"]))

    @property
    def team(self) -> str:
        """The team that pays for the job; empty without one."""
        return str(self.content.get("team") or "")

    @property
    def draw(self) -> float:
        """A fixed number on [0, 1) for the job; it selects a plan when the optimum mixes two."""
        return _draw_of(self.id)

    @property
    def is_active(self) -> bool:
        """Whether the job waits or runs."""
        return self.status in ACTIVE

    @property
    def is_rigid(self) -> bool:
        """Whether the job keeps one width, because it is not known to keep its work when moved."""
        said = self.content.get("elastic")
        return not self.has_reported if said is None else not said

    @property
    def spec(self) -> JobSpec:
        """The job's specification for an engine."""
        content = self.content
        return JobSpec.of(
            content,
            job=self.id,
            class_name=str(content["class"]),
            environment=dict(content["environment"]) | self._place(),
            is_rigid=self.is_rigid,
            code=str((content.get("code") or {}).get("digest", "")),
            # A node of Slurm runs slurmd, which needs root to start the jobs of all users.
            user="root" if NODE_KEY in content else self.user,
            record=self._as_submitted,
        )

    @property
    def _as_submitted(self) -> str:
        """What the engine keeps besides, so that a lost record can be made again from the job's papers."""
        said = {"content": self.content, "size_gpu_hours": self.size_gpu_hours, "arrived_at": self.arrived_at}
        return json.dumps(said, separators=(",", ":"))

    def _place(self) -> dict[str, str]:
        """Return the environment variables with a job's place in its group."""
        place = self.content.get("group")
        if place is None:
            return {}
        index, size = str(place["index"]), str(place["size"])
        return {"BOA_GROUP": self.group, "BOA_INDEX": index, "BOA_GROUP_SIZE": size}


@lru_cache(maxsize=1 << 16)
def _draw_of(job: JobId) -> float:
    """Return the draw of a job; cached, as each tick reads it for every running job."""
    return int.from_bytes(hashlib.sha256(job.encode()).digest()[:6], "big") / 2.0**48


def job_id(name: str, seq: int) -> JobId:
    """Return the id of a job from its name and number: readable, and unique."""
    return f"{_slug(name)}-{seq}"


def group_id(name: str, first: int) -> str:
    """Return the id of a group from its name and first number; no job has such an id."""
    return f"{_slug(name)}-g{first}"


def first_of_group(name: str) -> int | None:
    """Return the number of a group's first job from the group's id; None for other text."""
    found = re.fullmatch(r"[a-z0-9-]+-g([1-9][0-9]{0,15})", name)
    return None if found is None else int(found[1])


def _slug(name: str) -> str:
    """Return a name as part of an id."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-").lower()[:40] or "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRecord:
    """A node as last listed, with the daemon's own data.

    `idle_since` is since when it is ready and has no job; `was_used` says whether it ever had one.
    """

    node: NodeState
    ready_at: float | None = None
    idle_since: float | None = None
    was_used: bool = False
    last_seen_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRecord:
    """One generation of a job: its width and GPUs, from when to when it held them, and how it ended."""

    job: JobId
    generation: int
    width: Width
    slots: tuple[GpuSlot, ...] = field(repr=False)
    started_at: float
    ended_at: float | None = None
    end: str = ""
