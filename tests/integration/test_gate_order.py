"""Ranks never send different buckets after one answer of the gate."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.client import SendPermit

pytestmark = pytest.mark.frameworks

_kept: list[DistributedDataParallel] = []
"""Models of tests that are over. PyTorch ends a group's threads with the interpreter's lock in hand, and one
that still has a tensor to let go waits for that lock: for ever (pytorch/pytorch issue 56297)."""


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    """Import PyTorch in this module only, because the import takes a second."""
    global DistributedDataParallel, GatedModel, dist, gate_parts, torch, torch_gate  # noqa: PLW0603
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from boa_daemon.job import gate_parts, torch_gate
    from boa_daemon.job.torch_gate import GatedModel


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[DistributedDataParallel]:
    """A model on a group of one rank; the group outlives the test, as it outlives training in a job."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    torch.manual_seed(3)
    layers = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(3)))
    _kept.append(DistributedDataParallel(layers, bucket_cap_mb=0.005))
    yield _kept[-1]
    dist.destroy_process_group()


def attach(
    model: DistributedDataParallel, monkeypatch: pytest.MonkeyPatch, answers: list[SendPermit]
) -> GatedModel:
    """Gate a model and give it these answers, because a single rank would not ask."""
    monkeypatch.setattr(GatedModel, "_connect", lambda self, address, nics: None)
    gated = GatedModel(model, nodes=["a", "b"], iterations=None, address=None)
    given = iter(answers)
    monkeypatch.setattr(gated, "_ask", lambda ready, is_last: next(given))
    model.register_comm_hook(gated, torch_gate._hook)
    return gated


