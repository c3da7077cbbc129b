"""Answers as JSON: exactly the keys that other programs read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import pytest

from boa_daemon.planning.curve import Curve
from boa_daemon.planning.plan_documents import has_weights, infeasible_document, landmarks, solution_document
from policies.errors import InfeasibleBudget
from policies.model import GpuType, JobClass, Phase, Problem
from policies.optimum.boa import solve
from policies.optimum.solution import Version
from policies.speedup import Table

TABLE = Table(gpus=(1, 2, 4), speeds=(1.0, 1.8, 3.0))
PHASE = Phase(size_gpu_hours=1.0, speedups={"gpu": TABLE})
FREE = JobClass(name="free", phases=(PHASE, PHASE))
COUPLED = JobClass(name="coupled", phases=(PHASE, PHASE), rescale_hours=0.1)
PROBLEM = Problem(classes=(FREE, COUPLED), gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=1.0),))
KEYS = {
    *("version", "status", "budget_unit", "budget", "mean_jct_hours", "mean_spend", "multiplier"),
    *("cheapest_feasible_spend", "largest_useful_spend", "lower_bound_mean_jct_hours"),
    *("dual_bound_hours", "gap", "classes"),
}


def the_document(version: Version = "integer-mixed", budget: float = 4.7) -> dict[str, Any]:
    """Return the answer after a round trip through JSON."""
    solution = solve(PROBLEM, budget, version=version)
    document: dict[str, Any] = json.loads(json.dumps(solution_document(solution, PROBLEM)))
    return document


@pytest.mark.parametrize("version", get_args(Version))
def test_the_document_has_the_documented_keys(version: Version) -> None:
    """A coupled class has whole plans, another class has options per phase; fractions add up to one."""
    document = the_document(version)
    free, coupled = document["classes"]

    assert document.keys() == KEYS
    assert document["version"] == version
    assert free.keys() == {"name", "mean_jct_hours", "mean_spend_per_job", "phases"}
    assert coupled.keys() == {"name", "mean_jct_hours", "mean_spend_per_job", "plans"}
    assert len(free["phases"]) == 2
    for phase in free["phases"]:
        assert all(option.keys() == {"gpu_type", "gpus", "job_fraction"} for option in phase["options"])
        assert sum(option["job_fraction"] for option in phase["options"]) == pytest.approx(1.0)
    for plan in coupled["plans"]:
        assert plan.keys() == {"job_fraction", "phases"}
        assert all(phase.keys() == {"gpu_type", "gpus"} for phase in plan["phases"])
    assert sum(plan["job_fraction"] for plan in coupled["plans"]) == pytest.approx(1.0)


def test_whole_widths_are_integers() -> None:
    """Programs use them as counts, so 4 is not written as 4.0."""
    document = the_document()

    assert all(
        isinstance(option["gpus"], int)
        for phase in document["classes"][0]["phases"]
        for option in phase["options"]
    )


def test_the_weighted_mean_is_present_only_with_class_weights() -> None:
    """With weights the landmarks of the curve have both means."""
    weighted = replace(PROBLEM, classes=(replace(FREE, weight=2.0), COUPLED))

    assert not has_weights(PROBLEM)
    assert has_weights(weighted)
    document = solution_document(solve(weighted, 4.7), weighted)
    assert document.keys() == KEYS | {"weighted_mean_jct_hours"}
    plain, both = (landmarks(Curve.of(p, "integer-mixed")) for p in (PROBLEM, weighted))
    assert plain.keys() == {"floor_mean_jct_hours", "knee", "beyond_knee"}
    assert both.keys() == {"floor_mean_jct_hours", "floor_weighted_mean_jct_hours", "knee", "beyond_knee"}
    assert both["knee"].keys() - plain["knee"].keys() == {"weighted_mean_jct_hours"}
    assert both["floor_mean_jct_hours"] == pytest.approx(plain["floor_mean_jct_hours"])


def test_an_infeasible_document_has_the_cheapest_feasible_spend() -> None:
    """The cheapest widths of four phases take 4 GPU-hours per hour at 1 dollar."""
    with pytest.raises(InfeasibleBudget) as refusal:
        solve(PROBLEM, 1.0)
    document = infeasible_document(refusal.value, 1.0, PROBLEM, "integer-mixed")

    assert document["status"] == "infeasible"
    assert document["cheapest_feasible_spend"] == pytest.approx(4 * 1.0)
    assert document.keys() == {
        *("version", "status", "budget_unit", "budget", "cheapest_feasible_spend", "message"),
    }
