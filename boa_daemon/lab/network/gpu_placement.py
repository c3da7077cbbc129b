"""Placement of jobs on the cluster's GPUs, with the free memory and the remaining work of each GPU."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from boa_daemon.lab.network.model import Experiment
from boa_daemon.lab.network.state import BACKWARD, BARRIER, LinkRules, State
from policies.model import GpuSlot, InstanceType, Node, Width
from policies.placement.lwf import FirstGpus, GpuChooser, LeastWorkload, RandomChoice
from policies.placement.packing import ClusterPacking

Ints = NDArray[np.int64]


class GpuPool:
    """The cluster's GPUs, with their free memory and their jobs."""

    def __init__(self, experiment: Experiment, rules: LinkRules, state: State) -> None:
        self._experiment, self._rules, self._state = experiment, rules, state
        cluster = experiment.cluster
        self._server_of = np.arange(cluster.gpus) // cluster.gpus_per_server
        self._free_memory = np.full(cluster.gpus, float(cluster.gpu_memory_bytes))
        self._is_taken = np.zeros(cluster.gpus, dtype=bool)
        self._jobs: dict[int, Ints] = {}
        self._workload: NDArray[np.float64] | None = None
        self._refused: dict[float, int] = {}
        self._chooser = _chooser(experiment)
        self._packing: ClusterPacking | None = None
        if not cluster.shared_gpus and experiment.placer == "lwf":
            self._packing = ClusterPacking(_nodes(experiment))

    def new_instant(self) -> None:
        """Discard the cached workloads and refusals of the previous instant."""
        self._workload = None
        self._refused.clear()

    def place(self, job: int) -> Ints | None:
        """Place a job and return its GPUs, or None if it has to wait."""
        gpus = self._choose(job)
        if gpus is None:
            return None
        self._jobs[job] = gpus
        np.subtract.at(self._free_memory, gpus, self._experiment.jobs[job].memory_bytes)
        self._is_taken[gpus] = True
        if self._packing is not None and job in self._experiment.pinned:
            per_server = self._experiment.cluster.gpus_per_server
            self._packing.hold(
                str(job), [GpuSlot(str(g // per_server), g % per_server) for g in gpus.tolist()]
            )
        if self._workload is not None:
            self._workload[gpus] += self._seconds_left(job, gpus)
        return gpus

    def release(self, job: int) -> None:
        """Free the GPUs of a finished job."""
        gpus = self._jobs.pop(job)
        np.add.at(self._free_memory, gpus, self._experiment.jobs[job].memory_bytes)
        self._is_taken[gpus] = False
        if self._packing is not None:
            self._packing.remove(str(job))

    def _choose(self, job: int) -> Ints | None:
        """Return GPUs with room for the job, or None."""
        spec = self._experiment.jobs[job]
        if job in self._experiment.pinned:
            gpus = np.array(self._experiment.pinned[job], dtype=np.int64)
            return gpus if self._has_room(gpus, spec.memory_bytes) else None
        if spec.gpus >= self._refused.get(spec.memory_bytes, math.inf):
            return None
        if self._packing is not None:
            if not self._packing.add(str(job), Width("gpu", spec.gpus), kappa=self._experiment.kappa):
                return None
            per_server = self._experiment.cluster.gpus_per_server
            slots = self._packing.slots_of(str(job))
            return np.array([int(slot.node) * per_server + slot.index for slot in slots], dtype=np.int64)
        fits = self._free_memory >= spec.memory_bytes
        if not self._experiment.cluster.shared_gpus:
            fits &= ~self._is_taken
        if self._workload is None:
            self._workload = self._work_left()
        chosen = self._chooser.choose(
            spec.gpus, fits=fits, workload=self._workload, server_of=self._server_of
        )
        if chosen is None:
            self._refused[spec.memory_bytes] = spec.gpus
        return chosen

    def _has_room(self, gpus: Ints, memory_bytes: float) -> bool:
        """Return whether pinned GPUs can take the job now."""
        if not self._experiment.cluster.shared_gpus and self._is_taken[gpus].any():
            return False
        where, workers = np.unique(gpus, return_counts=True)
        return bool(np.all(self._free_memory[where] >= workers * memory_bytes))

    def _seconds_left(self, job: int, gpus: Ints) -> float:
        """Return the seconds that a new job adds to each of its GPUs: computing, and any sending."""
        spec = self._experiment.jobs[job]
        each = spec.forward_seconds + spec.backward_seconds
        if len(np.unique(self._server_of[gpus])) > 1:
            each += self._rules.latency + self._rules.per_byte * spec.message_bytes
        return spec.iterations * each

    def _work_left(self) -> NDArray[np.float64]:
        """Return L_g of every GPU: the remaining seconds of computing and sending of its jobs."""
        s, c = self._state, self._rules
        job = np.asarray(s.job_of)
        gpu = np.asarray(s.gpu_of)
        left = np.asarray(s.iterations_left)
        network = np.where(
            np.asarray(s.servers) > 1,
            left * (c.latency + c.per_byte * np.asarray(s.message_bytes))
            - c.per_byte * np.asarray(s.sent_bytes),
            0.0,
        )
        stage = np.asarray(s.stage)
        work = (left[job] - (stage >= BACKWARD)) * np.asarray(s.forward)[job]
        work += (left[job] - (stage == BARRIER)) * np.asarray(s.backward)[job] + network[job]
        here = (gpu >= 0) & (left[job] > 0)
        return np.bincount(gpu[here], weights=work[here], minlength=len(self._server_of)).astype(float)


def _chooser(experiment: Experiment) -> GpuChooser:
    if experiment.placer == "random":
        return RandomChoice(rng=np.random.default_rng(experiment.seed))
    if experiment.placer == "first-fit":
        return FirstGpus()
    return LeastWorkload(kappa=math.inf if experiment.placer == "list-scheduling" else experiment.kappa)


def _nodes(experiment: Experiment) -> list[Node]:
    server = InstanceType(
        name="server", gpu_type="gpu", gpus=experiment.cluster.gpus_per_server, usd_per_hour=1.0
    )
    return [Node(id=str(n), instance_type=server, is_ready=True) for n in range(experiment.cluster.servers)]
