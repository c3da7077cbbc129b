"""A job may use the widths of its class within its limits that divide its batch, in all phases."""

from __future__ import annotations

import pytest

from boa_daemon.daemon.planner.class_widths import narrowest, phases_within
from boa_daemon.errors import InputError
from boa_daemon.testing import a_class
from policies.model import JobClass, Phase
from policies.speedup import Table


def table(*gpus: int) -> Table:
    """Return a curve at these widths."""
    return Table(gpus=gpus, speeds=tuple(float(width) ** 0.9 for width in gpus))


TWO_PHASES = JobClass(
    name="c",
    phases=(
        Phase(size_gpu_hours=1.0, speedups={"a": table(1, 2, 3, 6), "b": table(2, 4)}),
        Phase(size_gpu_hours=3.0, speedups={"a": table(2, 3, 4)}),
    ),
)


def widths(phases: tuple[Phase, ...]) -> list[dict[str, list[int]]]:
    """Return the widths of each GPU type, by phase."""
    return [{name: list(curve.gpus) for name, curve in phase.speedups.items()} for phase in phases]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ((None, None, None), [{"a": [1, 2, 3, 6], "b": [2, 4]}, {"a": [2, 3, 4]}]),
        ((3, None, None), [{"a": [3, 6], "b": [4]}, {"a": [3, 4]}]),
        ((None, 2, None), [{"a": [1, 2], "b": [2]}, {"a": [2]}]),
        ((2, 3, None), [{"a": [2, 3], "b": [2]}, {"a": [2, 3]}]),
        ((None, None, 9), [{"a": [1, 3]}, {"a": [3]}]),
    ],
)
def test_each_phase_keeps_the_widths_within_the_limits(
    limits: tuple[int | None, int | None, int | None], left: list[dict[str, list[int]]]
) -> None:
    """A GPU type without such a width is left out; the work of a phase stays."""
    phases = phases_within(TWO_PHASES, *limits)
    assert widths(phases) == left
    assert [phase.size_gpu_hours for phase in phases] == [1.0, 3.0]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ((7, None, None), "class 'c' has no width from 7 to any number of GPUs"),
        ((None, 1, None), "class 'c' has no width from 1 to 1 GPUs"),
        ((2, 6, 7), "from 2 to 6 GPUs that divides its batch of 7"),
    ],
)
def test_a_phase_without_a_width_is_refused(
    limits: tuple[int | None, int | None, int | None], said: str
) -> None:
    """One phase suffices, as the second one here under a limit of one GPU."""
    with pytest.raises(InputError, match=said):
        phases_within(TWO_PHASES, *limits)


@pytest.mark.parametrize(
    ("least", "batch", "found"),
    [(None, None, 2), (3, None, 3), (None, 9, 3), (5, None, None), (None, 7, None)],
)
def test_the_narrowest_width_is_one_that_all_phases_have(
    least: int | None, batch: int | None, found: int | None
) -> None:
    """One GPU is a width of the first phase alone."""
    assert narrowest(TWO_PHASES, least, batch) == found
    assert narrowest(a_class("d"), None, None) == 1
