"""Reads and checks network case files, which describe an `Experiment`.

The format is in docs/reference/network.md. An error is one sentence with the file and, if known, the line.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from boa_daemon.errors import did_you_mean
from boa_daemon.inputs.document_file import Document, read_document
from boa_daemon.inputs.schema import Name, NotNegative, Positive, Strict, checked
from boa_daemon.lab.network.model import Cluster, Experiment, NetworkJob
from policies.links.ada_srsf import DEFAULT_LINK_POLICY, STRICT_LINK_POLICIES, link_policy
from policies.links.contention import Link

MOST_GPUS = 1_000_000
"""Limit of the cluster's size, so that a typo does not allocate a terabyte of state."""

Whole = Annotated[int, Field(ge=1, le=MOST_GPUS)]
LinkPolicyName = Literal[
    "srsf-1",
    "srsf-2",
    "srsf-3",
    "ada-srsf",
    "ada-srsf-weighted",
    "ada-srsf-queue",
    "ada-srsf-buckets",
    "srsf-preemptive",
]


class LinkEntry(Strict):
    """The constants of every server's network card."""

    latency_seconds: NotNegative
    seconds_per_byte: Positive
    contention_seconds_per_byte: NotNegative


class JobEntry(Strict):
    """One training job."""

    id: Name
    gpus: Whole
    iterations: Annotated[int, Field(ge=1, le=10**9)]
    forward_seconds: NotNegative
    backward_seconds: NotNegative
    message_bytes: NotNegative
    memory_bytes: NotNegative = 0.0
    arrived_at_seconds: NotNegative = 0.0
    weight: Positive = 1.0


class CaseEntry(Strict):
    """A whole case."""

    servers: Whole
    gpus_per_server: Whole
    gpu_memory_bytes: Positive
    shared_gpus: bool = True
    link: LinkEntry
    placer: Literal["random", "first-fit", "list-scheduling", "lwf"] = "lwf"
    kappa: Annotated[int, Field(ge=0)] = 1
    seed: Annotated[int, Field(ge=0)] = 0
    link_policy: LinkPolicyName = DEFAULT_LINK_POLICY  # type: ignore[assignment]  # a member, by test
    threshold: NotNegative | None = None
    bucket_bytes: Positive | None = None
    max_wait_seconds: NotNegative | None = None
    strict: bool = False
    jobs: Annotated[list[JobEntry], Field(min_length=1)]
    placement: dict[str, list[list[int]]] = Field(default_factory=dict)


def read_case(path: str | Path, *, strict: bool = False) -> Experiment:
    """Return the experiment that a case file describes; `strict` is as if the case said so.

    Raises:
        InputError: when the file cannot be read, is not JSON, or describes something impossible.
    """
    document = read_document(path)
    case = checked(CaseEntry, document.content, document=document)
    cluster = Cluster(
        servers=case.servers,
        gpus_per_server=case.gpus_per_server,
        gpu_memory_bytes=case.gpu_memory_bytes,
        shared_gpus=case.shared_gpus,
    )
    _check_cluster(case, cluster, document)
    strict = strict or case.strict
    if strict and case.link_policy not in STRICT_LINK_POLICIES:
        raise document.error(
            f"link_policy {case.link_policy!r} has no strict reading",
            at=("link_policy",),
            hint=f"Choose one of {', '.join(STRICT_LINK_POLICIES)}, or leave strict out",
        )
    return Experiment(
        cluster=cluster,
        jobs=tuple(NetworkJob(**job.model_dump()) for job in case.jobs),
        link_policy=link_policy(
            case.link_policy,
            Link(**case.link.model_dump()),
            threshold=case.threshold,
            bucket_bytes=case.bucket_bytes,
            max_wait_seconds=float("inf") if case.max_wait_seconds is None else case.max_wait_seconds,
            is_strict=strict,
        ),
        placer=case.placer,
        kappa=case.kappa,
        seed=case.seed,
        pinned=MappingProxyType(_pinned(case, cluster, document)),
    )


