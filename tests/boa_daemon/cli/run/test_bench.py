"""`boa bench`: the measured seconds of a step at each width, and its errors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from verbs import exit_code

from boa_daemon.cli.run.bench import measure
from boa_daemon.errors import InputError
from boa_daemon.inputs.problem_file import load_problem

SCRIPT = """
import json, os, time
width, at = int(os.environ["BOA_GPUS"]), time.monotonic()
assert os.environ["CUDA_VISIBLE_DEVICES"] == ",".join(map(str, range(width)))
for step in range(10_000):
    record = {"step": step + 1, "seconds": step * 0.08 / width}
    with open(os.environ["BOA_PROGRESS_FILE"] + ".part", "w") as file:
        json.dump(record, file)
    os.replace(file.name, os.environ["BOA_PROGRESS_FILE"])
    time.sleep(0.02)
"""


@pytest.mark.exhaustive
def test_bench_writes_a_class_file_with_the_measured_speed_ups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`load_problem` reads the file; a second run refuses to overwrite it."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    flags = ("--instance-type", "g5.12xlarge", "--gpus", "1,2", "--seconds", "5", "--steps", "45000")
    words = ("bench", *flags, "--write", "c.yaml", "--", sys.executable, str(script))

    assert exit_code(monkeypatch, *words) == 0
    (found,) = load_problem(tmp_path / "c.yaml", require_rates=False).problem.classes
    assert found.size_gpu_hours == pytest.approx(1.0)
    assert found.phases[0].speedups["a10g"].speed_at([1, 2]).tolist() == pytest.approx([1.0, 2.0])
    assert exit_code(monkeypatch, *words) == 2
    assert "c.yaml is there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("program", "patience", "said"),
    [
        (
            "print('no data'); raise SystemExit(3)",
            60.0,
            "fewer than two steps: it exited with code 3: no data",
        ),
        ("import time; time.sleep(60)", 0.5, "fewer than two steps: it was still running"),
    ],
)
def test_a_script_that_reports_no_steps_is_an_error(program: str, patience: float, said: str) -> None:
    """The error says how the script ended and what it printed; its hint names `boa_daemon.job.report`."""
    with pytest.raises(InputError, match=said) as error:
        measure([sys.executable, "-c", program], 1, seconds=1.0, first_step_seconds=patience)

    assert "boa_daemon.job.report" in str(error.value.hint)


def test_too_large_widths_and_missing_commands_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 2, and a command with a width that is too large is not started."""
    started = tmp_path / "started"
    words = ("--instance-type", "g5.xlarge", "--gpus", "1,2", "--", "touch", str(started))
    assert exit_code(monkeypatch, "bench", *words) == 2
    assert not started.exists()
    assert "must list widths from 1 to 1" in capsys.readouterr().err
    assert exit_code(monkeypatch, "bench", "--instance-type", "g5.xlarge", "--", "/no/such") == 2
    assert "cannot start /no/such" in capsys.readouterr().err
