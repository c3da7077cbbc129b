"""The curve of waiting against money for the page: the hulls of every class, in whole widths.

The page solves by itself. It takes the edges of the hulls in the order of what they save per dollar until the
budget is spent, which is the exact optimum (`policies.optimum.hull`). A factor on all prices or on the load
only stretches the money axis, so these sliders need no request. For longer starts of jobs, the document holds
one set of hulls for each length.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from boa_daemon.planning.curve import Curve
from boa_daemon.planning.plan_documents import has_weights
from policies.model import Problem
from policies.optimum.frontier import MixedFrontier

START_MINUTES = (0.0, 1.0, 3.0, 5.0, 10.0, 20.0)
"""Choices of minutes added to the start of every job."""
MOST_VERTICES = 4000
"""Above this number of vertices the hulls of longer starts are left out, to keep the page small."""


def frontier_document(problem: Problem, *, budget: float | None = None, title: str = "") -> dict[str, Any]:
    """Return the data with which the page draws the curve and plans any budget on it."""
    curve = Curve.of(problem, "integer-mixed")
    starts = [_start(problem, 0.0)]
    vertices = sum(len(group["hull"]) for group in starts[0]["groups"])
    if vertices * len(START_MINUTES) <= MOST_VERTICES:
        starts += [_start(problem, minutes) for minutes in START_MINUTES[1:]]
    knee = curve.knee()
    return {
        "title": title,
        "unit": problem.budget_unit,
        "budget": budget,
        "is_weighted": has_weights(problem),
        "cheapest": curve.cheapest,
        "largest_useful": curve.largest_useful,
        "knee": {"budget": knee.budget, "hours": knee.hours, "flat_budget": knee.flat_budget},
        "floor_hours": knee.floor_hours,
        "classes": [
            {"name": one.name, "arrivals_per_hour": one.arrivals_per_hour, "weight": one.weight}
            for one in problem.classes
        ],
        "starts": starts,
    }


def _start(problem: Problem, minutes: float) -> dict[str, Any]:
    """Return the hulls when every job's start takes `minutes` longer than its class says."""
    classes = tuple(replace(one, startup_hours=one.startup_hours + minutes / 60.0) for one in problem.classes)
    frontier = MixedFrontier.of(replace(problem, classes=classes))
    options, chains = frontier.options, frontier.merged.chains
    groups = []
    for group in range(len(options.owner)):
        chosen = chains.option[chains.starts[group] : chains.starts[group + 1]]
        steps = options.steps_of([group] * len(chosen), chosen)
        groups.append(
            {
                "class": int(options.owner[group]),
                "phase": int(options.phase[group]),
                "hull": [
                    {
                        "spend": round(sum(step.spend for step in one), 9),
                        "hours": round(sum(step.hours for step in one), 9),
                        "label": ", then ".join(
                            dict.fromkeys(f"{step.gpus} × {step.gpu_type}" for step in one)
                        ),
                    }
                    for one in steps
                ],
            }
        )
    return {"minutes": minutes, "groups": groups}
