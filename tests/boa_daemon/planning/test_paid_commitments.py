"""Planning with paid commitments: the bill is the budget, and committed GPUs are free."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.planning.paid_commitments import PaidCommitments, paid_sentence
from policies.errors import InfeasibleBudget
from policies.model import GpuType, InstanceType, JobClass, Phase, Problem
from policies.optimum.boa import solve
from policies.optimum.commitments import Commitment
from policies.speedup import Table

MACHINE = InstanceType(name="p4d.24xlarge", gpu_type="a100", gpus=8, usd_per_hour=16.0)
PROBLEM = Problem(
    classes=(
        JobClass(
            name="c",
            arrivals_per_hour=2.0,
            phases=(
                Phase(
                    size_gpu_hours=3.0,
                    speedups={"a100": Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.8, 3.0, 4.0))},
                ),
            ),
        ),
    ),
    gpu_types=(GpuType(name="a100", usd_per_gpu_hour=2.0),),
)


def held(usd_per_hour: float, rate: float = 1.2) -> PaidCommitments:
    """Return a commitment to A100s at a rate."""
    return PaidCommitments(
        machines=(MACHINE,), commitments=(Commitment(name="x", rates=(rate,)),), levels=(usd_per_hour,)
    )


@pytest.mark.parametrize("level", [0.0, 2.0, 6.0, 12.0])
def test_commitments_and_on_demand_use_together_cost_the_budget(level: float) -> None:
    """The bill is the budget at every level of commitment."""
    paid = held(level)
    plan = solve(PROBLEM, paid.planning_budget(PROBLEM, 16.0))

    assert paid.to_document(paid.load_of(PROBLEM, plan))["usd_per_hour"] == pytest.approx(16.0)


def test_without_a_commitment_the_planning_budget_is_the_budget() -> None:
    """A level of zero changes nothing."""
    assert held(0.0).planning_budget(PROBLEM, 16.0) == pytest.approx(16.0)


def test_a_commitment_raises_the_planning_budget_and_shortens_jobs() -> None:
    """Below the committed level a GPU costs nothing more."""
    plain, free = (held(level).planning_budget(PROBLEM, 16.0) for level in (0.0, 8.0))

    assert free > plain * 1.1
    assert solve(PROBLEM, free).mean_jct_hours < solve(PROBLEM, plain).mean_jct_hours


def test_a_commitment_above_the_budget_is_infeasible() -> None:
    """A commitment is paid whether it is used or not."""
    with pytest.raises(InfeasibleBudget, match=r"\$30\.00/hour is paid anyway") as refused:
        held(30.0).planning_budget(PROBLEM, 16.0)

    assert refused.value.least_spend == pytest.approx(30.0, rel=0.02)


def test_the_planning_budget_stops_at_the_largest_useful_spend() -> None:
    """More money than the fastest widths cost is not planned."""
    assert held(5.0).planning_budget(PROBLEM, 1e4) == pytest.approx(2 * 3.0 / 4.0 * 8 * 2.0)


def test_a_commitments_file_is_read_for_a_date(tmp_path: Path) -> None:
    """A reservation of two machines at half price costs 16 USD per hour."""
    path = tmp_path / "c.toml"
    path.write_text(
        '[[commitments]]\nname = "r"\nkind = "reserved"\ninstance_type = "p4d.24xlarge"\n'
        "discount = 0.5\ninstances = 2\n"
    )
    paid = PaidCommitments.read(path, [MACHINE], date(2026, 11, 1))

    assert (paid.usd_per_hour, paid.commitments[0].rates) == (16.0, (1.0,))
    path.write_text("commitments = 3\n")
    with pytest.raises(InputError, match=r"c\.toml:1"):
        PaidCommitments.read(path, [MACHINE], date(2026, 11, 1))


def test_the_sentence_gives_the_used_part_of_the_commitment() -> None:
    """Here three quarters are used."""
    said = paid_sentence(
        {
            "committed_usd_per_hour": 8.0,
            "used_usd_per_hour": 6.0,
            "on_demand_usd_per_hour": 2.0,
            "usd_per_hour": 10.0,
        }
    )

    assert "the bill is $10.00/h: $8.00/h is paid anyway, 75% of it used, and $2.00/h is on demand" in said
