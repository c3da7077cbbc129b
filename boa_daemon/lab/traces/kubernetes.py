"""Kubernetes' jobs: ``kubectl get jobs -A -o json`` or yaml, or the pods, or jobs of operators for training.

A Job's width is the GPUs of a pod (limits, else requests) x the pods that run at once. It runs from its
`startTime` to its `completionTime`, or to the condition that failed it. Read are Job (batch/v1), Job of
Volcano, JobSet, Kueue's Workload, the operators' PyTorchJob, TFJob, MPIJob, XGBoostJob, PaddleJob and JAXJob,
and Pods.

Pods of one job (by their owner or label) are its attempts and its ranks: its width is the most GPUs that they
held at once, its work the sum of theirs. A pod whose job is in the file as well is not counted twice.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import Any

from boa_daemon.lab.traces.instants import zone_of
from boa_daemon.lab.traces.json_records import Record, read_records
from boa_daemon.lab.traces.rigid import GPU_TYPE, ON_SLICES, RigidJob, rigid_workload
from boa_daemon.lab.traces.source_files import pick_file
from boa_daemon.slurm.resources import SLICE
from boa_daemon.time_text import duration_seconds
from boa_daemon.traces.workload import Options, Workload

FILES = ("*jobs*.json", "*pods*.json", "*.json")
COMMAND = "kubectl get jobs --all-namespaces -o json > jobs.json"
_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
_ON_CLAIMS = "on devices that they claim (resourceClaims), whose number is not in the file"
_SLICES = re.compile(r"nvidia\.com/(mig-.*|gpu\.shared|vgpu.*)")
_TYPE_LABELS = (
    *("nvidia.com/gpu.product", "karpenter.k8s.aws/instance-gpu-name", "cloud.google.com/gke-accelerator"),
    *("k8s.amazonaws.com/accelerator", "gpu.nvidia.com/class", "amd.com/gpu.product-name", "accelerator"),
)
_OWNER_LABELS = (
    *("jobset.sigs.k8s.io/jobset-name", "training.kubeflow.org/job-name", "volcano.sh/job-name"),
    *("batch.kubernetes.io/job-name", "job-name", "ray.io/cluster", "leaderworkerset.sigs.k8s.io/name"),
)
_OPERATORS = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob")
_JOBS = ("Job", "JobSet", "Workload", *_OPERATORS)
_DONE = ("Finished", "Complete", "Completed", "Succeeded", "SuccessCriteriaMet", "Failed", "FailureTarget")
_PHASES_DONE = ("Completed", "Failed", "Aborted", "Terminated")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pods:
    """GPUs of some equal pods that run at once."""

    gpus: int
    gpu_type: str
    left_out: str = ""
    """Why its job cannot be counted."""


def import_kubernetes(source: Path, options: Options) -> Workload:
    """Return the workload of a cluster's jobs or pods.

    Raises:
        InputError: when the file is missing or damaged, naming the object.
    """
    path = pick_file(source, FILES, options.workload)
    dropped: Counter[str] = Counter()
    objects = list(read_records(path, ("items",), noun="item", hint=f"Write the file with {COMMAND}"))
    owned = {(_namespace(one), one.text("metadata", "name")) for one in objects if _kind(one) in _JOBS}
    jobs: list[RigidJob] = []
    pods: dict[tuple[str, str], list[Record]] = defaultdict(list)
    outcomes: Counter[str] = Counter()
    for one in objects:
        kind = _kind(one)
        if kind == "Pod":
            owner = (_namespace(one), _owner_of(one))
            if owner in owned:
                dropped["that are pods of a job in the file"] += 1
            else:
                pods[owner].append(one)
        elif kind not in _JOBS:
            dropped[f"that are of kind {kind}"] += 1
        elif _is_owned(one, owned):
            dropped["that are parts of a job in the file"] += 1
        else:
            jobs += _job(one, options, dropped, outcomes)
    for (namespace, name), group in pods.items():
        jobs += _of_pods(f"{namespace}/{name}", group, options, dropped)
    said = []
    if outcomes["Failed"]:
        said.append(f"{outcomes['Failed']} jobs failed: they count as they ran")
    return rigid_workload(f"Kubernetes {path.name}", jobs, options, path=path, dropped=dropped, said=said)


def _kind(one: Record) -> str:
    """Return the kind of an object; jobs are known by their fields where a list leaves their kind out."""
    kind = one.get("kind")
    if isinstance(kind, str) and kind:
        return kind
    if one.get("spec", "containers") is not None:
        return "Pod"
    return "Job"


def _namespace(one: Record) -> str:
    return str(one.get("metadata", "namespace") or "default")


def _owner_of(pod: Record) -> str:
    """Return the name of the job that a pod is of: its label, its owner, else itself."""
    labels = pod.get("metadata", "labels") or {}
    for label in _OWNER_LABELS:
        if isinstance(labels, Mapping) and labels.get(label):
            return str(labels[label])
    for owner in pod.objects("metadata", "ownerReferences"):
        return owner.text("name")
    return pod.text("metadata", "name")


def _is_owned(one: Record, owned: set[tuple[str, str]]) -> bool:
    """Return whether a job is part of another of the file, as the Jobs of a JobSet are."""
    return any(
        (_namespace(one), owner.text("name")) in owned for owner in one.objects("metadata", "ownerReferences")
    )


def _job(one: Record, options: Options, dropped: Counter[str], outcomes: Counter[str]) -> list[RigidJob]:
    """Return a job that has ended, or count why it is left out."""
    zone = zone_of(options.time_zone)
    groups = list(_groups(one))
    if left_out := next((group.left_out for group, _ in groups if group.left_out), ""):
        dropped[left_out] += 1
        return []
    gpus = sum(group.gpus * number for group, number in groups)
    ends = [
        (condition.seconds("lastTransitionTime", zone=zone), str(condition.get("type")))
        for condition in one.objects("status", "conditions")
        if condition.get("type") in _DONE and condition.get("status") in ("True", True, None)
    ]
    ended = one.seconds("status", "completionTime", zone=zone)
    if any(name in ("Failed", "FailureTarget") for _, name in ends) and gpus:
        outcomes["Failed"] += 1
    phase = one.get("status", "state", "phase") if isinstance(one.get("status", "state"), Mapping) else None
    if phase in _PHASES_DONE:
        ends.append((one.seconds("status", "state", "lastTransitionTime", zone=zone), str(phase)))
    ended = ended if ended is not None else min((at for at, _ in ends if at is not None), default=None)
    started = one.seconds("status", "startTime", zone=zone)
    created = one.seconds("metadata", "creationTimestamp", zone=zone)
    if created is None:
        raise one.refuse("metadata.creationTimestamp is missing")
    if started is None:
        started = _admitted(one, zone)
    if started is None and ended is not None and (ran := one.get("status", "runningDuration")):
        started = ended - _duration(one, ran)
    if started is None and (_kind(one) == "JobSet" or "volcano" in str(one.get("apiVersion"))):
        # Their status has no start, so the wait in the queue counts as run time.
        started = created
    if ended is None:
        dropped["that still run" if started is not None else "that still wait"] += 1
        return []
    types = {group.gpu_type for group, _ in groups if group.gpus}
    if len(types) > 1:
        dropped["of several GPU types"] += 1
        return []
    seconds = one.run(started, ended)
    return [
        RigidJob(
            id=f"{_namespace(one)}/{one.text('metadata', 'name')}",
            submitted_at_seconds=created,
            gpus=gpus,
            gpu_seconds=seconds * gpus,
            gpu_type=next(iter(types), GPU_TYPE),
        )
    ]


def _admitted(one: Record, zone: tzinfo) -> float | None:
    """Return when Kueue let a workload start; None for other objects, and for one that waits."""
    if _kind(one) != "Workload":
        return None
    return next(
        (
            condition.seconds("lastTransitionTime", zone=zone)
            for condition in one.objects("status", "conditions")
            if condition.get("type") == "Admitted" and condition.get("status") in ("True", True)
        ),
        None,
    )


def _duration(one: Record, text: object) -> float:
    """Return the seconds of Volcano's ``1h2m3s``."""
    try:
        return duration_seconds(str(text))
    except ValueError:
        raise one.refuse(f"status.runningDuration must be a run time; got {str(text)[:60]!r}") from None


