"""Drafts for the tests of single stages: the plan so far, without the work of other stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from followers import Known

from boa_daemon.testing import as_read, rules
from boa_daemon.tick.facts.draft import Changes, Draft
from boa_daemon.tick.facts.placeable_nodes import PlaceableNodes
from boa_daemon.tick.facts.plan import Plan, PlannedJobs
from boa_daemon.tick.facts.state import ClusterState, Rules
from policies.answer import Allocation
from policies.model import JobId, NodeId, Width
from policies.placement.first_fit import FirstFit

_COLUMNS = frozenset(column.name for column in fields(PlannedJobs))
PRICES = Known(widths={})
"""Node prices that know of nobody."""


def gpus(**widths: int) -> dict[JobId, Width]:
    """Return widths of type "gpu"."""
    return {job: Width(as_read("gpu"), count) for job, count in widths.items()}


def a_plan(**changes: Any) -> Plan:
    """Return a plan in which nothing is planned except for `changes`, columns of its jobs included."""
    return with_columns(Plan(), **changes)


def with_columns(plan: Plan, **changes: Any) -> Plan:
    """Return a plan with other fields and columns of its jobs, whether or not they fit together."""
    columns = {name: changes.pop(name) for name in [*changes] if name in _COLUMNS}
    return replace(plan, jobs=replace(plan.jobs, **columns), **changes)


def a_draft(
    widths: Mapping[JobId, Width] | None = None,
    *,
    site: Rules | None = None,
    policy: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Draft:
    """Return a draft with the widths and other answers of a policy, on nodes of four GPUs."""
    values: dict[str, Any] = {
        "rules": site or rules(),
        "allocator": PRICES,
        "placer": FirstFit(),
        "allocation": Allocation(widths=widths or {}, **(policy or {})),
    }
    return Draft(**(values | changes))


def asking(
    state: ClusterState,
    wishes: Mapping[JobId, Width],
    *,
    closed: frozenset[NodeId] = frozenset(),
    **changes: Any,
) -> Draft:
    """Return a draft in which jobs wish for widths, with the nodes to place them on."""
    room = PlaceableNodes(state, leaving=wishes.keys(), stopped=frozenset(), placer=FirstFit(), closed=closed)
    return a_draft(wishes, **({"changes": Changes(wishes=wishes), "room": room} | changes))
