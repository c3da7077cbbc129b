"""Plan with commitments that are already paid: GPUs within their levels cost nothing more.

The plan is made at on-demand prices for the largest budget whose bill, commitments plus the on-demand rest,
is within the allowed spend. GPU types are still compared at on-demand prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from boa_daemon.inputs.commitments_file import active_commitments, read_commitments
from boa_daemon.planning.curve import Curve
from policies.errors import InfeasibleBudget
from policies.model import InstanceType, Problem
from policies.money_text import in_dollars, least_in_dollars
from policies.optimum.commitments import Bill, Commitment, LoadDistribution, bill_of, load_of_swings
from policies.optimum.solution import Solution
from policies.optimum.swing import swings

HALVINGS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidCommitments:
    """Commitments to these machines, with their levels in dollars per hour."""

    machines: tuple[InstanceType, ...]
    commitments: tuple[Commitment, ...]
    levels: tuple[float, ...]

    @classmethod
    def read(cls, path: Path, machines: Sequence[InstanceType], day: date) -> PaidCommitments:
        """Return the commitments of a file that are paid on a day.

        Raises:
            InputError: when the file is wrong; with file and line.
        """
        found, levels = active_commitments(read_commitments(path, machines), machines, day)
        return cls(machines=tuple(machines), commitments=found, levels=levels)

    @property
    def usd_per_hour(self) -> float:
        """Dollars per hour that are paid in any case."""
        return sum(self.levels)

    def bill(self, load: LoadDistribution) -> Bill:
        """Return the bill of a load of these machines."""
        prices = [machine.usd_per_gpu_hour for machine in self.machines]
        return bill_of(load, prices, self.commitments, self.levels)

    def load_of(self, problem: Problem, solution: Solution) -> LoadDistribution:
        """Return the load of a plan over all machines; unused types have 0 GPUs."""
        load = load_of_swings(swings(problem, solution))
        columns = [
            load.gpus[:, load.gpu_types.index(machine.gpu_type)]
            if machine.gpu_type in load.gpu_types
            else np.zeros(len(load.share))
            for machine in self.machines
        ]
        return LoadDistribution(
            gpu_types=tuple(machine.gpu_type for machine in self.machines),
            gpus=np.stack(columns, axis=1),
            share=load.share,
        )

    def planning_budget(self, problem: Problem, usd_per_hour: float) -> float:
        """Return the largest on-demand budget whose plan costs at most `usd_per_hour`, commitments included.

        Raises:
            InfeasibleBudget: when even the cheapest plan costs more.
        """
        curve = Curve.of(problem, "integer-mixed")

        def cost(budget: float) -> float:
            return self.bill(self.load_of(problem, curve.solution_at(budget))).total

        low, high = curve.cheapest * (1.0 + 1e-12), max(curve.largest_useful, curve.cheapest * (1.0 + 1e-9))
        least = cost(low)
        if least > usd_per_hour:
            raise InfeasibleBudget(
                f"{in_dollars(usd_per_hour)}/hour is too small: with the commitments, of which "
                f"{in_dollars(self.usd_per_hour)}/hour is paid anyway, the classes need at least "
                f"{least_in_dollars(least)}/hour. Raise the budget, or allow "
                "widths that cost less per unit of work",
                least_spend=least,
            )
        if cost(high) <= usd_per_hour:
            return high
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if cost(middle) <= usd_per_hour else (low, middle)
        return low

    def to_document(self, load: LoadDistribution) -> dict[str, Any]:
        """Return the bill of a load as JSON."""
        bill = self.bill(load)
        return {
            "committed_usd_per_hour": bill.committed,
            "used_usd_per_hour": sum(bill.used),
            "on_demand_usd_per_hour": bill.on_demand,
            "usd_per_hour": bill.total,
        }


def paid_sentence(paid: dict[str, Any]) -> str:
    """Return the bill in a sentence."""
    share = (
        paid["used_usd_per_hour"] / paid["committed_usd_per_hour"] if paid["committed_usd_per_hour"] else 0.0
    )
    return (
        f"With the commitments the bill is {in_dollars(paid['usd_per_hour'])}/h: "
        f"{in_dollars(paid['committed_usd_per_hour'])}/h is paid anyway, {share:.0%} of it used, and "
        f"{in_dollars(paid['on_demand_usd_per_hour'])}/h is on demand."
    )
