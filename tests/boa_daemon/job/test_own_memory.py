"""Shared memory of a unit's own: who gets it, who uses the machine's and why."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from enclosing import can_have_own_memory

from boa_daemon.job import own_memory
from boa_daemon.job.own_memory import enter_memory_of, enter_own_memory, has_own_memory, why_shared
from boa_daemon.job.unit import Unit

enclosed_only = pytest.mark.skipif(not can_have_own_memory(), reason="no namespaces can be made here")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder of the machine's shared memory, as somebody may have prepared it."""
    folder = Path(f"/dev/shm/boa-test-{uuid.uuid4().hex}")
    folder.mkdir()
    yield folder
    folder.rmdir()


def a_unit(folder: Path, **changes: Any) -> Unit:
    values: dict[str, Any] = {
        "name": "u", "job": "a", "generation": 1, "rank": 0, "run": "train", "folder": folder / "g1" / "n0",
        "workdir": str(folder), "progress_file": str(folder / "p"), "checkpoint_dir": str(folder / "c"),
    }  # fmt: skip
    return Unit(**(values | changes))


def test_a_unit_gets_its_own_unless_it_uses_the_machines(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its command or a variable names must be there; folders of the unit, also behind links."""
    monkeypatch.setattr(own_memory, "MPS", tmp_path / "none")
    assert why_shared(a_unit(tmp_path), {}) == ""
    assert why_shared(a_unit(tmp_path, run="ls /dev/shm/*; touch /dev/shm/new"), {"X": "/dev/shm/none"}) == ""
    said = f"{shared}, which it names, is in the machine's"
    assert why_shared(a_unit(tmp_path, run=f"train --data='{shared}'"), {}) == said
    assert why_shared(a_unit(tmp_path), {"DATA": f"/mnt:{shared}"}) == said
    assert why_shared(a_unit(tmp_path, workdir=str(shared)), {}) == said
    (tmp_path / "link").symlink_to(shared)
    assert "link/c, which it names" in why_shared(a_unit(tmp_path, checkpoint_dir=f"{tmp_path}/link/c"), {})


@pytest.mark.parametrize(
    "run",
    [
        "cat SHARED/*.tar",
        "train 'SHARED/shard-{000..099}.tar'",
        "train --data=SHARED/%05d.rec",
        "train $WHERE/rows",
        "train ${WHERE}/rows",
        "train file://SHARED/rows",
        "train --data link/rows",
        "train --data=./link",
        "(cd link && ls)",
    ],
)
def test_data_in_shared_memory_is_seen_behind_patterns_variables_and_links(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    """A job that finds nothing there fails, or trains on nothing."""
    monkeypatch.setattr(own_memory, "MPS", tmp_path / "none")
    (tmp_path / "link").symlink_to(shared)
    unit = a_unit(tmp_path, run=run.replace("SHARED", str(shared)))
    variables = {"WHERE": str(shared)} if "WHERE" in run else {}
    assert "is in the machine's" in why_shared(unit, variables)
    assert not why_shared(replace(unit, run="train rows /dev/shm/*", workdir="/"), {"PATH": "/usr/bin:/bin"})


def test_clients_of_mps_meet_in_the_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its daemon listens, by default or by the variable."""
    monkeypatch.setattr(own_memory, "MPS", tmp_path / "none")
    assert "MPS" in why_shared(a_unit(tmp_path), {"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"})
    monkeypatch.setattr(own_memory, "MPS", tmp_path)
    assert "MPS" in why_shared(a_unit(tmp_path), {})


@enclosed_only
def test_its_own_is_empty_as_large_as_the_machines_and_gone_with_it(shared: Path) -> None:
    """Another process can join it; the machine sees nothing of it."""
    words = "ls -A /dev/shm; echo x > /dev/shm/mine; ipcmk -M 64 > /dev/null; echo made; read -r _"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ["/bin/bash", "-c", words],
        preexec_fn=enter_own_memory,  # noqa: PLW1509
        stdin=pipe,
        stdout=pipe,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "made\n"
        assert has_own_memory(process.pid)
        assert not has_own_memory(os.getpid())
        assert not Path("/dev/shm/mine").exists()

        def join() -> None:
            enter_memory_of(process.pid)

        beside = subprocess.run(
            ["/bin/bash", "-c", "ls -A /dev/shm; stat -fc %b /dev/shm; ipcs -m | grep -c 0x"],
            preexec_fn=join, capture_output=True, text=True, check=True,
        )  # fmt: skip
        blocks = os.statvfs("/dev/shm").f_blocks
        assert beside.stdout.split() == ["mine", str(blocks), "1"]
        process.communicate("\n")
    assert not has_own_memory(process.pid)
