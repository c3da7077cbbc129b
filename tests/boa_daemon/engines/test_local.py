"""Processes of this machine: what can go wrong with them, and what is left when they are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_bench import NUMPY, Bench, numpy_loss, script, until

from boa_daemon.engines.local import KERNELS_PORTS, LocalEngine, free_port
from boa_daemon.engines.local_units import FILES
from boa_daemon.inputs.message_validation import DROPPED_MESSAGES
from boa_daemon.job.keeper import start_apart
from boa_daemon.job.processes import carrying, started_ticks
from boa_daemon.job.seal import KEY_FILE
from boa_daemon.job.unit import Unit
from boa_daemon.tick.ports import Accepted, JobSpec, Refused

CONTROLLER = """
import sys, time
from pathlib import Path
from boa_daemon.tick.actions import StartJob
from boa_daemon.engines.local import LocalEngine
from boa_daemon.tick.ports import JobSpec
from policies.model import GpuSlot, Width
engine = LocalEngine(Path(sys.argv[1]))
engine.reattach()
engine.admit(JobSpec(job="a", name="a", class_name="c", run=sys.argv[2], workdir=sys.argv[1]))
number, gpus = int(sys.argv[3]), int(sys.argv[4])
slots = tuple(GpuSlot("n1", at) for at in range(gpus))
engine.start(StartJob(id="s", job="a", generation=number, width=Width("cpu", gpus), slots=slots, reason=""))
while True:
    engine.poll()
    time.sleep(0.02)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A local engine; nothing of it is left afterwards."""
    (tmp_path / "work").mkdir()
    bench = Bench(engine=LocalEngine(tmp_path / "root"), workdir=tmp_path / "work")
    yield bench
    for job, report in bench.engine.poll().items():
        if not report.is_over:
            bench.engine.kill(job, report.generation)
            bench.wait(lambda report: report.is_over)
    until(lambda: processes(bench) == [])


@pytest.mark.parametrize(
    "workdir", ["/gone", f"/{'x' * 300}", "/a\0b", sys.executable, f"{sys.executable}/in"]
)
def test_a_workdir_that_cannot_be_looked_at_is_refused(bench: Bench, workdir: str) -> None:
    """A name that is too long, like a folder of somebody else's, raised in the tick that started the job."""
    spec = JobSpec(job="b", name="b", class_name="c", run="true", workdir=workdir)
    answer = bench.engine.admit(spec)
    assert isinstance(answer, Refused)
    assert answer.kind == "bad-request"


def processes(bench: Bench) -> list[int]:
    """Return the living processes of the bench's newest generation."""
    layout = bench.engine.layout  # type: ignore[attr-defined]
    found = []
    for file in layout.generation(bench.job, bench.generation).glob("n*/unit.json"):
        found += carrying(f"BOA_UNIT={json.loads(file.read_text())['name']}")
    return sorted(pid for pid in found if started_ticks(pid) is not None)


def keeper(bench: Bench) -> int:
    """Return the process that keeps the newest generation's first unit."""
    folder = bench.engine.layout.unit(bench.job, bench.generation, 0)  # type: ignore[attr-defined]
    return int(json.loads((folder / "keeper.json").read_text())["pid"])


def checkpoints(bench: Bench) -> Path:
    """Return the folder of the job's checkpoints."""
    return bench.engine.layout.checkpoints(bench.job)  # type: ignore[attr-defined, no-any-return]


