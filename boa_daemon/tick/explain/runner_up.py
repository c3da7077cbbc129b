"""The alternative to each decision: the next best choice, and the cost of both.

For a job it is the next best width, weighed at the policy's price of money: dollars of money and waiting for
the rest of its phase. For new nodes it is the next cheapest offer; for a node that is given back, holding it,
in dollars per hour. A policy without a price of money weighs no widths.

Everything comes from the state and the plan, so a replay finds the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from boa_daemon.tick.facts.actions import (
    Action,
    EndGeneration,
    GiveUpJob,
    LaunchNodes,
    StartJob,
    StopJob,
    TerminateNode,
)
from boa_daemon.tick.facts.offers import open_offers
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.room_caps import gpu_counts
from boa_daemon.tick.facts.state import ClusterState
from policies.fast_dataclasses import replace
from policies.model import Job, JobId, Width
from policies.money_text import in_dollars
from policies.online.node_prices import WholeNodePrices
from policies.online.width_comparison import WidthComparison, compare_widths

Unit: TypeAlias = Literal["USD", "USD/hour"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen option, the next best one, and the cost of each in one unit.

    `wished` is an option that would cost less than the chosen one, but is not possible; `forbidden_by` says
    why. Without `wished`, it says why the runner-up is not possible: no option is.
    """

    chosen: str
    cost: float
    runner_up: str
    runner_up_cost: float
    unit: Unit
    wished: str = ""
    wished_cost: float | None = None
    forbidden_by: str = ""

    @property
    def is_best(self) -> bool:
        """Whether no possible option costs less than the chosen one."""
        is_possible = bool(self.wished) or not self.forbidden_by
        return not is_possible or self.cost <= self.runner_up_cost * (1.0 + 1e-9)

    @property
    def sentence(self) -> str:
        """The choice as a sentence for people."""
        what = " of money and waiting" if self.unit == "USD" else ""
        per = "" if self.unit == "USD" else "/hour"
        other = f"{self.runner_up} would be {in_dollars(self.runner_up_cost)}"
        said = f"{self.chosen}, at {in_dollars(self.cost)}{per}{what}; {other}"
        if self.wished:
            return f"{said}, and {self.wished} {in_dollars(self.wished_cost)}, but {self.forbidden_by}"
        return f"{said}, but {self.forbidden_by}" if self.forbidden_by else said

    @property
    def document(self) -> dict[str, str | float]:
        """The choice as a document for programs."""
        return {
            "chosen": self.chosen,
            "cost": self.cost,
            "runner_up": self.runner_up,
            "runner_up_cost": self.runner_up_cost,
            "unit": self.unit,
            **({"forbidden_by": self.forbidden_by} if self.forbidden_by else {}),
            **(
                {"wished": self.wished, "wished_cost": self.wished_cost}
                if self.wished_cost is not None
                else {}
            ),
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
        weighed = _weighed(state, plan, list(plan.jobs.widths))
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
    wished = _weighed(state, plan, [job], within_limits=False).get(job)
    if wished is None:
        return None
    limits = WidthLimits.of(state, plan)
    why = limits.forbidding(state.jobs[job].job, wished.other)
    if found is None:
        return replace(_of_widths(wished), forbidden_by=why)
    if not why or wished.other_cost >= found.cost:
        return _of_widths(found)
    return replace(
        _of_widths(found), wished=str(wished.other), wished_cost=wished.other_cost, forbidden_by=why
    )


def _weighed(
    state: ClusterState, plan: Plan, jobs: list[JobId], *, within_limits: bool = True
) -> dict[JobId, WidthComparison]:
    """Compare widths; alternatives are those that have room under the same limits, or any."""
    prices = plan.node_prices
    if not isinstance(prices, WholeNodePrices):
        return {}
    present = [state.jobs[name].job for name in jobs if name in state.jobs]
    limits = WidthLimits.of(state, plan) if within_limits else None
    return compare_widths(
        present,
        plan.jobs.widths,
        prices.columns,
        multiplier=prices.multiplier,
        has_room=None if limits is None or limits.are_none else limits.allow,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthLimits:
    """Whether a job could have another width beside the planned widths of all other jobs."""

    state: ClusterState
    plan: Plan
    counts: Mapping[str, int]
    with_room: frozenset[JobId]
    known: dict[tuple[Width | None, Width, bool], str]

    @classmethod
    def of(cls, state: ClusterState, plan: Plan) -> WidthLimits:
        """Return the limits under which a plan was made."""
        fitting = dict(_with_room(state, plan))
        counts = gpu_counts(fitting.values())
        return cls(state=state, plan=plan, counts=counts, with_room=frozenset(fitting), known={})

    @property
    def are_none(self) -> bool:
        """Whether any width is possible for every job."""
        return not self.plan.room_caps and not self.state.bound_jobs

    def allow(self, job: Job, width: Width) -> bool:
        """Return whether nothing forbids a width."""
        return not self.forbidding(job, width)

    def forbidding(self, job: Job, width: Width) -> str:
        """Return which limit forbids a width of a job; empty if none does."""
        seen = self.state.jobs[job.id]
        ordered = seen.terms.ordered_gpus
        if ordered is not None and width.gpus != ordered:
            return f"its user ordered {ordered} GPUs"
        if seen.is_rigid and seen.slots and width != job.width:
            return "nothing shows that it would keep its work on other GPUs"
        question = self.plan.jobs.widths.get(job.id), width, job.id in self.with_room
        if question not in self.known:
            self.known[question] = self._forbidding(*question)
        return self.known[question]

    def _forbidding(self, now: Width | None, width: Width, has_room: bool) -> str:
        """Return which cap forbids a width instead of the planned one, whose room is counted or not."""
        counts = self.counts
        if not has_room and now is not None:
            # Those before it have all the room. A narrower width would wait for the same.
            counts = {**counts, now.gpu_type: counts.get(now.gpu_type, 0) + now.gpus}
        caps = (cap.name for cap in self.plan.room_caps if not cap.holds_instead(counts, width, now))
        return next((f"{name} leaves no room for it" for name in caps), "")


def _with_room(state: ClusterState, plan: Plan) -> Iterator[tuple[JobId, Width]]:
    """Yield the widths that have room together: of jobs that hold GPUs or start, then by order of service."""
    rest: list[tuple[JobId, Width]] = []
    given: list[tuple[JobId, Width]] = []
    for name in dict.fromkeys((*plan.order, *plan.jobs.widths)):
        if name in plan.jobs.widths and name in state.jobs:
            has_room = state.jobs[name].slots or name in plan.jobs.slots
            (given if has_room else rest).append((name, plan.jobs.widths[name]))
    yield from given
    counts = gpu_counts(width for _, width in given)
    for name, width in rest:
        if not all(cap.holds_instead(counts, width, None) for cap in plan.room_caps):
            return
        counts[width.gpu_type] = counts.get(width.gpu_type, 0) + width.gpus
        yield name, width


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
