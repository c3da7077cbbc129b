"""`boa classes` and its document: estimates of each class beside the stated values."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.cli import main
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.learning.speedups import SpeedSample
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content


@pytest.fixture
def play(tmp_path: Path) -> Iterator[DaemonInAFolder]:
    """A daemon that saw twenty jobs of two hours (stated as one) and ten minutes of work at two widths."""
    clock = ManualClock(1.8e9)
    found = DaemonInAFolder(tmp_path, clock, {"budget": {"usd_per_hour": 40.0}})
    for gpus, speed in ((1, 100.0), (4, 250.0)):
        found.daemon.work.learner.worked(
            SpeedSample(
                class_name="default",
                gpu_type="a10g",
                gpus=gpus,
                samples=600.0 * speed,
                seconds=600.0,
                at=1.8e9,
            )
        )
    for number in range(20):
        content = job_content(f"j{number}", hours=1.0) | {"environment": {"HOURS": "2.0"}}
        found.service.submit([content], user="ann")
        for _ in range(3):
            found.daemon.tick()
            clock.instant += 300.0
    yield found
    found.close()


@pytest.fixture
def asked(play: DaemonInAFolder, monkeypatch: pytest.MonkeyPatch) -> DaemonInAFolder:
    """Let the command ask that daemon."""

    @contextmanager
    def a_client(*_: object) -> Iterator[Any]:
        yield SimpleNamespace(get=lambda path: {"/classes": play.service.classes}[path]())

    monkeypatch.setattr(import_module("boa_daemon.cli.run.classes"), "a_client", a_client)
    return play


def said(words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the output of a command line."""
    monkeypatch.setattr("sys.argv", ["boa", *words])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 0
    return capsys.readouterr().out


def test_the_document_shows_estimates_beside_stated_values(play: DaemonInAFolder) -> None:
    """Rate, size and speed-up each have an interval and the number of observations."""
    (found,) = play.service.classes()["classes"]
    rate, size = found["arrivals_per_hour"], found["size_gpu_hours"]

    assert rate["stated"] is None
    assert rate["jobs"] == 20
    assert rate["low"] < 4.0 < rate["high"]
    assert size["stated"] == 1.0
    assert size["ended"] > 5
    assert size["low"] < 2.0 < size["high"]
    assert size["planned"] == pytest.approx(2.0, rel=0.3)
    at_four = next(row for row in found["speedups"] if row["gpus"] == 4)
    assert at_four["stated"] == pytest.approx(3.48, abs=0.01)
    assert at_four["estimate"] == pytest.approx(2.5, rel=0.02)
    assert at_four["low"] < 2.5 < at_four["high"]
    assert at_four["measured_seconds"] == 600.0
    assert 0.0 <= found["age_seconds"] < 3600.0
    json.dumps(found, allow_nan=False)


def test_boa_classes_prints_a_table_json_or_csv(
    asked: DaemonInAFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 80 columns the table leaves out where a figure is from; naming a class shows its widths."""
    monkeypatch.setenv("COLUMNS", "80")
    narrow = said(["classes"], capsys, monkeypatch)
    assert "left out on this width: from" in narrow
    assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 80
    monkeypatch.setenv("COLUMNS", "100")
    table = said(["classes"], capsys, monkeypatch)
    (rate,) = [line for line in table.splitlines() if "20 arrived" in line]
    assert rate.startswith("default  jobs/h ")
    assert re.search(r"^ +GPU-hours a job +[\d.]+ \([\d.]+ to [\d.]+\) +1  \d+ ended *$", table, re.M)
    assert re.search(r"^ +speed-up at \d+ GPUs +[\d.]+ \(.*\) +[\d.]+  0\.3 h measured *$", table, re.M)
    assert "4 x a10g" in said(["classes", "default"], capsys, monkeypatch)
    document = json.loads(said(["classes", "-o", "json"], capsys, monkeypatch))
    assert document["classes"] == asked.service.classes()["classes"]
    (row,) = csv.DictReader(io.StringIO(said(["classes", "-o", "csv"], capsys, monkeypatch)))
    assert float(row["size_gpu_hours_stated"]) == 1.0


def test_estimates_are_exported_as_a_class_file(
    asked: DaemonInAFolder,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file has rate, size and the measured widths; an existing file is not overwritten."""
    path = tmp_path / "learnt.yaml"
    said(["classes", "--export", str(path)], capsys, monkeypatch)
    (found,) = load_problem(path).problem.classes
    (row,) = asked.service.classes()["classes"]
    measured = [one for one in row["speedups"] if one["measurements"]]

    assert found.arrivals_per_hour == pytest.approx(row["arrivals_per_hour"]["estimate"], rel=1e-5)
    assert found.size_gpu_hours == pytest.approx(row["size_gpu_hours"]["estimate"], rel=1e-5)
    assert 0.0 < load_problem(path).spreads["default"] <= 0.9
    assert all(one["is_extrapolated"] == (not one["measurements"]) for one in row["speedups"])
    assert found.phases[0].speedups["a10g"].whole_widths().tolist() == [one["gpus"] for one in measured]
    monkeypatch.setattr("sys.argv", ["boa", "classes", "--export", str(path)])
    with pytest.raises(SystemExit):
        main()
    assert "is there already" in capsys.readouterr().err


def test_an_unknown_class_is_a_usage_error(
    asked: DaemonInAFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 2, and the message suggests the closest name."""
    monkeypatch.setattr("sys.argv", ["boa", "classes", "defualt"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert "default" in capsys.readouterr().err


def test_explain_shows_the_estimates_of_the_class(play: DaemonInAFolder) -> None:
    """Rate and size are shown with their intervals."""
    running = next(job.id for job in play.storage.queue.active.values() if job.slots)
    text = play.service.explain(running)["text"]

    assert "stated 1) jobs/h from" in text
    assert "stated 1) GPU-hours a job from" in text