def _check_cluster(case: CaseEntry, cluster: Cluster, document: Document) -> None:
    """Raise `InputError` unless every job has its own id and fits on the empty cluster."""
    if cluster.gpus > MOST_GPUS:
        raise document.error(f"{cluster.gpus} GPUs are too many; at most {MOST_GPUS}", at=("servers",))
    seen: set[str] = set()
    for number, job in enumerate(case.jobs):
        if job.id in seen:
            raise document.error(f"two jobs have the id {job.id!r}", at=("jobs", number, "id"))
        seen.add(job.id)
        if job.gpus > cluster.gpus:
            raise document.error(
                f"job {job.id!r} asks for {job.gpus} GPUs; the cluster has {cluster.gpus}",
                at=("jobs", number, "gpus"),
                hint="Ask for fewer, or add servers",
            )
        if job.memory_bytes > cluster.gpu_memory_bytes:
            raise document.error(
                f"job {job.id!r} needs {job.memory_bytes:g} bytes on each GPU; "
                f"a GPU has {cluster.gpu_memory_bytes:g}",
                at=("jobs", number, "memory_bytes"),
            )


def _pinned(case: CaseEntry, cluster: Cluster, document: Document) -> dict[int, tuple[int, ...]]:
    """Return the GPUs of each pinned job; check that they exist and hold all jobs pinned to them."""
    index = {job.id: number for number, job in enumerate(case.jobs)}
    pinned: dict[int, tuple[int, ...]] = {}
    memory: Counter[int] = Counter()
    holders: dict[int, str] = {}
    for name, workers in case.placement.items():
        if name not in index:
            raise document.error(
                f"placement names a job {name!r} that is not in jobs",
                at=("placement", name),
                hint=did_you_mean(name, index),
            )
        job = case.jobs[index[name]]
        if len(workers) != job.gpus:
            raise document.error(
                f"placement of job {name!r} lists {len(workers)} workers; the job has {job.gpus}",
                at=("placement", name),
            )
        gpus = [_gpu(worker, name, cluster, document) for worker in workers]
        for gpu in gpus:
            where = f"server {gpu // cluster.gpus_per_server}, GPU {gpu % cluster.gpus_per_server}"
            if not cluster.shared_gpus and gpu in holders:
                raise document.error(
                    f"placement puts jobs {holders[gpu]!r} and {name!r} on {where}, but GPUs are not shared"
                    if holders[gpu] != name
                    else f"placement puts two workers of job {name!r} on {where}, but GPUs are not shared",
                    at=("placement", name),
                    hint="Pin them apart, or set shared_gpus to true",
                )
            holders[gpu] = name
            memory[gpu] += job.memory_bytes  # type: ignore[assignment]  # a Counter adds floats as well
            if memory[gpu] > cluster.gpu_memory_bytes:
                raise document.error(
                    f"placement puts {memory[gpu]:g} bytes on {where}; it has {cluster.gpu_memory_bytes:g}",
                    at=("placement", name),
                    hint=f"Pin job {name!r} elsewhere",
                )
        pinned[index[name]] = tuple(gpus)
    return pinned


def _gpu(worker: list[int], job: str, cluster: Cluster, document: Document) -> int:
    """Return the GPU that a pair [server, gpu] names."""
    if len(worker) != 2:
        raise document.error(
            f"placement of job {job!r}: a worker is a pair [server, gpu]; got {worker}", at=("placement", job)
        )
    server, gpu = worker
    if not 0 <= server < cluster.servers:
        raise document.error(
            f"placement of job {job!r} names server {server}; servers are 0 to {cluster.servers - 1}",
            at=("placement", job),
        )
    if not 0 <= gpu < cluster.gpus_per_server:
        raise document.error(
            f"placement of job {job!r} names GPU {gpu} of server {server}; "
            f"GPUs are 0 to {cluster.gpus_per_server - 1}",
            at=("placement", job),
        )
    return server * cluster.gpus_per_server + gpu
