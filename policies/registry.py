"""Policies by name: an explicit table, with the options that each understands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from policies import builders, plugins
from policies.builders import shortfall_of_site
from policies.errors import BrokenPlugin, InvalidProblem, UnknownPolicy
from policies.online.best_effort import Account
from policies.placement.first_fit import FirstFit
from policies.placement.lwf import AnyFree, LeastWorkloadFirst
from policies.protocols import Placer
from policies.site import (
    BuiltPolicy,
    PolicyEntry,
    PolicyKind,
    PolicyOptions,
    Site,
    closest,
    menu_of,
)

__all__ = [
    "PLACERS",
    "POLICIES",
    "BuiltPolicy",
    "PolicyEntry",
    "PolicyKind",
    "PolicyOptions",
    "Site",
    "build_best_effort",
    "build_policy",
    "find_placer",
    "find_policy",
    "menu_of",
    "parse_options",
    "shortfall_of_site",
]

POLICIES: Mapping[str, PolicyEntry] = {
    entry.name: entry
    for entry in (
        PolicyEntry(
            name="boa",
            kind="optimum",
            summary="the widths with the least mean JCT that the budget can pay for",
            build=builders.boa,
            is_job_by_job=True,
        ),
        PolicyEntry(
            name="boa-paced",
            kind="optimum",
            summary="the same, steered by what was spent so that the budget holds",
            build=builders.boa_paced,
            options=frozenset({"window_hours"}),
            # One job asked about alone is judged at the planned multiplier; the next tick uses the real one.
            is_job_by_job=True,
            reads_progress=True,
        ),
        PolicyEntry(
            name="equal-width",
            kind="rule",
            summary="rent on arrival, the same limit on the width of all jobs",
            build=builders.equal_width,
            is_job_by_job=True,
            options=frozenset({"gpu_type", "gpus_per_job", "share"}),
        ),
        PolicyEntry(
            name="efficiency",
            kind="rule",
            summary="rent on arrival, the same least efficiency for all jobs",
            build=builders.efficiency,
            is_job_by_job=True,
            options=frozenset({"gpu_type", "efficiency", "share"}),
        ),
        PolicyEntry(
            name="greedy-marginal",
            kind="heuristic",
            summary="rent on arrival, widths by greedy steps of most time per dollar",
            build=builders.greedy_marginal,
            is_job_by_job=True,
            options=frozenset({"gpu_type"}),
        ),
        PolicyEntry(
            name="boa-authors",
            kind="heuristic",
            summary="rent on arrival, the fractional optimum rounded and glued as BOA's authors do",
            build=builders.boa_authors,
            is_job_by_job=True,
            options=frozenset({"gpu_type"}),
        ),
        PolicyEntry(
            name="asked",
            kind="rule",
            summary="rent on arrival what each user asks for, and let go of nodes at once",
            build=builders.asked,
            is_job_by_job=True,
            options=frozenset({"gpu_type", "efficiency"}),
        ),
        PolicyEntry(
            name="asked-hold",
            kind="rule",
            summary="rent on arrival what each user asks for, and keep idle nodes for five minutes",
            build=builders.asked_hold,
            is_job_by_job=True,
            options=frozenset({"gpu_type", "efficiency"}),
        ),
        PolicyEntry(
            name="pollux-autoscale",
            kind="autoscaler",
            summary="Pollux: shares by goodput each minute, the node count follows a utility band",
            build=builders.pollux_autoscale,
            options=frozenset({"gpu_type", "utility"}),
        ),
        PolicyEntry(
            name="pollux",
            kind="fleet",
            summary="Pollux on a fixed fleet: shares by goodput, re-decided each minute",
            build=builders.pollux,
            options=frozenset({"gpu_type", "nodes"}),
        ),
        PolicyEntry(
            name="tiresias",
            kind="fleet",
            summary="a fixed fleet, widths as users ask, jobs that had little service first",
            build=builders.tiresias,
            options=frozenset({"gpu_type", "nodes"}),
            reads_progress=True,
        ),
        PolicyEntry(
            name="static-fifo",
            kind="fleet",
            summary="a fixed fleet, first come, first served, the same limit on the width of all jobs",
            build=builders.static_fifo,
            options=frozenset({"gpu_type", "gpus_per_job", "nodes"}),
        ),
        PolicyEntry(
            name="static-srsf",
            kind="fleet",
            summary="a fixed fleet, shortest remaining service first, the same limit on all widths",
            build=builders.static_srsf,
            options=frozenset({"gpu_type", "gpus_per_job", "nodes"}),
            reads_progress=True,
        ),
        PolicyEntry(
            name="srpt",
            kind="fleet",
            summary="a fixed fleet, shortest remaining service first, the best fixed width of each class",
            build=builders.srpt,
            options=frozenset({"gpu_type", "nodes"}),
            reads_progress=True,
        ),
        PolicyEntry(
            name="a-srpt",
            kind="fleet",
            summary="a fixed fleet, jobs start in the order in which a single machine would finish them",
            build=builders.a_srpt,
            options=frozenset({"gpu_type", "nodes"}),
            reads_progress=True,
        ),
        PolicyEntry(
            name="dally",
            kind="fleet",
            summary="a fixed fleet, little service first, jobs wait a while to be on one node",
            build=builders.dally,
            options=frozenset({"gpu_type", "nodes"}),
            reads_progress=True,
        ),
        PolicyEntry(
            name="static-equal",
            kind="fleet",
            summary="a fixed fleet, shared equally among the jobs present",
            build=builders.static_equal,
            options=frozenset({"gpu_type", "nodes"}),
        ),
    )
}

DEFAULT_KAPPA = 1.0
PLACERS: Mapping[str, Callable[[float], Placer]] = {
    "first-fit": lambda _kappa: FirstFit(),
    "list-scheduling": lambda _kappa: LeastWorkloadFirst(kappa=math.inf),
    "lwf": lambda kappa: LeastWorkloadFirst(kappa=kappa),
    "random": lambda _kappa: AnyFree(),
}
"""Each placer by name, made for a kappa, of which only `lwf` takes notice."""


def find_policy(name: str) -> PolicyEntry:
    """Return the entry of a policy.

    Raises:
        UnknownPolicy: when there is none of that name.
    """
    found = POLICIES.get(name) or plugins.load("boa.policies", name)
    if found is None:
        known = frozenset((*POLICIES, *plugins.names("boa.policies")))
        raise UnknownPolicy(f"no policy {name!r}. {closest(name, known)}")
    if not isinstance(found, PolicyEntry):
        raise BrokenPlugin(f"policy {name!r} of a plug-in is no PolicyEntry but {type(found).__name__}")
    return found


def find_placer(name: str, *, kappa: float = DEFAULT_KAPPA) -> Placer:
    """Return a placer by name; `kappa` is the widest job that `lwf` spreads.

    Raises:
        UnknownPolicy: when there is none of that name.
    """
    make: Callable[[float], Placer] | None = PLACERS.get(name) or plugins.load("boa.placers", name)
    if make is None:
        known = frozenset((*PLACERS, *plugins.names("boa.placers")))
        raise UnknownPolicy(f"no placer {name!r}. {closest(name, known)}")
    return make(kappa)


def parse_options(entry: PolicyEntry, settings: Mapping[str, str]) -> PolicyOptions:
    """Return the options that ``key=value`` settings name.

    Raises:
        InvalidProblem: when the policy has no such option, or the value is not a number in its range.
    """
    values: dict[str, str | int | float] = {}
    for key, text in settings.items():
        if key not in entry.options:
            raise InvalidProblem(f"policy {entry.name} has no option {key!r}. {closest(key, entry.options)}")
        values[key] = _READERS.get(key, _whole)(key, text)
    return PolicyOptions(**values)  # type: ignore[arg-type]


def build_policy(name: str, site: Site, options: PolicyOptions | None = None) -> BuiltPolicy:
    """Return the policy of that name for a site.

    Raises:
        UnknownPolicy: when there is none of that name.
        InfeasibleBudget: when the budget cannot run every job.
    """
    return find_policy(name).build(site, options or PolicyOptions())


def build_best_effort(
    site: Site, options: PolicyOptions | None = None, *, account: Account | None = None
) -> BuiltPolicy:
    """Return what stands in for any policy where the budget is below the least that it needs.

    An account without a beginning is as old as the ledger.
    """
    return builders.best_effort(site, options or PolicyOptions(), account)


def _whole(key: str, text: str) -> int:
    """Return the positive whole number that an option says."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InvalidProblem(f"option {key} must be a positive whole number; got {text!r}")
    return int(text)


def _fraction(key: str, text: str) -> float:
    """Return the number from 0 to 1 that an option says."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise InvalidProblem(f"option {key} must be a number from 0 to 1; got {text!r}")
    return value


def _hours(key: str, text: str) -> float:
    """Return the positive number of hours that an option says."""
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not (math.isfinite(hours) and hours > 0.0):
        raise InvalidProblem(f"option {key} must be a positive number of hours; got {text!r}")
    return hours


_READERS: Mapping[str, Callable[[str, str], str | int | float]] = {
    "gpu_type": lambda _key, text: text,
    "efficiency": _fraction,
    "share": _fraction,
    "utility": _fraction,
    "window_hours": _hours,
}
"""How to read options that are no counts."""
