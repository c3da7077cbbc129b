"""A process keeps to its part of a GPU's memory if jobs share GPUs."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from boa_daemon.job import gpu_memory
from boa_daemon.job.gpu_memory import VARIABLE, keep_to_share
from boa_daemon.job.run import Run


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """The calls that a fake PyTorch with two GPUs receives."""
    found: list[tuple[float, int]] = []
    cuda = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 2,
        set_per_process_memory_fraction=lambda part, device: found.append((part, device)),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(gpu_memory, "_done", set())
    return found


def test_each_rank_limits_its_own_gpus_memory_once(
    told: list[tuple[float, int]],
) -> None:
    """The limit is set at the first call of the helper, `resume` or `report`."""
    run = Run({VARIABLE: "0.47", "LOCAL_RANK": "1"})
    run.resume()
    run.report(1, 0.0, None, None)
    Run({VARIABLE: "0.47", "LOCAL_RANK": "0"}).report(1, 0.0, None, None)
    assert told == [(0.47, 1), (0.47, 0)]


def test_memory_is_not_limited_without_sharing_or_without_pytorch(told: list[tuple[float, int]]) -> None:
    """PyTorch is not called then."""
    assert not keep_to_share({"LOCAL_RANK": "0"})
    del sys.modules["torch"]
    assert not keep_to_share({VARIABLE: "0.5"})
    assert told == []
