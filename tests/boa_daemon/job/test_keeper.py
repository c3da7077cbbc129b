"""The keeper and the commands that it runs before, beside and after a job."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_bench import until

from boa_daemon.job import keeper as keeping
from boa_daemon.job.checkpoint import MANIFEST, write_checkpoint
from boa_daemon.job.container import NoContainers
from boa_daemon.job.leavings import remove_trees, temporary_folder
from boa_daemon.job.processes import carrying, started_ticks
from boa_daemon.job.secrets import SecretMissing
from boa_daemon.job.unit import KEPT, SCRATCH, Unit, read_json, read_own, status_of


def until_go(folder: Path) -> str:
    """Return a command that lasts until the test creates the file `go`."""
    return f"while [ ! -e {folder}/go ]; do sleep 0.05; done"


def a_unit(folder: Path, **changes: Any) -> Unit:
    """Return a unit whose file is written."""
    values: dict[str, Any] = {
        "name": "u",
        "job": "a",
        "generation": 1,
        "rank": 0,
        "run": "echo it ran",
        "folder": folder / "unit",
        "workdir": str(folder),
        "progress_file": str(folder / "progress"),
        "checkpoint_dir": str(folder / "checkpoints"),
        "after": f"touch {folder}/told",
    }
    unit = Unit(**(values | changes))
    unit.write()
    return unit


def kept(unit: Unit) -> subprocess.Popen[bytes]:
    """Start a unit's keeper."""
    return subprocess.Popen([sys.executable, "-m", "boa_daemon.job.keeper", "--foreground", str(unit.folder)])


def printed(unit: Unit) -> str:
    return "".join(file.read_text() for file in sorted(unit.folder.glob("out-*.log")))


def test_a_unit_ends_after_the_upload_of_its_last_checkpoint(tmp_path: Path) -> None:
    """Until then its status is running, and its end is not sent."""
    unit = a_unit(tmp_path, keep=f"{until_go(tmp_path)}; echo x > {tmp_path}/sent")
    with kept(unit) as keeper:
        until(lambda: "it ran" in printed(unit))
        time.sleep(1.0)
        status = status_of(unit.folder, verify=True)
        assert (status["exit"], status["is_kept"]) == (None, True)
        assert not (tmp_path / "told").exists()
        (tmp_path / "go").touch()
        assert keeper.wait(timeout=60) == 0
    assert (tmp_path / "sent").exists()
    assert (tmp_path / "told").exists()
    assert (read_json(unit.folder / "exit.json") or {})["code"] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs jobs as other users")
def test_a_command_whose_user_the_kernel_refuses_is_said_not_to_start() -> None:
    """As for a group that a user namespace lacks. No other keeper tries it again, and nothing is lost."""
    top = Path(tempfile.mkdtemp())
    top.chmod(0o755)
    unit = a_unit(top, uid=65534, gid=65534, groups=(-1,), workdir="/", after="")
    Path(unit.checkpoint_dir).mkdir()
    with kept(unit) as keeper:
        assert keeper.wait(timeout=60) == 0
    end = read_json(unit.folder / "exit.json") or {}
    assert "boa: cannot start in /: it cannot run as its user: Invalid argument" in printed(unit)
    assert (end["code"], end.get("agent_lost", False)) == (127, False)
    shutil.rmtree(top)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs jobs as other users")
def test_a_keeper_of_an_ended_unit_ends_well_though_the_kernel_refuses_its_user(tmp_path: Path) -> None:
    """A service manager would start it again, and again."""
    unit = a_unit(tmp_path, uid=2**32 - 1)
    (unit.folder / "exit.json").write_text('{"code": 127}')
    (unit.folder / ".keeper.json.room").touch()
    with kept(unit) as keeper:
        assert keeper.wait(timeout=60) == 0
    assert not (unit.folder / ".keeper.json.room").exists()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        *((OSError(getattr(errno, name), "x"), 1) for name in
          ("ENOSPC", "EDQUOT", "EROFS", "EIO", "EMFILE", "ENFILE", "ENOMEM", "EAGAIN", "ESTALE", "ETXTBSY")),
        *((OSError(getattr(errno, name), "x"), 127) for name in
          ("ENOENT", "ENOTDIR", "EACCES", "EPERM", "ENOEXEC", "E2BIG", "ELOOP")),
        (NoContainers("no podman"), 127),
        (SecretMissing("no store"), 1),
    ],
)  # fmt: skip
def test_only_what_another_try_would_repeat_is_a_missing_command(error: Exception, code: int) -> None:
    """A node that has no room, memory or descriptors says nothing about the command."""
    assert keeping.code_of(error) == code


