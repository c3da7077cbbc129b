"""Inputs and outputs of building a policy: the site, the options, the registry entry, the built policy.

A site is a problem (classes, prices), a budget, and the machine of each GPU type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal, TypeAlias

from policies.model import Budget, InstanceType, Problem
from policies.online.free_usage import FreeUsage
from policies.online.pacing import Pace, Period
from policies.online.rhythm import Rhythm
from policies.protocols import Allocator

PolicyKind: TypeAlias = Literal["optimum", "heuristic", "rule", "autoscaler", "fleet"]
"""Exact optimum; step-by-step optimisation; one rule for all jobs with nodes rented as needed; a fleet that
follows the load; a fixed fleet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a policy is built for; `instance_types` maps each GPU type to the machine that carries it.

    `boot_hours` is the time from launch to ready; the problem's start-up hours include it. `max_nodes` is the
    most nodes held at once; None without a cap. `is_monthly` means that the budget is that of each calendar
    month. `load_over_stated` is the learnt work per hour of the problem over the stated work per hour;
    `is_load_stated` tells whether a load was stated. `rhythm` is the weekly pattern of the load, if the weeks
    before showed one. With commitments, the budget is at on-demand prices and `covered_per_hour` larger than
    what may be spent, and `free` usage costs nothing more.
    """

    problem: Problem
    budget: Budget
    instance_types: Mapping[str, InstanceType]
    boot_hours: float = 0.0
    max_nodes: int | None = None
    is_monthly: bool = False
    load_over_stated: float = 1.0
    is_load_stated: bool = True
    rhythm: Rhythm | None = None
    covered_per_hour: float = 0.0
    free: FreeUsage = ()

    def node_price(self, instance_type: InstanceType) -> float:
        """Return what a node takes from the budget per hour: dollars, or GPUs if the budget is in GPUs."""
        return float(instance_type.gpus) if self.budget.unit == "gpus" else instance_type.usd_per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """Options of policies; None lets the policy choose.

    Fleets of one type: `gpu_type`, number of `nodes`, and `gpus_per_job`. The paced policy: the
    `period` whose money is spent in it, within the `tolerance`, or the `window_hours` that replace the
    period. The efficiency rule: one parallel `efficiency` for all jobs, and the `share` of jobs that get the
    next wider limit. Pollux: the `utility` at which it rents.
    """

    gpu_type: str | None = None
    gpus_per_job: int | None = None
    nodes: int | None = None
    window_hours: float | None = None
    period: Period | None = None
    tolerance: float | None = None
    efficiency: float | None = None
    utility: float | None = None
    share: float | None = None


def with_boots(problem: Problem, boot_hours: float) -> Problem:
    """Return the problem with a boot added to each job's start-up: booting nodes are billed while jobs wait.

    Jobs that start on running nodes need no boot, so plans err towards narrow widths.
    """
    classes = tuple(replace(one, startup_hours=one.startup_hours + boot_hours) for one in problem.classes)
    return replace(problem, classes=classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPolicy:
    """An allocator, and the long-run averages of its plan if it has one.

    `planned_spend` is in the unit of the budget. `pace` is the pacing that the policy keeps.
    `idle_hold_seconds` is how long it keeps idle nodes; None leaves that to the site. `round_seconds` is the
    time between its decisions; between them every job keeps its GPUs.
    """

    allocator: Allocator
    planned_mean_jct_hours: float | None = None
    planned_spend: float | None = None
    pace: Pace | None = None
    idle_hold_seconds: float | None = None
    round_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """A policy's name, summary, options and builder.

    `is_job_by_job`: a job's width depends on that job alone, so a job in a new phase does not require a new
    decision about all jobs. `reads_progress`: the policy uses the work left, so progress is measured at every
    tick. `kind` is how the policy decides; reports use it to separate the gain of renting by the hour from
    the gain of optimising.
    """

    name: str
    summary: str
    kind: PolicyKind
    build: Callable[[Site, PolicyOptions], BuiltPolicy]
    options: frozenset[str] = frozenset()
    is_job_by_job: bool = False
    reads_progress: bool = False


def closest(word: str, known: Mapping[str, object] | frozenset[str]) -> str:
    """Return a hint that names the closest known word, or all known words."""
    close = get_close_matches(word, known, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(sorted(known))}" if known else "It has no options"
