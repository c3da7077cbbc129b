"""The `local` engine: failures of its processes, and its state after a kill."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from command_shapes import JOBS, kill_keepers
from engine_bench import NUMPY, Bench, numpy_loss, script, until
from small_disk import a_small_disk

from boa_daemon.engines import local_units
from boa_daemon.engines.local import KERNELS_PORTS, LocalEngine, free_port
from boa_daemon.engines.local_units import FILES
from boa_daemon.inputs.message_validation import DROPPED_MESSAGES
from boa_daemon.job.keeper import start_apart
from boa_daemon.job.processes import carrying, started_ticks
from boa_daemon.job.seal import KEY_FILE
from boa_daemon.job.unit import Unit, is_kept, read_json, read_own, sealed_document, write_json
from boa_daemon.tick.facts.ports import Accepted, JobSpec, Refused

CONTROLLER = """
import sys, time
from pathlib import Path
from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.engines.local import LocalEngine
from boa_daemon.tick.facts.ports import JobSpec
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
    """A local engine; afterwards none of its processes may be left."""
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
def test_an_unusable_workdir_is_refused(bench: Bench, workdir: str) -> None:
    """A workdir that is missing, too long, malformed or a file is a bad request, not an exception."""
    spec = JobSpec(job="b", name="b", class_name="c", run="true", workdir=workdir)
    answer = bench.engine.admit(spec)
    assert isinstance(answer, Refused)
    assert answer.kind == "bad-request"


def processes(bench: Bench) -> list[int]:
    """Return the living processes of the job's newest generation."""
    layout = bench.engine.layout  # type: ignore[attr-defined]
    found = []
    for file in layout.generation(bench.job, bench.generation).glob("n*/unit.json"):
        found += carrying(f"BOA_UNIT={json.loads(file.read_text())['name']}")
    return sorted(pid for pid in found if started_ticks(pid) is not None)


def keeper(bench: Bench) -> int:
    """Return the process id of the keeper of the newest generation's first unit."""
    folder = bench.engine.layout.unit(bench.job, bench.generation, 0)  # type: ignore[attr-defined]
    return int(json.loads((folder / "keeper.json").read_text())["pid"])


def checkpoints(bench: Bench) -> Path:
    """Return the job's checkpoint folder."""
    return bench.engine.layout.checkpoints(bench.job)  # type: ignore[attr-defined, no-any-return]


@pytest.mark.exhaustive
def test_killed_workers_keepers_and_daemons_cost_no_saved_step(tmp_path: Path, bench: Bench) -> None:
    """The job saves after each step. At each width one of worker, keeper and daemon gets a SIGKILL.

    The daemon is a separate process, and the test's engine takes over from it. Only the death of a worker
    ends a generation. At most the step that was not saved yet is lost, and the final loss equals that of an
    uninterrupted run.
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
            else:
                os.kill(
                    keeper(bench) if victim == "keeper" else draw.choice(processes(bench)), signal.SIGKILL
                )
            if victim != "worker":
                bench.wait_step(step + 3)
                bench.stop()
            end = bench.wait_end()
            daemon.kill()
        assert end.manifest is not None
        assert end.phase == ("failed" if victim == "worker" else "stopped"), (victim, end)
        assert end.lost_steps <= 1, "at most the step between its report and its save"
        until(lambda: processes(bench) == [])
    last = (bench.ends[-1].step or 0) + 10
    bench.admit(f"{NUMPY} --steps {last} --every 1")
    bench.start(1)
    end = bench.wait_end()

    assert (end.phase, end.step) == ("finished", last)
    assert end.loss == pytest.approx(numpy_loss(last), rel=1e-9)


def test_the_rendezvous_port_is_outside_the_kernels_ephemeral_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any port is taken if the ephemeral range covers all ports."""
    begin = int(KERNELS_PORTS.read_text().split()[0])
    assert all(1024 <= free_port() < begin for _ in range(20))
    (tmp_path / "all").write_text("1024\t65535\n")
    monkeypatch.setattr("boa_daemon.engines.local.KERNELS_PORTS", tmp_path / "all")
    assert 1024 <= free_port() <= 65535