def test_very_deep_folders_of_a_command_do_not_stay(tmp_path: Path) -> None:
    """Also folders below which no path is short enough for one call of the system."""
    deep = f"import os\nfor top in os.environ['TMPDIR'], '{tmp_path}/unit/{SCRATCH}':\n    os.chdir(top)\n"
    deep += "    for _ in range(3000): os.mkdir('d'); os.chdir('d')\n"
    (tmp_path / "deep.py").write_text(deep)
    unit = a_unit(tmp_path, run=f"echo in $TMPDIR; {sys.executable} {tmp_path}/deep.py", progress_file="")
    with kept(unit) as keeper:
        assert keeper.wait(timeout=120) == 0
    assert (read_json(unit.folder / "exit.json") or {})["code"] == 0
    assert not temporary_folder(unit.folder).exists()
    assert not (unit.own / SCRATCH).exists()


def test_a_failed_fetch_keeps_the_command_from_starting(tmp_path: Path) -> None:
    """The fetch's error is in the log and in the end record, and the end is sent."""
    unit = a_unit(tmp_path, before="echo 'S3 said no' >&2; exit 3")
    with kept(unit) as keeper:
        keeper.wait(timeout=60)
    end = read_json(unit.folder / "exit.json") or {}

    assert (end["code"], end["before_failed"]) == (None, "S3 said no")
    assert "it ran" not in printed(unit)
    assert "S3 said no" in printed(unit)
    assert (tmp_path / "told").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_stop_ends_a_fetch(tmp_path: Path, number: signal.Signals) -> None:
    """A job that is stopped before it began needs no checkpoint."""
    unit = a_unit(tmp_path, before="sleep 600")
    with kept(unit) as keeper:
        until((unit.folder / "before.err").exists)
        os.kill(keeper.pid, number)
        assert keeper.wait(timeout=60) == 0
    assert "it ran" not in printed(unit)


def put_checkpoint(unit: Unit, step: int) -> None:
    """Write a manifest of this step for the unit's command."""
    folder = Path(unit.checkpoint_dir)
    folder.mkdir(exist_ok=True)
    (folder / ".new").write_text(json.dumps({"generation": unit.generation, "step": step}))
    os.replace(folder / ".new", folder / MANIFEST)


def test_each_new_checkpoint_is_uploaded_until_that_succeeds(tmp_path: Path) -> None:
    """The upload is tried with each beat, and not while there is no new checkpoint."""
    tries, beats = tmp_path / "tries", tmp_path / "beats"

    def lines(file: Path) -> int:
        return file.read_text().count(".") if file.exists() else 0

    def comes(more: int, file: Path) -> int:
        before = lines(file)
        until(lambda: lines(file) >= before + more)
        return lines(tries)

    unit = a_unit(
        tmp_path,
        run=f"touch {tmp_path}/begun; {until_go(tmp_path)}",
        beat=f"echo . >> {beats}",
        keep=f"echo . >> {tries}; [ ! -e {tmp_path}/works ] || date +%N > {{kept}}",
        beat_seconds=0.1,
    )
    replace(unit, keep=unit.keep.format(kept=unit.own / KEPT)).write()
    put_checkpoint(replace(unit, generation=0), 1)
    with kept(unit) as keeper:
        until((tmp_path / "begun").exists)
        assert comes(4, beats) == 0, "it began with that"
        put_checkpoint(unit, 1)
        comes(3, tries)
        (tmp_path / "works").touch()
        until((unit.own / KEPT).exists)
        comes(2, beats)  # A last try may have been under way.
        assert comes(4, beats) == comes(4, beats), "it stands"
        before = lines(tries)
        put_checkpoint(unit, 2)
        until(lambda: lines(tries) > before)
        (tmp_path / "go").touch()
        assert keeper.wait(timeout=60) == 0


