"""The next best width when the best one has no room."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from boa_daemon.testing import a_job
from policies.model import GpuType, JobClass, Phase, Problem, Width
from policies.online.cost_to_go import WidthColumns
from policies.online.fallback_width import fallback_width
from policies.speedup import Table

CLASS = JobClass(
    name="c",
    rescale_hours=0.1,
    phases=(
        Phase(
            size_gpu_hours=1.0,
            speedups={
                "t4": Table(gpus=(1, 2), speeds=(1.0, 1.9)),
                "t4@s1": Table(gpus=(1, 2), speeds=(1.0, 1.8)),
            },
        ),
    ),
)
COLUMNS = WidthColumns.of(
    Problem(
        classes=(CLASS,),
        gpu_types=(
            GpuType(name="t4", usd_per_gpu_hour=2.0),
            GpuType(name="t4@s1", usd_per_gpu_hour=1.0),
        ),
    ),
    CLASS,
)
ROOM = {"t4": math.inf, "t4@s1": math.inf}


def best(left: float = 1.0, *, room: dict[str, float], holds: Width | None = None) -> Width | None:
    """Return the next best width of a job with some work left."""
    return fallback_width(
        a_job(remaining_gpu_hours=left), COLUMNS, multiplier=1.0, room=room, holds=holds, gpus=None
    )


def test_the_fallback_is_the_cheapest_width_that_has_room() -> None:
    """(w + mu c) T is 2.0 and 1.67 on one and two GPUs of the cheap machine, 3.0 and 2.63 on the other."""
    assert best(room=ROOM) == Width("t4@s1", 2)
    assert best(room=ROOM | {"t4@s1": 1.0}) == Width("t4@s1", 1)
    assert best(room=ROOM | {"t4@s1": 0.0}) == Width("t4", 2)
    assert best(room={}) is None


def test_a_job_moves_back_when_that_saves_more_than_the_rescale() -> None:
    """With all its work left the job returns to the cheap machine; with a tenth left it stays."""
    held = Width("t4", 2)

    assert best(room=ROOM, holds=held) == Width("t4@s1", 2)
    assert best(0.1, room=ROOM, holds=held) == held
    assert best(room={}, holds=held) == held, "what it holds it may keep"


@pytest.mark.parametrize("multiplier", [0.0, 1.0])
@pytest.mark.parametrize("rather_than", [Width("t4@s1", 2), Width("t4@s1", 3), Width("t4@s1", 1)])
def test_waiting_is_weighed_for_widths_that_a_phase_lacks_and_for_unknown_ones(
    multiplier: float, rather_than: Width
) -> None:
    """A width without hours in this phase is never chosen, whatever money costs; nothing is no number."""
    hours = COLUMNS.hours.copy()
    hours[0, COLUMNS.index[Width("t4@s1", 2)]] = math.inf
    hours[0, COLUMNS.index[Width("t4", 2)]] = math.inf
    found = fallback_width(
        a_job(remaining_gpu_hours=1.0),
        replace(COLUMNS, hours=hours),
        multiplier=multiplier,
        room={"t4": math.inf},
        holds=None,
        rather_than=rather_than,
        waited_hours=1e6,
    )
    assert found == Width("t4", 1)
