"""Process groups without a communication library: real processes on "nodes" that are this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from boa_daemon.engines.local import free_port
from boa_daemon.job import run as helper
from boa_daemon.job.failures import ERROR_FILE, FILE_NAME, read_failure

GATHERS = """
import os
from boa_daemon import job
with job.ranks() as ranks:
    for size in (0, 3, 200_000):
        parts = ranks.gather(bytes([ranks.rank]) * (size + ranks.rank))
        assert parts == [bytes([rank]) * (size + rank) for rank in range(ranks.width)], ranks.rank
    agreed = ranks.agree(ranks.rank == 1), ranks.agree(False)
    os.write(1, f"{ranks.rank} {ranks.width} {agreed[0]} {agreed[1]}\\n".encode())  # in one piece
"""
LATE = "import os, time; time.sleep(float(os.environ['BOA_NODE_RANK']))"
"""The second node comes a second later, so that a stranger is first."""
WAITS = """
import os, time
from boa_daemon import job
with job.ranks() as ranks:
    os.write(1, f"here {os.getpid()}\\n".encode())  # in one piece
    while True:
        ranks.gather(b"")
        time.sleep(0.01)
"""
FAILS = """
from boa_daemon import job
with job.ranks() as ranks:
    if ranks.rank == 2:
        raise ValueError("the third does not work")
    ranks.gather(b"")
"""


@pytest.fixture
def port() -> int:
    """A free port."""
    return free_port()


class Nodes:
    """The commands of one generation, one per node, each with a given number of GPUs."""

    def __init__(self, script: str, port: int, *gpus: int) -> None:
        self.commands = [
            subprocess.Popen(
                [sys.executable, "-c", script],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={
                    **os.environ,
                    "BOA_GPUS": str(sum(gpus)),
                    "BOA_GPUS_PER_NODE": str(count),
                    "BOA_NODE_RANK": str(node),
                    "BOA_JOB_ID": "a",
                    "BOA_GENERATION": "2",
                    "MASTER_PORT": str(port),
                },
            )
            for node, count in enumerate(gpus)
        ]

    def ends(self) -> list[tuple[int, str, str]]:
        """Return each command's exit code and output."""
        return [(c.returncode, *said) for c in self.commands for said in [c.communicate(timeout=180)]]


def knock(port: int) -> socket.socket:
    """Return a connection to the first rank, once it listens."""
    until = time.monotonic() + 180.0
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.01)


@pytest.fixture
def no_run() -> Iterator[None]:
    """This process is part of no run before and after, and its handler of SIGTERM is restored."""
    handler = signal.getsignal(signal.SIGTERM)
    helper._run = None
    yield
    helper._run = None
    signal.signal(signal.SIGTERM, handler)


def test_ranks_follow_node_order_and_gather_in_rank_order(port: int) -> None:
    """Ranks on two nodes exchange bytes of any size and agree."""
    ends = Nodes(GATHERS, port, 1, 2).ends()

    assert [code for code, _, _ in ends] == [0, 0], ends
    assert ends[0][1] == "0 3 True False\n"
    assert sorted(ends[1][1].splitlines()) == ["1 3 True False", "2 3 True False"]


@pytest.mark.parametrize("whom", ["the first", "a forked one", "another node"])
def test_the_death_of_one_process_ends_all_others(port: int, whom: str) -> None:
    """No process waits for the killed one for ever."""
    nodes = Nodes(WAITS, port, 2, 1)
    first, second = nodes.commands
    assert first.stdout is not None
    pids = {int(first.stdout.readline().split()[1]) for _ in range(2)}
    victim = {"the first": first.pid, "a forked one": (pids - {first.pid}).pop(), "another node": second.pid}
    os.kill(victim[whom], signal.SIGKILL)
    ends = nodes.ends()

    assert all(code != 0 for code, _, _ in ends), ends
    until = time.monotonic() + 180.0
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < until, "a forked process lives on"
        time.sleep(0.02)


def test_the_failing_process_is_reported_and_not_the_lost_peer(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other ranks print that they lost a peer; the recorded failure is the original exception."""
    monkeypatch.setenv(ERROR_FILE, str(tmp_path / FILE_NAME))
    ((code, _, said),) = Nodes(FAILS, port, 3).ends()

    assert code == 1
    failure = read_failure(tmp_path)
    assert failure is not None
    assert failure["said"] == "ValueError: the third does not work"
    assert "lost a peer: EOFError" in said
    assert "ValueError: the third does not work" in said
    assert "PeerLost" in said


@pytest.mark.first_set(2)
@pytest.mark.parametrize(
    "words", [b"", b"GET / HTTP/1.1\r\n\r\n", b'\0\0\0\x10["a", "1", 1, 0]\n', b"\x7f\xff\xff\xff"]
)
def test_connections_of_strangers_are_rejected(port: int, words: bytes) -> None:
    """An empty, an HTTP, an outdated and an oversized message do not take a rank's place."""
    nodes = Nodes(LATE + GATHERS, port, 1, 1)
    stranger = knock(port)
    with stranger:
        stranger.sendall(words)
        stranger.shutdown(socket.SHUT_WR)
        ends = nodes.ends()

    assert [code for code, _, _ in ends] == [0, 0], ends


class Looped:
    """A loop over `steps` in this process; its checkpoint is the sum of the steps done."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BOA_CHECKPOINT_DIR", str(folder))
        monkeypatch.setenv("BOA_PROGRESS_FILE", str(folder / "progress.json"))
        self.folder, self.state = folder, 0

    def go(self, total: int, *, stop_at: int | None = None, every: int | None = None) -> list[int]:
        """Return the steps that were done, as in a process of its own."""
        helper._run = None
        done = []
        for step in helper.steps(total, load=self.load, save=self.save, every=every):
            self.state += step
            done.append(step)
            if step == stop_at:
                helper.current().stop_asked = True
        return done

    def load(self, path: Path) -> None:
        self.state = int(path.read_text())

    def save(self, file: BinaryIO) -> None:
        file.write(str(self.state).encode())

    @property
    def is_done(self) -> bool:
        return (self.folder / "progress.json.done").exists()


@pytest.mark.usefixtures("no_run")
def test_steps_resume_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop saves and ends the loop; only the run with the last step is marked as done."""
    loop = Looped(tmp_path, monkeypatch)

    assert loop.go(10, stop_at=3) == [0, 1, 2, 3]
    assert not loop.is_done
    loop.state = -1
    assert loop.go(10) == [4, 5, 6, 7, 8, 9]
    assert loop.state == sum(range(10))
    assert loop.is_done
    assert json.loads((tmp_path / "progress.json").read_text())["step"] == 10


@pytest.mark.usefixtures("no_run")
def test_steps_save_every_n_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart repeats the steps since the last checkpoint; a stop at the last step repeats none."""
    loop = Looped(tmp_path, monkeypatch)

    loop.go(7, every=3)
    assert loop.go(8) == [6, 7], "the checkpoint of step 6 is the newest"
    assert loop.go(9, stop_at=8) == [6, 7, 8]
    assert loop.go(9) == []
    assert loop.is_done


@pytest.mark.usefixtures("no_run")
def test_ranks_outside_boa_are_one_process() -> None:
    """Gathering returns the process's own part."""
    from boa_daemon import job

    with job.ranks() as alone:
        assert (alone.rank, alone.width) == (0, 1)
        assert alone.gather(b"x") == [b"x"]
        assert not alone.agree(False)
