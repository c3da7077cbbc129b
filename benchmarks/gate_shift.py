"""Start-time shift on real traffic: three alike jobs on one link, each sending a quarter of the time."""

from __future__ import annotations

from typing import Any

import numpy as np

from boa_daemon.gate.hosts import Crew, Hosts, run_jobs, start_crews
from boa_daemon.gate.runs import NO_GATE, a_gate
from policies.links.contention import Link

POLICIES = (NO_GATE, "shift", "srsf-1")
LINK = Link(latency_seconds=2e-3, seconds_per_byte=4.14e-8, contention_seconds_per_byte=0.0)
SETTLED = 15
"""Iterations at the end of a run that count: by then periods are measured and phases set."""


def measure_shift(repetitions: int, *, megabits: float) -> dict[str, Any]:
    """Return the mean iteration by policy and repetition, beside that of a job alone."""
    job = {"message_bytes": 1_100_000, "forward_seconds": 0.06, "backward_seconds": 0.09, "iterations": 45}
    rows = []
    with Hosts(2, megabits=megabits) as hosts:
        crews = start_crews(hosts, [(0, 1)] * 3)
        try:
            alone = _settled(run_jobs(crews[:1], [{**job, "job": "j0", "iterations": 20}]))
            for seed in range(1, repetitions + 1):
                starts = np.random.default_rng(seed).uniform(0.0, 0.2, 3)
                jobs = [
                    {**job, "job": f"j{n}", "arrived_at_seconds": float(at)} for n, at in enumerate(starts)
                ]
                rows.append({policy: _run(crews, policy, jobs) for policy in POLICIES})
        finally:
            for crew in crews:
                crew.stop()
    return {"alone_seconds": alone, "repetitions": rows}


def _run(crews: list[Crew], policy: str, jobs: list[dict[str, Any]]) -> float:
    """Return the mean iteration of all jobs once they have settled."""
    if policy == NO_GATE:
        return _settled(run_jobs(crews, jobs))
    with a_gate(policy, LINK, jobs, bucket_bytes=1e12) as addresses:
        gated = [{**job, "gate": address} for job, address in zip(jobs, addresses, strict=True)]
        return _settled(run_jobs(crews, gated))


def _settled(answers: list[dict[str, Any]]) -> float:
    """Return the mean of the last iterations, of those before the first job ends."""
    return float(np.mean([np.mean(answer["iteration_seconds"][-SETTLED - 2 : -2]) for answer in answers]))