def _groups(one: Record) -> Iterator[tuple[_Pods, int]]:
    """Yield (one pod's GPUs, number of pods at once) of the groups of equal pods of a job."""
    spec = one.get("spec") or {}
    for key in spec:
        if str(key).endswith("ReplicaSpecs") and isinstance(spec[key], Mapping):
            for role in spec[key]:
                at = ("spec", str(key), str(role))
                yield _pod(one, (*at, "template")), one.whole(*at, "replicas", default=1)
            return
    if one.get("spec", "replicatedJobs") is not None:
        for part in one.objects("spec", "replicatedJobs"):
            inner = ("template", "spec")
            number = part.whole("replicas", default=1) * _at_once(part, inner)
            yield _pod(part, (*inner, "template")), number
        return
    if one.get("spec", "podSets") is not None:
        for part in one.objects("spec", "podSets"):
            yield _pod(part, ("template",)), part.whole("count", default=1)
        return
    if one.get("spec", "tasks") is not None:
        for part in one.objects("spec", "tasks"):
            yield _pod(part, ("template",)), part.whole("replicas", default=1)
        return
    yield _pod(one, ("spec", "template")), _at_once(one, ("spec",))


def _at_once(one: Record, at: Sequence[str]) -> int:
    """Return the pods of a Job that run at once: its parallelism, no more than its completions."""
    parallel = one.whole(*at, "parallelism", default=1)
    return min(parallel, one.whole(*at, "completions", default=parallel))


