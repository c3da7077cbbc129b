"""Slurm's accounting as a trace: what counts, how long it ran, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from boa_daemon.lab.traces.importers import import_source
from boa_daemon.lab.traces.sacct import elapsed_seconds, import_sacct
from boa_daemon.traces.workload import Options, Workload

Write = Callable[[str, str], Path]


def gpu_hours(found: Workload) -> dict[str, float]:
    """Return the GPU-hours of each job."""
    size = {job_class.name: job_class.size_gpu_hours for job_class in found.classes}
    return {job.id: round(size[job.class_name] * job.scale, 9) for job in found.trace.jobs}


def test_the_example_by_hand(data: Path) -> None:
    """2 GPUs x 4 h; 1 x 26 h and 1 x 2 h of an array; 4 x 1 h that failed. Arrivals count from 08:00."""
    found = import_sacct(data / "sacct" / "sacct.txt", Options())
    assert gpu_hours(found) == {"4101": 8.0, "4102_1": 26.0, "4102_2": 2.0, "4103": 4.0}
    assert [job.arrived_at_seconds for job in found.trace.jobs] == [0.0, 3600.0, 3600.0, 7200.0]
    sizes = {
        job_class.name: (job_class.size_gpu_hours, job_class.arrivals_per_hour) for job_class in found.classes
    }
    assert sizes == {"a100-1": (14.0, 1.0), "a100-2": (8.0, 0.5), "a100-4": (4.0, 0.5)}
    assert found.dropped == {
        "that still wait": 1,
        "that still run": 1,
        "without GPUs": 1,
        "without run time": 1,
    }
    assert "3 rows are of jobs that did not complete (1 CANCELLED, 1 FAILED, 1 TIMEOUT)" in found.notes[-1]


ELAPSED = {
    "00:00:00": 0,
    "03:04": 184,
    "03:04.5": 184.5,
    "01:02:03": 3723,
    "1-02:03:04": 93784,
    "10-00:00:00": 864000,
}


@pytest.mark.parametrize(("text", "seconds"), ELAPSED.items(), ids=ELAPSED)
def test_elapsed(text: str, seconds: float) -> None:
    """Days, hours, minutes, seconds."""
    assert elapsed_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "INVALID", "61", "1-25:00:00", "00:60:00", "00:00:60", "-1:00:00", "1h"]
)
def test_no_elapsed(text: str) -> None:
    """What Slurm does not print is refused."""
    with pytest.raises(ValueError, match=r"."):
        elapsed_seconds(text)


def _set(number: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": number}


def answered(state: object = ("COMPLETED",), number: Callable[[int], object] = _set) -> dict[str, object]:
    """Return a job as ``sacct --json`` has it."""
    resources = [{"type": "cpu", "name": "", "count": 8}, {"type": "gres", "name": "gpu", "count": 2}]
    return {
        "job_id": 7,
        "array": {"job_id": 0, "task_id": None if number is int else {"set": False, "number": 0}},
        "het": {"job_id": 0, "job_offset": None},
        "time": {
            name: number(at)
            for name, at in (
                ("submission", 1772438400),
                ("start", 1772438400),
                ("end", 1772442000),
                ("elapsed", 3600),
            )
        },
        "state": {"current": state, "reason": "None"},
        "tres": {"allocated": resources, "requested": resources},
        "steps": [{"step": {"id": "7.batch"}}],
    }


HEAD = "JobID|Submit|Start|End|Elapsed|State|AllocTRES\n"
ROW = "7|2026-03-02T08:00:00|2026-03-02T08:00:00|2026-03-02T09:00:00|01:00:00|COMPLETED|gres/gpu=2\n"
SHAPES = {
    "parsable2": HEAD + ROW,
    "parsable": HEAD.replace("\n", "|\n") + ROW.replace("\n", "|\n"),
    "dos": (HEAD + ROW).replace("\n", "\r\n"),
    "byte order mark": "\ufeff" + HEAD + ROW,
    "tabs": (HEAD + ROW).replace("|", "\t"),
    "other order": "AllocTRES|Elapsed|JobID|Submit\ngres/gpu=2|01:00:00|7|2026-03-02T08:00:00\n",
    "lower case": HEAD.lower() + ROW,
    "raw seconds": "JobID|Submit|ElapsedRaw|AllocTRES\n7|2026-03-02T08:00:00|3600|gres/gpu=2\n",
    "start and end": "JobID|Submit|Start|End|AllocTRES\n"
    "7|2026-03-02T08:00:00|2026-03-02T08:00:00+01:00|2026-03-02T08:00:00Z|gres/gpu=2\n",
    "requested only": "JobID|Submit|Elapsed|ReqTRES\n7|2026-03-02T08:00:00|01:00:00|gres/gpu=2\n",
    "epoch": "JobID|Submit|Elapsed|ReqTRES\n7|1772438400|01:00:00|gres/gpu=2\n",
    "quotes in a name": "JobName|" + HEAD + 'say "hi|' + ROW,
    "csv of a data frame": "JobID,Submit,ElapsedRaw,AllocTRES\n"
    '7,2026-03-02T08:00:00,3600.0,"cpu=4,gres/gpu=2"\n',
    "parts of one job": HEAD
    + "".join(ROW.replace("7|", f"7+{part}|", 1).replace("=2", "=1") for part in "01"),
    "attempts": HEAD
    + "7|2026-03-02T08:00:00|2026-03-02T08:00:00|2026-03-02T08:15:00|00:15:00|NODE_FAIL|gres/gpu=2\n"
    + "7|2026-03-02T08:20:00|2026-03-02T08:30:00|2026-03-02T09:15:00|00:45:00|COMPLETED|gres/gpu=2\n",
    "a run time with units": HEAD + ROW.replace("01:00:00", "60m"),
    "months as words": HEAD + ROW.replace("2026-03-02T08:00:00", "Mon Mar  2 08:00:00 2026"),
    "JSON of now": json.dumps({"meta": {}, "jobs": [answered()]}),
    "JSON of 21.08": json.dumps({"jobs": [answered("COMPLETED", number=int)]}),
    "JSON, tasks and parts": json.dumps({"jobs": [answered(["PENDING"]) | {"job_id": 8}, answered()]}),
    "per node, on two": HEAD.replace("AllocTRES", "NNodes|ReqGRES")
    + ROW.replace("gres/gpu=2", "2|PER_NODE:gpu:1"),
    "as squeue writes it": HEAD.replace("AllocTRES", "NNodes|AllocTRES")
    + ROW.replace("gres/gpu=2", "2|gres:gpu:1"),
    "the plug-in's number": HEAD.replace("TRES", "GRES") + ROW.replace("gres/gpu=2", "7696487:2"),
    "a node's list": HEAD + ROW.replace("gres/gpu=2", "gpu:2(IDX:0-1)"),
    "resized": HEAD + ROW.replace("COMPLETED", "CANCELLED by 0"),
}  # fmt: skip


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_shapes_of_the_same_job(text: str, written: Write) -> None:
    """Two GPUs for an hour: 2 GPU-hours at width 2."""
    found = import_sacct(written("sacct.txt", text), Options())
    assert gpu_hours(found) == {"7": 2.0}
    assert [job_class.name for job_class in found.classes] == ["gpus-2"]


REFUSED = {
    "no header": (ROW, ":1: no header of sacct"),
    "no times": ("JobID|AllocTRES\n7|gres/gpu=2\n", ":1: column Submit and Elapsed"),
    "cut short": (HEAD + ROW + "8|2026-03-02T08:0\n", ":3: 2 cells where the header has 7"),
    "a bar in a name": ("JobName|" + HEAD + "a|b|" + ROW, "leave JobName out"),
    "twice": (HEAD + ROW + ROW, ":3: a second row for job 7; the first is on line 2"),
    "column twice": (HEAD.replace("State", "Submit") + ROW, "column 'Submit' occurs twice"),
    "no job id": (HEAD + ROW.replace("7|", "seven|", 1), ":2: JobID must be"),
    "no elapsed": (HEAD + ROW.replace("01:00:00", "1 month"), ":2: Elapsed '1 month' is not"),
    "no unit": (HEAD + ROW.replace("01:00:00", "3600"), ":2: Elapsed '3600' is not"),
    "cut off": (HEAD + ROW.replace("gres/gpu=2", "billing=8,gres/g+"), ":2: 'billing=8,gres/g+' was cut off"),
    "a number cut off": (HEAD + ROW.replace("gpu=2", "gpu=1+"), ":2: 'gres/gpu=1+' was cut off"),
    "an invalid cell": (HEAD + ROW.replace("gres/gpu=2", "INVALID"), ":2: 'INVALID' is not NAME=NUMBER"),
    "numbers of resources": (HEAD + ROW.replace("gres/gpu", "1001"), ":2: '1001=2' is not NAME=NUMBER"),
    "per node": (HEAD + ROW.replace("gres/gpu=2", "PER_NODE:gpu:2"), ":2: its GPUs are counted per node"),
    "aligned columns": ("JobID  Submit\n-----  ------\n7  2026-03-02T08:00:00\n", ":1: columns are aligned"),
    "another answer in JSON": (
        '{"jobs": [{"job_id": 1, "job_state": ["RUNNING"]}]}',
        "job 0: time.submission",
    ),
    "a state in JSON": (json.dumps({"jobs": [answered(), answered(["FROBBED"])]}), "job 1: State 'FROBBED'"),
    "no submit": (HEAD + ROW.replace("2026-03-02T08:00:00", "Unknown", 1), ":2: Submit must be"),
    "no state": (HEAD + ROW.replace("COMPLETED", "COMPLETD"), "did you mean 'COMPLETED'"),
    "no number": (HEAD + ROW.replace("gpu=2", "gpu=two"), "'gres/gpu=two' is no number of GPUs"),
    "negative": (HEAD.replace("Elapsed", "ElapsedRaw") + ROW.replace("01:00:00", "-5"), ":2: ElapsedRaw"),
    "nothing ran": (
        HEAD + ROW.replace("COMPLETED", "RUNNING"),
        "no job is left to import (1 that still run)",
    ),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_damaged_files_are_refused_by_line(text: str, said: str, written: Write) -> None:
    """The error says what is wrong and where."""
    with pytest.raises(InputError) as refused:
        import_sacct(written("sacct.txt", text), Options())
    assert said.lower() in str(refused.value).lower()


def test_the_time_zone_is_that_of_the_cluster(written: Write) -> None:
    """Between 01:00 and 04:00 of 29 March 2026 Berlin's clocks go on an hour: two hours pass."""
    rows = [f"{job}|2026-03-29T0{hour}:00:00|60|gres/gpu=1\n" for job, hour in ((1, 1), (2, 4))]
    text = "JobID|Submit|ElapsedRaw|AllocTRES\n" + "".join(rows)
    path = written("sacct.txt", text)
    for zone, hours in ((None, 3.0), ("Europe/Berlin", 2.0)):
        assert import_source("sacct", path, Options(time_zone=zone)).trace.window_hours == hours
    with pytest.raises(InputError, match="Europe/Berln"):
        import_sacct(path, Options(time_zone="Europe/Berln"))


