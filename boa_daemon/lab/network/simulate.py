"""Run an experiment: jobs arrive, are placed, iterate and finish.

The event loop is in `boa_daemon.lab.network.kernel`. This module does the rare steps: removing, adding and
placing jobs. Queued jobs are placed in the order of least compute service, skipping those that do not fit.
Ties go to the job that comes first in the case. Cost: the kernel's, plus O(workers + queue) per arrival and
finish.
"""

from __future__ import annotations

import math
from bisect import insort
from typing import Any, Literal

import numpy as np

from boa_daemon.lab.network import kernel
from boa_daemon.lab.network.compiled import compiled_run
from boa_daemon.lab.network.gpu_placement import GpuPool
from boa_daemon.lab.network.model import Experiment, NetworkOutcome
from boa_daemon.lab.network.state import COUNTERS, EVENTS, FINISHED, PLAIN, QUEUE, WEIGHTED, LinkRules, State
from policies.errors import InvalidProblem
from policies.links.ada_srsf import LinkPolicy

KernelName = Literal["auto", "python", "compiled"]

COMPILE_ABOVE_EVENTS = 100_000
"""Below this, plain Python finishes before numba is even imported."""

_RULES = {"plain": PLAIN, "weighted": WEIGHTED, "queue": QUEUE}


def simulate(experiment: Experiment, *, engine: KernelName = "auto") -> NetworkOutcome:
    """Run an experiment, and return when each job finishes.

    `auto` compiles large runs if numba is installed; the results are bit-identical.

    Raises:
        ImportError: when `compiled` is requested without numba.
        InvalidProblem: when a job does not fit on the empty cluster.
    """
    run = None
    if engine == "compiled" or (engine == "auto" and expected_events(experiment) > COMPILE_ABOVE_EVENTS):
        run = compiled_run()
        if run is None and engine == "compiled":
            raise ImportError("the compiled engine needs numba: install the extra 'fast'")
    rules = rules_of(experiment.link_policy)
    state = state_of(experiment, rules, as_arrays=run is not None)
    return _run(experiment, rules, state, run or kernel.run)


def expected_events(experiment: Experiment) -> int:
    """Return the number of tasks and messages in a run, with a message per iteration of multi-GPU jobs."""
    return sum(job.iterations * (2 * job.gpus + (job.gpus > 1)) for job in experiment.jobs)


def rules_of(policy: LinkPolicy) -> LinkRules:
    """Return the link and its policy in the kernel's form."""
    return LinkRules(
        latency=float(policy.link.latency_seconds),
        per_byte=float(policy.link.seconds_per_byte),
        contention=float(policy.link.contention_seconds_per_byte),
        max_at_once=policy.max_at_once,
        threshold=float(policy.threshold),
        rule=_RULES[policy.rule],
        preempts=policy.preempts,
        bucket_bytes=float(policy.bucket_bytes),
        max_wait=float(policy.max_wait_seconds),
        is_strict=policy.is_strict,
    )


