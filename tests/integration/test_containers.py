"""Jobs in real podman containers, here and on rented nodes, have the steps, ends and causes of any job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from containers import IMAGE, make_podman_work
from engine_bench import Bench, until
from engine_worlds import ssm_world

from boa_daemon.engines.local import LocalEngine
from boa_daemon.testing import a_node
from boa_daemon.tick.facts.ports import Accepted

TRAINER = """
import os, time
from boa_daemon import job
is_inside = os.path.exists("/run/.containerenv")
print("inside", is_inside, os.environ["MY"], os.environ["BOA_GPUS"], len(os.environ["TOKEN"]), flush=True)
done = 0
def load(path):
    global done
    done = int(path.read_text())
    print("from", done, flush=True)
for step in job.steps({steps}, load=load, save=lambda file: file.write(str(done).encode())):
    done += 1
    time.sleep({seconds})
    job.report(step + 1, samples=1)
"""


@contextmanager
def local(root: Path) -> Iterator[Bench]:
    secrets = root / "secrets"
    root.mkdir()
    secrets.write_text("TOKEN=hush-hush\n")
    secrets.chmod(0o600)
    yield Bench(engine=LocalEngine(root, secrets_file=str(secrets)), workdir=root)


@contextmanager
def rented(root: Path) -> Iterator[Bench]:
    own = {"CONTAINERS_CONF": os.environ["CONTAINERS_CONF"]}
    with ssm_world(root, node_environment=own) as make:
        bench = Bench(engine=make(), workdir=root)
        until(lambda: set(bench.engine.prepare([a_node("n1")]).values()) == {Accepted()})
        yield bench


@pytest.fixture(params=[local, pytest.param(rented, marks=pytest.mark.exhaustive)])
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Each engine, with a folder and a job name that no other test's containers have."""
    make_podman_work(tmp_path, monkeypatch)
    with request.param(tmp_path / "root") as found:
        found.workdir = tmp_path / "work"
        found.workdir.mkdir()
        found.job = f"c-{os.getpid()}-{tmp_path.name}"
        yield found


LOCAL = pytest.mark.parametrize("bench", [local], indirect=True)


def admit(bench: Bench, text: str, **changes: object) -> None:
    (bench.workdir / "train.py").write_text(text)
    token = (
        {"secrets": {"TOKEN": "env:TOKEN"}}
        if isinstance(bench.engine, LocalEngine)
        else {"environment": {"MY": "x y", "TOKEN": "hush-hush"}}
    )
    bench.admit("exec python3 train.py", **({"image": IMAGE, "environment": {"MY": "x y"}} | token | changes))


def unit_folder(bench: Bench) -> Path:
    """Return the folder of the newest generation's first unit."""
    (folder,) = bench.workdir.parent.glob(f"root/**/{bench.job}*/g{bench.generation}/n0/keeper.json")
    return folder.parent


def containers(bench: Bench) -> list[str]:
    done = subprocess.run(
        ["podman", "ps", "--all", "--format", "{{.Names}}"], capture_output=True, text=True, check=True
    )
    return [name for name in done.stdout.split() if bench.job in name]


def test_a_job_in_a_container_is_resized_without_losing_a_step(bench: Bench) -> None:
    """A stopped job resumes from its checkpoint with two GPUs, can be entered, and leaves no container."""
    admit(bench, TRAINER.format(steps=700, seconds=0.02))
    bench.start(1)
    bench.wait_step(20)
    said = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "hush-hush" not in said
    bench.stop()
    first = bench.wait_end()
    assert (first.phase, first.lost_steps) == ("stopped", 0), bench.printed()
    assert "inside True x y 1 9" in bench.printed()
    bench.start(2)
    bench.wait_step((first.step or 0) + 1)
    inside = [sys.executable, "-m", "boa_daemon.job.unit_access", str(unit_folder(bench))]
    words = [*inside, "--seconds", "60", "echo $MY; exit 3"]
    entered = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert (entered["code"], entered["output"]) == (3, "x y\n")
    last = bench.wait_end()
    assert last.phase == "finished", bench.printed()
    assert last.evidence == "the job said that it is done and ended with exit code 0"
    assert f"from {first.step}" in bench.printed()
    until(lambda: not containers(bench))