def test_lingering_child_processes_are_ended_and_counted(bench: Bench) -> None:
    """Daemonised children are included, since the keeper adopts orphans."""
    # What a command that ends within five seconds leaves running has a minute to begin its training.
    daemonise = script(
        "import os, time\nfor _ in range(3):\n  if os.fork() == 0:\n    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n    os.closerange(0, 99); time.sleep(600)\ntime.sleep(5)"
    )
    end = bench.run_to_end(daemonise)

    assert end.phase == "finished"
    assert "3 processes outlived it" in end.evidence
    until(lambda: processes(bench) == [])


def test_the_note_to_a_rigid_job_is_not_evidence_of_its_failure(bench: Bench) -> None:
    """The note is in the log, but neither in the last lines nor in the evidence."""
    end = bench.run_to_end("exit 3", is_rigid=True)
    assert "this job runs at one width" in bench.printed()
    assert (end.evidence, end.last_lines) == ("ended with exit code 3", ())
    end = bench.run_to_end("echo; echo no such column; exit 3", is_rigid=True)
    assert (end.evidence, end.last_lines) == (
        "ended with exit code 3: no such column",
        ("", "no such column"),
    )


@pytest.mark.exhaustive
def test_a_log_over_its_limit_keeps_its_newest_part(bench: Bench) -> None:
    """A gigabyte of output is drained, the disk holds about the limit, and the dropped bytes are reported."""
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


@pytest.mark.first_set(1)
@pytest.mark.parametrize(
    "damage",
    [
        '{"generation": 1, "st',
        '{"generation": 1}',
        '{"generation":1,"step":9,"sha256":"0","path":"/etc/passwd"}',
        "",
    ],
)
def test_a_corrupt_manifest_is_ignored_and_replaced(bench: Bench, damage: str) -> None:
    """The next generation finds the last checkpoint without the manifest and writes a new manifest."""
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


def test_a_checkpoint_with_a_wrong_digest_does_not_count(bench: Bench) -> None:
    """The evidence names the digest, and the step is reported as lost."""
    save = "from boa_daemon import job\njob.report(1)\njob.save(1, lambda f: f.write(b'ab'))\n"
    bench.admit(script(save + "open(job.resume().path, 'wb').write(b'xy')\nimport sys; sys.exit(3)"))
    bench.start(1)
    end = bench.wait_end()

    assert end.manifest is None
    assert "digest" in end.evidence
    assert end.lost_steps == 1


def test_an_outdated_generation_cannot_save(bench: Bench) -> None:
    """`save` raises `StaleGeneration` after a newer generation was started."""
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


BOTH = ("guard", "pid")


@pytest.mark.first_set(2)
@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("when", ["before the stop", "in the stop", "after the save", "after the end"])
def test_a_command_outlives_its_keeper_and_its_guard(bench: Bench, when: str, is_restarted: bool) -> None:
    """The engine, or the one after it, starts others: no step is lost, and no second start is allowed."""
    bench.admit(f"{sys.executable} {JOBS / 'loop.py'} --save 2; echo it went on", stop_grace_seconds=60.0)
    bench.start()
    bench.wait_step(10)
    if when != "before the stop":
        bench.stop()
        until(lambda: "a stop: the process" in bench.printed())
    if when.startswith("after"):
        until((checkpoints(bench) / "manifest.json").exists)
    left = processes(bench)
    kill_keepers(bench, BOTH)
    if when == "after the end":
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: processes(bench) == [])
    if is_restarted:
        bench.engine = LocalEngine(bench.workdir.parent / "root")
        bench.engine.reattach()
    if when == "before the stop":
        assert bench.report().phase == "running"
        refused = bench.engine.start(bench.order(1, generation=2))
        assert isinstance(refused, Refused)
        kill_keepers(bench, BOTH)
        bench.wait_step((bench.report().step or 0) + 20)
        bench.stop()
    end = bench.wait_end()

    assert (end.phase, end.lost_steps) == ("stopped", 0), f"{end}\n{bench.printed()}"
    assert "it went on" not in bench.printed()