def test_from_sacct_to_a_plan_in_two_commands(data: Path, tmp_path: Path) -> None:
    """The second command plans what the first wrote, at the price of the type."""
    run = CliRunner()
    source = str(data / "sacct" / "sacct.txt")
    flags = ["--from", "sacct", "--out", str(tmp_path), "--instance-type", "a100=p4d.24xlarge", "-o", "json"]
    done = run.invoke(app, ["trace", "import", source, *flags])
    assert done.exit_code == 0, done.exception
    assert json.loads(done.stdout)["load_gpus"] == 40.0 / 2.0
    planned = run.invoke(
        app, ["plan", "--classes", str(tmp_path / "classes.yaml"), "--budget", "200/h", "-o", "json"]
    )
    assert planned.exit_code == 0, planned.exception
    assert json.loads(planned.stdout)["prices"][0]["instance_type"] == "p4d.24xlarge"


ROW = "1|2026-01-01T00:00:00|01:00:00|COMPLETED|gres/gpu=4"


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        (f"JobIDRaw|Submit|Elapsed|State|AllocTRES\n{ROW}\n", {"1": 4.0}),
        ("JobID^Submit^Elapsed^State^AllocTRES\n" + ROW.replace("|", "^") + "\n", {"1": 4.0}),
        (
            f"JobID|Submit|Elapsed|State|AllocTRES\n{ROW}\n"
            f"JobID|Submit|Elapsed|State|AllocTRES\n{ROW.replace('1|', '2|', 1)}\n",
            {"1": 4.0, "2": 4.0},
        ),
        (f"JobID|Submit|Elapsed|State|AllocGRES\n{ROW.replace('gres/gpu=4', 'gpu:a:2(S:0)')}\n", {"1": 2.0}),
        (f"JobID|Submit|Elapsed|State|AllocGRES\n{ROW.replace('gres/gpu=4', 'gpu:3,nvme:1')}\n", {"1": 3.0}),
        (
            f"JobID|Submit|Elapsed|State|AllocTRES\n{ROW}\n"
            "2|2026-01-01T00:00:00|01:00:00|LAUNCH_FAILED|gres/gpu:v100=4,gres/gpu=4\n"
            "3|2026-01-01T00:00:00|01:00:00|EXPEDITING|gres/gpu=4\n",
            {"1": 4.0, "2": 4.0},
        ),
    ],
    ids=["JobIDRaw", "delimiter", "months put together", "old", "old, no kind", "new states"],
)  # fmt: skip
def test_exports_of_other_versions_and_options_are_read(
    tmp_path: Path, text: str, hours: dict[str, float]
) -> None:
    """Other columns, delimiters and states."""
    (tmp_path / "sacct.txt").write_text(text)
    assert gpu_hours(import_sacct(tmp_path / "sacct.txt", Options())) == hours