def state_of(experiment: Experiment, rules: LinkRules, *, as_arrays: bool) -> State:
    """Return the initial state: lists for plain Python, arrays for the compiled kernel."""
    jobs, cluster = experiment.jobs, experiment.cluster
    count, gpus, servers = len(jobs), cluster.gpus, cluster.servers
    first_slot = [0]
    for job in jobs:
        first_slot.append(first_slot[-1] + job.gpus)
    slots = first_slot[-1]
    job_of = [index for index, job in enumerate(jobs) for _ in range(job.gpus)]
    state = State(
        now=[0.0],
        counter=[0] * COUNTERS,
        first_slot=first_slot,
        forward=[float(job.forward_seconds) for job in jobs],
        backward=[float(job.backward_seconds) for job in jobs],
        message_bytes=[float(job.message_bytes) for job in jobs],
        buckets=[max(1, math.ceil(job.message_bytes / rules.bucket_bytes)) for job in jobs],
        weight=[float(job.weight) for job in jobs],
        servers=[0] * count,
        iterations_left=[job.iterations for job in jobs],
        forward_left=[job.iterations * job.gpus for job in jobs],
        backward_left=[job.iterations * job.gpus for job in jobs],
        at_barrier=[0] * count,
        finished_at=[math.nan] * count,
        status=[0] * count,
        buckets_left=[0] * count,
        sent_bytes=[0.0] * count,
        bucket_bytes=[0.0] * count,
        bytes_left=[0.0] * count,
        latency_left=[0.0] * count,
        updated_at=[0.0] * count,
        ready_at=[0.0] * count,
        started_at=[0.0] * count,
        crowd=[0] * count,
        slack=[math.inf] * count,
        refused_by=[-1] * count,
        next_watcher=[-1] * count,
        first_below=[-1] * count,
        least_bytes=[0.0] * count,
        fresh=[0] * count,
        finished=[0] * count,
        order=[0] * count,
        key=[0.0] * count,
        seen=[0] * count,
        gpu_of=[-1] * slots,
        job_of=job_of,
        stage=[0] * slots,
        next_ready=[-1] * slots,
        server_at=[-1] * slots,
        ready_head=[-1] * gpus,
        running=[-1] * gpus,
        busy_seconds=[0.0] * gpus,
        idle=[0] * gpus,
        is_idle_listed=[0] * gpus,
        load=[0] * servers,
        in_flight=[-1] * (servers * rules.max_at_once),
        watchers=[-1] * servers,
        waiting=[0] * servers,
        touched=[0] * servers,
        is_touched=[0] * servers,
        reserved=[0] * servers,
        where=[-1] * (gpus + count),
        heap=[0] * (gpus + count),
        when=[0.0] * (gpus + count),
    )
    if not as_arrays:
        return state
    columns: list[Any] = [np.array(column) for column in state]
    return State(*columns)


def _run(experiment: Experiment, rules: LinkRules, s: State, run: Any) -> NetworkOutcome:
    """Alternate between the kernel and the placement until every job has finished."""
    jobs = experiment.jobs
    floor = GpuPool(experiment, rules, s)
    arrivals = sorted(range(len(jobs)), key=lambda job: (jobs[job].arrived_at_seconds, job))
    arrivals.reverse()
    queue: list[tuple[float, int]] = []
    placed_at = np.full(len(jobs), math.nan)
    placement: list[tuple[int, ...]] = [()] * len(jobs)
    left = len(jobs)
    while left > 0:
        run(rules, s, jobs[arrivals[-1]].arrived_at_seconds if arrivals else math.inf)
        now = float(s.now[0])
        floor.new_instant()
        finished = int(s.counter[FINISHED])
        for job in list(s.finished[:finished]):
            floor.release(int(job))
        s.counter[FINISHED] = 0
        left -= finished
        limit = now + kernel.ROUNDING * max(1.0, now)
        tried: list[tuple[float, int]] = []
        while arrivals and jobs[arrivals[-1]].arrived_at_seconds <= limit:
            job = arrivals.pop()
            tried.append((jobs[job].compute_service_seconds, job))
        if finished:
            # Jobs that were refused before can only fit after a job has left.
            tried, queue = queue + tried, []
        for service, job in sorted(tried):
            gpus = floor.place(job)
            if gpus is None:
                insort(queue, (service, job))
                continue
            placed_at[job] = now
            placement[job] = tuple(gpus.tolist())
            _put(s, job, placement[job], experiment.cluster.gpus_per_server)
        if queue and len(queue) == left and not arrivals:
            raise InvalidProblem(f"job {jobs[queue[0][1]].id!r} does not fit on the empty cluster")
    return NetworkOutcome(
        ids=tuple(job.id for job in jobs),
        arrived_at=np.array([job.arrived_at_seconds for job in jobs], dtype=float),
        placed_at=placed_at,
        finished_at=np.array(s.finished_at, dtype=float),
        placement=tuple(placement),
        busy_seconds=np.array(s.busy_seconds, dtype=float),
        least_slack_seconds=float(min(s.slack)),
        events=int(s.counter[EVENTS]),
    )


def _put(s: State, job: int, gpus: tuple[int, ...], gpus_per_server: int) -> None:
    """Put a job on its GPUs, and make its first forward tasks ready."""
    first = s.first_slot[job]
    servers = sorted({gpu // gpus_per_server for gpu in gpus})
    s.servers[job] = len(servers)
    for offset, server in enumerate(servers):
        s.server_at[first + offset] = server
    for offset, gpu in enumerate(gpus):
        s.gpu_of[first + offset] = gpu
    kernel.begin_iteration(s, job)
