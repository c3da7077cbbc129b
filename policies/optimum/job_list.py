"""A finite list of jobs and one sum of money: the least weighted completion times that meet all deadlines.

The same optimum as for a stream (`frontier`), with a count instead of a rate and dollars instead of dollars
per hour. Jobs of one class, scale, weight and deadline form a group, which chooses among whole-job plans. A
deadline excludes every plan that misses it. The remaining plans are the timely vertices of the hull, and the
plans between the last late vertex and the first timely one, which are enumerated (`knapsack.near_plans`). The
mixed optimum moves whole jobs, rounded down, and the money left then speeds up the jobs that gain most, so
the budget is never exceeded; `gap` includes the loss by rounding.

Every job gets its GPUs at once: rented capacity has no queue, so a job's completion time is its run time.

    symbol   here             meaning
    D        deadline_hours   latest completion, hours after the job arrives
    B        budget           dollars (or GPU-hours) in all

Cost: that of one frontier over the distinct groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from policies.errors import InfeasibleBudget, InfeasibleDeadline, InvalidProblem
from policies.model import JobClass, JobId, Phase, Problem
from policies.money_text import in_dollars, least_in_dollars
from policies.optimum.coupled_plans import PlanHull, plan_hulls
from policies.optimum.frontier import MixedFrontier
from policies.optimum.hull import TIE, lower_hulls
from policies.optimum.knapsack import STATE_LIMIT, TooManyStatesError, near_plans
from policies.optimum.options import Columns, assemble, plan_steps, whole_columns
from policies.optimum.solution import PlanShare


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """One job of the list; `scale` multiplies the sizes of its class.

    `submit_hours` is its submission, hours after the list's beginning; only calendars use it.
    """

    id: JobId
    class_name: str
    scale: float = 1.0
    weight: float = 1.0
    deadline_hours: float | None = None
    submit_hours: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """A job and its plan, with the hours and dollars of each phase."""

    job: ListedJob
    plan: PlanShare


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSolution:
    """Plans for all jobs. The bound holds for all ways to spend the budget on whole widths."""

    jobs: tuple[JobPlan, ...]
    budget: float
    spend: float
    mean_jct_hours: float
    weighted_mean_jct_hours: float
    bound_weighted_mean_jct_hours: float
    cheapest_feasible_spend: float
    largest_useful_spend: float
    multiplier: float

    @property
    def gap(self) -> float:
        """Relative distance of the weighted mean to its bound."""
        return max(0.0, 1.0 - self.bound_weighted_mean_jct_hours / self.weighted_mean_jct_hours)


@dataclass(frozen=True)
class JobList:
    """The frontier of a list of jobs, for plans at any budget."""

    groups: tuple[tuple[ListedJob, ...], ...]
    frontier: MixedFrontier

    @classmethod
    def of(cls, problem: Problem, jobs: Sequence[ListedJob]) -> JobList:
        """Compute the frontier of a list.

        Raises:
            InfeasibleDeadline: when no allowed plan of a job meets its deadline.
            InvalidProblem: when the list is empty, an id occurs twice or a class is unknown.
        """
        if not jobs:
            raise InvalidProblem("the list has no jobs")
        if len({job.id for job in jobs}) < len(jobs):
            raise InvalidProblem("a job id occurs twice in the list")
        classes = {c.name: c for c in problem.classes}
        grouped: dict[tuple[str, float, float, float | None], list[ListedJob]] = {}
        for job in jobs:
            if job.class_name not in classes:
                raise InvalidProblem(f"job {job.id} is of class {job.class_name!r}, which does not exist")
            key = (job.class_name, job.scale, job.weight, job.deadline_hours)
            grouped.setdefault(key, []).append(job)
        groups = tuple(tuple(group) for group in grouped.values())
        listed = replace(
            problem,
            classes=tuple(_scaled(classes[group[0].class_name], group, i) for i, group in enumerate(groups)),
        )
        return cls(groups=groups, frontier=_frontier(listed, groups))

    def solution_at(self, budget: float) -> ListSolution:
        """Return a plan for every job within the budget, dollars (or GPU-hours) in all.

        Raises:
            InfeasibleBudget: when the budget is below the least that meets every deadline.
        """
        least = self.frontier.cheapest_feasible_spend
        if budget < least * (1.0 - TIE):
            raise self._infeasible(budget)
        plans = [
            JobPlan(job=job, plan=plan)
            for number, at in enumerate(self._vertices(budget))
            for job, plan in zip(self.groups[number], self._plans(number, at), strict=True)
        ]
        mixed = self.frontier.solution_at(budget)
        weights = [p.job.weight for p in plans]
        hours = [p.plan.hours for p in plans]
        return ListSolution(
            jobs=tuple(plans),
            budget=budget,
            spend=float(sum(p.plan.spend for p in plans)),
            mean_jct_hours=float(np.mean(hours)),
            weighted_mean_jct_hours=float(np.dot(weights, hours) / np.sum(weights)),
            bound_weighted_mean_jct_hours=mixed.dual_bound_hours,
            cheapest_feasible_spend=least,
            largest_useful_spend=mixed.largest_useful_spend,
            multiplier=mixed.multiplier,
        )

    def _infeasible(self, budget: float) -> InfeasibleBudget:
        """Return the error for a budget that is too small; it names the least sufficient sum."""
        least = self.frontier.cheapest_feasible_spend
        said, enough = in_dollars(budget), least_in_dollars(least)
        if self.frontier.problem.budget_unit == "gpus":
            said, enough = f"{budget:.2f} GPU-hours", f"{np.ceil(100.0 * least) / 100.0:.2f} GPU-hours"
        jobs = sum(len(group) for group in self.groups)
        # Rounded up, so that it is enough when it is typed in again.
        return InfeasibleBudget(
            f"{said} in all is too small: {jobs} {'job needs' if jobs == 1 else 'jobs need'} "
            f"at least {enough}. Raise the budget or relax the deadlines",
            least_spend=least,
        )

    def _vertices(self, budget: float) -> list[list[int]]:
        """Return the hull vertex of every job, group by group, within the budget."""
        merged, hulls = self.frontier.merged, self.frontier.options.plan_hulls
        taken, share = merged.split(budget)
        first = merged.vertices_after(taken) - merged.chains.starts[:-1]
        at = [[int(first[number])] * len(group) for number, group in enumerate(self.groups)]
        if share > 0.0:
            group = int(merged.edge_group[taken])
            fast = int(share * len(at[group]) + TIE)
            at[group][:fast] = [at[group][-1] + 1] * fast
        room = budget - sum(float(hulls[number].cost[v]) for number, own in enumerate(at) for v in own)
        while (move := self._best_move(at, room)) is not None:
            number, place, vertex = move
            hull = hulls[number]
            room -= float(hull.cost[vertex] - hull.cost[at[number][place]])
            at[number][place] = vertex
        return at

    def _best_move(self, at: list[list[int]], room: float) -> tuple[int, int, int] | None:
        """Return (group, job, vertex) of the move that saves the most weighted hours for at most `room`."""
        best, found = 0.0, None
        for number, own in enumerate(at):
            hull = self.frontier.options.plan_hulls[number]
            weight = self.groups[number][0].weight
            for vertex in set(own):
                reached = int(np.searchsorted(hull.cost, float(hull.cost[vertex]) + room, side="right")) - 1
                saved = weight * float(hull.time[vertex] - hull.time[max(reached, vertex)])
                if saved > best:
                    best, found = saved, (number, own.index(vertex), reached)
        return found

    def _plans(self, number: int, vertices: Sequence[int]) -> list[PlanShare]:
        options = self.frontier.options
        columns, hull = options.columns[number], options.plan_hulls[number]
        steps = {v: plan_steps(options.problem, columns, hull.columns[v]) for v in set(vertices)}
        return [PlanShare(job_fraction=1.0, steps=steps[v]) for v in vertices]


def _scaled(job_class: JobClass, group: Sequence[ListedJob], number: int) -> JobClass:
    """Return the class of one group: sizes scaled, the count as the rate, and a unique name."""
    return replace(
        job_class,
        name=f"{job_class.name}#{number}",
        phases=tuple(
            Phase(size_gpu_hours=phase.size_gpu_hours * group[0].scale, speedups=phase.speedups)
            for phase in job_class.phases
        ),
        arrivals_per_hour=float(len(group)),
        weight=group[0].weight,
    )


def _frontier(problem: Problem, groups: Sequence[Sequence[ListedJob]]) -> MixedFrontier:
    """Return the frontier of all groups, where each chooses among whole-job plans that end in time."""
    columns = {i: whole_columns(problem, job_class) for i, job_class in enumerate(problem.classes)}
    found = list(enumerate(plan_hulls([columns[i].arrays for i in columns])))
    _check_deadlines([(groups[i], float(hull.time[-1])) for i, hull in found])
    hulls = {}
    for i, hull in found:
        deadline = groups[i][0].deadline_hours
        hulls[i] = hull if deadline is None else _in_time(hull, columns[i], deadline)
    return MixedFrontier.of_options(assemble(problem, columns=columns, hulls=hulls))


def _check_deadlines(found: Sequence[tuple[Sequence[ListedJob], float]]) -> None:
    """Raise `InfeasibleDeadline` with every late job, given the fastest hours of groups."""
    late = {
        job.id: (job.deadline_hours, hours)
        for group, hours in found
        for job in group
        if job.deadline_hours is not None and hours > job.deadline_hours * (1.0 + TIE)
    }
    if not late:
        return
    each = [
        f"job {name} cannot end within {deadline:g} hours: its fastest plan takes {hours:.4g}"
        for name, (deadline, hours) in late.items()
    ]
    raise InfeasibleDeadline(
        f"{'; '.join(each)}. Relax the deadline{'s' if len(each) > 1 else ''} or allow more GPUs",
        least_hours=next(iter(late.values()))[1],
        late=late,
    )


def _in_time(hull: PlanHull, columns: Columns, deadline: float) -> PlanHull:
    """Return the lower hull of the plans that end by the deadline.

    A timely plan left of the first timely vertex costs less than that vertex and takes at most the deadline.
    This bounds its reduced cost on the edge that crosses the deadline.
    """
    late = int(np.sum(hull.time > deadline * (1.0 + TIE)))
    if late == 0:
        return hull
    slope = float((hull.time[late - 1] - hull.time[late]) / (hull.cost[late] - hull.cost[late - 1]))
    on_edge = float(hull.time[late] + slope * hull.cost[late])
    reach = deadline + slope * float(hull.cost[late]) - on_edge
    cost, time, plans = hull.cost[late:], hull.time[late:], hull.columns[late:]
    try:
        near = near_plans(columns.arrays, slope, reach, state_limit=STATE_LIMIT)
    except TooManyStatesError:
        # Keep only the timely vertices. The bound then ignores what the plans between would save.
        return PlanHull(cost=cost, time=time, columns=plans)
    fits = near.time <= deadline * (1.0 + TIE)
    cost = np.concatenate([cost, near.cost[fits]])
    time = np.concatenate([time, near.time[fits]])
    plans = np.concatenate([plans, near.columns[fits]])
    chain = lower_hulls(cost, time, np.zeros(len(cost), dtype=np.int64), groups=1)
    return PlanHull(cost=chain.cost, time=chain.time, columns=plans[chain.option])