def test_a_command_that_dies_with_its_keepers_is_lost(bench: Bench) -> None:
    """Nobody saw how it ended, so it counts as lost and not as finished."""
    bench.admit(f"{NUMPY} --steps 100000 --pause 0.01")
    bench.start()
    bench.wait_step(5)
    left = processes(bench)
    kill_keepers(bench, BOTH)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    end = bench.wait_end()

    assert (end.phase, end.cause) == ("failed", "agent-lost")


def test_a_unit_of_before_a_reboot_is_not_taken_for_a_living_one(bench: Bench) -> None:
    """Process ids come again: the papers name the boot of the machine."""
    bench.admit(f"{NUMPY} --steps 100000 --pause 0.01")
    bench.start()
    bench.wait_step(5)
    folder = bench.engine.layout.unit("a", 1, 0)  # type: ignore[attr-defined]
    kill_keepers(bench, BOTH)
    for name in ("keeper.json", "course.json"):
        mine = {"pid": os.getpid(), "ticks": started_ticks(os.getpid())} if name == "keeper.json" else {}
        papers = {**(read_own(folder, name) or {}), **mine, "boot": "another"}
        write_json(folder / name, sealed_document(folder, papers))
    end = bench.wait_end()

    assert (end.phase, end.cause) == ("failed", "agent-lost")


def test_a_full_disk_does_not_end_a_command_without_keeper_and_guard(tmp_path: Path) -> None:
    """The engine starts others though it can note nothing, and they go on though they can note nothing."""
    with a_small_disk(megabytes=8) as disk:
        if disk is None:
            return
        bench = Bench(engine=LocalEngine(disk.folder / "root"), workdir=disk.folder / "work")
        bench.workdir.mkdir()
        bench.admit(f"echo told; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; touch {tmp_path}/end")
        bench.start()
        until(lambda: "told" in bench.printed())
        disk.fill()
        for _ in range(2):
            kill_keepers(bench, BOTH)
            disk.fill()
            time.sleep(0.2)
            bench.report()
            time.sleep(1.0)
            assert bench.report().phase == "running"
        (tmp_path / "go").touch()
        end = bench.wait_end()

    assert (tmp_path / "end").exists()
    assert (end.phase, end.cause) == ("failed", "agent-lost")


def test_a_keeper_that_cannot_go_on_ends_its_unit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit is looked after again and again for a while, and then ended with all of its processes."""
    tries: list[int] = []
    bench.admit(f"{NUMPY} --steps 100000 --pause 0.01")
    bench.start()
    bench.wait_step(5)
    monkeypatch.setattr(local_units, "TRY_SECONDS", 0.0)
    monkeypatch.setattr(LocalEngine, "_start_keeper", lambda *_: tries.append(1))
    kill_keepers(bench, BOTH)
    end = bench.wait_end()

    assert (end.phase, end.cause, len(tries)) == ("failed", "agent-lost", local_units.MOST_TRIES)


def never_kept(bench: Bench, run: str) -> Path:
    """Leave a generation whose daemon died after it wrote the unit and before it started the keeper."""
    bench.run_to_end(run)
    folder = bench.engine.layout.unit("a", 1, 0)  # type: ignore[attr-defined]
    # Its keeper has errands after the end, and holds the lock for as long.
    until(lambda: not is_kept(read_json(folder / "keeper.json")))
    for name in ("keeper.json", "course.json", "exit.json"):
        (folder / name).unlink()
    bench.engine = LocalEngine(bench.workdir.parent / "root")
    return folder


def test_a_restarted_daemon_starts_a_missing_keeper(bench: Bench) -> None:
    """The job runs once, although several starters compete."""
    folder = never_kept(bench, "echo once >> marks; sleep 0.5")
    (bench.workdir / "marks").unlink()
    first = start_apart(folder, os.environ)
    assert bench.engine.reattach()["a"].phase in ("starting", "running")
    second = LocalEngine(bench.workdir.parent / "root")
    second.reattach()
    end = bench.wait_end()

    assert (end.phase, first.wait()) == ("finished", 0)
    assert (bench.workdir / "marks").read_text() == "once\n"


def test_a_keeper_that_does_not_start_fails_its_generation(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old generation without a keeper has the cause `agent-lost`."""
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
def test_the_end_of_a_job_is_recorded_on_a_full_disk(tmp_path: Path, after: str) -> None:
    """The keeper reserves room for the record at its start, so a finished job is not run again."""
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


