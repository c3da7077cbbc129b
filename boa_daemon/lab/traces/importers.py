"""The table of histories that are read: each kind with its reader, its options, and its row of the page.

A new kind is a module and an entry in `HISTORIES`; the choices of the command line, the reference page and
the tests come from there.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.lab.traces.acme import import_acme
from boa_daemon.lab.traces.aws_batch import import_aws_batch
from boa_daemon.lab.traces.gavel import import_gavel
from boa_daemon.lab.traces.grid_engine import import_grid_engine
from boa_daemon.lab.traces.helios import import_helios
from boa_daemon.lab.traces.htcondor import import_htcondor
from boa_daemon.lab.traces.itp import import_itp
from boa_daemon.lab.traces.kubernetes import import_kubernetes
from boa_daemon.lab.traces.lsf import import_lsf
from boa_daemon.lab.traces.openb import import_openb
from boa_daemon.lab.traces.pai import import_pai
from boa_daemon.lab.traces.pbs import import_pbs
from boa_daemon.lab.traces.philly import import_philly
from boa_daemon.lab.traces.pollux import import_pollux
from boa_daemon.lab.traces.ray_jobs import import_ray
from boa_daemon.lab.traces.sacct import import_sacct
from boa_daemon.lab.traces.shockwave import import_shockwave
from boa_daemon.lab.traces.sia import import_sia
from boa_daemon.lab.traces.swf import import_swf
from boa_daemon.lab.traces.wandb_runs import import_wandb
from boa_daemon.text_files import regular_file
from boa_daemon.traces.workload import Options, Workload
from policies import plugins

Importer: TypeAlias = Callable[[Path, Options], Workload]

_DRAWN = frozenset({"profiles", "seed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A kind of history: its importer, the options that not all kinds accept, and its row of the page.

    `file` to `left_out` are the cells of its row in ``docs/reference/imports.md``. `example` is a file or a
    folder of the tests, or empty.
    """

    importer: Importer
    file: str
    columns: str
    job: str
    size: str
    left_out: str = ""
    accepts: frozenset[str] = frozenset()
    example: str = ""


_PAI = History(
    importer=import_pai,
    file=(
        "Alibaba's PAI trace of 2020 (MLaaS in the wild): `pai_task_table.csv`, with `pai_job_table.csv` "
        "beside it"
    ),
    columns=(
        "`job_name`, `inst_num`, `status`, `start_time`, `end_time`, `plan_gpu`, `gpu_type`; of jobs "
        "`start_time`"
    ),
    job="the tasks of a job; its arrival is that of the table of jobs",
    size="instances × GPUs × run time, in [places](../how-to/import-a-trace.md#parts-of-gpus) for parts",
    left_out="jobs that run or wait, without GPUs, of several GPU types",
    accepts=_DRAWN,
    example="pai",
)

