"""Every history of the table: what the example of its kind adds up to by hand, and what damaged files say."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import BoaError, InputError
from boa_daemon.inputs import tables
from boa_daemon.lab.traces.importers import HISTORIES, import_source
from boa_daemon.lab.traces.kubernetes import gpu_name, most_at_once
from boa_daemon.traces.reader import read_trace
from boa_daemon.traces.workload import Options, Workload
from boa_daemon.traces.writer import write_workload

Write = Callable[[str, str], Path]
ROOT = Path(__file__).resolve().parents[4]


def gpu_hours(found: Workload) -> dict[str, float]:
    """Return the GPU-hours of each job."""
    size = {job_class.name: job_class.size_gpu_hours for job_class in found.classes}
    return {job.id: round(size[job.class_name] * job.scale, 9) for job in found.trace.jobs}


@dataclass(frozen=True)
class ByHand:
    """What a file holds: GPU-hours and arrivals by job, classes, and what is left out."""

    kind: str
    file: str
    hours: dict[str, float]
    arrivals: list[float]
    classes: set[str]
    dropped: dict[str, int]
    options: Options = field(default_factory=Options)


BY_HAND = {
    # bert: 4 pods x 2 GPUs x 2 h; probe failed after half an hour on 8; llm: (1 + 3) x 4 GPUs x 1 h.
    "kubernetes jobs": ByHand(
        "kubernetes",
        "kubernetes/jobs.json",
        {"ml/bert": 16.0, "ml/probe": 4.0, "ml/llm": 16.0},
        [0.0, 3600.0, 7200.0],
        {"a100-8", "a100-16"},
        {"that still run": 1, "that still wait": 1, "without GPUs": 1},
    ),
    # a: 4 GPUs x 1 h failed, then 4 x 2 h; b: two pods of 2 at once for 1 h.
    "kubernetes pods": ByHand(
        "kubernetes",
        "kubernetes/pods.json",
        {"ml/a": 12.0, "ml/b": 4.0},
        [0.0, 7200.0],
        {"gpus-4"},
        {"that still run or wait": 1},
    ),
    # 4 x 2 h; 2 x (0.5 + 1) h of two attempts; the children of an array; 3 nodes x 8 x 1 h.
    "aws-batch": ByHand(
        "aws-batch",
        "aws-batch/jobs.json",
        {"train-1": 8.0, "retry-2": 3.0, "sweep-3:0": 1.0, "sweep-3:1": 2.0, "wide-4": 24.0},
        [0.0, 3600.0, 3600.0, 3600.0, 7200.0],
        {"gpus-4", "gpus-2", "gpus-1", "p4d.24xlarge-24"},
        {"that are parents of arrays": 1, "that still run": 1, "that still wait": 1, "without GPUs": 1},
    ),
    # 8 x 2 h and 2 x 1 h as the metadata say; 1 x 1 h as the option says.
    "ray": ByHand(
        "ray",
        "ray/jobs.json",
        {"raysubmit_A": 16.0, "raysubmit_B": 2.0, "raysubmit_C": 1.0},
        [0.0, 3600.0, 7200.0],
        {"gpus-8", "gpus-2", "gpus-1"},
        {"that still run": 1},
        Options(gpus=1),
    ),
    "ray job list": ByHand("ray", "ray/job_list.txt", {"raysubmit_A": 16.0}, [0.0], {"gpus-8"}, {}),
    # 4 x 2 h; 4 x 0.5 h crashed; 1 x 1 h, after a cell of two lines.
    "wandb": ByHand(
        "wandb",
        "wandb/runs.csv",
        {"sunny-1": 8.0, "misty-2": 2.0, "rainy-4": 1.0},
        [0.0, 3600.0, 7200.0],
        {"a100-4", "t4-1"},
        {"that still run": 1},
    ),
    "wandb json": ByHand(
        "wandb",
        "wandb/runs.json",
        {"1a2b": round(4 * 7200.5 / 3600, 9), "3c4d": 2.0},
        [0.0, 3600.0],
        {"a100-4", "gpus-2"},
        {},
    ),
    # 1 x 3330 s; 2 nodes x 4 x 2 h; 2 x 0.5 h, put back, and 2 x 1 h; Torque: 2 nodes x 2 x 0.5 h.
    "pbs": ByHand(
        "pbs",
        "pbs/20250416",
        {"4413086": 0.925, "4500001": 16.0, "4500002[3]": 3.0, "77": 2.0},
        [0.0, 3600.0, 7200.0, 10800.0],
        {"gp100-1", "a100-8", "gpus-2", "gpus-4"},
        {"that are parents of arrays": 1, "that still run": 1, "without GPUs": 1},
    ),
    # 2 x 2 h; 2 hosts x 4 x 1 h; 4 x 0.5 h on eight slots of a host. The real record has no GPUs.
    "lsf": ByHand(
        "lsf",
        "lsf/lsb.acct",
        {"401": 4.0, "402[1]": 8.0, "402[2]": 2.0},
        [0.0, 3600.0, 3600.0],
        {"gpus-2", "gpus-8", "gpus-4"},
        {"without GPUs": 1, "without run time": 1},
    ),
    # 2 x 2 h; 1 x 1 h; 4 x 0.5 h, which failed, and 4 x 1 h; 2 x 1 h, whose second task is a part of it.
    "grid-engine": ByHand(
        "grid-engine",
        "grid-engine/accounting",
        {"11": 4.0, "12.3": 1.0, "13": 6.0, "16": 2.0},
        [0.0, 3600.0, 3600.0, 7200.0],
        {"gpus-2", "gpus-1", "v100-4"},
        {"that are tasks of a parallel job": 1, "without GPUs": 1, "without run time": 1},
    ),
    # 2 x 2 h; 1 x 0.5 h, with the times of Univa's qacct.
    "grid-engine qacct": ByHand(
        "grid-engine",
        "grid-engine/qacct.txt",
        {"21": 4.0, "22.7": 0.5},
        [0.0, 3600.122999907],
        {"gpus-2", "gpus-1"},
        {"without run time": 1},
    ),
    # 2 x 2 h; 1 x 1.5 h, as it was given; 4 x 0.5 h, removed; 3 machines x 2 x 1 h.
    "htcondor": ByHand(
        "htcondor",
        "htcondor/history.json",
        {"7.0": 4.0, "7.1": 1.5, "8.0": 2.0, "12.0": 6.0},
        [0.0, 0.0, 3600.0, 7200.0],
        {"a100-2", "gpus-1", "gpus-4", "gpus-6"},
        {"that still run": 1, "that are held": 1, "without GPUs": 1},
    ),
    "htcondor's history file": ByHand(
        "htcondor",
        "htcondor/history",
        {"7.0": 4.0, "7.1": 1.5, "8.0": 2.0, "12.0": 6.0},
        [0.0, 0.0, 3600.0, 7200.0],
        {"a100-2", "gpus-1", "gpus-4", "gpus-6"},
        {"that still run": 1, "that are held": 1, "without GPUs": 1},
    ),
    # 4 x 2 h; 8 x 1 h, as it asked; 2 x 0.5 h, failed; 1 x 1.5 h, without its bursts.
    "swf": ByHand(
        "swf",
        "swf/example.swf",
        {"1": 8.0, "2": 8.0, "3": 1.0, "5": 1.5},
        [0.0, 3600.0, 3600.0, 7200.0],
        {"gpus-4", "gpus-8", "gpus-2", "gpus-1"},
        {"that are bursts of a job": 2, "without run time": 1},
    ),
    # 2 x 1 GPU x 1 h; 0.5 x 1 h; 3 x 0.25 x 2 h. Quarters need 4 places. Arrivals: the table of jobs.
    "pai": ByHand(
        "pai",
        "pai",
        {"j-whole": 2.0, "j-half": 0.5, "j-half-ps": 1.5},
        [0.0, 3600.0, 7200.0],
        {"v100-2", "v100-0.5", "v100-0.75"},
        {"that still run or wait": 1, "of several GPU types": 1, "without GPUs": 1},
    ),
    # 0.46 and 0.5 of a GPU are a place of two each: 2 h and 1 h; 8 x 1 h.
    "openb": ByHand(
        "openb",
        "openb/openb_pod_list_default.csv",
        {"pod-1": 1.0, "pod-2": 0.5, "pod-3": 8.0},
        [0.0, 3600.0, 7200.0],
        {"gpus-0.5", "v100m32-8"},
        {"that were never scheduled": 1, "that still ran at the end of the trace": 1, "without GPUs": 1},
    ),
}


@pytest.mark.parametrize("case", BY_HAND.values(), ids=BY_HAND)
def test_the_example_by_hand(case: ByHand, data: Path) -> None:
    """GPUs x hours, whatever the outcome; arrivals count from the first job that ran."""
    found = import_source(case.kind, data / case.file, case.options)
    assert gpu_hours(found) == case.hours
    assert [round(job.arrived_at_seconds, 9) for job in found.trace.jobs] == case.arrivals
    assert {job_class.name for job_class in found.classes} == case.classes
    assert found.dropped == case.dropped


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("tests/data/pai", {"v100-0.5": 1.0, "v100-0.75": 2.0, "v100-2": 1.0}),
        ("tests/data/openb", {"gpus-0.5": 1.5, "v100m32-8": 1.0}),
    ],
)
def test_parts_of_gpus_are_planned_on_places(text: str, hours: dict[str, float], tmp_path: Path) -> None:
    """A job on its own places takes as long as it did; 1 USD stands for a GPU-hour."""
    run = CliRunner()
    kind = Path(text).name
    done = run.invoke(app, ["trace", "import", "--from", kind, str(ROOT / text), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    classes = str(tmp_path / "classes.yaml")
    planned = run.invoke(app, ["plan", "--classes", classes, "--budget", "50/h", "-o", "json"])
    assert planned.exit_code == 0, planned.output
    plan = json.loads(planned.stdout)
    assert {row["name"]: pytest.approx(row["mean_jct_hours"]) for row in plan["class_spend"]} == hours
    load = sum(job["size_gpu_hours"] for job in json.loads(_summary(run, kind, text, tmp_path))["classes"])
    assert load == pytest.approx({"pai": 4.0, "openb": 8.75}[kind])


def _summary(run: CliRunner, kind: str, text: str, out: Path) -> str:
    return run.invoke(
        app, ["trace", "import", "--from", kind, str(ROOT / text), "--out", str(out), "--json"]
    ).stdout


def test_a_priced_type_keeps_its_price_and_gets_places(data: Path, tmp_path: Path) -> None:
    """The kind of a place names the machine."""
    run = CliRunner()
    flags = ["--from", "pai", str(data / "pai"), "--instance-type", "v100=p3.8xlarge", "--out", str(tmp_path)]
    assert run.invoke(app, ["trace", "import", *flags]).exit_code == 0
    text = (tmp_path / "classes.yaml").read_text()
    assert "v100: {instance_type: p3.8xlarge, places_per_gpu: 4}" in text
    assert "v100@p3.8xlarge/4: {table: {2: 0.5}}" in text


REFUSED: dict[str, tuple[str, str, str, str]] = {
    "list-jobs of AWS Batch": (
        "aws-batch",
        "a.json",
        '{"jobSummaryList": [{"jobId": "a", "status": "SUCCEEDED", "createdAt": 1}]}',
        r"job 0 \(a\): it has neither jobDefinition nor container. Lists of jobs state no GPUs",
    ),
    "a state of AWS Batch": (
        "aws-batch",
        "a.json",
        '[{"jobId": "a", "status": "DONE", "jobDefinition": "d"}]',
        "status 'DONE' is none",
    ),
    "a run that ends before it starts": (
        "ray",
        "a.json",
        '[{"submission_id": "s", "status": "FAILED", "start_time": 1772438400000, '
        '"end_time": 1772438399000, "metadata": {"num_gpus": "1"}}]',
        "it ends 1 s before it starts",
    ),
    "a job without GPUs in Ray": (
        "ray",
        "a.json",
        '[{"submission_id": "s", "status": "FAILED", "start_time": 1772438400000, "end_time": 1772438500}]',
        "it states no GPUs. Give --gpus N",
    ),
    "half of what Ray prints": ("ray", "a.txt", "[JobDetails(type=<JobType.SUB]", "is not whole"),
    "more GPUs than there are": (
        "wandb",
        "a.csv",
        "ID,State,Created,Runtime,GPU Count\na,finished,2026-03-02T08:00:00,60,1e21\n",
        "job a has 1e\\+21 GPUs, more than",
    ),
    "text for Ray": ("ray", "a.txt", "Traceback ...", "no list of Ray's jobs"),
    "a cell too few": (
        "wandb",
        "a.csv",
        "Name,State,Created,Runtime,GPU Count\na,finished,2026-01-01,5\n",
        "a.csv:2: 4 cells where the header has 5",
    ),
    "a run without GPUs": (
        "wandb",
        "a.csv",
        "Name,State,Created,Runtime\na,finished,2026-01-01,5\n",
        "a.csv:2: the run states no GPUs",
    ),
    "a run without its time": (
        "wandb",
        "a.csv",
        "Name,State,Runtime,GPU Count\na,finished,5,1\n",
        "a.csv:2: the run has no Created",
    ),
    "half a GPU in W&B": (
        "wandb",
        "a.csv",
        "Name,State,Created,Runtime,GPU Count\na,finished,2026-01-01,5,0.5\n",
        "gpucount must be a whole number; got '0.5'",
    ),
    "a quantity that is no number": (
        "kubernetes",
        "a.json",
        '{"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": {"containers": '
        '[{"resources": {"limits": {"nvidia.com/gpu": "two"}}}]}}}}',
        r"item 0 \(j\): nvidia.com/gpu must be a whole number; got \"two\"",
    ),
    "a table of kubectl": (
        "kubernetes",
        "a.json",
        "NAME  STATUS\na  Complete\n",
        "Write the file with kubectl",
    ),
    "YAML that breaks off": ("kubernetes", "a.yaml", "apiVersion: v1\nitems: [\n", "not valid YAML"),
    "a key twice": (
        "kubernetes",
        "a.json",
        '{"kind": "Job", "kind": "Pod"}',
        "the key 'kind' is given twice",
    ),
    "a list that breaks off": (
        "kubernetes",
        "a.json",
        '{"items": [{"kind": "Job"',
        "a.json:1: not valid JSON",
    ),
    "a status of PAI": (
        "pai",
        "pai_task_table.csv",
        "a,b,1,Done,1,2,1,1,100,T4\n",
        ":1: status 'Done' is none",
    ),
    "an end before its start": (
        "openb",
        "a.csv",
        "name,num_gpu,gpu_milli,gpu_spec,pod_phase,creation_time,deletion_time,scheduled_time\na,1,1000,,Failed,5,3,6\n",
        ":2: deletion_time 3 is before scheduled_time 6",
    ),
}


@pytest.mark.parametrize(("kind", "name", "text", "said"), REFUSED.values(), ids=REFUSED)
def test_refused(kind: str, name: str, text: str, said: str, written: Write) -> None:
    """The error names the line, or the object of the list."""
    with pytest.raises(InputError, match=said):
        import_source(kind, written(name, text), Options())


def test_pods_of_a_job_in_the_file_count_once(data: Path, written: Write) -> None:
    """`kubectl get jobs,pods -o json` lists both."""
    jobs = json.loads((data / "kubernetes" / "jobs.json").read_text())
    pods = json.loads((data / "kubernetes" / "pods.json").read_text())["items"]
    for pod in pods[:2]:
        pod["metadata"]["labels"]["job-name"] = "bert"
    jobs["items"] += pods
    found = import_source("kubernetes", written("all.json", json.dumps(jobs)), Options())
    assert gpu_hours(found) == {"ml/bert": 16.0, "ml/probe": 4.0, "ml/llm": 16.0, "ml/b": 4.0}
    assert found.dropped["that are pods of a job in the file"] == 2


GPU = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
POD = {"spec": {"containers": [GPU]}}
DONE = {"conditions": [{"type": "Completed", "status": "True", "lastTransitionTime": "2026-01-01T02:00:00Z"}]}
KINDS: dict[str, tuple[dict[str, Any], float]] = {
    "JobSet": (
        {
            "spec": {
                "replicatedJobs": [
                    {
                        "replicas": 2,
                        "template": {"spec": {"parallelism": 3, "completions": 3, "template": POD}},
                    }
                ]
            },
            "status": DONE,
        },
        2 * 3 * 2 * 2.0,
    ),
    "Job of Volcano": (
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "spec": {"minAvailable": 3, "tasks": [{"replicas": 3, "template": POD}]},
            "status": {"state": {"phase": "Completed", "lastTransitionTime": "2026-01-01T02:00:00Z"}},
        },
        3 * 2 * 2.0,
    ),
    "Job of Volcano with its run time": (
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "spec": {"tasks": [{"replicas": 3, "template": POD}]},
            "status": {
                "state": {"phase": "Completed", "lastTransitionTime": "2026-01-01T02:00:00Z"},
                "runningDuration": "1h30m0s",
            },
        },
        3 * 2 * 1.5,
    ),
    "Workload of Kueue": (
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "spec": {"podSets": [{"name": "main", "count": 3, "template": POD}]},
            "status": {
                "conditions": [
                    {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-01-01T01:00:00Z"},
                    {"type": "Finished", "status": "True", "lastTransitionTime": "2026-01-01T02:00:00Z"},
                ]
            },
        },
        3 * 2 * 1.0,
    ),
    "MPIJob": (
        {
            "spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 4, "template": POD}}},
            "status": {"startTime": "2026-01-01T01:00:00Z", "completionTime": "2026-01-01T02:00:00Z"},
        },
        4 * 2 * 1.0,
    ),
    "Job with more completions than pods at once": (
        {
            "spec": {"parallelism": 2, "completions": 10, "template": POD},
            "status": {"startTime": "2026-01-01T01:00:00Z", "completionTime": "2026-01-01T02:00:00Z"},
        },
        2 * 2 * 1.0,
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_kubernetes(name: str, written: Write) -> None:
    """Pods x GPUs x hours; without a start in its status a job runs from its creation."""
    content, hours = KINDS[name]
    kind = name.split(" ", maxsplit=1)[0]
    meta = {"name": "j", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}
    found = {"kind": kind, "metadata": meta, **content}
    path = written("a.json", json.dumps(found))
    assert gpu_hours(import_source("kubernetes", path, Options())) == {"n/j": hours}
    # As `kubectl get -o yaml` prints it: YAML has JSON as values.
    lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in {"apiVersion": "v1", **found}.items())
    other = lines.replace('{"name": "j"', '{"name": "k"', 1)
    path = written("a.yaml", f"---\n{lines}---\n{other}")
    assert gpu_hours(import_source("kubernetes", path, Options())) == {"n/j": hours, "n/k": hours}


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("NVIDIA-A100-SXM4-40GB", "a100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla-T4", "t4"),
        ("NVIDIA-H100-80GB-HBM3", "h100"),
        ("nvidia-tesla-v100", "v100"),
        ("nvidia-l4", "l4"),
        ("NVIDIA-A10G", "a10g"),
        ("NVIDIA H200", "h200"),
        ("a100", "a100"),
    ],
)
def test_names_of_gpus(label: str, name: str) -> None:
    """The card alone, without its maker, socket and memory."""
    assert gpu_name(label) == name


def test_the_most_gpus_at_once() -> None:
    """What ends at an instant makes room for what begins at it."""
    assert most_at_once([(0.0, 2.0, 4), (2.0, 3.0, 4), (1.0, 2.5, 2)]) == 6


@pytest.mark.parametrize("kind", [kind for kind, entry in HISTORIES.items() if entry.example])
def test_a_written_import_is_read_back_unchanged(kind: str, data: Path, tmp_path: Path) -> None:
    """Ids, arrivals, classes and scales of the example of every kind survive the file."""
    chosen: dict[str, Any] = {
        "pollux": {"workload": "workloads/workload-1.csv"},
        "shockwave": {"profiles": data / "gavel"},
        "ray": {"gpus": 1},
    }
    found = import_source(kind, data / HISTORIES[kind].example, Options(**chosen.get(kind, {})))
    trace, _ = write_workload(found, tmp_path)
    assert read_trace(trace) == found.trace


@pytest.mark.parametrize(("kind", "key"), [("kubernetes", "items"), ("aws-batch", "jobs")])
def test_answers_that_were_appended_say_the_same(kind: str, key: str, data: Path, tmp_path: Path) -> None:
    """One answer per cluster or page, each over several lines, in one file."""
    source = data / HISTORIES[kind].example
    entries = json.loads(source.read_text(encoding="utf-8"))[key]
    path = tmp_path / source.name
    path.write_text("\n".join(json.dumps({key: some}, indent=4) for some in (entries[:2], entries[2:])))
    plain, appended = (import_source(kind, one, Options()) for one in (source, path))
    assert appended.trace == plain.trace
    assert appended.dropped == plain.dropped


@pytest.mark.parametrize("mark", [";", "\t"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [("wandb", "wandb/runs.csv"), ("openb", HISTORIES["openb"].example), ("acme", HISTORIES["acme"].example)],
)
def test_columns_may_end_at_other_signs(kind: str, name: str, mark: str, data: Path, tmp_path: Path) -> None:
    """A spreadsheet writes semicolons where the comma is decimal."""
    source = data / name
    path = tmp_path / source.name
    with source.open(newline="", encoding="utf-8") as file, path.open("w", newline="") as out:
        csv.writer(out, delimiter=mark).writerows(csv.reader(file))
    options = Options(gpus=1 if kind == "wandb" else None)
    plain, other = (import_source(kind, one, options) for one in (source, path))
    assert other.trace == plain.trace
    assert other.dropped == plain.dropped


@pytest.mark.parametrize("packed", ["gz", "bz2", "xz", "zst", "utf-16", "parquet"])
def test_packed_tables_say_the_same(packed: str, data: Path, tmp_path: Path) -> None:
    """What a file is, is read from its first bytes; PowerShell writes UTF-16."""
    source = data / "openb" / "openb_pod_list_default.csv"
    path = tmp_path / "pods.csv"
    raw = source.read_bytes()
    if packed == "parquet":
        pandas = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        pandas.read_csv(source).to_parquet(path)
    elif packed == "zst":
        pyarrow = pytest.importorskip("pyarrow")
        with pyarrow.CompressedOutputStream(str(path), "zstd") as file:
            file.write(raw)
    else:
        pack: dict[str, Callable[[], bytes]] = {
            "gz": lambda: gzip.compress(raw),
            "bz2": lambda: bz2.compress(raw),
            "xz": lambda: lzma.compress(raw),
            "utf-16": lambda: raw.decode().encode("utf-16"),
        }
        path.write_bytes(pack[packed]())
    plain, unpacked = (import_source("openb", one, Options()) for one in (source, path))
    assert unpacked.trace == plain.trace
    assert unpacked.classes == plain.classes


@pytest.mark.parametrize("packed", ["gz", "xz", "bz2"])
def test_a_packed_file_that_breaks_off_is_refused(packed: str, data: Path, tmp_path: Path) -> None:
    """Half an archive is an error, not half a trace."""
    raw = (data / "acme" / "trace_kalos.csv").read_bytes() * 50
    pack = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}[packed]
    path = tmp_path / "trace_kalos.csv"
    path.write_bytes(pack(raw)[:-20])
    with pytest.raises(InputError, match=r"cannot be unpacked|cells where"):
        import_source("acme", path, Options())


def test_the_page_lists_every_kind() -> None:
    """The rows of the reference page are those of the table."""
    page = (ROOT / "docs" / "reference" / "imports.md").read_text(encoding="utf-8")
    for kind, entry in HISTORIES.items():
        row = f"| `{kind}` | {entry.file} | {entry.columns} | {entry.job} | {entry.size} | {entry.left_out} |"
        assert row in page


@pytest.mark.parametrize("kind", [kind for kind, entry in HISTORIES.items() if entry.example])
def test_a_history_is_the_same_in_batches_of_one_row(
    kind: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a batch ends changes no job, class or count."""
    options = Options(gpus=1) if "gpus" in HISTORIES[kind].accepts else Options()
    source = data / HISTORIES[kind].example
    if kind == "pollux":
        options = Options(workload="workloads/workload-6.csv")
    if kind == "shockwave":
        options = Options(profiles=data / "gavel")
    whole = import_source(kind, source, options)
    monkeypatch.setattr(tables, "_BATCH", 1)
    assert import_source(kind, source, options) == whole