def test_a_job_with_an_unreadable_unit_file_is_unknown_and_runs_on(bench: Bench) -> None:
    """The job is reported as running again once the file can be read."""
    bench.admit(f"{NUMPY} --steps 100000 --pause 0.004")
    bench.start(1)
    step = bench.wait_step(2).step or 0
    file = bench.engine.layout.unit("a", 1, 0) / "unit.json"  # type: ignore[attr-defined]
    text = file.read_text()
    file.write_text(text[:40])
    assert bench.report().phase == "unknown"
    file.write_text(text)

    assert bench.wait_step(step + 2).phase == "running"


@pytest.mark.first_set(2)
@pytest.mark.parametrize("what", ["job", "generation", "unit", "unit's files"])
def test_a_job_whose_folder_somebody_deleted_is_ended_and_can_start_again(bench: Bench, what: str) -> None:
    """Nobody could stop it any more, and its node would be paid for ever."""
    bench.admit(f"{NUMPY} --steps 100000 --pause 0.01")
    bench.start()
    bench.wait_step(2)
    layout = bench.engine.layout  # type: ignore[attr-defined]
    mark = f"BOA_UNIT={Unit.read(layout.unit('a', 1, 0)).name}"
    if what == "unit's files":
        for file in layout.unit("a", 1, 0).iterdir():
            file.unlink()
    else:
        places = {"job": layout.job("a"), "generation": layout.generation("a", 1)}
        shutil.rmtree(places.get(what, layout.unit("a", 1, 0)))
    end = bench.wait_end()

    assert (end.phase, end.cause) == ("failed", "agent-lost")
    assert "deleted" in end.evidence
    until(lambda: not any(started_ticks(pid) for pid in carrying(mark)))
    bench.start()
    assert bench.wait_step(2).generation == 2


@pytest.mark.first_set(2)
@pytest.mark.parametrize("what", ["all jobs", "job", "generation", "unit", "unit's file"])
def test_a_job_whose_folder_was_deleted_while_no_daemon_ran_is_not_started_beside_itself(
    bench: Bench, what: str
) -> None:
    """The next daemon has its claim alone, and orders the start again that seems never to have come."""
    bench.admit(f"{NUMPY} --steps 100000 --pause 0.01")
    bench.start()
    bench.wait_step(2)
    layout = bench.engine.layout  # type: ignore[attr-defined]
    unit = layout.unit("a", 1, 0)
    mark = f"BOA_UNIT={Unit.read(unit).name}"
    if what == "unit's file":
        (unit / "unit.json").unlink()
    else:
        places = {"all jobs": layout.root, "job": layout.job("a"), "generation": unit.parent, "unit": unit}
        shutil.rmtree(places[what])
    bench.engine = LocalEngine(layout.root)
    bench.admit(f"{NUMPY} --steps 100000 --pause 0.01")
    bench.engine.reattach()
    assert bench.engine.start(bench.order(1)) == Accepted()
    end = bench.wait_end()

    assert (end.phase, end.cause) == ("failed", "agent-lost")
    assert "deleted" in end.evidence
    until(lambda: not any(started_ticks(pid) for pid in carrying(mark)))
    bench.start()
    assert bench.wait_step(2).generation == 2


def test_nothing_is_ended_while_the_disk_of_the_jobs_is_away(bench: Bench) -> None:
    """An empty folder may be in its place, as below a disk that was unmounted; the job runs on."""
    bench.admit("sleep 600")
    bench.start()
    bench.wait(lambda report: report.phase == "running")
    root = bench.engine.layout.root  # type: ignore[attr-defined]
    until(lambda: bool(processes(bench)))
    before = processes(bench)
    for is_bare in (False, True):
        root.rename(root.with_name("aside"))
        if is_bare:
            root.mkdir()
        report = bench.report()
        if is_bare:
            root.rmdir()
        root.with_name("aside").rename(root)
        assert report.phase == "unknown"
        assert bench.report().phase == "running"
        assert processes(bench) == before