def test_each_piece_is_sent_once_and_after_its_answer(
    model: DistributedDataParallel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread asks and sends; pieces never exceed the bytes of the answer before."""
    events: list[tuple[str, Any, str]] = []
    broadcast, all_reduce = dist.broadcast, dist.all_reduce

    def note_answer(answer: torch.Tensor, **options: Any) -> Any:
        events.append(("answer", int(answer[0]), threading.current_thread().name))
        return broadcast(answer, **options)

    def note_piece(piece: torch.Tensor, **options: Any) -> Any:
        events.append(("piece", piece.numel() * 4, threading.current_thread().name))
        return all_reduce(piece, **options)

    gated = attach(model, monkeypatch, [SendPermit(bytes=2000.0)] * 100)
    monkeypatch.setattr(dist, "broadcast", note_answer)
    monkeypatch.setattr(dist, "all_reduce", note_piece)
    for _ in range(2):
        model(torch.ones(4, 32)).sum().backward()
    gated.close()

    kinds = [kind for kind, _, _ in events]
    answers = [value for kind, value, _ in events if kind == "answer"]
    pieces = [value for kind, value, _ in events if kind == "piece"]
    assert answers == list(range(1, len(answers) + 1))
    assert all(size <= 2000 for size in pieces)
    assert sum(pieces) == 2 * 3 * (32 * 32 + 32) * 4
    assert kinds[0] == "answer"
    # A piece may follow a piece only if the first one left bytes of the answer.
    left = 0
    for kind, value, thread in events:
        assert thread == "boa-gate-send"
        left = 2000 if kind == "answer" else left - int(value)
        assert left >= 0


def test_an_answer_to_another_question_raises_and_sends_nothing(
    model: DistributedDataParallel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDP raises the error in backward; the error names both question numbers."""
    sent: list[int] = []
    gated = attach(model, monkeypatch, [SendPermit(bytes=1e18)] * 100)

    def other_question(answer: torch.Tensor, **options: Any) -> None:
        answer[0] += 4

    monkeypatch.setattr(dist, "broadcast", other_question)
    monkeypatch.setattr(dist, "all_reduce", lambda piece, **options: sent.append(piece.numel()))
    with pytest.raises(RuntimeError, match="rank 0 answers question 5, this rank waits at 1"):
        model(torch.ones(4, 32)).sum().backward()
    gated.close()

    assert sent == []


def test_the_hook_returns_before_the_gate_answers(
    model: DistributedDataParallel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook does not block autograd: it returns a future, and another thread asks the gate."""
    gated = attach(model, monkeypatch, [])
    asked = threading.Event()
    release = threading.Event()

    def slow(ready: int, is_last: bool) -> SendPermit:
        asked.set()
        assert release.wait(60.0)
        return SendPermit(bytes=1e18, free_iterations=10)

    monkeypatch.setattr(gated, "_ask", slow)
    pushed: list[bool] = []
    push = gated.push

    def note(bucket: Any) -> Any:
        promise = push(bucket)
        pushed.append(release.is_set())
        if bucket.is_last():
            assert asked.wait(60.0)
            release.set()
        return promise

    monkeypatch.setattr(gated, "push", note)
    model(torch.ones(4, 32)).sum().backward()
    gated.close()

    assert pushed
    assert not any(pushed)


def test_free_iterations_ask_nothing(model: DistributedDataParallel, monkeypatch: pytest.MonkeyPatch) -> None:
    """With answers that free five iterations each, ten iterations ask twice."""
    gated = attach(
        model,
        monkeypatch,
        [SendPermit(bytes=1e18, free_iterations=5), SendPermit(bytes=1e18, free_iterations=5)],
    )
    for _ in range(10):
        model(torch.ones(4, 32)).sum().backward()
    gated.close()

    assert gated._sequence == 2


def test_a_job_on_one_node_is_not_gated(model: DistributedDataParallel) -> None:
    """If all ranks are on one node, no network card is shared and DDP stays unchanged."""
    assert GatedModel.attach(model, address="unix:/nowhere") is None
    assert GatedModel.attach(model, address="") is None


def test_a_bad_gate_address_is_reported_and_training_goes_on(
    model: DistributedDataParallel, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing token or a wrong BOA_GATE must not stop a job."""
    nowhere = GateAddress(path="/nowhere", token_file="/nowhere/token")
    gated = GatedModel(model, nodes=["a", "b"], iterations=None, address=nowhere)
    model.register_comm_hook(gated, torch_gate._hook)
    model(torch.ones(4, 32)).sum().backward()
    gated.close()

    assert capsys.readouterr().err.startswith("boa gate: off, ")
    assert GatedModel.attach(model, address="nonsense") is None
    assert "unix:PATH or tcp:HOST:PORT" in capsys.readouterr().err


def test_a_hook_of_the_script_replaces_the_gates_hook(
    model: DistributedDataParallel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate's hook makes way for it; the gradients are those of the script's hook."""
    monkeypatch.setattr(GatedModel, "_connect", lambda self, address, nics: None)
    gated = GatedModel(model, nodes=["a", "b"], iterations=None, address=None)
    model.register_comm_hook(gated, torch_gate._hook)
    monkeypatch.setitem(torch_gate._gated, model, gated)

    def doubles(state: list[int], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        state.append(bucket.index())
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer() * 2.0)
        return done

    # DDP refuses string annotations, which `from __future__ import annotations` makes.
    doubles.__annotations__.clear()
    seen: list[int] = []
    assert torch_gate.make_way(model, seen, doubles)
    model(torch.ones(4, 32)).sum().backward()
    once = [weight.grad.clone() for weight in model.module.parameters()]
    model.zero_grad()
    model.module(torch.ones(4, 32)).sum().backward()
    for weight, hooked in zip(model.module.parameters(), once, strict=True):
        assert torch.allclose(hooked, 2.0 * weight.grad)
    assert seen
    assert not torch_gate.make_way(DistributedDataParallel(torch.nn.Linear(2, 2)), seen, doubles)
    gated.close()


def test_free_iterations_need_no_thread_and_give_the_same_gradients(
    model: DistributedDataParallel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten free iterations, all but the first and the last two run without the gate's thread."""
    threads: list[str] = []
    all_reduce = dist.all_reduce

    def note(piece: torch.Tensor, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return all_reduce(piece, **options)

    gated = attach(
        model,
        monkeypatch,
        [SendPermit(bytes=1e18, free_iterations=10), SendPermit(bytes=1e18, free_iterations=1)],
    )
    monkeypatch.setattr(dist, "all_reduce", note)
    per_iteration = []
    for _ in range(11):
        threads.clear()
        model.zero_grad()
        model(torch.ones(4, 32)).sum().backward()
        per_iteration.append(set(threads) == {"boa-gate-send"})
        grads = [weight.grad.clone() for weight in model.module.parameters()]
        model.zero_grad()
        model.module(torch.ones(4, 32)).sum().backward()
        for weight, grad in zip(model.module.parameters(), grads, strict=True):
            assert torch.allclose(weight.grad, grad)
    gated.close()
    assert per_iteration == [True] + [False] * 7 + [True] * 3


@pytest.mark.parametrize(("ranks", "is_part"), [([0, 1, 2, 3], False), ([0, 2], True)])
def test_only_a_group_of_part_of_the_ranks_is_synchronized_locally(
    monkeypatch: pytest.MonkeyPatch, ranks: list[int], is_part: bool
) -> None:
    """A local group is named after its ranks, so two groups of all ranks would get the same name.

    The second group of a name finds the addresses of the first, at which no process listens any more.
    """
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(dist, "get_world_size", lambda: 4)
    monkeypatch.setattr(dist, "new_group", lambda ranks, **options: made.append(options))
    torch_gate.gloo_group(ranks)

    assert made == [{"backend": "gloo", "use_local_synchronization": is_part}]


def test_two_models_of_a_process_share_one_connection_to_the_gate(
    model: DistributedDataParallel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The connection reports the bytes of both models together, and closes with the second model."""
    token = tmp_path / "token"
    token.write_text("t", encoding="utf-8")
    address = GateAddress(path=str(tmp_path / "none"), token_file=str(token))
    first, second = (GatedModel(model, nodes=["a", "b"], iterations=None, address=address) for _ in range(2))
    try:
        assert first._client is second._client
        together = gate_parts.measured_together(first._client, first._measured)
        assert together["iteration_bytes"] == 2 * 3 * (32 * 32 + 32) * 4
    finally:
        first.close()
    assert not first._client._closing.is_set(), "the second still asks"
    second.close()
    assert first._client._closing.is_set()
