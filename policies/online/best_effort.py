"""Best effort: a budget below the least that runs every job runs the cheapest widths, as far as it goes.

While the jobs that are there take more than the budget, each gets the width at which its work costs least, so
a dollar finishes as much work as it can, and jobs are served by Smith's rule, the most weight per dollar of
work left first: for work that money alone limits this order gives the least mean weighted completion time
(weighted shortest remaining processing time). A running job counts twice, so it gives way only to one with
less than half of its dollars left per weight. While they take less, the queue is empty and the load may be
less than was believed: they get the best widths that take the budget per hour together.

The spend follows the budget through an account. It accrues the budget, pays every bill, and sets what may be
rented at a time:

    E = B (t - t0) - (S - S0)            most = B + max(E, 0) / U,    U = max(1 h, 10 boots)

    E > 0            jobs may start on whatever is rented
    0 >= E > -U B/2  what is rented beyond B takes no new job; those that run on it may finish
    else             what is rented beyond B is given back; its jobs write their checkpoints and wait

So a budget of 3.6 nodes keeps three nodes, and a fourth for an hour of every one and two thirds; one of 0.3
nodes rents a node for an hour of every three and a third. Opening and closing at different E keeps nodes from
flapping, and U makes boots at most a tenth of what is rented for them. The time average converges to B like
(U B + the dearest job's dollars) / elapsed time.

The queue meanwhile grows as the fluid limit of that order says: classes are served by w / C until the money
is gone, and what arrives of the others stays.

    symbol   here               meaning
    B        budget             dollars per hour, or GPUs, on average over time
    S, S0    spent              spent until now, and until the account was opened at t0
    E        balance            money ahead of what was spent
    U        spread_hours       hours over which a balance is spent
    C, w     cost, weight       what a job of a class takes at its cheapest width, and its worth

Sources: Smith, Naval Research Logistics Quarterly 3 (1956), for the order; the account is a token bucket.
Cost: O(jobs log(jobs x edges)) per tick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from policies.answer import Allocation
from policies.model import BudgetUnit, Job, Money, check_positive
from policies.online.paced_optimum import PacedBudgetOptimal
from policies.optimum.frontier import MixedFrontier
from policies.optimum.hull import TIE

LEAST_SPREAD_HOURS = 1.0
"""A node beyond the steady ones is rented for this long at the least: AWS bills by the second."""
BOOTS_PER_SPREAD = 10.0
"""A node beyond the steady ones spends at most a tenth of its hours booting."""
RUNNING_COUNTS = 2.0
"""A running job is stopped for another only where that has this many times the weight per dollar left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """A budget beside the least that runs every job, and how the queue grows where it is below that.

    Amounts are in the unit of the budget; `served` is the part of each class's jobs that the budget pays
    for, in the order of service. GPU-hours are of work, on one reference GPU. Jobs are counted as if those
    of a class were all alike: where their sizes differ, fewer and larger ones are left.
    """

    budget: float
    least_spend: float
    unit: BudgetUnit
    jobs_per_hour: float
    gpu_hours_per_hour: float
    served: Mapping[str, float]

    @property
    def is_short(self) -> bool:
        """Whether the budget is below the least that runs every job."""
        return self.budget < self.least_spend * (1.0 - TIE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The budget per hour that a best effort accrues, from when on, and what had been spent before.

    Without `opened_at` it is as old as the ledger.
    """

    budget: float
    opened_at: float | None = None
    spent_before: float = 0.0

    def __post_init__(self) -> None:
        check_positive("budget of an account", self.budget)

    def balance(self, money: Money, *, now: float) -> float:
        """Return the money ahead of what was spent, in the unit of the budget."""
        hours = money.elapsed_hours if self.opened_at is None else (now - self.opened_at) / 3600.0
        return self.budget * hours - (money.spent - self.spent_before)


def shortfall_of(frontier: MixedFrontier, budget: float) -> Shortfall:
    """Return how far a budget goes; the queue does not grow where it is enough."""
    least = frontier.cheapest_feasible_spend
    problem, left = frontier.problem, budget
    served: dict[str, float] = {}
    jobs = work = 0.0
    plans = zip(problem.classes, frontier.solution_at(least).classes, strict=True)
    for job_class, plan in sorted(plans, key=lambda one: one[1].mean_spend / one[0].weight):
        wanted = job_class.arrivals_per_hour * plan.mean_spend
        part = 1.0 if budget >= least * (1.0 - TIE) else min(left / wanted, 1.0)
        left = max(left - wanted, 0.0)
        served[job_class.name] = part
        jobs += (1.0 - part) * job_class.arrivals_per_hour
        work += (1.0 - part) * job_class.arrivals_per_hour * job_class.size_gpu_hours
    return Shortfall(
        budget=budget,
        least_spend=least,
        unit=problem.budget_unit,
        jobs_per_hour=jobs,
        gpu_hours_per_hour=work,
        served=served,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BestEffort:
    """The widths that take the budget per hour together, or the cheapest, under what the account allows.

    `order` of the answer says who is served first.
    """

    paced: PacedBudgetOptimal
    account: Account
    spread_hours: float

    @classmethod
    def of(cls, paced: PacedBudgetOptimal, *, account: Account, boot_hours: float) -> BestEffort:
        """Return the best effort for the classes of a paced policy."""
        spread_hours = max(LEAST_SPREAD_HOURS, BOOTS_PER_SPREAD * boot_hours)
        return cls(paced=paced, account=account, spread_hours=spread_hours)

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the widths in the order of service, and what may be rented at a time."""
        budget = self.account.budget
        found = self.paced.within(jobs, budget, money)
        if money is None:
            return found
        present = {job.id: job for job in jobs}
        first = sorted(found.widths, key=lambda name: -self.urgency(present[name]))
        balance = self.account.balance(money, now=now)
        is_spent = balance <= -0.5 * self.spread_hours * budget
        return replace(
            found,
            order=tuple(first),
            most_usd_per_hour=budget + max(balance, 0.0) / self.spread_hours,
            above_ceiling="use" if balance > 0.0 else "leave" if is_spent else "finish",
        )

    def urgency(self, job: Job) -> float:
        """Return the weight of a job per money that its work takes at the least; more where it runs."""
        columns = self.paced.columns[job.class_name]
        hours = columns.part_left(job) * columns.hours[job.phase] + columns.hours_after[job.phase]
        cost = max(float((hours * columns.rate).min()) * job.scale, TIE)
        return columns.job_class.weight * job.weight * (RUNNING_COUNTS if job.width else 1.0) / cost
