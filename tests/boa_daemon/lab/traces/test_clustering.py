"""Classes by clustering: planted groups are found, run times are kept, and what was assumed is said."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from boa_daemon.lab.traces.clustering import cluster, parse_speedup
from boa_daemon.lab.traces.importers import import_source
from boa_daemon.traces.workload import Options, Workload

Write = Callable[[str, str], Path]


def planted(write: Write) -> Workload:
    """Return 200 short jobs on 1 GPU and 100 long ones on 8, run times within a fifth, in a random order."""
    chance = random.Random(3)
    kinds = [(1, 0.5)] * 200 + [(8, 10.0)] * 100
    chance.shuffle(kinds)
    rows = ["JobID|Submit|Elapsed|State|AllocTRES"]
    for number, (gpus, hours) in enumerate(kinds, start=1):
        seconds = round(hours * 3600 * chance.uniform(0.8, 1.2))
        elapsed = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        at = f"2026-01-{1 + number // 24:02}T{number % 24:02}:00:00"
        rows.append(f"{number}|{at}|{elapsed}|COMPLETED|gres/gpu:a100={gpus}")
    return import_source("sacct", write("sacct.txt", "\n".join(rows) + "\n"), Options())


def test_planted_groups_are_found(written: Write) -> None:
    """Two groups that differ 20-fold in run time and 8-fold in width are two classes."""
    found = cluster(planted(written))
    assert [(fit.jobs, fit.gpus) for fit in found.fits] == [(200, (1, 1)), (100, (8, 8))]
    assert found.explained_gpus == pytest.approx(1.0)
    assert found.explained_hours > 0.98
    assert all(1.0 < fit.spread_factor < 1.25 for fit in found.fits)


@pytest.mark.parametrize("speedup", ["amdahl:0.9", "power:0.8", "rigid"])
def test_a_job_keeps_its_run_time_at_its_width(speedup: str, written: Write) -> None:
    """What is assumed of other widths changes nothing about the one that was seen."""
    before = planted(written)
    after = cluster(before, speedup=speedup).workload
    widths = {job.id: int(job.class_name.rpartition("-")[2]) for job in before.trace.jobs}

    def hours(found: Workload) -> dict[str, float]:
        classes = {one.name: one.phases[0] for one in found.classes}
        return {
            job.id: classes[job.class_name].size_gpu_hours
            * job.scale
            / float(classes[job.class_name].speedups["a100"].speed_at(widths[job.id]))
            for job in found.trace.jobs
        }

    assert hours(after) == pytest.approx(hours(before))


def test_widths_reach_from_a_quarter_to_four_times(written: Write) -> None:
    """No wider than the widest job that ran: 1 to 4 GPUs, and 2 to 8."""
    found = cluster(planted(written)).workload
    widths = [one.phases[0].speedups["a100"].whole_widths().tolist() for one in found.classes]
    assert widths == [[1, 2, 4], [2, 4, 8]]


def test_parts_of_gpus_keep_their_places(data: Path) -> None:
    """Nothing is assumed of jobs that shared a GPU."""
    before = import_source("openb", data / "openb", Options(workload="openb_pod_list_default.csv"))
    after = cluster(before).workload
    assert [one for one in after.classes if one.may_share] == [one for one in before.classes if one.may_share]
    assert {job.id for job in after.trace.jobs} == {job.id for job in before.trace.jobs}


@pytest.mark.parametrize("text", ["amdahl", "amdahl:2", "amdahl:x", "linear", "power:0", "rigid:1"])
def test_other_speedups_are_refused(text: str) -> None:
    """A parallel fraction and an exponent are more than 0 and at most 1."""
    with pytest.raises(InputError, match=r"is no speed-up\. Write amdahl:0\.97"):
        parse_speedup(text)


def test_a_history_with_measured_speedups_is_refused(data: Path) -> None:
    """Pollux's workloads have classes of their own."""
    found = import_source("pollux", data / "pollux", Options(workload="workloads/workload-1.csv"))
    with pytest.raises(InputError, match="has measured speed-ups"):
        cluster(found)


def test_from_a_history_to_a_curve_in_two_commands(data: Path, tmp_path: Path) -> None:
    """The second command reads what the first wrote; each says what was assumed, or what it costs."""
    run = CliRunner()
    source = str(data / "sacct" / "sacct.txt")
    flags = ["--from", "sacct", source, "--instance-type", "a100=p4d.24xlarge", "--out", str(tmp_path)]
    done = run.invoke(app, ["classes", *flags, "-o", "json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["assumed_speedup"] == "amdahl:0.97"
    assert said["jobs"] == 4
    assert sum(row["jobs"] for row in said["classes"]) == 4
    curve = run.invoke(app, ["frontier", str(tmp_path / "classes.yaml"), "-o", "json"])
    assert curve.exit_code == 0, curve.output
    assert len(json.loads(curve.stdout)["points"]) > 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--from", "sacct"], "--from needs a file and --out"),
        (["--out", "x"], "need --from"),
        (["--from", "slurm", "x", "--out", "y"], "is not a trace format"),
    ],
)
def test_flags_that_do_not_go_together(flags: list[str], said: str) -> None:
    """Usage errors name what to type."""
    done = CliRunner().invoke(app, ["classes", *flags])
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)