HISTORIES: Mapping[str, History] = {
    "sacct": History(
        importer=import_sacct,
        file=(
            "Slurm: `sacct -P` or `-p`, with its header; also tabs, or CSV with quoted cells; `sacct --json`"
        ),
        columns=(
            "`JobID`, `Submit`, `AllocTRES` or `ReqTRES`; `ElapsedRaw`, else `Elapsed`, else `Start` and "
            "`End`; `State`"
        ),
        job=(
            "a JobID, or a task of an array; `17+0`, `17+1` are one job; rows that follow each other in "
            "time are attempts"
        ),
        size="GPUs × elapsed, whatever the state",
        left_out=(
            "steps, jobs that run or wait, without GPUs, on shares of GPUs (mps) or slices (MIG), of several "
            "GPU types"
        ),
        accepts=_DRAWN | {"time_zone"},
        example="sacct/sacct.txt",
    ),
    "pbs": History(
        importer=import_pbs,
        file="OpenPBS, PBS Professional, Torque: a file of `server_priv/accounting`, or the folder",
        columns=(
            "E and R records: `ctime`, `start`, `end`; `exec_vnode`, `exec_gpus`, else `Resource_List`'s "
            "`ngpus`, `select`, `nodes`; `gpu_type`"
        ),
        job="a job, or a task of an array; its records are attempts",
        size="GPUs × the time from `start` to `end`, whatever the exit status",
        left_out="jobs that still run, without GPUs, of several GPU types; parents of arrays",
        accepts=_DRAWN,
        example="pbs/20250416",
    ),
    "lsf": History(
        importer=import_lsf,
        file="IBM Spectrum LSF: `lsb.acct`, or the folder with `lsb.acct.1` and so on",
        columns=(
            "`JOB_FINISH` records: times of submission, start and event; hosts; `ngpus_physical` in the "
            "effective resource requirement"
        ),
        job="a job, or an element of an array; its records are attempts",
        size="GPUs per host × hosts × run time, whatever the status",
        left_out="other records, jobs without GPUs, that never ran",
        accepts=_DRAWN,
        example="lsf/lsb.acct",
    ),
    "grid-engine": History(
        importer=import_grid_engine,
        file="Grid Engine (SGE, Univa, Altair): `accounting`, or what `qacct -j` prints",
        columns="submission, start and end time; `-l gpu=N` of the category, or of the command",
        job="a job, or a task of an array; its records are attempts",
        size="GPUs of the request × the time from start to end",
        left_out="tasks of parallel jobs, jobs without GPUs, that never ran",
        accepts=_DRAWN | {"time_zone"},
        example="grid-engine/accounting",
    ),
    "htcondor": History(
        importer=import_htcondor,
        file="HTCondor: `condor_history -json`, `-jsonl` or `-long`, or the history file",
        columns=(
            "`ClusterId`, `ProcId`, `JobStatus`, `QDate`, `RemoteWallClockTime`; `GPUsProvisioned`, "
            "`AssignedGPUs`, else `RequestGPUs`"
        ),
        job="a `ClusterId.ProcId`",
        size="GPUs × `RemoteWallClockTime`, also of removed jobs",
        left_out="jobs that run, wait or are held, without GPUs",
        accepts=_DRAWN,
        example="htcondor/history.json",
    ),
    "swf": History(
        importer=import_swf,
        file="the Standard Workload Format of the Parallel Workloads Archive (`.swf`), or `.gwf`",
        columns="job, submission, wait, run time, processors given or else asked for, status",
        job="a line; each processor counts as a GPU",
        size="processors × run time, whatever the status",
        left_out="bursts of a job (status 2 to 4), jobs that never ran",
        accepts=_DRAWN,
        example="swf/example.swf",
    ),
    "kubernetes": History(
        importer=import_kubernetes,
        file=(
            "`kubectl get jobs -A -o json` or `-o yaml`, or `get pods`; Job, JobSet, Volcano's Job, Kueue's "
            "Workload, PyTorchJob and its like, Pod"
        ),
        columns=(
            "pods' `resources` (`nvidia.com/gpu`, `amd.com/gpu`), `parallelism`, replicas; "
            "`creationTimestamp`, `startTime`, `completionTime`, conditions; node selector"
        ),
        job="a job; or the pods of one owner, at their widest",
        size="GPUs × run time, also of failed jobs",
        left_out=(
            "jobs that run or wait, on slices of GPUs (MIG) or claimed devices (DRA), of several GPU types; "
            "pods of a job in the file"
        ),
        accepts=_DRAWN | {"time_zone"},
        example="kubernetes/jobs.json",
    ),
    "aws-batch": History(
        importer=import_aws_batch,
        file="`aws batch describe-jobs`, one answer or several",
        columns=(
            "`jobId`, `status`, `createdAt`, `startedAt`, `stoppedAt`, `attempts`; GPUs of containers on "
            "ECS and EKS; `nodeProperties`"
        ),
        job="a job, or a child of an array; a job of several nodes at all of them",
        size="GPUs × attempts",
        left_out="parents of arrays, nodes of jobs, jobs that run or wait",
        accepts=_DRAWN,
        example="aws-batch/jobs.json",
    ),
    "ray": History(
        importer=import_ray,
        file="Ray's `/api/jobs/`, `ray list jobs --format json`, or what `ray job list` prints",
        columns=(
            "`submission_id` or `job_id`, `status`, `start_time`, `end_time`; `metadata` `num_gpus`, "
            "`entrypoint_num_gpus`"
        ),
        job="a job",
        size="GPUs × run time; `--gpus N` for jobs that state none",
        left_out="jobs that run or wait",
        accepts=_DRAWN | {"gpus"},
        example="ray/jobs.json",
    ),
    "wandb": History(
        importer=import_wandb,
        file="Weights & Biases: a CSV export of a table of runs, or JSON of runs",
        columns="`ID` or `Name`, `State`, `Created`, `Runtime`; `GPU Count`, `GPU Type`",
        job="a run",
        size="GPUs × runtime; `--gpus N` for runs that state none",
        left_out="runs that run",
        accepts=_DRAWN | {"gpus", "time_zone"},
        example="wandb/runs.csv",
    ),
    "pai": _PAI,
    "mlaas": _PAI,
    "openb": History(
        importer=import_openb,
        file="Alibaba's openb trace of 2023: `openb_pod_list_*.csv`",
        columns=(
            "`name`, `num_gpu`, `gpu_milli`, `gpu_spec`, `pod_phase`, `creation_time`, `scheduled_time`, "
            "`deletion_time`"
        ),
        job="a pod",
        size=(
            "GPUs × the time from `scheduled_time` to `deletion_time`, in "
            "[places](../how-to/import-a-trace.md#parts-of-gpus) for parts"
        ),
        left_out="pods without GPUs, never scheduled, or deleted at the last instant of the trace",
        accepts=_DRAWN,
        example="openb/openb_pod_list_default.csv",
    ),
    "acme": History(
        importer=import_acme,
        file="Acme's `trace_seren.csv`, `trace_kalos.csv`",
        columns="`job_id`, `gpu_num`, `state`, `submit_time`, `duration`",
        job="a row, on A100",
        size="GPUs × duration, whatever the state",
        left_out="jobs that run or wait, without GPUs, without run time",
        accepts=_DRAWN | {"time_zone"},
        example="acme/trace_kalos.csv",
    ),
    "philly": History(
        importer=import_philly,
        file="Microsoft's `cluster_job_log` (JSON), or Pollux's extract (CSV)",
        columns="`jobid`, `submitted_time`, `attempts`; `timestamp`, `duration`, `num_gpus`",
        job="a job with its attempts",
        size="GPUs × attempts",
        left_out="without a finished attempt",
        accepts=_DRAWN,
        example="philly/philly-2017-09-10.csv",
    ),
    "helios": History(
        importer=import_helios,
        file="SenseTime's `cluster_log.csv`",
        columns="`job_id`, `gpu_num`, `submit_time`, `duration`",
        job="a row",
        size="GPUs × duration",
        left_out="without GPUs",
        accepts=_DRAWN,
    ),
    "itp": History(
        importer=import_itp,
        file="Microsoft's ITP, raw or with models",
        columns=(
            "`job_id`, `submission_time`, `duration`, `num_gpu`; `num_iteration`, `model_name`, `batch_size`"
        ),
        job="a row",
        size="GPUs × duration, or iterations",
        left_out="models without measurements",
        accepts=frozenset({"profiles"}),
        example="itp/raw",
    ),
    "pollux": History(
        importer=import_pollux,
        file="workloads and profiles of Pollux's artifact",
        columns="all",
        job="a row",
        size="epochs",
        left_out="other applications",
        accepts=frozenset({"apps"}),
        example="pollux",
    ),
    "sia": History(
        importer=import_sia,
        file="workloads and profiles of Sia's artifact",
        columns="all",
        job="a row",
        size="epochs",
        left_out="other applications",
        accepts=frozenset({"apps"}),
    ),
    "gavel": History(
        importer=import_gavel,
        file="Gavel's `.trace` files and throughputs",
        columns="kind, steps or seconds, arrival",
        job="a line",
        size="steps",
    ),
    "shockwave": History(
        importer=import_shockwave,
        file="Shockwave's `.trace` files, with Gavel's throughputs",
        columns="kind, steps or seconds, arrival",
        job="a line",
        size="steps",
        accepts=frozenset({"profiles"}),
        example="shockwave",
    ),
}
"""In the order in which people look for them."""

