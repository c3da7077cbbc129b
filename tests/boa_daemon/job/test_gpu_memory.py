"""A process keeps to its part of a GPU's memory where jobs share GPUs."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from boa_daemon.job import gpu_memory
from boa_daemon.job.gpu_memory import VARIABLE, keep_to_share
from boa_daemon.job.run import Run


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """Return what a PyTorch with two GPUs is told."""
    found: list[tuple[float, int]] = []
    cuda = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 2,
        set_per_process_memory_fraction=lambda part, device: found.append((part, device)),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(gpu_memory, "_done", set())
    return found


def test_each_rank_keeps_to_its_part_of_its_own_gpu_from_its_first_word_on(
    told: list[tuple[float, int]],
) -> None:
    """Whether it looks for a checkpoint first or reports; and it is told once."""
    run = Run({VARIABLE: "0.47", "LOCAL_RANK": "1"})
    run.resume()
    run.report(1, 0.0, None, None)
    Run({VARIABLE: "0.47", "LOCAL_RANK": "0"}).report(1, 0.0, None, None)
    assert told == [(0.47, 1), (0.47, 0)]


def test_where_a_gpu_has_one_job_nothing_is_limited(told: list[tuple[float, int]]) -> None:
    """Nor where the script has no PyTorch."""
    assert not keep_to_share({"LOCAL_RANK": "0"})
    del sys.modules["torch"]
    assert not keep_to_share({VARIABLE: "0.5"})
    assert told == []
