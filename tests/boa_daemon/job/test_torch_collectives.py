"""`boa_daemon.job.torch_collectives`: collectives ask the gate, and all other calls are passed on."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.job.gate.client import SendPermit

pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    """Import torch when these tests run: it takes a second that other test workers need not spend."""
    global dist, torch, collectives  # noqa: PLW0603
    import torch
    import torch.distributed as dist

    from boa_daemon.job import torch_collectives as collectives


class Answers:
    """A gate client with these answers that records the events."""

    def __init__(self, events: list[Any], answers: list[SendPermit]) -> None:
        self.events, self.answers, self.counts = events, answers, {}

    def ask(self, ready: float, left: float, **measured: Any) -> SendPermit:
        """Record a request."""
        assert measured["is_whole"] is True
        self.events.append(("ask", ready, left))
        return self.answers.pop(0)

    def done(self, fence: int, seconds: float) -> None:
        """Record the end of a message."""
        self.events.append(("done", fence))

    def charge(self, seconds: float) -> None:
        """Count nothing."""


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A job of one rank that reports two nodes."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    ordered = collectives.OrderedGroup(dist.group.WORLD, ["a"], None)
    ordered._per_byte = dict.fromkeys(ordered._per_byte, 0.5)
    monkeypatch.setattr(collectives, "_ordered", lambda _: ordered)
    yield ordered
    dist.destroy_process_group()


def test_a_collective_asks_sends_and_reports_its_end(group: Any) -> None:
    """The request has the bytes that cross a card, not the bytes of the tensor."""
    events: list[Any] = []
    group._client = Answers(events, [SendPermit(bytes=1e9, fence=7, lease_seconds=1.0)])
    inner = SimpleNamespace(all_reduce=lambda tensor, group: events.append("sent"))
    collectives.GatedCollectives(inner).all_reduce(torch.zeros(100_000), group=dist.group.WORLD)

    assert events == [("ask", 200_000.0, 200_000.0), "sent", ("done", 7)]


def test_free_iterations_cover_as_many_collectives_as_an_iteration_has(group: Any) -> None:
    """Before the first optimizer step, an answer covers eight more collectives."""
    events: list[Any] = []
    free = SendPermit(bytes=1e18, free_iterations=3, why="free")
    group._client = Answers(events, [free] * 9)
    inner = SimpleNamespace(all_gather_single=lambda *words, **options: None)
    send = collectives.GatedCollectives(inner).all_gather_single
    for _ in range(9):
        send(torch.zeros(40_000), torch.zeros(20_000), group=dist.group.WORLD)
    assert len(events) == 1, "the first, and eight that were free"
    group._measured.step()
    group._measured.step()
    for _ in range(28):
        send(torch.zeros(40_000), torch.zeros(20_000), group=dist.group.WORLD)

    assert group._measured.collectives == 9
    assert len(events) == 2, "three iterations of nine"
    send(torch.zeros(40_000), torch.zeros(20_000), group=dist.group.WORLD)
    assert len(events) == 3


def test_small_messages_and_other_calls_do_not_ask(group: Any) -> None:
    """Functions that are not collectives are those of `torch.distributed`."""
    group._client = Answers([], [])
    wrapped = collectives.GatedCollectives(dist)
    small = torch.ones(10)
    wrapped.all_reduce(small, group=dist.group.WORLD)

    assert wrapped.get_rank() == 0
    assert wrapped.send is dist.send
    assert wrapped.ProcessGroup is dist.ProcessGroup
    assert group._sequence == 0


def test_collectives_are_sent_when_the_gate_client_fails(
    group: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The failure is printed once."""
    group._client = Answers([], [])
    sent: list[int] = []
    inner = SimpleNamespace(broadcast=lambda tensor, src, group: sent.append(src))
    for _ in range(3):
        collectives.GatedCollectives(inner).broadcast(torch.zeros(100_000), src=0, group=dist.group.WORLD)

    assert sent == [0, 0, 0]
    assert "boa gate: off" in capsys.readouterr().err


def test_ranks_at_different_requests_raise_an_error_with_both_numbers(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is not sent."""
    sent: list[int] = []
    group._client = Answers([], [SendPermit(bytes=1e9, fence=1)])

    def other(answer: Any, **options: Any) -> None:
        answer[0] += 4

    monkeypatch.setattr(dist, "broadcast", other)
    inner = SimpleNamespace(all_reduce=lambda tensor, group: sent.append(1))
    with pytest.raises(RuntimeError, match="rank 0 answers question 5, this rank waits at 1"):
        collectives.GatedCollectives(inner).all_reduce(torch.zeros(100_000), group=dist.group.WORLD)
    assert sent == []


def test_groups_of_a_part_of_the_job_are_not_ordered(group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other ranks may not do the same, and a group of one rank sends to no other rank."""
    monkeypatch.setenv("BOA_GATE", "unix:/nowhere")
    assert collectives.make_ordered_group(dist.group.WORLD) is None
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda _: [0, 2])
    monkeypatch.setattr(dist, "get_world_size", lambda: 4)
    assert collectives.make_ordered_group(dist.group.WORLD) is None


def test_wrapping_a_module_twice_wraps_it_once() -> None:
    """The order of imports does not matter."""
    module = SimpleNamespace(dist=dist)
    collectives.put_into(module)
    once = module.dist
    collectives.put_into(module)
    assert module.dist is once