def test_a_long_upload_does_not_delay_heartbeats(tmp_path: Path) -> None:
    """Beats go on while the upload runs."""
    unit = a_unit(
        tmp_path,
        run=f"touch {tmp_path}/begun; {until_go(tmp_path)}",
        beat=f"echo . >> {tmp_path}/beats",
        keep=f"touch {tmp_path}/sending; {until_go(tmp_path)}",
        beat_seconds=0.2,
    )
    with kept(unit) as keeper:
        until((tmp_path / "begun").exists)
        put_checkpoint(unit, 1)
        until((tmp_path / "sending").exists)
        (tmp_path / "beats").unlink(missing_ok=True)
        until(lambda: (tmp_path / "beats").exists() and (tmp_path / "beats").read_text().count(".") >= 3)
        (tmp_path / "go").touch()
        assert keeper.wait(timeout=60) == 0


def test_a_kill_ends_the_command_and_a_second_one_its_upload(tmp_path: Path) -> None:
    """The last checkpoint is uploaded after the first kill."""
    unit = a_unit(tmp_path, run="echo it ran; sleep 600", keep=f"touch {tmp_path}/sending; sleep 600")
    with kept(unit) as keeper:
        until(lambda: "it ran" in printed(unit))
        os.kill(keeper.pid, signal.SIGUSR1)
        until((tmp_path / "sending").exists)
        os.kill(keeper.pid, signal.SIGUSR1)
        assert keeper.wait(timeout=60) == 0
    assert (read_json(unit.folder / "exit.json") or {})["killed"]


def test_a_kill_after_the_end_interrupts_neither_upload_nor_end_message(tmp_path: Path) -> None:
    """All units get a kill when one has failed; a unit that failed too still uploads its checkpoint."""
    wait = until_go(tmp_path)
    unit = a_unit(
        tmp_path,
        run="exit 3",
        keep=f"touch {tmp_path}/sending; {wait}; touch {tmp_path}/sent",
        after=f"touch {tmp_path}/telling; sleep 0.5; touch {tmp_path}/told",
    )
    with kept(unit) as keeper:
        for phase in ("sending", "telling"):
            until((tmp_path / phase).exists)
            os.kill(keeper.pid, signal.SIGUSR1)
            time.sleep(0.3)
            (tmp_path / "go").touch()
        assert keeper.wait(timeout=60) == 0
    assert (tmp_path / "sent").exists()
    assert (tmp_path / "told").exists()
    assert (read_json(unit.folder / "exit.json") or {})["killed"] is False


@pytest.mark.parametrize(("run", "faults"), [("exit 7", ["Xid 79"]), ("true", [])])
def test_a_failed_command_triggers_a_health_check_of_its_node(
    tmp_path: Path, run: str, faults: list[str]
) -> None:
    """Faults are in the end message; a successful command triggers no check."""
    health = tmp_path / "unit" / "health.json"
    unit = a_unit(
        tmp_path,
        run=run,
        look=f'sleep 0.2; echo \'{{"faults": ["Xid 79"]}}\' > {health}',
        after=f"printenv BOA_STATUS > {tmp_path}/told",
    )
    with kept(unit) as keeper:
        assert keeper.wait(timeout=60) == 0
    told = read_json(tmp_path / "told") or {}

    assert told["node_faults"] == faults
    assert status_of(unit.folder, verify=True)["node_faults"] == faults


def test_a_node_is_checked_while_its_job_runs(tmp_path: Path) -> None:
    """The next heartbeat contains the faults."""
    health = tmp_path / "unit" / "health.json"
    unit = a_unit(
        tmp_path,
        run=until_go(tmp_path),
        look=f'echo \'{{"faults": ["GPU 3 is sick"]}}\' > {health}',
        beat=f"printenv BOA_STATUS > {tmp_path}/beat",
        beat_seconds=0.2,
    )
    with kept(unit) as keeper:
        until(lambda: (read_json(tmp_path / "beat") or {}).get("node_faults") == ["GPU 3 is sick"])
        (tmp_path / "go").touch()
        assert keeper.wait(timeout=60) == 0


