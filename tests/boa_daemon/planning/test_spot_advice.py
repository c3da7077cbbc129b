"""How often jobs on the spot market should save, by the number of their nodes."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from boa_daemon.planning.spot_advice import advice_document, advice_sentence, spot_advice
from boa_daemon.sim.spot_market import SaveAdvice
from boa_daemon.sim.world_settings import Checkpoints, Spot, WorldSettings
from boa_daemon.testing import an_instance_type
from policies.model import Width
from policies.optimum.interruptions import CheckpointSchedule
from policies.optimum.solution import Solution

WORLD = WorldSettings(
    spot=Spot(mean_interruption_hours=10.0, unannounced_fraction=1.0),
    checkpoints=Checkpoints(every_seconds=600.0, cost_seconds=30.0),
)
MACHINES = {name: an_instance_type(gpu_type=name) for name in ("gpu", "gpu@spot")}


def advised(*widths: Width) -> tuple[SaveAdvice, ...]:
    """Return the advice for a solution with these widths, in plans of two phases each."""
    plans = [SimpleNamespace(widths=(width, width)) for width in widths]
    solution: Any = SimpleNamespace(classes=[SimpleNamespace(plans=plans)])
    return spot_advice(cast(Solution, solution), MACHINES, WORLD)


def test_advice_is_for_each_number_of_spot_nodes() -> None:
    """Whole nodes of four GPUs, once each and in order; on demand nothing is taken back."""
    found = advised(*(Width("gpu@spot", gpus) for gpus in (16, 3, 4, 5, 1)), Width("gpu", 64))
    assert [one.nodes for one in found] == [1, 2, 4]
    assert found[0].best_seconds > found[2].best_seconds
    assert advised(Width("gpu", 64)) == ()


def test_infinity_is_null_in_json() -> None:
    """So is an interval that the world does not give."""
    found = (
        SaveAdvice(nodes=1, best_seconds=math.inf, now_seconds=None),
        SaveAdvice(nodes=2, best_seconds=60.0, now_seconds=600.0),
    )
    assert advice_document(found) == [
        {"nodes": 1, "best_seconds": None, "every_seconds": None},
        {"nodes": 2, "best_seconds": 60.0, "every_seconds": 600.0},
    ]


def one(nodes: int, minutes: float, now: float | None = 600.0) -> SaveAdvice:
    """Return advice for a number of nodes."""
    return SaveAdvice(nodes=nodes, best_seconds=60.0 * minutes, now_seconds=now)


@pytest.mark.parametrize(
    ("found", "cost", "said"),
    [
        ((), 0.1, "no job is planned on the spot market"),
        ((one(1, math.inf),), 0.1, "saving in between gains nothing"),
        ((one(1, 5.0),), 0.0, "saving is free here: save as often as you can"),
        (
            (one(1, 5.0),),
            0.1,
            "best to save every 5.0 min on 1 node; the plan assumes every 10.0 min, as the world says",
        ),
        ((one(1, 5.0), one(2, 4.0), one(4, 3.0)), 0.1, "every 5.0 min on 1 node, every 3.0 min on 4 nodes;"),
        ((one(2, 5.0, None),), 0.1, "the plan assumes never, as the world says"),
    ],
)
def test_the_advice_in_a_sentence(found: tuple[SaveAdvice, ...], cost: float, said: str) -> None:
    """For the fewest and the most nodes."""
    saves = CheckpointSchedule(every_hours=1.0, cost_hours=cost)
    assert said in advice_sentence(found, saves)
