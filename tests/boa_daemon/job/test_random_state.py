"""The global random generators: exactly as they were at the same width, different on each rank at another."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from boa_daemon.job.random_state import (
    random_state,
    read_random,
    reseed,
    restore_random_state,
    resume_random,
    write_random,
)

pytestmark = pytest.mark.frameworks


def draws() -> list[float]:
    """Return the next number of each global generator."""
    numbers = float(np.random.rand())  # noqa: NPY002  the global generator is what is tested
    return [random.random(), numbers, float(torch.rand(1))]


def test_a_restored_state_repeats_what_came_after_it() -> None:
    """All three generators."""
    state = random_state()
    after = draws()
    draws()

    assert restore_random_state(state) == []
    assert draws() == after


def test_a_damaged_state_changes_nothing() -> None:
    """Training goes on."""
    state = random_state()
    after = draws()
    restore_random_state(state)

    assert restore_random_state(b"damaged") == []
    assert draws() == after


def test_a_new_seed_depends_on_state_step_and_rank_alone() -> None:
    """The same resize gives the same numbers; another rank or step gives others."""
    state = random_state()
    seen = []
    for step, rank in ((10, 0), (10, 1), (11, 0), (10, 0)):
        reseed(state, step=step, rank=rank)
        seen.append(tuple(draws()))

    assert seen[0] == seen[3]
    assert len(set(seen)) == 3


@pytest.mark.parametrize(("width", "is_exact"), [(2, True), (4, False), (1, False)])
def test_each_rank_gets_its_own_numbers_back_at_the_same_width(
    width: int, is_exact: bool, tmp_path: Path
) -> None:
    """The states of both ranks come from the folder of the checkpoint."""
    after = {}
    for rank in (0, 1):
        torch.manual_seed(rank)
        write_random(tmp_path, rank=rank, width=2)
        after[rank] = draws()
    states, saved_width = read_random(tmp_path)
    told = resume_random(states, step=5, rank=0, width=width, saved_width=saved_width)

    assert saved_width == 2
    assert (draws() == after[0]) is is_exact
    assert ("go on from step 5" in told) is is_exact


def test_a_folder_without_states_says_so(tmp_path: Path) -> None:
    """As checkpoints of earlier versions."""
    states, saved_width = read_random(tmp_path)

    assert "start anew" in resume_random(states, step=5, rank=0, width=1, saved_width=saved_width)