def _pod(one: Record, at: Sequence[str]) -> _Pods:
    """Return the GPUs of a pod, by its template or itself."""
    gpus, left_out = 0, ""
    for container in one.objects(*at, "spec", "containers"):
        asked: dict[str, Any] = {}
        for key in ("requests", "limits"):
            found = container.get("resources", key) or {}
            if not isinstance(found, Mapping):
                raise one.refuse(f"resources.{key} of a container must be an object")
            asked |= found
        for name in asked:
            if name in _GPUS:
                gpus += Record(asked, one.path, one.where).whole(name, default=0)
            elif _SLICES.fullmatch(str(name)) and str(asked[name]) != "0":
                left_out = ON_SLICES
    if not gpus and not left_out and one.objects(*at, "spec", "resourceClaims"):
        left_out = _ON_CLAIMS
    return _Pods(gpus=gpus, gpu_type=_type_of(one, at), left_out=left_out)


def _type_of(one: Record, at: Sequence[str]) -> str:
    """Return the GPU type that a pod's node selector or affinity asks for; `GPU_TYPE` where none does."""
    chosen = one.get(*at, "spec", "nodeSelector") or {}
    for label in _TYPE_LABELS:
        if isinstance(chosen, Mapping) and chosen.get(label):
            return gpu_name(str(chosen[label]))
    affinity = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    for term in one.objects(*at, *affinity, "nodeSelectorTerms"):
        for wish in term.objects("matchExpressions"):
            values = wish.get("values") or []
            if wish.get("key") in _TYPE_LABELS and wish.get("operator") == "In" and len(values) == 1:
                return gpu_name(str(values[0]))
    return GPU_TYPE


def gpu_name(label: str) -> str:
    """Return the short name of a GPU from a label: ``a100`` for ``NVIDIA-A100-SXM4-40GB``.

    The label of a slice of a GPU is left whole.
    """
    if SLICE.search(label):
        return label.strip().lower()
    name = re.sub(r"^(nvidia|amd|tesla)[-_ ]+", "", label.strip().lower())
    name = re.sub(r"^(nvidia|amd|tesla)[-_ ]+", "", name)
    return (
        re.sub(r"[-_ ](sxm\d?|pcie|nvl|hbm\d?e?|\d+gb?|pg\d+)\b.*$", "", name).replace(" ", "-") or GPU_TYPE
    )


def _of_pods(name: str, pods: Sequence[Record], options: Options, dropped: Counter[str]) -> list[RigidJob]:
    """Return the job of some pods that have all ended, or count why it is left out."""
    zone = zone_of(options.time_zone)
    spans: list[tuple[float, float, int]] = []
    types: set[str] = set()
    created: list[float] = []
    for pod in pods:
        one = _pod(pod, ())
        if one.left_out:
            dropped[one.left_out] += 1
            return []
        at = pod.seconds("metadata", "creationTimestamp", zone=zone)
        if at is None:
            raise pod.refuse("metadata.creationTimestamp is missing")
        created.append(at)
        if str(pod.get("status", "phase")) not in ("Succeeded", "Failed"):
            dropped["that still run or wait"] += 1
            return []
        states = [
            (
                each.seconds("state", "terminated", "startedAt", zone=zone),
                each.seconds("state", "terminated", "finishedAt", zone=zone),
            )
            for each in pod.objects("status", "containerStatuses")
        ]
        starts = [start for start, _ in states if start is not None]
        ends = [end for _, end in states if end is not None]
        if one.gpus:
            types.add(one.gpu_type)
            if starts and ends:
                start = pod.seconds("status", "startTime", zone=zone) or min(starts)
                pod.run(start, max(ends))
                spans.append((start, max(ends), one.gpus))
    if len(types) > 1:
        dropped["of several GPU types"] += 1
        return []
    widest = sum(_pod(pod, ()).gpus for pod in pods) if not spans else most_at_once(spans)
    return [
        RigidJob(
            id=name,
            submitted_at_seconds=min(created),
            gpus=widest,
            gpu_seconds=sum((end - start) * gpus for start, end, gpus in spans),
            gpu_type=next(iter(types), GPU_TYPE),
        )
    ]


def most_at_once(spans: Sequence[tuple[float, float, int]]) -> int:
    """Return the most GPUs that spans of (start, end, GPUs) hold at once; ends come before starts."""
    changes = sorted(change for start, end, gpus in spans for change in ((start, 1, gpus), (end, 0, -gpus)))
    held = most = 0
    for _, _, change in changes:
        held += change
        most = max(most, held)
    return most or max(gpus for _, _, gpus in spans)
