"""`job/gate_parts.py`: what an iteration measured, and one connection for all parts of a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.job.gate.address import GateAddress

pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    """Import torch when these tests run: it takes a second that other test workers need not spend."""
    global parts  # noqa: PLW0603
    from boa_daemon.job import gate_parts as parts


class Client:
    """A connection that notes how it was made and whether it is closed."""

    def __init__(self, address: GateAddress, **how: Any) -> None:
        self.address, self.how, self.is_closed = address, how, False

    def close(self) -> None:
        """Note the end."""
        self.is_closed = True


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GateAddress]:
    """Yield an address with a token; connections are stand-ins."""
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setattr(parts, "GateClient", Client)
    monkeypatch.setenv("BOA_JOB_ID", "a")
    monkeypatch.delenv("BOA_WEIGHT", raising=False)
    yield GateAddress(path="/gate", token_file=str(tmp_path / "token"))
    parts._lines.clear()


def opened(address: GateAddress, measured: Any) -> Any:
    """Open a connection for a part of this process."""
    return parts.open_line(address, nics=["A"], gpus=2, measured=measured)


def test_an_iteration_is_timed_from_end_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exposed is what is left after the last bucket was ready; after a pause timing begins anew."""
    now = [10.0]
    monkeypatch.setattr(parts.time, "monotonic", lambda: now[0])
    timing = parts.IterationTiming(iteration_bytes=1, per_byte=1.5)
    timing.end(100)
    assert (timing.iteration_seconds, timing.exposed_seconds, timing.crossing_bytes) == (None, None, 150.0)
    now[0], timing.ready_at = 14.0, 13.0
    timing.end(200)
    assert (timing.iteration_seconds, timing.exposed_seconds, timing.iteration_bytes) == (4.0, 1.0, 200)
    timing.pause()
    now[0] = 99.0
    timing.end(200)
    assert timing.iteration_seconds == 4.0


def test_all_parts_of_a_process_share_one_connection_until_the_last_has_ended(address: GateAddress) -> None:
    """The gate would cut off the older one of two; another job has its own."""
    first, second = (parts.IterationTiming(iteration_bytes=0) for _ in range(2))
    line = opened(address, first)
    assert opened(address, second) is line
    assert line.how == {"job": "a", "nics": ["A"], "token": "secret", "gpus": 2, "weight": 1.0}
    parts.close_line(line, first)
    assert not line.is_closed
    parts.close_line(line, second)
    assert line.is_closed
    assert opened(address, first) is not line


@pytest.mark.parametrize(("text", "weight"), [("2.5", 2.5), ("heavy", 1.0), ("", 1.0)])
def test_a_weight_that_is_no_number_is_one(
    text: str, weight: float, address: GateAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training goes on either way."""
    monkeypatch.setenv("BOA_WEIGHT", text)
    assert opened(address, parts.IterationTiming(iteration_bytes=0)).how["weight"] == weight


def test_without_a_token_there_is_no_connection(
    address: GateAddress, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing file is told in the job's log; an empty one says that there is no gate."""
    token, timing = Path(address.token_file), parts.IterationTiming(iteration_bytes=0)
    token.write_text("\n")
    assert (opened(address, timing), capsys.readouterr().out) == (None, "")
    token.unlink()
    assert opened(address, timing) is None
    assert capsys.readouterr().err.startswith("boa gate: off, ")


def test_an_address_that_is_malformed_is_told_and_stops_no_job(capsys: pytest.CaptureFixture[str]) -> None:
    """No address is none."""
    assert (parts.find(""), capsys.readouterr().out) == (None, "")
    assert parts.find("tcp:h:²") is None
    assert capsys.readouterr().err.startswith("boa gate: off, a gate address is")
    assert parts.find("unix:/a") == GateAddress(path="/a")


def test_the_parts_of_a_process_are_measured_together(address: GateAddress) -> None:
    """They send one after the other within the longest iteration; before the first nothing is known."""
    both = [
        parts.IterationTiming(iteration_bytes=100, per_byte=2.0),
        parts.IterationTiming(iteration_bytes=50),
    ]
    line, _ = (opened(address, part) for part in both)
    unknown = {"iteration_bytes": 250.0, "compute_seconds": None, "exposed_seconds": None}
    assert parts.measured_together(line, both[0]) == unknown
    for part, length, exposed in zip(both, (5.0, 4.0), (1.0, 2.0), strict=True):
        part.iteration_seconds, part.exposed_seconds = length, exposed
    found = parts.measured_together(line, both[0])
    assert found == {"iteration_bytes": 250.0, "compute_seconds": 2.0, "exposed_seconds": 3.0}
    both[0].exposed_seconds = 9.0
    assert parts.measured_together(line, both[0])["compute_seconds"] == 0.0
    stranger = Client(address)
    assert parts.measured_together(stranger, both[1])["iteration_bytes"] == 50.0


@pytest.mark.parametrize("usual", [None, "eth0"])
def test_answers_are_passed_on_over_the_interface_that_is_named(
    usual: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gloo reads it when a group is made; training's own groups keep theirs, also after a fault."""
    seen: list[Any] = []

    def new_group(ranks: list[int], **how: Any) -> str:
        seen.append((os.environ.get("GLOO_SOCKET_IFNAME"), how["use_local_synchronization"]))
        if len(seen) == 3:
            raise RuntimeError("no interface")
        return "group"

    monkeypatch.setattr(parts, "dist", SimpleNamespace(new_group=new_group, get_world_size=lambda: 4))
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    if usual:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", usual)
    monkeypatch.delenv("BOA_CONTROL_INTERFACE", raising=False)
    assert parts.control_group([0, 1]) == "group"
    monkeypatch.setenv("BOA_CONTROL_INTERFACE", "eth1")
    assert parts.control_group([0, 1, 2, 3]) == "group"
    with pytest.raises(RuntimeError, match="no interface"):
        parts.control_group([0])
    assert seen == [(usual, True), ("eth1", False), ("eth1", True)]
    assert os.environ.get("GLOO_SOCKET_IFNAME") == usual


def test_passing_an_answer_on_takes_the_best_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones connect."""
    instants = iter([0.0, 9.0, 10.0, 12.0, 20.0, 21.0, 30.0, 35.0])
    reduced: list[Any] = []
    monkeypatch.setattr(parts, "time", SimpleNamespace(monotonic=lambda: next(instants)))
    monkeypatch.setattr(
        parts, "dist", SimpleNamespace(all_reduce=lambda tensor, group: reduced.append(group))
    )
    assert parts.passing_seconds("g") == 1.0
    assert reduced == ["g"] * 4
