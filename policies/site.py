"""What a policy is built for and of: a site, the options that were set, and the entry that names it.

A site is a problem (classes, prices), a budget, and the machine of each GPU type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal, TypeAlias

from policies.model import Budget, InstanceType, Problem
from policies.online.free_usage import FreeUsage
from policies.online.pacing import Pace
from policies.online.rhythm import Rhythm
from policies.protocols import Allocator

PolicyKind: TypeAlias = Literal["optimum", "heuristic", "rule", "autoscaler", "fleet"]
"""Exact; optimises step by step; one rule for all jobs, rented as needed; follows the load; fixed nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a policy is built for; `instance_types` names the machine that carries each GPU type.

    `boot_hours` is what a node takes from launch to ready; the problem's start-ups have it in them.
    `max_nodes` is the most that will ever be held at once; None without a cap.
    `is_monthly` says that the budget is that of each calendar month. `load_over_stated` is the work that the
    problem brings per hour over what was stated, where it was learnt; `is_load_stated` whether anybody did.
    `rhythm` is that of the load over the week, where the weeks before showed one. Where something is
    committed to, the budget is one at prices on demand, `covered_per_hour` larger than what may be spent, and
    usage that is `free` costs nothing more.
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
        """Return what a node takes from the budget per hour: dollars, or its GPUs where GPUs are counted."""
        return float(instance_type.gpus) if self.budget.unit == "gpus" else instance_type.usd_per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """What can be set on a policy; None means "choose for me".

    Fleets of one type: which `gpu_type`, how many `nodes`, and `gpus_per_job`. The paced policy: the
    `window_hours` over which the spend is the budget. One parallel `efficiency` for all jobs; `share` is the
    part of the jobs that get the next wider limit. Pollux: the `utility` at which it rents.
    """

    gpu_type: str | None = None
    gpus_per_job: int | None = None
    nodes: int | None = None
    window_hours: float | None = None
    efficiency: float | None = None
    utility: float | None = None
    share: float | None = None


def with_boots(problem: Problem, boot_hours: float) -> Problem:
    """Return the problem with a boot in each job's start-up: a job waits for nodes that are billed meanwhile.

    Jobs that start on warm nodes are spared it, so plans err on the narrow side.
    """
    classes = tuple(replace(one, startup_hours=one.startup_hours + boot_hours) for one in problem.classes)
    return replace(problem, classes=classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPolicy:
    """An allocator, and what its plan promises in the long run where it has one.

    `planned_spend` is in the unit of the budget. What a policy brings along: the `pace` that it keeps, for
    how many seconds it holds idle nodes where that is not the site's choice (`idle_hold_seconds`), and after
    how many it wants to be asked again (`round_seconds`): in between it leaves every job what it holds.
    """

    allocator: Allocator
    planned_mean_jct_hours: float | None = None
    planned_spend: float | None = None
    pace: Pace | None = None
    idle_hold_seconds: float | None = None
    round_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """A policy's name, what it does, the options that it understands, and how it is built.

    `is_job_by_job` says that a job's width depends on that job alone, so that one job in a new phase need not
    be a reason to look at all. `reads_progress` says that the policy looks at the work that is left, so that
    work must be measured at every tick. `kind` says how it decides, so that a report can tell what renting by
    the hour is worth from what optimising is.
    """

    name: str
    summary: str
    kind: PolicyKind
    build: Callable[[Site, PolicyOptions], BuiltPolicy]
    options: frozenset[str] = frozenset()
    is_job_by_job: bool = False
    reads_progress: bool = False


def closest(word: str, known: Mapping[str, object] | frozenset[str]) -> str:
    """Return a hint with the closest known word, or with all of them."""
    close = get_close_matches(word, known, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(sorted(known))}" if known else "It has no options"
