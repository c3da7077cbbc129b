"""The rows of a cost report: to which row a job's use of a node, and what nobody uses, belongs.

A tag of the house (`tag:KEY`) is looked for on the job, then on its team, then on the node: a job's share of
a node goes to the job's own tag, the rest of the node to the tag that the node carries on AWS's bill.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, WithJsonSchema
from sqlalchemy import select

from boa_daemon.backends.cloud_kinds import cloud_kind
from boa_daemon.backends.region_names import REGION
from boa_daemon.daemon.money.cost_groupings import BY_FORM, TAG, grouping
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.store.database import Database
from boa_daemon.store.records import GenerationRecord
from boa_daemon.store.tables import JOBS
from boa_daemon.tick.facts.state import NodeState
from policies.model import JobId

CostBy: TypeAlias = Annotated[
    str, AfterValidator(grouping), WithJsonSchema({"type": "string", "pattern": BY_FORM})
]
"""One of `GROUPINGS`, or `tag:` and the key of a tag."""
JOBS_PER_QUERY = 500
"""Largest number of jobs in one query."""
NO_TEAM = "(no team)"
UNUSED_ROW = "(idle, unused, free GPUs)"
STANDING_ROW = "(gateway, images, reservations)"
UNOWNED_ROWS = frozenset({UNUSED_ROW, STANDING_ROW})
"""Rows that belong to no job, user, team or class."""
TAGGED_STANDING = frozenset({"gateway", "images"})
"""Standing costs of what BOA makes, and therefore tags; a reservation is somebody else's."""
_REGION = re.compile(REGION)


@dataclass(frozen=True, slots=True, kw_only=True)
class HouseTags:
    """Tags of the settings: of everything that BOA makes, and of teams.

    `of_untagged` are those of nodes on which the cloud shows no tags, because it has none; `home` is the
    region of a node whose zone names none, empty on a cloud without regions.
    """

    of_site: Mapping[str, str] = field(default_factory=dict)
    of_untagged: Mapping[str, str] = field(default_factory=dict)
    of_teams: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    home: str = ""


def house_tags(settings: Settings) -> HouseTags:
    """Return the tags of the settings."""
    kind = cloud_kind(settings.cloud.provider)
    site: Mapping[str, str] = getattr(settings.cloud, "tags", None) or {}
    return HouseTags(
        of_site=site,
        of_untagged={} if kind.on_aws else site,
        of_teams={name: team.tags for name, team in settings.teams.items() if team.tags},
        home=settings.cloud.region if kind.has_regions else "",
    )


NO_TAGS = HouseTags()


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLabels:
    """The row of each cost. A label of a job comes before one of its node; `nothing` names what has none."""

    of_jobs: Mapping[JobId, str] | None = None
    of_node: Callable[[NodeState], str] | None = None
    of_site: str = STANDING_ROW
    nothing: str = ""

    def of_use(self, job: JobId, node: NodeState) -> str:
        """Return the row of what a job uses of a node."""
        label = "" if self.of_jobs is None else self.of_jobs.get(job, "")
        if not label and self.of_node is not None:
            label = self.of_node(node)
        return label or self.nothing or job

    def of_unused(self, node: NodeState) -> str:
        """Return the row of what no job uses of a node."""
        return UNUSED_ROW if self.of_node is None else self.of_node(node) or self.nothing

    def of_standing(self, kind: str) -> str:
        """Return the row of a cost without a node."""
        if self.of_site == STANDING_ROW:
            return STANDING_ROW
        return self.of_site if self.of_site and kind in TAGGED_STANDING else self.nothing


def labels_by(
    by: CostBy,
    database: Database,
    usages: Sequence[GenerationRecord],
    nodes: Iterable[NodeState],
    tags: HouseTags,
) -> CostLabels:
    """Return the rows of a report that is grouped by jobs or nodes, not by days or kinds.

    Raises:
        InputError: when nothing carries a tag of that key.
    """
    if by == "job":
        return CostLabels()
    if by in _NODE_LABELS:
        return CostLabels(of_node=lambda node: _NODE_LABELS[by](node, tags), nothing=f"(no {by})")
    names = sorted({usage.job for usage in usages})
    if by.startswith(TAG):
        return _by_tag(by.removeprefix(TAG), database, names, nodes, tags)
    column = {"user": JOBS.c.user_name, "team": JOBS.c.team_name}.get(by, JOBS.c.class_name)
    found: dict[JobId, str] = {}
    with database.read() as connection:
        for part in _parts(names):
            rows = connection.execute(select(JOBS.c.id, column).where(JOBS.c.id.in_(part)))
            found |= {row[0]: row[1] for row in rows}
    return CostLabels(of_jobs=found, nothing=NO_TEAM if by == "team" else "")


def _by_tag(
    key: str, database: Database, names: Sequence[JobId], nodes: Iterable[NodeState], tags: HouseTags
) -> CostLabels:
    """Return the rows of the values of a tag; keys are as they are written, as on AWS's bill."""
    known = {*tags.of_site, *(each for team in tags.of_teams.values() for each in team)}
    known |= {name for node in nodes for name, _ in node.tags}
    found: dict[JobId, str] = {}
    with database.read() as connection:
        for part in _parts(names):
            query = select(JOBS.c.id, JOBS.c.team_name, JOBS.c.spec).where(JOBS.c.id.in_(part))
            for job, team, spec in connection.execute(query):
                own: Mapping[str, str] = json.loads(spec)["content"].get("tags") or {}
                known |= own.keys()
                found[job] = own.get(key) or tags.of_teams.get(team, {}).get(key, "")
    if key not in known:
        hint = did_you_mean(key, known) or "Tags are set in [cloud] tags, [teams.NAME] tags and job files"
        raise InputError(f"nothing that cost money carries the tag {key!r}", hint=hint)
    return CostLabels(
        of_jobs=found,
        of_node=lambda node: dict(node.tags).get(key) or tags.of_untagged.get(key, ""),
        of_site=tags.of_site.get(key, ""),
        nothing=f"(no tag {key})",
    )


def _region(node: NodeState, tags: HouseTags) -> str:
    zone = _REGION.match(node.zone)
    return node.instance_type.machine_name.region or (zone[0] if zone else tags.home)


_NODE_LABELS: Mapping[str, Callable[[NodeState, HouseTags], str]] = {
    "market": lambda node, tags: node.market,
    "machine": lambda node, tags: str(node.instance_type.machine_name.in_region("")),
    "region": _region,
}


def _parts(names: Sequence[JobId]) -> Iterable[Sequence[JobId]]:
    """Return names in parts that fit one query."""
    return (names[begin : begin + JOBS_PER_QUERY] for begin in range(0, len(names), JOBS_PER_QUERY))
