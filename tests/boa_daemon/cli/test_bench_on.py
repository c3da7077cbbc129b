"""`boa bench --on`: what its jobs run and print, and machines that are rented, measured and given back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from daemon_site import SETTINGS, Site, a_site
from verbs import exit_code

from boa_daemon.cli.bench_on import MARK, BenchOptions, bench_job, step_seconds
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
    """Run on this machine what the job of a width runs, and return how it ended and what it printed."""
    one = BenchOptions(command=[sys.executable, "-c", program], seconds=1.0, first_step_seconds=first)
    environment = {**os.environ, "BOA_PROGRESS_FILE": str(folder / "progress"), "BOA_GPUS": "2"}
    done = subprocess.run(
        ["/bin/bash", "-c", bench_job(one, "c", 2)["run"]],
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_a_width_is_measured_from_its_first_record_to_its_last(tmp_path: Path) -> None:
    """The program is ended after its second, and what its first step took does not count."""
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
def test_what_reports_no_step_ends_and_says_so(tmp_path: Path, program: str, first: float, said: str) -> None:
    """Its job fails, once."""
    code, log = printed(tmp_path, program, first=first)

    assert (code, said in log) == (1, True)
    with pytest.raises(InputError, match="fewer than two steps"):
        step_seconds(log)


@pytest.mark.parametrize(
    "log", ["", f"{MARK} [{{}}, ]", f'{MARK} [{{"step": 1, "seconds": 0.0}}, {{"step": 1}}]']
)
def test_one_step_is_too_few(log: str) -> None:
    """As none is, and half a record."""
    with pytest.raises(InputError, match="fewer than two steps"):
        step_seconds(log)


def test_its_job_is_bounded_in_every_way() -> None:
    """One width, hours, and no second try; its dollars are what is left of the money."""
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
def test_what_does_not_say_what_to_rent_is_refused(
    words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is rented."""
    assert exit_code(monkeypatch, "bench", *words, "--", "true") == 2
    assert said in " ".join(capsys.readouterr().err.split())


def bench(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    """Measure a program that reports steps, on machines of the site."""
    (site.folder / "steps.py").write_text(STEPS.format(steps=10_000))
    flags = ("--seconds", "2", "--steps", "45000", "--write", "c.yaml", *words)
    return subprocess.run(
        [sys.executable, "-m", "boa_daemon", "bench", *flags, "--", sys.executable, "steps.py"],
        cwd=site.folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "TERM": "dumb"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.mark.exhaustive
def test_machines_are_rented_measured_and_given_back() -> None:
    """Two widths of another type than the site's own; the second is on the node of the first.

    A daemon of its own and a simulated node, one to boot and to end: a minute and more.
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
        assert "a daemon listens here" in " ".join(refused.stderr.split())