@LOCAL
def test_a_stop_asks_the_process_in_the_container_that_saves_first(bench: Bench) -> None:
    """A slow save behind a pipe is complete, and the container's next command does not start."""
    slow = TRAINER.replace("lambda file: ", "lambda file: time.sleep(4) or ")
    (bench.workdir / "train.py").write_text(slow.format(steps=100_000, seconds=0.02))
    run = "python3 train.py 2>&1 | cat; echo it went on"
    bench.admit(run, image=IMAGE, environment={"MY": "x", "TOKEN": ""}, stop_grace_seconds=30.0)
    bench.start(1)
    bench.wait_step(20)
    bench.stop()
    end = bench.wait_end()
    assert (end.phase, end.lost_steps) == ("stopped", 0), bench.printed()
    assert "a stop: the process that uses boa_daemon.job" in bench.printed()
    assert "it went on" not in bench.printed().splitlines()
    until(lambda: not containers(bench))


def test_a_container_ends_at_once_with_its_unit(bench: Bench) -> None:
    """Killing the unit ends the container: no process in it goes on."""
    admit(bench, TRAINER.format(steps=100_000, seconds=0.02))
    bench.start(1)
    bench.wait_step(5)
    bench.engine.kill(bench.job, 1)
    end = bench.wait_end()
    assert (end.phase, end.cause) == ("failed", "killed")
    until(lambda: not containers(bench))
    step = bench.report().step
    time.sleep(0.5)
    assert bench.report().step == step


def test_a_container_goes_on_though_its_keeper_is_killed(bench: Bench) -> None:
    """The next keeper stops it, and no step is lost."""
    admit(bench, TRAINER.format(steps=100_000, seconds=0.02))
    bench.start(1)
    step = bench.wait_step(5).step or 0
    os.kill(json.loads((unit_folder(bench) / "keeper.json").read_text())["pid"], signal.SIGKILL)
    bench.wait_step(step + 20)
    bench.stop()
    end = bench.wait_end()
    assert (end.phase, end.lost_steps) == ("stopped", 0), bench.printed()
    until(lambda: not containers(bench))


@LOCAL
def test_a_container_over_its_memory_limit_fails_as_out_of_memory(bench: Bench) -> None:
    """The kernel kills the process at `memory_gb`; the cause of the failure is "out-of-memory"."""
    admit(bench, "x = [b'x' * 1_000_000 for _ in range(2_000)]", memory_gb=0.2, cpus=1.0)
    bench.start(1)
    end = bench.wait_end()
    assert (end.phase, end.cause) == ("failed", "out-of-memory"), (end, bench.printed())
    until(lambda: not containers(bench))


@LOCAL
def test_the_exit_code_of_a_container_is_the_jobs(bench: Bench) -> None:
    """The evidence is the container's exit code and last line, also if the job names artifacts."""
    admit(bench, "import sys; print('no such thing'); sys.exit(9)", artifacts=("out/*",))
    bench.start(1)
    end = bench.wait_end()
    assert (end.phase, end.cause) == ("failed", "error")
    assert end.evidence == "ended with exit code 9: no such thing"


@LOCAL
def test_a_job_that_ignores_its_stop_is_ended_by_force(bench: Bench) -> None:
    """When the grace period is over the container and all its processes are ended."""
    text = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: print('no', flush=True))\n"
    admit(bench, f"{text}print('up', flush=True)\nwhile True: time.sleep(0.1)", stop_grace_seconds=1.0)
    bench.start(1)
    until(lambda: "up" in bench.printed())
    bench.stop()
    end = bench.wait_end()
    assert end.phase == "stopped"
    assert "by force" in end.evidence
    assert "no" in bench.printed()
    until(lambda: not containers(bench))
