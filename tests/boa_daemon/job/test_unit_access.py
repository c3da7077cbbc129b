"""Commands beside a job: a shell on a terminal, the output limit, and the command for a container."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from engine_bench import until

from boa_daemon.job.keeper import start_apart
from boa_daemon.job.processes import children, kill_all_carrying, started_ticks
from boa_daemon.job.unit import Unit
from boa_daemon.job.unit_access import MOST_DOCUMENT, NOT_HERE, words_of


@pytest.fixture
def unit(tmp_path: Path) -> Iterator[Unit]:
    """A unit that runs for a while."""
    name = f"boa-inside-{tmp_path.name}-{os.getpid()}"
    found = Unit(
        name=name,
        job="a",
        generation=1,
        rank=0,
        run="sleep 60",
        folder=tmp_path / "g1" / "n0",
        workdir=str(tmp_path),
        progress_file=str(tmp_path / "g1" / "own" / "progress.json"),
        checkpoint_dir=str(tmp_path / "checkpoint"),
        environment={"BOA_UNIT": name, "WHAT": "a job"},
    )
    found.write()
    start_apart(found.folder, os.environ).wait()
    while not (found.folder / "keeper.json").exists():
        time.sleep(0.01)
    yield found
    kill_all_carrying(f"BOA_UNIT={name}")


def run(folder: Path, command: str) -> str:
    words = [sys.executable, "-m", "boa_daemon.job.unit_access", str(folder), "--seconds", "20", command]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.removesuffix("\n")


def test_a_shell_has_its_own_terminal_and_the_jobs_environment(unit: Unit) -> None:
    """The job can see that a shell was opened."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "boa_daemon.job.unit_access", str(unit.folder), "--terminal"],
        env={**os.environ, "TERM": "dumb", "PS1": "", "HOME": unit.workdir},
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, b"echo of=$WHAT in=$PWD; tty < /dev/tty; exit 5\n")
    said = b""
    try:
        while block := os.read(ours, 4096):
            said += block
    except OSError:
        pass
    os.close(ours)

    assert process.wait(timeout=120) == 5
    assert f"of=a job in={unit.workdir}" in said.decode()
    assert b"/dev/" in said
    assert b"no job control" not in said
    assert (unit.own / "inside").exists()


def test_the_output_is_cut_to_fit_into_an_ssm_answer(unit: Unit) -> None:
    """The newest part is kept, and the dropped bytes are counted."""
    text = run(unit.folder, r"head -c 60000 /dev/zero | tr '\0' '\1'; echo end")
    document = json.loads(text)

    assert len(text) <= MOST_DOCUMENT
    assert (document["code"], document["output"][-4:]) == (0, "end\n")
    assert document["dropped_bytes"] + len(document["output"]) == 60004


def test_commands_and_shells_are_refused_on_nodes_without_the_job(unit: Unit, tmp_path: Path) -> None:
    """A command gets the reason, and a shell ends with its own exit code."""
    elsewhere = tmp_path / "g2" / "n0"
    elsewhere.mkdir(parents=True)
    (elsewhere / "unit.json").write_text((unit.folder / "unit.json").read_text())
    words = [sys.executable, "-m", "boa_daemon.job.unit_access", str(elsewhere)]
    shell = subprocess.run(words, capture_output=True, text=True, check=False)

    assert json.loads(run(elsewhere, "true"))["why"] == "the job does not run on this node"
    assert (shell.returncode, "does not run on this node" in shell.stderr) == (NOT_HERE, True)


MEETS_THE_END = """
import json, os, signal, sys
from contextlib import suppress
from pathlib import Path
from boa_daemon.job import unit_access
folder, when = Path(sys.argv[1]), sys.argv[2]
def enclosed(access):
    if when != "before":
        # Until none is left: a guard may be about to start another keeper.
        with suppress(unit_access.UnitAccessFailed):
            while True:
                unit_access.send([pid for pid, _ in unit_access.keepers_that_live(folder)], signal.SIGKILL)
    return 2**22 - 1
def end_all(access):
    os.system("kill -9 " + " ".join(str(pid) for pid in unit_access.descendants(os.getpid())))
    return False
if when == "while":
    unit_access.UnitAccess._is_kept = end_all
else:
    unit_access.UnitAccess._enclosed = enclosed
print(json.dumps(unit_access.run_command(folder, "sleep 30", 20.0)))
"""


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("before", "cannot start in {}: it cannot be put beside the job"),
        ("at the start", "the job has ended on this node"),
        ("while", "the job has ended on this node"),
    ],
)
def test_a_command_that_meets_the_jobs_end_says_so(unit: Unit, when: str, why: str) -> None:
    """The process that it was to be put beside has ended, and maybe all of the job has, with the command."""
    said = subprocess.run(
        [sys.executable, "-c", MEETS_THE_END, str(unit.folder), when],
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(said.stdout or "{}").get("why") == why.format(unit.workdir), said.stderr


def test_a_command_beside_a_job_whose_folder_is_gone_says_so(tmp_path: Path) -> None:
    """The job has ended, and what it left on the node was removed."""
    document = json.loads(run(tmp_path / "gone", "true"))
    assert (document["code"], document["why"]) == (None, "the job does not run on this node")


def test_a_job_in_an_image_is_entered_through_its_container(unit: Unit) -> None:
    """The container has the unit's name; only a shell gets a terminal."""
    in_image = Unit(**{**{name: getattr(unit, name) for name in Unit.__dataclass_fields__}, "image": "a/b:1"})

    assert words_of(in_image, "nvidia-smi", "podman")[:3] == ["podman", "exec", unit.name]
    assert words_of(in_image, "nvidia-smi", "podman")[-1] == "nvidia-smi"
    assert words_of(in_image, "", "docker")[:5] == ["docker", "exec", "--interactive", "--tty", unit.name]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs jobs as other users")
def test_a_command_of_another_user_ends_with_the_process_that_started_it(unit: Unit) -> None:
    """The kernel ends it, also if that process had no time to."""
    top = Path(tempfile.mkdtemp())
    top.chmod(0o755)
    other = replace(
        unit, uid=65534, gid=65534, folder=top / "g1" / "n0", workdir="/", checkpoint_dir=f"{top}/checkpoint"
    )
    other.write()
    shutil.copy(unit.folder / "keeper.json", other.folder)
    words = [sys.executable, "-m", "boa_daemon.job.unit_access", str(other.folder), "--seconds", "60"]
    with subprocess.Popen([*words, "sleep 60; true"], stdout=subprocess.PIPE) as process:
        until(lambda: bool(list(children(process.pid))))
        (shell,) = children(process.pid)
        until(lambda: Path(f"/proc/{shell}").stat().st_uid == 65534)
        process.kill()
    until(lambda: started_ticks(shell) is None, seconds=10)
    shutil.rmtree(top)
