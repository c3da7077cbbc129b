"""Best effort: run as much work as possible with a budget below the least that runs every job.

While the jobs present would take more than the budget, each gets the width at which its work costs least, so
a dollar finishes as much work as possible. Jobs are served by Smith's rule: most weight per dollar of work
left first. For work that only money limits, this order gives the least mean weighted completion time
(weighted shortest remaining processing time). The weight of a running job counts twice, so a job is stopped
only for one with less than half as many dollars left per weight. While the jobs present take less than the
budget, the queue is empty, and they get the best widths that together take at most the budget per hour.

An account keeps the spend at the budget. It accrues the budget, pays every bill, and limits what is rented at
a time:

    E = B (t - t0) - (S - S0)            most = B + max(E, 0) / U,    U = max(1 h, 10 boots)

    E > 0            jobs may start on all rented nodes
    0 >= E > -U B/2  nodes beyond B take no new jobs; jobs that run there may finish
    else             nodes beyond B are given back; their jobs write checkpoints and wait

Example: a budget of 3.6 nodes keeps three nodes, and a fourth for one hour in every 1 2/3 hours; a budget of
0.3 nodes rents a node for one hour in every 3 1/3. Different thresholds of E for opening and closing keep
nodes from flapping, and U keeps boots to at most a tenth of the extra rented hours. The time average of the
spend converges to B like (U B + dollars of the dearest job) / elapsed time.

Meanwhile the queue grows as in the fluid limit of this order: classes are served by decreasing w / C until
the money is used up, and jobs of the other classes stay in the queue.

    symbol   here               meaning
    B        budget             dollars per hour, or GPUs, on average over time
    S, S0    spent              spent until now, and until the account was opened at t0
    E        balance            accrued budget less spend
    U        spread_hours       hours over which a balance is spent
    C, w     cost, weight       cost of a job of a class at its cheapest width, and its weight

Sources: Smith, Naval Research Logistics Quarterly 3 (1956), for the order; the account is a token bucket.
Cost: O(jobs log(jobs x edges)) per tick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from policies.answer import Accrual, Allocation
from policies.model import BudgetUnit, Job, Money, check_positive
from policies.online.paced_optimum import PacedBudgetOptimal
from policies.optimum.frontier import MixedFrontier
from policies.optimum.hull import TIE

LEAST_SPREAD_HOURS = 1.0
"""The shortest rental of a node beyond the steady ones; AWS bills by the second, so it may be this short."""
BOOTS_PER_SPREAD = 10.0
"""A node beyond the steady ones spends at most a tenth of its hours booting."""
BY_WEIGHT = "jobs are served by weight per dollar of work left, the most first, not by order of arrival"
"""The rule of service."""
RUNNING_COUNTS = 2.0
"""A running job is stopped only for a job with more than this many times its weight per dollar left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """A budget, the least that runs every job, and how fast the queue grows if the budget is below that.

    Amounts are in the unit of the budget. `jobs_per_hour` and `gpu_hours_per_hour` are the growth of the
    queue; GPU-hours are work on one reference GPU. `served` is the fraction of each class's jobs that the
    budget pays for, in the order of service. Jobs of a class are treated as equal; if their sizes differ,
    fewer and larger jobs stay in the queue.
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
    """The budget per hour that best effort accrues since `opened_at`, and the spend before that instant.

    Without `opened_at` the account is as old as the ledger.
    """

    budget: float
    opened_at: float | None = None
    spent_before: float = 0.0

    def __post_init__(self) -> None:
        check_positive("budget of an account", self.budget)

    def balance(self, money: Money, *, now: float) -> float:
        """Return the accrued budget less the spend since the account was opened."""
        hours = money.elapsed_hours if self.opened_at is None else (now - self.opened_at) / 3600.0
        return self.budget * hours - (money.spent - self.spent_before)


def shortfall_of(frontier: MixedFrontier, budget: float) -> Shortfall:
    """Return which part of each class a budget serves, and how fast the queue grows (0 if it is enough)."""
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
    """Give the jobs the best widths within the budget per hour, or the cheapest, as the account allows.

    `order` of the allocation is the order of service.
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
        """Return the widths, the order of service, and the limit on what is rented at a time."""
        budget = self.account.budget
        found = self.paced.within(jobs, budget, money)
        if money is None:
            return found
        present = {job.id: job for job in jobs}
        first = sorted(found.widths, key=lambda name: -self.urgency(present[name]))
        balance = self.account.balance(money, now=now)
        accrual = Accrual(per_hour=budget, balance=balance, spread_hours=self.spread_hours)
        return replace(
            found,
            order=tuple(first),
            order_rule=BY_WEIGHT,
            most_usd_per_hour=accrual.most_per_hour,
            above_ceiling="use" if balance > 0.0 else "leave" if accrual.is_spent else "finish",
            accrual=accrual,
        )

    def urgency(self, job: Job) -> float:
        """Return the weight of a job over the least cost of its work left; doubled for a running job."""
        columns = self.paced.columns[job.class_name]
        hours = columns.part_left(job) * columns.hours[job.phase] + columns.hours_after[job.phase]
        cost = max(float((hours * columns.rate).min()) * job.scale, TIE)
        return columns.job_class.weight * job.weight * (RUNNING_COUNTS if job.width else 1.0) / cost
