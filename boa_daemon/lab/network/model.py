"""The types of the iteration-level simulator: jobs, a cluster, an experiment, and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from policies.links.ada_srsf import LinkPolicy

PlacerName = Literal["random", "first-fit", "list-scheduling", "lwf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkJob:
    """A training job: `iterations` of forward and backward on each GPU, a barrier and one all-reduce."""

    id: str
    gpus: int
    iterations: int
    forward_seconds: float
    backward_seconds: float
    message_bytes: float
    memory_bytes: float = 0.0
    arrived_at_seconds: float = 0.0
    weight: float = 1.0

    @property
    def compute_service_seconds(self) -> float:
        """GPU-seconds of computing in the whole job."""
        return self.iterations * (self.forward_seconds + self.backward_seconds) * self.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Servers of equal size; a GPU holds several jobs within its memory, or one."""

    servers: int
    gpus_per_server: int
    gpu_memory_bytes: float
    shared_gpus: bool = True

    @property
    def gpus(self) -> int:
        """GPUs of all servers; GPU g sits in server g // gpus_per_server."""
        return self.servers * self.gpus_per_server


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Jobs on a cluster under a placer and a link policy. `pinned` maps a job's index to its GPUs."""

    cluster: Cluster
    jobs: tuple[NetworkJob, ...]
    link_policy: LinkPolicy
    placer: PlacerName = "lwf"
    kappa: float = 1
    seed: int = 0
    pinned: Mapping[int, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOutcome:
    """The result of one run. Arrays have an entry per job in the order of the case, `busy_seconds` per GPU.

    Times are seconds from the case's zero. `events` counts tasks and messages (or buckets) that ended.
    `least_slack_seconds` is the minimum over all messages of the time in flight beyond what an idle link
    needs; a negative value would mean that a message was faster than the link.
    """

    ids: tuple[str, ...]
    arrived_at: NDArray[np.float64]
    placed_at: NDArray[np.float64]
    finished_at: NDArray[np.float64]
    placement: tuple[tuple[int, ...], ...]
    busy_seconds: NDArray[np.float64]
    least_slack_seconds: float
    events: int

    @property
    def jct(self) -> NDArray[np.float64]:
        """Completion time of each job: finish less arrival, seconds."""
        return self.finished_at - self.arrived_at

    @property
    def makespan_seconds(self) -> float:
        """Seconds from the case's zero until the last job finished."""
        return float(self.finished_at.max())

    @property
    def gpu_utilisation_fraction(self) -> float:
        """Busy time over makespan, mean over all GPUs."""
        makespan = self.makespan_seconds
        return float(self.busy_seconds.mean()) / makespan if makespan > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the answer of `boa network simulate`."""
        jct = self.jct
        return {
            "jobs": [
                {"id": name, "finished_at_seconds": float(end), "jct_seconds": float(time)}
                for name, end, time in zip(self.ids, self.finished_at, jct, strict=True)
            ],
            "mean_jct_seconds": float(jct.mean()),
            "median_jct_seconds": float(np.median(jct)),
            "p95_jct_seconds": float(np.percentile(jct, 95)),
            "gpu_utilisation_fraction": self.gpu_utilisation_fraction,
            "makespan_seconds": self.makespan_seconds,
            "events": self.events,
        }