def test_a_working_folder_whose_name_is_no_text_can_be_missing(tmp_path: Path) -> None:
    """The end is recorded and the log says why; the keeper does not die of the name."""
    unit = a_unit(tmp_path, workdir=f"{tmp_path}/{os.fsdecode(b'donn' + bytes([0xE9]) + b'es')}")
    with kept(unit) as keeper:
        assert keeper.wait(timeout=60) == 0

    assert "cannot start in" in printed(unit)
    assert read_own(unit.folder, "exit.json") is not None


def test_shared_memory_of_a_command_that_was_started_early_is_removed(tmp_path: Path) -> None:
    """It came before the unit's turn, and after the start of its command."""
    left = Path(f"/dev/shm/boa_test_early_{os.getpid()}")
    run = f"umask 077; echo x > {left}; echo made; while [ ! -e {tmp_path}/unit/go ]; do sleep 0.05; done"
    unit = a_unit(tmp_path, run=run, waits="start")
    alone = (
        "from boa_daemon.job import enclosure, keeper, leavings\n"
        "enclosure.why_shared = lambda *_: 'a test wants it'\n"
        "leavings._has_other_unit = lambda *_: False  # Other tests run units of this user.\n"
        f"keeper.main(['--foreground', {str(unit.folder)!r}])"
    )
    with subprocess.Popen([sys.executable, "-c", alone]) as keeper:
        until(lambda: "made" in printed(unit) and (unit.folder / "ready").exists())
        time.sleep(0.1)
        (unit.folder / "go").touch()
        assert keeper.wait(timeout=60) == 0

    is_left = left.exists()
    left.unlink(missing_ok=True)
    assert not is_left


def test_a_command_that_was_started_early_and_cannot_go_on_is_ended(tmp_path: Path) -> None:
    """The file that lets it go on cannot be made: it would wait for that for ever, with its memory."""
    unit = a_unit(
        tmp_path,
        progress_file=str(tmp_path / "own" / "progress"),
        run="echo $$; exec sleep 600",
        waits="start",
    )
    with kept(unit) as keeper:
        until(lambda: printed(unit).strip().isdigit() and (unit.folder / "ready").exists())
        early = int(printed(unit))
        unit.own.rename(tmp_path / "gone")
        (unit.folder / "go").touch()
        assert keeper.wait(timeout=60) == 0

    found = read_own(unit.folder, "exit.json") or {}
    assert (found["code"], found["killed"]) == (127, False)
    assert started_ticks(early) is None


def test_lines_of_the_keeper_stand_apart_from_those_of_the_command(tmp_path: Path) -> None:
    """Also if the command ended in the middle of a line."""
    unit = a_unit(tmp_path, run="printf 'the end'", artifacts=("none/*",))
    with kept(unit) as keeper:
        assert keeper.wait(timeout=60) == 0

    assert printed(unit).splitlines() == ["the end", "boa: no file matches the artifacts 'none/*'"]


@pytest.mark.parametrize("ends", ["by itself", "by a kill"])
def test_the_scratch_folder_is_empty_at_the_start_and_removed_at_the_end(tmp_path: Path, ends: str) -> None:
    """This holds for an end by itself and for a kill."""
    hold = "" if ends == "by itself" else "; sleep 600"
    unit = a_unit(
        tmp_path,
        progress_file=str(tmp_path / "own" / "progress"),
        run=f'ls -A "$BOA_SCRATCH" | wc -l; head -c 1000 /dev/zero > "$BOA_SCRATCH/big"; echo "it ran"{hold}',
        environment={"BOA_SCRATCH": str(tmp_path / "own" / "unit" / SCRATCH)},
    )
    scratch = unit.own / SCRATCH
    with kept(unit) as keeper:
        until(lambda: "it ran" in printed(unit))
        if hold:
            assert (scratch / "big").stat().st_size == 1000
            os.kill(keeper.pid, signal.SIGUSR1)
        keeper.wait(timeout=60)

    assert printed(unit).splitlines()[0] == "0"
    assert not scratch.exists()
    assert (unit.folder / "exit.json").exists()