@pytest.mark.exhaustive
def test_killed_workers_agents_and_daemons_cost_no_finished_step(tmp_path: Path, bench: Bench) -> None:
    """Whatever is killed, in any order, at any width: every saved step stands and the loss is the same.

    The job saves after each step. The daemon is a process of its own that starts the generation, and dies
    with SIGKILL; the engine of this test is the one that comes back.
    """
    draw = random.Random(0)
    run = f"{NUMPY} --steps 100000 --pause 0.004 --every 1"
    assert bench.admit(run) == Accepted()
    victims = ["worker", "keeper", "daemon"]
    draw.shuffle(victims)
    for gpus, victim in zip((1, 2, 4), victims, strict=True):
        bench.generation += 1
        arguments = [str(tmp_path / "root"), run, str(bench.generation), str(gpus)]
        with subprocess.Popen([sys.executable, "-c", CONTROLLER, *arguments]) as daemon:
            folder = bench.engine.layout.generation("a", bench.generation)  # type: ignore[attr-defined]
            until(lambda folder=folder: (folder / "generation.json").exists())
            bench.engine.reattach()
            before = (bench.ends[-1].step or 0) if bench.ends else 0
            step = bench.wait_step(before + draw.randrange(5, 12)).step or 0
            if victim == "daemon":
                daemon.send_signal(signal.SIGKILL)
                bench.wait_step(step + 3)
                bench.stop()
            else:
                os.kill(
                    keeper(bench) if victim == "keeper" else draw.choice(processes(bench)), signal.SIGKILL
                )
            end = bench.wait_end()
            daemon.kill()
        assert end.manifest is not None
        assert end.phase == ("stopped" if victim == "daemon" else "failed"), (victim, end)
        assert end.lost_steps <= 1, "at most the step between its report and its save"
        until(lambda: processes(bench) == [])
    last = (bench.ends[-1].step or 0) + 10
    bench.admit(f"{NUMPY} --steps {last} --every 1")
    bench.start(1)
    end = bench.wait_end()

    assert (end.phase, end.step) == ("finished", last)
    assert end.loss == pytest.approx(numpy_loss(last), rel=1e-9)


def test_the_port_where_ranks_meet_is_handed_to_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is below those that the kernel hands out; where it hands out all of them, any one will do."""
    begin = int(KERNELS_PORTS.read_text().split()[0])
    assert all(1024 <= free_port() < begin for _ in range(20))
    (tmp_path / "all").write_text("1024\t65535\n")
    monkeypatch.setattr("boa_daemon.engines.local.KERNELS_PORTS", tmp_path / "all")
    assert 1024 <= free_port() <= 65535


def test_children_that_linger_are_ended_and_counted(bench: Bench) -> None:
    """Also those that left the session and closed everything: the keeper inherits what is orphaned."""
    daemonise = script(
        "import os, time\nfor _ in range(3):\n  if os.fork() == 0:\n    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n    os.closerange(0, 99); time.sleep(600)"
    )
    end = bench.run_to_end(daemonise)

    assert end.phase == "finished"
    assert "3 processes outlived it" in end.evidence
    until(lambda: processes(bench) == [])


def test_what_a_rigid_job_is_told_is_no_evidence_of_its_end(bench: Bench) -> None:
    """It stands in the log, and neither among the last lines nor in the reason."""
    end = bench.run_to_end("exit 3", is_rigid=True)
    assert "this job runs at one width" in bench.printed()
    assert (end.evidence, end.last_lines) == ("ended with exit code 3", ())
    end = bench.run_to_end("echo; echo no such column; exit 3", is_rigid=True)
    assert (end.evidence, end.last_lines) == (
        "ended with exit code 3: no such column",
        ("", "no such column"),
    )


@pytest.mark.exhaustive
def test_a_gigabyte_of_output_is_drained_and_the_newest_part_kept(bench: Bench) -> None:
    """The job never waits for its log, the disk takes no more than the limit, and the reader is told."""
    limit = 4 * 2**20
    end = bench.run_to_end("yes 0123456789 | head -c 999999999; echo; echo the last line", log_bytes=limit)
    folder = bench.engine.layout.unit("a", 1, 0)  # type: ignore[attr-defined]
    kept = sum(file.stat().st_size for file in folder.glob("out-*.log"))
    first = bench.engine.logs("a")

    assert end.phase == "finished"
    assert end.last_lines[-1] == "the last line"
    assert limit <= kept + 2**20 <= 1.3 * limit + 2**20
    assert first.dropped_bytes == 1_000_000_014 - kept
    assert bench.engine.logs("a", since=1_000_000_000).text == "the last line\n"


@pytest.mark.parametrize(
    "damage",
    [
        '{"generation": 1, "st',
        '{"generation": 1}',
        '{"generation":1,"step":9,"sha256":"0","path":"/etc/passwd"}',
        "",
    ],
)
def test_a_corrupt_manifest_counts_for_nothing(bench: Bench, damage: str) -> None:
    """The checkpoint before it is what the next generation resumes from, and its own writes replace it."""
    bench.admit(f"{NUMPY} --steps 100000 --pause 0.004 --every 5")
    bench.start(1)
    bench.wait_step(11)
    bench.engine.kill("a", 1)
    bench.wait(lambda report: report.is_over)
    (checkpoints(bench) / "manifest.json").write_text(damage)
    bench.start(2)
    bench.wait_step(6)
    assert "resumed" not in bench.printed()
    bench.stop()
    end = bench.wait_end()

    assert end.lost_steps == 0
    assert end.manifest is not None
    assert end.manifest.generation == 2
    assert "step 6 on 2 workers" in bench.printed(), "it went on behind step 5, the checkpoint before"


def test_a_checkpoint_whose_file_was_damaged_is_reported(bench: Bench) -> None:
    """The digest in the manifest is that of the file, or the checkpoint is none."""
    save = "from boa_daemon import job\njob.report(1)\njob.save(1, lambda f: f.write(b'ab'))\n"
    bench.admit(script(save + "open(job.resume().path, 'wb').write(b'xy')\nimport sys; sys.exit(3)"))
    bench.start(1)
    end = bench.wait_end()

    assert end.manifest is None
    assert "digest" in end.evidence
    assert end.lost_steps == 1


def test_a_late_generation_cannot_write(bench: Bench) -> None:
    """One that was thought dead and saves behind its successor's back gets `StaleGeneration`."""
    late = script(
        "import time\nfrom pathlib import Path\nfrom boa_daemon import job\njob.report(1)\n"
        "while not Path('go').exists(): time.sleep(0.02)\n"
        "try: job.save(99, lambda f: f.write(b'late'))\nexcept job.StaleGeneration as error: print(error)"
    )
    bench.admit(late)
    bench.start(1)
    bench.wait_step(1)
    from boa_daemon.job.checkpoint import set_fence

    set_fence(checkpoints(bench), 2)
    (bench.workdir / "go").touch()
    bench.wait_end()

    assert "generation 2 was started" in bench.printed()
    assert not (checkpoints(bench) / "manifest.json").exists()


