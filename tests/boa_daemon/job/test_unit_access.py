"""Commands beside a job: a shell on a terminal, the output limit, and the command for a container."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from boa_daemon.job.keeper import start_apart
from boa_daemon.job.processes import kill_all_carrying
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


def test_a_job_in_an_image_is_entered_through_its_container(unit: Unit) -> None:
    """The container has the unit's name; only a shell gets a terminal."""
    in_image = Unit(**{**{name: getattr(unit, name) for name in Unit.__dataclass_fields__}, "image": "a/b:1"})

    assert words_of(in_image, "nvidia-smi", "podman")[:3] == ["podman", "exec", unit.name]
    assert words_of(in_image, "nvidia-smi", "podman")[-1] == "nvidia-smi"
    assert words_of(in_image, "", "docker")[:5] == ["docker", "exec", "--interactive", "--tty", unit.name]