def test_temporary_files_of_a_job_go_with_it_and_those_of_other_programs_stay(tmp_path: Path) -> None:
    """What another program of the same user makes meanwhile has names like the job's."""
    theirs = tmp_path / "theirs"
    run = (
        f"{sys.executable} -c 'import tempfile; print(tempfile.mkdtemp(), tempfile.mkstemp()[1])' && "
        f"echo $TMPDIR > {tmp_path}/where; {until_go(tmp_path)}"
    )
    unit = a_unit(tmp_path, run=run)
    with kept(unit) as keeper:
        until(lambda: (tmp_path / "where").exists() and "/tmp" in printed(unit))
        theirs = Path(tempfile.mkdtemp())
        (theirs / "file").write_text("x")
        files = [Path(word) for word in printed(unit).split()]
        assert all(file.exists() for file in files)
        (tmp_path / "go").touch()
        assert keeper.wait(timeout=60) == 0
    assert not any(file.exists() for file in files)
    assert not Path((tmp_path / "where").read_text().strip()).exists()
    assert (theirs / "file").exists()
    shutil.rmtree(theirs)


DEEPER = "import os, sys; os.chdir(sys.argv[1]); [(os.mkdir('d'), os.chdir('d')) for _ in range(1500)]"
LEFT = {
    "deep artifacts": f'mkdir out; {sys.executable} -c "{DEEPER}" out; touch out/file',
    "deep rank files": f'd={{own}}/ranks; mkdir -p $d; {sys.executable} -c "{DEEPER}" $d; sleep 6',
    "deep checkpoint": f'd={{checkpoints}}/g1-step1.ckpt; mkdir -p $d; {sys.executable} -c "{DEEPER}" $d',
    "deep scratch": f'{sys.executable} -c "{DEEPER}" {{own}}/scratch',
    "artifact with holes": "mkdir out; truncate -s 15T out/holes || truncate -s 1T out/holes; touch out/file",
    "checkpoint with holes": (
        "cd {checkpoints}; truncate -s 15T x || truncate -s 1T x; "
        'echo \'{{"generation": 1, "step": 9, "sha256": "x", "path": "x"}}\' > manifest.json'
    ),
    "lock is a pipe": "rm -f {checkpoints}/.lock; mkfifo {checkpoints}/.lock",
    "lock is a folder": "rm -f {checkpoints}/.lock; mkdir {checkpoints}/.lock",
    "all is a pipe": (
        "cd {own}; for n in kept.json lease register stop failure.json; do rm -f $n; mkfifo $n; done"
    ),
    "all is a folder": (
        "cd {own}; for n in kept.json lease register stop failure.json; do rm -f $n; mkdir $n; done"
    ),
}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that is removed at once: pytest's cleaning descends by recursion."""
    yield tmp_path
    remove_trees(*tmp_path.iterdir())


@pytest.mark.first_set(2)
@pytest.mark.parametrize("left", LEFT)
def test_nothing_that_a_command_leaves_hinders_its_end_or_the_next_start(place: Path, left: str) -> None:
    """Its end is recorded by the first keeper, soon, and so is that of the next generation."""
    for number, run in ((1, LEFT[left]), (2, "true")):
        unit = replace(
            a_unit(place, after="", artifacts=("out/**/*", "out"), artifacts_dir=str(place / "copies")),
            folder=place / f"g{number}",
            generation=number,
        )
        where = {"own": unit.own, "checkpoints": place / "checkpoints"}
        unit = replace(unit, run=run.format(**where))
        unit.write()
        with kept(unit) as keeper:
            assert keeper.wait(timeout=60) == 0
        end = read_own(unit.folder, "exit.json") or {}
        assert (end.get("code"), end.get("agent_lost", False)) == (0, False), printed(unit)
        assert "another one goes on" not in printed(unit)
        assert status_of(unit.folder, verify=False)["manifest"] is None
    if left == "artifact with holes":
        assert "out/holes could not be copied" in printed(replace(unit, folder=place / "g1"))
        assert [file.name for file in (place / "copies" / "out").iterdir()] == ["file"]


def test_a_kill_ends_the_reading_of_a_checkpoint(tmp_path: Path) -> None:
    """How much there is to read is for the job to say; a file with holes takes no space."""
    found = os.statvfs(tmp_path)
    size = int(found.f_blocks * found.f_frsize * 0.9)
    unit = a_unit(tmp_path, after="")
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    with (folder / "x").open("wb") as file:
        file.truncate(size)
    (folder / MANIFEST).write_text(json.dumps({"generation": 1, "step": 9, "sha256": "x", "path": "x"}))
    with kept(unit) as keeper:
        until(lambda: "it ran" in printed(unit))
        time.sleep(1.0)
        assert keeper.poll() is None
        keeper.send_signal(signal.SIGUSR1)
        assert keeper.wait(timeout=60) == 0
    assert (
        status_of(unit.folder, verify=False)["wrong_manifest"]
        == "the checkpoint could not be read to its end"
    )