def never_kept(bench: Bench, run: str) -> Path:
    """Have a generation as a daemon leaves it that dies between writing its unit and starting the keeper."""
    bench.run_to_end(run)
    folder = bench.engine.layout.unit("a", 1, 0)  # type: ignore[attr-defined]
    for name in ("keeper.json", "exit.json"):
        (folder / name).unlink()
    bench.engine = LocalEngine(bench.workdir.parent / "root")
    return folder


def test_a_keeper_that_was_not_started_any_more_is_started_by_the_next_daemon(bench: Bench) -> None:
    """Its GPUs waited for a minute, and a try was counted as failed. It starts once, whoever comes first."""
    folder = never_kept(bench, "echo once >> marks; sleep 0.5")
    (bench.workdir / "marks").unlink()
    first = start_apart(folder, os.environ)
    assert bench.engine.reattach()["a"].phase in ("starting", "running")
    second = LocalEngine(bench.workdir.parent / "root")
    second.reattach()
    end = bench.wait_end()

    assert (end.phase, first.wait()) == ("finished", 0)
    assert (bench.workdir / "marks").read_text() == "once\n"


def test_a_keeper_that_never_came_is_noticed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was asked for and does not appear: after a while that generation has failed."""
    folder = never_kept(bench, "true")
    monkeypatch.setattr(LocalEngine, "_start_keeper", lambda _self, _folder: None)
    assert bench.engine.reattach()["a"].phase == "starting"
    os.utime(folder / "unit.json", (0.0, 0.0))
    end = bench.report()

    assert (end.phase, end.cause) == ("failed", "agent-lost")


FULL_DISK = """
import errno, os, sys
from pathlib import Path
from boa_daemon.job import keeper
write = Path.write_text
def full(path, text, *rest, **more):
    if Path(sys.argv[2]).exists():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return write(path, text, *rest, **more)
