"""Advice on how often jobs on the spot market should save checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from boa_daemon.sim.spot_market import SaveAdvice, advice
from boa_daemon.sim.world_settings import WorldSettings
from policies.model import InstanceType
from policies.optimum.interruptions import CheckpointSchedule
from policies.optimum.solution import Solution


def spot_advice(
    solution: Solution, machines: Mapping[str, InstanceType], world: WorldSettings
) -> tuple[SaveAdvice, ...]:
    """Return the best interval between saves for each number of spot nodes that a planned job has."""
    widths = (width for answer in solution.classes for plan in answer.plans for width in plan.widths)
    nodes = {-(-width.gpus // machines[width.gpu_type].gpus) for width in widths if width.kind.is_spot}
    return tuple(advice(world, number) for number in sorted(nodes))


def advice_document(found: tuple[SaveAdvice, ...]) -> list[dict[str, Any]]:
    """Return the advice as JSON; null if no work is ever lost, or the world gives no interval."""
    return [
        {
            "nodes": one.nodes,
            "best_seconds": one.best_seconds if math.isfinite(one.best_seconds) else None,
            "every_seconds": one.now_seconds,
        }
        for one in found
    ]


def advice_sentence(found: tuple[SaveAdvice, ...], saves: CheckpointSchedule) -> str:
    """Return the advice in a sentence, for the fewest and the most nodes."""
    if not found:
        return "On these terms no job is planned on the spot market."
    if not math.isfinite(found[0].best_seconds):
        return "Every interruption is announced in time to save, so saving in between gains nothing."
    if saves.cost_hours == 0.0:
        return "Spot nodes may end without timely notice, and saving is free here: save as often as you can."
    said = [
        f"every {one.best_seconds / 60.0:.1f} min on {one.nodes} node{'s' if one.nodes > 1 else ''}"
        for one in dict.fromkeys((found[0], found[-1]))
    ]
    now = found[0].now_seconds
    told = "never, as the world says" if now is None else f"every {now / 60.0:.1f} min, as the world says"
    return f"On the spot market it is best to save {', '.join(said)}; the plan assumes {told}."