_PARTIAL = ("apps", "profiles", "seed", "time_zone", "gpus")


def import_source(name: str, source: Path, options: Options) -> Workload:
    """Return the workload of a public source.

    Raises:
        InputError: when a file is missing, damaged or ambiguous, or an option does not apply.
    """
    if name not in HISTORIES:
        return _of_plugin(name)(source, options)
    chosen = HISTORIES[name]
    for option in _PARTIAL:
        if getattr(options, option) is not None and option not in chosen.accepts:
            others = ", ".join(other for other, entry in HISTORIES.items() if option in entry.accepts)
            raise InputError(
                f"--{option.replace('_', '-')} does not apply to --from {name}", hint=f"It is for {others}"
            )
    if options.seed is not None and options.profiles is None:
        raise InputError("--seed draws from --profiles, which was not given")
    with many_objects(), regular_file(source) as path:
        return chosen.importer(path, options)


@contextmanager
def many_objects() -> Iterator[None]:
    """Rest the collector of cycles: a million rows have none, and it would scan them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def source_names() -> tuple[str, ...]:
    """Return the names of all sources, those of plug-ins last."""
    return (*HISTORIES, *plugins.names("boa.traces"))


def _of_plugin(name: str) -> Importer:
    """Return the importer of a plug-in.

    Raises:
        InputError: when no plug-in has that name.
    """
    found: Importer | None = plugins.load("boa.traces", name)
    if found is None:
        known = source_names()
        hint = did_you_mean(name, known) or f"Known: {', '.join(known)}"
        raise InputError(f"--from {name!r} is not a trace format", hint=hint)
    return found
