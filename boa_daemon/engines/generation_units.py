"""Builds the units of a generation, with their names, folders and environment."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import Path

from boa_daemon.engines.accounts import UnixAccount
from boa_daemon.engines.command_scripts import ended_container, with_inputs, with_setup, workdir_of
from boa_daemon.engines.layout import OWN, Layout, UnitScripts
from boa_daemon.job.failures import ERROR_FILE, FILE_NAME
from boa_daemon.job.gpu_memory import VARIABLE
from boa_daemon.job.logs import RANK_FILES, RANK_MARK
from boa_daemon.job.unit import SCRATCH, Unit
from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.tick.facts.job_spec import JobSpec
from boa_daemon.units import GPU_MEMORY_FOR_JOBS_FRACTION
from policies.model import JobId, NodeId

RIGID = (
    "this job runs at one width, because it has reported no step and written no checkpoint: what it does is "
    "lost when it is stopped. To make it elastic, save and report with boa_daemon.job "
    "(docs/how-to/write-a-job.md), or say `elastic: true` in its file if it does so by itself; `min_gpus` "
    "sets its width."
)
"""Note in a rigid job's log, in `boa explain` and in `boa submit --check`."""


def readable(job: JobId) -> str:
    """Return a job's id with characters replaced that systemd forbids in a name; at most 64 characters."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", job)[:64]


def unit_name(layout: Layout, job: JobId, number: int, rank: int) -> str:
    """Return a unit's name: a valid systemd name, different for every root, job, generation and node."""
    digest = hashlib.sha256(f"{layout.root}\0{job}".encode()).hexdigest()[:8]
    return f"boa-{readable(job)}-{digest}-g{number}-n{rank}"


def units_of(
    spec: JobSpec,
    action: StartJob,
    layout: Layout,
    *,
    addresses: Mapping[NodeId, str],
    port: int,
    errands: UnitScripts | None = None,
    code_at: str = "",
    account: UnixAccount | None = None,
    secrets_file: str = "",
) -> tuple[Unit, ...]:
    """Return the units of a generation, one per node, in the order of the slots; the first is the leader.

    `addresses` are the nodes' addresses for each other; `port` on the leader is the rendezvous. `code_at` is
    the archive of the job's code. `account` is the user of the units, None for the keeper's. `secrets_file`
    is the daemon's secret store.
    """
    errands = errands or UnitScripts()
    indices: dict[NodeId, list[int]] = {}
    for slot in action.slots:
        indices.setdefault(slot.node, []).append(slot.index)
    leader = addresses[next(iter(indices))]
    folder = layout.generation(spec.job, action.generation)
    common = {
        "BOA_JOB_ID": spec.job,
        "BOA_GENERATION": str(action.generation),
        "BOA_GPUS": str(len(action.slots)),
        "BOA_NODES": str(len(indices)),
        "BOA_CHECKPOINT_DIR": str(layout.checkpoints(spec.job)),
        "BOA_PROGRESS_FILE": str(folder / OWN / "progress.json"),
        "BOA_GATE": str(folder / "gate.json"),
        "BOA_WEIGHT": f"{spec.weight:g}",
        "BOA_KEEP_CHECKPOINTS": str(spec.keep_checkpoints),
        **_part_of_memory(action.places_per_gpu),
        **_rendezvous(spec.job, action.generation, f"{leader}:{port}", len(indices)),
        "PET_SHUTDOWN_TIMEOUT": str(math.ceil(spec.stop_grace_seconds)),
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(math.ceil(spec.stop_grace_seconds)),
    }
    return tuple(
        Unit(
            name=unit_name(layout, spec.job, action.generation, rank),
            job=spec.job,
            generation=action.generation,
            rank=rank,
            run=with_setup(spec, (layout.job if account is None else layout.home)(spec.job)),
            folder=layout.unit(spec.job, action.generation, rank),
            workdir=workdir_of(spec, layout),
            progress_file=common["BOA_PROGRESS_FILE"],
            checkpoint_dir=common["BOA_CHECKPOINT_DIR"],
            # The job file's variables come first, so that they cannot override BOA's.
            environment={
                **({} if account is None else account.environment),
                **spec.environment,
                **common,
                **_data_dir(spec, layout.unit(spec.job, action.generation, rank)),
                "BOA_SCRATCH": str(folder / OWN / f"n{rank}" / SCRATCH),
                "BOA_UNIT": unit_name(layout, spec.job, action.generation, rank),
                "BOA_NODE_ID": node,
                "BOA_NODE_RANK": str(rank),
                "BOA_GPUS_PER_NODE": str(len(gpus)),
                "PET_NPROC_PER_NODE": str(len(gpus)),
                "PET_LOCAL_ADDR": addresses[node],
                "PET_NODE_RANK": str(rank),
                **_rank_logs(folder / OWN / f"n{rank}", len(action.slots)),
                "CUDA_VISIBLE_DEVICES": ",".join(map(str, sorted(gpus))),
            },
            **spec.options,
            grace_seconds=spec.stop_grace_seconds,
            log_bytes=spec.log_bytes,
            bring=with_inputs(
                spec, layout, errands, layout.unit(spec.job, action.generation, rank), code_at=code_at
            ).bring,
            before=errands.before,
            beat=errands.beat,
            after=ended_container(unit_name(layout, spec.job, action.generation, rank), spec, errands.after),
            beat_seconds=errands.beat_seconds,
            keep=errands.keep,
            look=errands.look,
            mounts=str(layout.work(spec.job)) if spec.code else "",
            artifacts_dir=str(layout.artifacts(spec.job)),
            note=RIGID if spec.is_rigid and rank == 0 else "",
            **({} if account is None else account.of_unit),
            secrets_file=secrets_file if spec.secrets else "",
            data_cache=str(layout.data) if spec.data else "",
        )
        for rank, (node, gpus) in enumerate(indices.items())
    )


def _data_dir(spec: JobSpec, folder: Path) -> dict[str, str]:
    return {"BOA_DATA_DIR": str(folder / "data")} if spec.data else {}


def _part_of_memory(places: int) -> dict[str, str]:
    """Return the variables that limit a process to its share of a GPU's memory; empty for a whole GPU."""
    if places == 1:
        return {}
    part = f"{GPU_MEMORY_FOR_JOBS_FRACTION / places:.4g}"
    return {VARIABLE: part, "XLA_PYTHON_CLIENT_MEM_FRACTION": part}


def _rendezvous(job: JobId, generation: int, endpoint: str, nodes: int) -> dict[str, str]:
    """Return the variables that torchrun reads, so that a plain `torchrun train.py` finds its peers.

    torchrun does not restart workers: the width and every restart are the daemon's decision. The rendezvous
    id contains the generation, so that an agent left over from an older one joins nobody. `PET_LOCAL_ADDR`
    avoids names that do not resolve. The rendezvous is static, so ranks follow the order of the nodes in the
    generation; c10d would sort nodes by their addresses as text.
    """
    address, _, port = endpoint.rpartition(":")
    return {
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ENDPOINT": endpoint,
        "PET_RDZV_ID": f"{job}-g{generation}",
        "PET_NNODES": str(nodes),
        "PET_MAX_RESTARTS": "0",
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }


def _rank_logs(folder: Path, gpus: int) -> dict[str, str]:
    """Return the variables that make torchrun prefix each line with its rank, and name the error file."""
    errors = {ERROR_FILE: str(folder / FILE_NAME)}
    if gpus == 1:
        return errors
    marked = {
        "PET_TEE": "3",
        "PET_LOG_DIR": str(folder / RANK_FILES),
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": RANK_MARK,
    }
    return errors | marked
