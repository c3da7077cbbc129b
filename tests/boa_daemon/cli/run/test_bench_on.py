"""`boa bench --on`: the jobs that it runs on rented machines, and the end of these machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from daemon_site import SETTINGS, Site, a_site
from verbs import exit_code

from boa_daemon.cli.run.bench_on import MARK, BenchOptions, WidthBench, bench_job, step_seconds
from boa_daemon.cli.run.run_screen import Screen
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.job_file import check_job
from boa_daemon.inputs.problem_file import load_problem

CLOUD = '[cloud]\nprovider = "simulated"\ninstance_types = ["g5.xlarge"]\n'
STEPS = """
import json, os, time
for step in range({steps}):
    with open(os.environ["BOA_PROGRESS_FILE"] + ".part", "w") as file:
        json.dump({{"step": step + 1, "seconds": step * 0.08 / int(os.environ["BOA_GPUS"])}}, file)
    os.replace(file.name, os.environ["BOA_PROGRESS_FILE"])
    time.sleep(0.05)
"""


def printed(folder: Path, program: str, *, first: float = 20.0) -> tuple[int, str]:
    """Run the job of one width on this machine, and return its exit code and output."""
    one = BenchOptions(command=[sys.executable, "-c", program], seconds=1.0, first_step_seconds=first)
    environment = {**os.environ, "BOA_PROGRESS_FILE": str(folder / "progress"), "BOA_GPUS": "2"}
    done = subprocess.run(
        ["/bin/bash", "-c", bench_job(one, "c", 2)["run"]],
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_a_width_is_measured_from_its_first_progress_record(tmp_path: Path) -> None:
    """The duration of the first step does not count, and the program is ended after its second."""
    began = time.monotonic()
    code, said = printed(tmp_path, STEPS.format(steps=10_000))
    seconds, steps = step_seconds(f"what it printed\n{said}")

    assert (code, seconds) == (0, pytest.approx(0.04))
    assert steps >= 2
    assert time.monotonic() - began < 30.0


@pytest.mark.parametrize(
    ("program", "first", "said"),
    [
        ("raise SystemExit(3)", 20.0, "exit code 3 before its first step"),
        ("import time; time.sleep(60)", 1.0, "no step in 1 s"),
    ],
)
def test_a_program_that_reports_no_step_fails_with_a_message(
    tmp_path: Path, program: str, first: float, said: str
) -> None:
    """The job exits with 1, and its log gives too few steps."""
    code, log = printed(tmp_path, program, first=first)

    assert (code, said in log) == (1, True)
    with pytest.raises(InputError, match="fewer than two steps"):
        step_seconds(log)


@pytest.mark.parametrize(
    "log", ["", f"{MARK} [{{}}, ]", f'{MARK} [{{"step": 1, "seconds": 0.0}}, {{"step": 1}}]']
)
def test_fewer_than_two_measured_steps_are_an_error(log: str) -> None:
    """An empty log and a cut-off record are errors too."""
    with pytest.raises(InputError, match="fewer than two steps"):
        step_seconds(log)


def test_the_job_of_bench_has_one_width_limited_hours_and_no_retries() -> None:
    """Its hours are the measuring time plus a margin."""
    one = BenchOptions(command=["train it", "--x"], seconds=60.0, first_step_seconds=600.0)
    checked = check_job(Document(name="it", content=bench_job(one, "c", 4)))

    assert (checked["min_gpus"], checked["max_gpus"], checked["retries"]) == (4, 4, 0)
    assert 600.0 + 60.0 < 3600.0 * checked["max_hours"] < 900.0
    assert "'\"'\"'train it'\"'\"' --x" in checked["run"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--instance-type", "g5.xlarge", "--on", "g5.xlarge"),
            "name the type of this machine, or the types",
        ),
        (("--on", "g5.xlarge"), "--on needs --max-usd and --write"),
        (("--on", "g5.xlarge,g5.2xlarge", "--max-usd", "1"), "two of the machines have the same GPU type"),
        (("--on", "g5.xlarge", "--gpus", "1,2"), "from 1 to 1, which g5.xlarge has"),
    ],
)
def test_wrong_flags_for_rented_machines_are_refused(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The exit code is 2, the message says what to give, and no daemon that could rent is started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "boa_daemon.cli.run.bench_on.run_to_receipt", lambda *_, **__: pytest.fail("it rents")
    )
    assert exit_code(monkeypatch, "bench", *words, "--", "true") == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_each_job_of_bench_may_cost_what_the_jobs_before_it_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first job has cost 0.7 of 2 USD, so the second one may cost 1.3 USD."""
    one = BenchOptions(command=["train"], seconds=1.0, first_step_seconds=1.0)
    runs = WidthBench(
        content={},
        contents={gpus: bench_job(one, "c", gpus) for gpus in (2, 1)},
        max_usd=2.0,
        screen=Screen(is_quiet=True, max_usd=2.0),
        wait_seconds=1.0,
    )
    allowed: list[float] = []

    def through(content: dict[str, Any]) -> str:
        allowed.append(content["max_usd"])
        runs._usd, runs._job = 0.7, {"status": "finished"}
        return "job"

    monkeypatch.setattr(WidthBench, "_through", lambda _, content: through(content))
    measured = f'{MARK} [{{"step": 1, "seconds": 0.0}}, {{"step": 3, "seconds": 1.0}}]'
    monkeypatch.setattr(WidthBench, "_printed", lambda _, name: measured)
    runs._revive = lambda: None
    runs._jobs()

    assert allowed == [2.0, pytest.approx(1.3)]


def bench(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `boa bench` on machines of the site with a program that reports steps."""
    (site.folder / "steps.py").write_text(STEPS.format(steps=10_000))
    flags = ("--seconds", "2", "--steps", "45000", "--write", "c.yaml", *words)
    return subprocess.run(
        [sys.executable, "-m", "boa_daemon", "bench", *flags, "--", sys.executable, "steps.py"],
        cwd=site.folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "TERM": "dumb"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.mark.exhaustive
def test_bench_on_a_rented_machine_measures_and_leaves_nothing_running() -> None:
    """The type need not be in the site's settings. A running daemon makes `boa bench --on` refuse.

    The test starts a daemon of its own and a simulated node that boots and ends, which takes more than a
    minute.
    """
    with a_site(SETTINGS.format(usd=10.0).replace("[cloud]\n", CLOUD)) as site:
        done = bench(site, "--on", "g5.12xlarge", "--gpus", "1,2", "--max-usd", "2")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Nothing is left running." in done.stdout

        (found,) = load_problem(site.folder / "c.yaml", require_rates=False).problem.classes
        assert found.size_gpu_hours == pytest.approx(1.0)
        assert found.phases[0].speedups["a10g"].speed_at([1, 2]).tolist() == pytest.approx([1.0, 2.0])
        left = subprocess.run(
            [sys.executable, "-m", "boa_daemon", "gc", "--check", "--json"],
            cwd=site.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert left.returncode == 0, json.loads(left.stdout)

        site.up()
        refused = bench(site, "--on", "g5.xlarge", "--max-usd", "2", "--name", "other", "--write", "d.yaml")
        assert refused.returncode == 2, refused.stderr
        assert "another daemon already listens here" in " ".join(refused.stderr.split())
