"""What else there was: for each decision the next best thing, and what both would have cost.

For a job that is its next best width, weighed at the price that the policy puts on money: dollars of money
and waiting for the rest of its phase. For new nodes it is the next cheapest offer, for a node that is given
back holding it, in dollars per hour. A policy that puts no price on money weighs no widths.

Everything comes from the state and the plan, so a replay finds the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from boa_daemon.tick.actions import (
    Action,
    EndGeneration,
    GiveUpJob,
    LaunchNodes,
    StartJob,
    StopJob,
    TerminateNode,
)
from boa_daemon.tick.offers import open_offers
from boa_daemon.tick.state import ClusterState, Plan
from policies.model import JobId
from policies.online.node_prices import WholeNodePrices
from policies.online.width_comparison import WidthComparison, compare_widths

Unit: TypeAlias = Literal["USD", "USD/hour"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was chosen, the next best, and the cost of each in one unit."""

    chosen: str
    cost: float
    runner_up: str
    runner_up_cost: float
    unit: Unit

    @property
    def sentence(self) -> str:
        """The choice for people."""
        what = " of money and waiting" if self.unit == "USD" else ""
        per = "USD" if self.unit == "USD" else "USD per hour"
        return (
            f"{self.chosen}, at {self.cost:.4g} {per}{what}; "
            f"{self.runner_up} would be {self.runner_up_cost:.4g}"
        )

    @property
    def document(self) -> dict[str, str | float]:
        """The choice for programs."""
        return {
            "chosen": self.chosen,
            "cost": self.cost,
            "runner_up": self.runner_up,
            "runner_up_cost": self.runner_up_cost,
            "unit": self.unit,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternatives:
    """What the jobs of a plan weigh, and of all single changes the one that would cost the least more.

    `cost` is what all jobs together cost that could be weighed, in dollars of money and waiting.
    """

    jobs: Mapping[JobId, WidthComparison]
    cost: float
    nearest: JobId | None

    @classmethod
    def of(cls, state: ClusterState, plan: Plan) -> Alternatives:
        """Weigh the jobs of a plan; nothing where the policy puts no price on money. O(jobs x widths)."""
        weighed = _weighed(state, plan, list(plan.widths))
        return cls(
            jobs=weighed,
            cost=sum(one.cost for one in weighed.values()),
            nearest=min(weighed, key=lambda job: weighed[job].difference, default=None),
        )

    @property
    def costs(self) -> tuple[float | None, float | None]:
        """What the chosen plan and the next best cost; None where nothing was weighed."""
        if self.nearest is None:
            return None, None
        return self.cost, self.cost + self.jobs[self.nearest].difference


def width_choice(state: ClusterState, plan: Plan, job: JobId) -> Choice | None:
    """Return what else a job's width might have been; None where that was not weighed."""
    found = _weighed(state, plan, [job]).get(job)
    return None if found is None else _of_widths(found)


def _weighed(state: ClusterState, plan: Plan, jobs: list[JobId]) -> dict[JobId, WidthComparison]:
    """Return what the widths of jobs weigh."""
    prices = plan.node_prices
    if not isinstance(prices, WholeNodePrices):
        return {}
    present = [state.jobs[name].job for name in jobs if name in state.jobs]
    return compare_widths(present, plan.widths, prices.columns, multiplier=prices.multiplier)


def _of_widths(found: WidthComparison) -> Choice:
    """Return two widths as a choice."""
    return Choice(
        chosen=str(found.width),
        cost=found.cost,
        runner_up=str(found.other),
        runner_up_cost=found.other_cost,
        unit="USD",
    )


def action_choice(
    state: ClusterState, action: Action, weighed: Mapping[JobId, WidthComparison]
) -> Choice | None:
    """Return what else might have been done in place of an action; None where nothing was weighed."""
    if isinstance(action, StartJob | StopJob):
        found = weighed.get(action.job)
        return None if found is None else _of_widths(found)
    if isinstance(action, EndGeneration | GiveUpJob):
        return None
    if isinstance(action, TerminateNode):
        node = state.nodes.get(action.node)
        if node is None:
            return None
        return Choice(
            chosen="giving it back",
            cost=0.0,
            runner_up="holding it",
            runner_up_cost=node.usd_per_hour,
            unit="USD/hour",
        )
    return _next_offer(state, action)


def _next_offer(state: ClusterState, launch: LaunchNodes) -> Choice | None:
    """Return the next cheapest offer of the type beside the one that is asked for."""
    offer = launch.offer
    if offer is None or offer.usd_per_hour is None:
        return None
    for other in open_offers(launch.instance_type.name, state.offers, state.cooldowns, now=state.now):
        if other.key != offer.key and other.usd_per_hour is not None:
            return Choice(
                chosen=offer.key,
                cost=launch.count * offer.usd_per_hour,
                runner_up=other.key,
                runner_up_cost=launch.count * other.usd_per_hour,
                unit="USD/hour",
            )
    return None