def test_a_job_starts_although_no_thread_can_be_started(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a limit of processes the keeper may be the last that there is room for: it does its work."""

    def refused(_: object) -> None:
        raise RuntimeError("can't start new thread")

    bench.admit("true")
    with monkeypatch.context() as limit:
        limit.setattr("threading.Thread.start", refused)
        bench.start()
    assert bench.wait_end().phase == "finished"


def ignore_children() -> Callable[[], object]:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    return lambda: signal.signal(signal.SIGCHLD, before)


def block_all() -> Callable[[], object]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    return lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.parametrize("leave", [ignore_children, block_all])
def test_what_the_daemons_parent_ignored_or_blocked_is_nothing_to_a_job(
    bench: Bench, leave: Callable[[], Callable[[], object]]
) -> None:
    """The end of its command is seen, with its exit code, and the command has no signal blocked."""
    bench.admit("grep -E 'SigBlk|SigIgn' /proc/self/status; exit 3")
    restore = leave()
    try:
        bench.start()
    finally:
        restore()
    assert bench.wait_end(seconds=60.0).exit_code == 3
    blocked, ignored = (int(line.split()[1], 16) for line in bench.printed().splitlines()[:2])
    assert blocked == 0
    assert not ignored & 1 << (signal.SIGCHLD - 1)


HELPER = "from boa_daemon import job\n"
NO_MEMORY = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**28,) * 2)\n"
TORCHRUN = f"PYTHONPATH=$PYTHONPATH:. {sys.executable} -m torch.distributed.run"


@pytest.mark.parametrize(
    ("run", "cause"),
    [
        ("trane.py --fast", "missing-command"),
        (script(f"{HELPER}import no_such_module_at_all"), "missing-command"),
        pytest.param(
            f"{TORCHRUN} -m train_missing", "missing-command", marks=pytest.mark.frameworks, id="torchrun"
        ),
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
def test_the_cause_of_a_failure_comes_from_codes_signals_and_exceptions(
    bench: Bench, run: str, cause: str
) -> None:
    """Words in the log do not decide the cause."""
    (bench.workdir / "train_missing.py").write_text(f"{HELPER}import no_such_module_at_all")
    end = bench.run_to_end(run)

    assert (end.phase, end.cause) == ("failed", cause), end
    assert end.evidence


def test_any_job_id_can_be_a_folder_name(tmp_path: Path) -> None:
    """A job whose id holds a path, a quote or a percent sign keeps its id after a restart."""
    engine = LocalEngine(tmp_path / "root")
    bench = Bench(engine=engine, workdir=tmp_path, job="../it's 100% \N{GREEK SMALL LETTER PHI}")
    assert bench.run_to_end("echo fine").phase == "finished"

    again = LocalEngine(tmp_path / "root")
    assert list(again.reattach()) == [bench.job]
    assert [folder.parent for folder in (tmp_path / "root").iterdir()] == [tmp_path / "root"]


def test_a_missing_workdir_is_refused_at_admission(bench: Bench) -> None:
    """A missing workdir is an error of `admit`, not of the start."""
    assert isinstance(bench.admit("true", workdir=str(bench.workdir / "missing")), Refused)


def test_an_end_record_without_a_valid_seal_is_dropped(bench: Bench) -> None:
    """A forged record and a record of an earlier generation are counted as dropped, and the job runs on."""
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


def test_each_generation_has_its_own_key_file_of_mode_0600(bench: Bench) -> None:
    """The keys of two generations differ."""
    keys = set()
    for number in (1, 2):
        bench.run_to_end("true")
        file = bench.engine.layout.generation("a", number) / KEY_FILE  # type: ignore[attr-defined]
        assert file.stat().st_mode & 0o777 == 0o600
        keys.add(file.read_text())
    assert len(keys) == 2
