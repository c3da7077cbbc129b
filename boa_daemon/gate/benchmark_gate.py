"""A gate for jobs on virtual hosts, with a token for each job; for `boa demo --gate` and the benchmarks."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from boa_daemon.gate.thread import GateThread
from boa_daemon.gate.types import GateSettings
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.token import issue_token
from policies.links.ada_srsf import DEFAULT_LINK_POLICY
from policies.links.contention import Link

SECRET = "benchmark"
ANSWER_MS = 20
"""How long jobs wait for the gate; two cores run everything here, so the usual 5 ms would be too short."""
NO_GATE = "no gate"
DEFAULT = "default"
"""The daemon's settings: buckets that fill idle cards, only on cards where ordering pays."""


@contextlib.contextmanager
def open_benchmark_gate(
    policy: str, link: Link, jobs: list[dict[str, Any]], *, bucket_bytes: float
) -> Iterator[list[str]]:
    """Run a gate that orders all messages, or one with the daemon's settings; yield each job's BOA_GATE."""
    is_default = policy == DEFAULT
    settings = GateSettings(
        policy=DEFAULT_LINK_POLICY if is_default else policy,
        link=link,
        bucket_bytes=bucket_bytes,
        is_always_on=not is_default,
        fills_idle_cards=is_default,
        patience_seconds=60.0,
    )
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = f"{folder}/gate.sock"
        gate = stack.enter_context(GateThread(settings, SECRET, GateAddress(path=path)))
        # Like the daemon's plan: the gate uses it until a job has measured an iteration.
        gate.take_plan({job["job"]: _planned_gpu_seconds(job, link) for job in jobs})
        addresses = []
        for job in jobs:
            token = Path(folder, f"{job['job']}.token")
            token.write_text(issue_token(SECRET, job=job["job"]), encoding="utf-8")
            address = GateAddress(
                path=path,
                token_file=str(token),
                answer_seconds=ANSWER_MS / 1e3,
                uplinks=tuple(job.get("uplinks", ())),
            )
            addresses.append(str(address))
        yield addresses


def _planned_gpu_seconds(job: dict[str, Any], link: Link) -> float:
    """Return the GPU-seconds of a whole job with two ranks."""
    iteration = job["forward_seconds"] + job["backward_seconds"] + link.seconds(job["message_bytes"])
    return float(2.0 * job["iterations"] * iteration)
