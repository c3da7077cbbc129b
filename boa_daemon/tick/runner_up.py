"""The alternative to each decision: the next best choice, and the cost of both.

For a job it is the next best width, weighed at the policy's price of money: dollars of money and waiting for
the rest of its phase. For new nodes it is the next cheapest offer; for a node that is given back, holding it,
in dollars per hour. A policy without a price of money weighs no widths.

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
    """The chosen option, the next best one, and the cost of each in one unit."""

    chosen: str
    cost: float
    runner_up: str
    runner_up_cost: float
    unit: Unit

    @property
    def sentence(self) -> str:
        """The choice as a sentence for people."""
        what = " of money and waiting" if self.unit == "USD" else ""
        per = "USD" if self.unit == "USD" else "USD per hour"
        return (
            f"{self.chosen}, at {self.cost:.4g} {per}{what}; "
            f"{self.runner_up} would be {self.runner_up_cost:.4g}"
        )

    @property
    def document(self) -> dict[str, str | float]:
        """The choice as a document for programs."""
        return {
            "chosen": self.chosen,
            "cost": self.cost,
            "runner_up": self.runner_up,
            "runner_up_cost": self.runner_up_cost,
            "unit": self.unit,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternatives:
    """The widths that a plan's jobs weigh, and the single change that would add the least cost (`nearest`).

    `cost` is the cost of all weighed jobs together, in dollars of money and waiting.
    """

    jobs: Mapping[JobId, WidthComparison]
    cost: float
    nearest: JobId | None

    @classmethod
    def of(cls, state: ClusterState, plan: Plan) -> Alternatives:
        """Weigh the jobs of a plan; empty if the policy has no price of money. O(jobs x widths)."""
        weighed = _weighed(state, plan, list(plan.widths))
        return cls(
            jobs=weighed,
            cost=sum(one.cost for one in weighed.values()),
            nearest=min(weighed, key=lambda job: weighed[job].difference, default=None),
        )

    @property
    def costs(self) -> tuple[float | None, float | None]:
        """The cost of the chosen plan and of the next best one; None if nothing was weighed."""
        if self.nearest is None:
            return None, None
        return self.cost, self.cost + self.jobs[self.nearest].difference


def width_choice(state: ClusterState, plan: Plan, job: JobId) -> Choice | None:
    """Return the alternative to a job's width; None if it was not weighed."""
    found = _weighed(state, plan, [job]).get(job)
    return None if found is None else _of_widths(found)


def _weighed(state: ClusterState, plan: Plan, jobs: list[JobId]) -> dict[JobId, WidthComparison]:
    prices = plan.node_prices
    if not isinstance(prices, WholeNodePrices):
        return {}
    present = [state.jobs[name].job for name in jobs if name in state.jobs]
    return compare_widths(present, plan.widths, prices.columns, multiplier=prices.multiplier)


def _of_widths(found: WidthComparison) -> Choice:
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
    """Return the alternative to an action; None if nothing was weighed."""
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
    """Return the next cheapest offer of the type as the alternative."""
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
