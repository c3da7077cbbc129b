"""The next best width when the best one has no room."""

from __future__ import annotations

import math

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
