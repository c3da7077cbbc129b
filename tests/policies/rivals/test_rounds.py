"""When a round is due, and the widths and nodes between two rounds."""

from __future__ import annotations

import pytest

from boa_daemon.testing import a_job
from policies.model import Money, Width
from policies.rivals.rounds import ROUND_SECONDS, is_due, nodes_of_last_round, widths_held


def remembering(*memory: float, age_seconds: float = 0.0) -> Money:
    """Return `Money` with the memory of the last round and its age."""
    return Money(spent=0.0, elapsed_hours=1.0, memory=memory, memory_age_hours=age_seconds / 3600.0)


@pytest.mark.parametrize(
    ("age_seconds", "due"), [(0.0, False), (59.99, False), (59.9995, True), (60.0, True), (61.0, True)]
)
def test_a_round_is_due_a_minute_after_the_last_one(age_seconds: float, due: bool) -> None:
    """The last digits of a clock do not matter."""
    assert is_due(remembering(3.0, age_seconds=age_seconds), ROUND_SECONDS) == due


def test_the_first_round_is_due_at_once() -> None:
    """The number of nodes wanted is then 0."""
    for never in (None, remembering()):
        assert is_due(never, ROUND_SECONDS)
        assert nodes_of_last_round(never) == 0


@pytest.mark.parametrize(("memory", "nodes"), [((3.0,), 3), ((2.9999999,), 3), ((0.0,), 0), ((4.0, 7.0), 4)])
def test_the_nodes_of_the_last_round_are_the_first_number_of_its_memory(
    memory: tuple[float, ...], nodes: int
) -> None:
    """The number is rounded to a whole one."""
    assert nodes_of_last_round(remembering(*memory)) == nodes


def test_between_two_rounds_every_job_keeps_its_width() -> None:
    """A waiting job has no width."""
    jobs = [a_job("a", width=Width("gpu", 2)), a_job("b")]
    assert widths_held(jobs) == {"a": Width("gpu", 2)}