Path.write_text = full
sys.exit(keeper.main(["--foreground", sys.argv[1]]))
"""


@pytest.mark.parametrize("after", ["", "true"])
def test_how_a_job_ended_is_kept_when_the_disk_is_full_by_then(tmp_path: Path, after: str) -> None:
    """Room for it was set aside at the start: a finished job is not taken for a lost one and run again."""
    full, folder = tmp_path / "full", tmp_path / "unit"
    Unit(
        name="u",
        job="a",
        generation=1,
        rank=0,
        run=f"touch {full}; exit 0",
        folder=folder,
        workdir=str(tmp_path),
        progress_file=str(tmp_path / "progress"),
        checkpoint_dir=str(tmp_path),
        after=after,
    ).write()
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(folder), str(full)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((folder / "exit.json").read_text())["code"] == 0
    assert not list(folder.glob(".*"))


def test_a_unit_that_cannot_be_read_is_unknown_and_ends_nothing(bench: Bench) -> None:
    """One failed look is no reason to act: the job goes on, and so does the next look."""
    bench.admit(f"{NUMPY} --steps 100000 --pause 0.004")
    bench.start(1)
    step = bench.wait_step(2).step or 0
    file = bench.engine.layout.unit("a", 1, 0) / "unit.json"  # type: ignore[attr-defined]
    text = file.read_text()
    file.write_text(text[:40])
    assert bench.report().phase == "unknown"
    file.write_text(text)

    assert bench.wait_step(step + 2).phase == "running"


HELPER = "from boa_daemon import job\n"
NO_MEMORY = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**28,) * 2)\n"
TORCHRUN = f"PYTHONPATH=$PYTHONPATH:. {sys.executable} -m torch.distributed.run"


@pytest.mark.parametrize(
    ("run", "cause"),
    [
        ("trane.py --fast", "missing-command"),
        (script(f"{HELPER}import no_such_module_at_all"), "missing-command"),
        (f"{TORCHRUN} -m train_missing", "missing-command"),
        (script(f"{HELPER}{NO_MEMORY}bytes(2**30)"), "out-of-memory"),
        (
            script(f"{HELPER}class OutOfMemoryError(RuntimeError): pass\nraise OutOfMemoryError('GPU')"),
            "out-of-memory",
        ),
        (script(f"{HELPER}open('/dev/full', 'w', buffering=1).write('x\\n')"), "disk-full"),
        ("echo 'CUDA out of memory'; exit 7", "error"),
        ("echo 'No space left on device'; echo 'ModuleNotFoundError: x'; exit 2", "error"),
        (script("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"), "signal"),
        (script("raise RuntimeError('loss is NaN')"), "error"),
        (script("from boa_daemon import job\njob.report(1)"), "no-result"),
    ],
)
def test_a_failure_has_a_cause(bench: Bench, run: str, cause: str) -> None:
    """From exit codes, signals and the exception that was written down; words in the log prove nothing."""
    (bench.workdir / "train_missing.py").write_text(f"{HELPER}import no_such_module_at_all")
    end = bench.run_to_end(run)

    assert (end.phase, end.cause) == ("failed", cause), end
    assert end.evidence


def test_any_id_will_do(tmp_path: Path) -> None:
    """Ids become folder names that hold no path, no quote and no percent sign, and come back as they were."""
    engine = LocalEngine(tmp_path / "root")
    bench = Bench(engine=engine, workdir=tmp_path, job="../it's 100% \N{GREEK SMALL LETTER PHI}")
    assert bench.run_to_end("echo fine").phase == "finished"

    again = LocalEngine(tmp_path / "root")
    assert list(again.reattach()) == [bench.job]
    assert [folder.parent for folder in (tmp_path / "root").iterdir()] == [tmp_path / "root"]


def test_a_folder_that_is_not_there_is_refused(bench: Bench) -> None:
    """What could not work is said when the job comes, not when it starts."""
    assert isinstance(bench.admit("true", workdir=str(bench.workdir / "missing")), Refused)


def test_an_end_that_the_keeper_did_not_write_ends_nothing(bench: Bench) -> None:
    """Neither one made up, nor one of another generation: the job runs on, and its own end counts."""
    bench.run_to_end("true")
    folder = bench.engine.layout.unit("a", 1, 0)  # type: ignore[attr-defined]
    old = (folder / "exit.json").read_text()
    bench.admit(f"until [ -e {bench.workdir}/go ]; do sleep 0.05; done; exit 3")
    bench.start(1)
    unit = bench.engine.layout.unit("a", 2, 0)  # type: ignore[attr-defined]
    bench.wait(lambda report: report.phase == "running")
    before = DROPPED_MESSAGES.counts().get(FILES, 0)
    for text in (old, json.dumps({name: old_ for name, old_ in json.loads(old).items() if name != "seal"})):
        (unit / "exit.json").write_text(text)
        assert bench.report().phase == "running"
    assert DROPPED_MESSAGES.counts()[FILES] == before + 2
    (bench.workdir / "go").touch()
    assert bench.wait_end().exit_code == 3


def test_nobody_but_its_owner_reads_the_key_of_a_generation(bench: Bench) -> None:
    """A file of mode 0600, another one for each start."""
    keys = set()
    for number in (1, 2):
        bench.run_to_end("true")
        file = bench.engine.layout.generation("a", number) / KEY_FILE  # type: ignore[attr-defined]
        assert file.stat().st_mode & 0o777 == 0o600
        keys.add(file.read_text())
    assert len(keys) == 2