FILES = {kind: entry.example for kind, entry in HISTORIES.items() if Path(entry.example).suffix}


@pytest.mark.parametrize("kind", FILES)
def test_damaged_files_are_read_or_refused_in_a_sentence(kind: str, data: Path, tmp_path: Path) -> None:
    """Mutated bytes, cut and doubled lines: no other error than one for the user."""
    chance = random.Random(kind)
    example = data / FILES[kind]
    raw = example.read_bytes()[:4000]
    refused = 0
    for _ in range(30):
        path = tmp_path / example.name
        path.write_bytes(mutated(raw, chance))
        try:
            import_source(kind, path, Options())
        except BoaError:
            refused += 1
    assert refused > 0


def mutated(raw: bytes, chance: random.Random) -> bytes:
    """Return bytes with one to three faults such as editors, transfers and programs make."""
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(raw)) if raw else 0
        to = min(len(raw), at + chance.randint(1, 40))
        other = chance.choice([b"", b"\0", b"\xff", b'"', b",", b"\n", b"-1", b"1e999", b"nan", b"{", b"\r"])
        raw = chance.choice(
            [raw[:at] + other + raw[to:], raw[:at], raw[:to] + raw[at:], raw[:at] + other + raw[at:]]
        )
    return raw


def test_jobs_of_kubernetes_that_claim_their_devices_are_counted_as_left_out(tmp_path: Path) -> None:
    """Claims do not say how many GPUs a pod has; claims beside GPUs are of other devices."""
    example = Path(__file__).parents[3] / "data" / "kubernetes" / "jobs.json"
    jobs = json.loads(example.read_text())
    before = import_source("kubernetes", example, Options())
    one = next(job for job in jobs["items"] if "nvidia.com/gpu" in json.dumps(job) and job["kind"] == "Job")
    claim = json.loads(json.dumps(one))
    claim["metadata"] |= {"name": "claims", "uid": "claims"}
    pod = claim["spec"]["template"]["spec"]
    pod |= {"resourceClaims": [{"name": "gpu"}], "containers": [{"name": "c"}]}
    one["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "nic"}]
    jobs["items"].append(claim)
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    found = import_source("kubernetes", tmp_path / "jobs.json", Options())
    assert len(found.trace.jobs) == len(before.trace.jobs)
    assert [number for reason, number in found.dropped.items() if "devices that they claim" in reason] == [1]
