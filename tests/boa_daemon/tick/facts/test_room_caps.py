"""Limits on the room for all widths: what fits in whole nodes, and what would fit instead."""

from __future__ import annotations

import pytest

from boa_daemon.tick.facts.room_caps import RoomCap, ceiling_name, gpu_counts, node_limit_name
from policies.model import Width

TWO = RoomCap(code="node-limit", name=node_limit_name(2), size=2.0, node_sizes={"g": 1.0}, gpus={"g": 4})


@pytest.mark.parametrize(
    ("widths", "fits"), [((4, 4), True), ((4, 1, 3), True), ((4, 4, 1), False), ((), True)]
)
def test_widths_fit_in_whole_nodes(widths: tuple[int, ...], fits: bool) -> None:
    """Two nodes of four GPUs hold eight."""
    assert TWO.holds([Width("g", gpus) for gpus in widths]) is fits
    assert TWO.holds([Width("other", 100)])


@pytest.mark.parametrize(
    ("now", "then", "fits"), [(2, 4, True), (2, 5, False), (None, 2, True), (None, 3, False), (6, 4, True)]
)
def test_a_job_fits_at_another_width_beside_all_others(now: int | None, then: int, fits: bool) -> None:
    """Six GPUs are given in all; a narrower width always fits, even above a limit that was lowered."""
    width = None if now is None else Width("g", now)
    assert TWO.holds_instead({"g": 6}, Width("g", then), width) is fits
    assert TWO.holds_instead({"g": 100}, Width("g", 1), Width("g", 2))
    assert TWO.holds_instead({"g": 6}, Width("other", 50), width)


def test_a_limit_is_named_as_a_person_set_it() -> None:
    """The name has the setting or the unit."""
    assert TWO.name == "the limit of 2 nodes (max_instances)"
    assert ceiling_name(1234.5) == "the ceiling of $1,234.50/hour"
    assert gpu_counts([Width("g", 2), Width("h", 1), Width("g", 3)]) == {"g": 5, "h": 1}