def test_the_end_names_the_checkpoint_that_the_keeper_has_verified(tmp_path: Path) -> None:
    """So no engine computes a digest within its tick; records of earlier versions are verified by readers."""
    unit = a_unit(tmp_path, after="")
    folder = Path(unit.checkpoint_dir)
    write_checkpoint(folder, generation=1, step=7, write=lambda file: file.write(b"x"))
    with kept(unit) as keeper:
        assert keeper.wait(timeout=60) == 0
    found = status_of(unit.folder, verify=False)
    assert found["manifest"]["step"] == 7
    assert not {"manifest", "wrong_manifest"} & found["exit"].keys()

    (folder / found["manifest"]["path"]).write_bytes(b"other")
    assert status_of(unit.folder, verify=False)["manifest"]["step"] == 7
    end = json.loads((unit.folder / "exit.json").read_text())
    (unit.folder / "exit.json").write_text(json.dumps({k: v for k, v in end.items() if "manifest" not in k}))
    assert status_of(unit.folder, verify=False)["manifest"] is None


@pytest.mark.parametrize("hangs", ["keep", "after"])
def test_a_last_errand_that_hangs_holds_up_nobody_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    """Who ends a unit without a keeper holds its lock, and may be a daemon in the middle of a tick."""
    monkeypatch.setattr(keeping, "LAST_UPLOAD_SECONDS", 0.2)
    monkeypatch.setattr(keeping, "ERRAND_SECONDS", 0.2)
    errands = {slot: f"touch {tmp_path}/{slot}" for slot in ("keep", "after")}
    errands[hangs] += f"; (LEFT={tmp_path} sleep 600); true"
    unit = a_unit(tmp_path, **errands)
    (unit.folder / "keeper.json").write_text('{"pid": 1, "born": "0"}')
    keeping.settle(unit.folder)
    assert (tmp_path / "keep").exists()
    assert (tmp_path / "after").exists()
    assert (read_own(unit.folder, "exit.json") or {})["agent_lost"]
    assert not carrying(f"LEFT={tmp_path}")


@pytest.mark.parametrize("settled", [False, True])
def test_errands_use_the_region_of_the_site_and_the_command_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: bool
) -> None:
    """A node of another region reports to the queue and saves to the bucket at home, its secrets too."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    aws = tmp_path / "aws"
    aws.write_text('#!/bin/sh\nfor last; do :; done\necho "$1 $AWS_REGION $AWS_DEFAULT_REGION"\n')
    aws.chmod(0o755)
    errands = {
        name: f"echo $AWS_REGION $AWS_DEFAULT_REGION >> {tmp_path}/{name}"
        for name in ("bring", "before", "beat", "keep", "after", "look")
    }
    arn = "secretsmanager:arn:aws:secretsmanager:sa-east-1:123456789012:secret:x"
    unit = a_unit(
        tmp_path,
        run="echo [$AWS_REGION $AWS_DEFAULT_REGION] [$A] [$B]; sleep 1; false",
        beat_seconds=0.2,
        region="us-east-1",
        secrets={"A": "ssm:/a", "B": arn},
        **errands,
    )
    if settled:
        (unit.folder / "keeper.json").write_text('{"pid": 1, "born": "0"}')
        words = [sys.executable, "-m", "boa_daemon.job.keeper", "--settle", str(unit.folder)]
        subprocess.run(words, check=True, timeout=60.0)
    else:
        assert kept(unit).wait(60.0) is not None
        assert "[ eu-west-1] [ssm us-east-1 us-east-1] [secretsmanager sa-east-1 sa-east-1]" in printed(unit)
    seen = {
        name: (tmp_path / name).read_text().split("\n")[0] for name in errands if (tmp_path / name).exists()
    }

    assert set(seen.values()) == {"us-east-1 us-east-1"}
    assert seen.keys() >= ({"keep", "after"} if settled else {"bring", "before", "beat", "after"})