def test_parts_of_gpus_and_several_types_are_counted_as_such(written: Write) -> None:
    """A job on shards is not one without GPUs."""
    row = "7|2026-03-02T08:00:00|01:00:00|gres/gpu=2\n"
    text = "JobID|Submit|Elapsed|AllocTRES\n" + row + row.replace("7|", "8|", 1).replace("gpu", "shard")
    found = import_sacct(written("sacct.txt", text), Options())
    assert gpu_hours(found) == {"7": 2.0}
    assert {reason: n for reason, n in found.dropped.items() if n} == {
        "of several GPU types, or of parts of GPUs (shard, mps)": 1
    }


def test_a_run_across_a_fold_has_its_length(written: Write) -> None:
    """From 02:40 in summer time to 02:10 in winter time it is half an hour."""
    text = (
        "JobID|Submit|Start|End|AllocTRES\n7|2026-10-25T02:30|2026-10-25T02:40|2026-10-25T02:10|gres/gpu=2\n"
    )
    found = import_sacct(written("sacct.txt", text), Options(time_zone="Europe/Berlin"))
    assert gpu_hours(found) == {"7": 1.0}


def test_json_has_tasks_and_parts(written: Write) -> None:
    """Tasks of an array are jobs; parts of a heterogeneous job are one."""
    task = answered() | {"job_id": 18, "array": {"job_id": 17, "task_id": _set(0)}}
    parts = [answered() | {"job_id": 20 + n, "het": {"job_id": 20, "job_offset": _set(n)}} for n in (0, 1)]
    found = import_sacct(written("sacct.json", json.dumps({"jobs": [task, *parts]})), Options())
    assert gpu_hours(found) == {"17_0": 2.0, "20": 4.0}
