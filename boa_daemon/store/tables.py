"""Database tables, for SQLite and PostgreSQL.

Instants are seconds since the epoch, money is whole micro-dollars, documents are JSON text. Charges are only
appended, unless a node believed ended is listed again (`reopen_charges`). A GPU with a row in `placements` is
held, every other GPU is free, so no GPU can be held twice.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

METADATA = MetaData()
_Instant = Float(53)


def _name(name: str, *, key: bool = False) -> Column[str]:
    """Return a non-null column of short text."""
    return Column(name, String(255), primary_key=key, nullable=False)


META = Table("meta", METADATA, _name("key", key=True), Column("value", Text, nullable=False))
"""Single values as JSON, by `key`.

Among them are the last `tick`, the number of the `next_job`, the `name` of the database, and the planned
figures of classes.
"""
JOBS = Table(
    "jobs",
    METADATA,
    _name("id", key=True),
    Column("seq", BigInteger, nullable=False, unique=True),
    _name("name"),
    _name("user_name"),
    _name("class_name"),
    _name("status"),
    Column("spec", Text, nullable=False),
    Column("arrived_at", _Instant, nullable=False),
    Column("remaining_gpu_hours", _Instant, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("started_at", _Instant),
    Column("ended_at", _Instant),
    Column("step", BigInteger),
    Column("cause", Text, nullable=False),
    Column("is_cancelled", Boolean, nullable=False),
    Column("team_name", String(255), nullable=False, server_default=""),
    Index("jobs_by_status", "status", "seq"),
    Index("jobs_by_user", "user_name", "seq"),
    Index("jobs_by_team", "team_name", "seq"),
    Index("jobs_by_end", "ended_at"),
)
"""Every submitted job.

`id` is made of `name` and `seq`, the job's number; `user_name` submitted it, and `team_name` pays.
`class_name` is the class that its widths are planned by, `status` is queued, running, finished, failed or
cancelled. `spec` holds the job file as `content` and the fields of `JobRecord` that no query needs.
`generation` counts the starts. `remaining_gpu_hours` is the work left when the newest generation began at
`started_at`, `step` is the last reported step. `cause` is a sentence on how the job last ended.
`is_cancelled` is set before the stop is ordered.
"""
GENERATIONS = Table(
    "generations",
    METADATA,
    _name("job", key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    _name("gpu_type"),
    Column("gpus", Integer, nullable=False),
    Column("slots", Text, nullable=False),
    Column("started_at", _Instant, nullable=False),
    Column("ended_at", _Instant),
    Column("end", Text, nullable=False),
    Column("micro_dollars", BigInteger),
    Index("generations_by_start", "started_at"),
    Index("generations_by_end", "ended_at"),
)
"""Each start of a job, numbered by `generation`; `slots` are its GPUs, as the codec writes them.

`end` says how it ended (empty while it runs), `micro_dollars` is the cost of its GPUs, once known.
"""
PLACEMENTS = Table(
    "placements",
    METADATA,
    _name("node", key=True),
    Column("gpu", Integer, primary_key=True, autoincrement=False),
    _name("job"),
    Column("generation", Integer, nullable=False),
    Index("placements_by_job", "job"),
)
"""GPUs that are held now: GPU number `gpu` of a `node`, by a `generation` of a `job`."""
INTENTS = Table(
    "intents",
    METADATA,
    _name("id", key=True),
    Column("at", _Instant, nullable=False),
    _name("kind"),
    _name("target"),
    Column("action", Text, nullable=False),
    _name("status"),
    Column("outcome", Text),
    Column("nodes", Text),
    Column("seen", Text, nullable=False),
    Index("intents_by_status", "status"),
    Index("intents_by_at", "at"),
)
"""Intents: orders, recorded before they are tried.

`action` is the order as the codec writes it; `kind` and `target` summarise it. `status` is open until the
`outcome` is known. For a launch, `nodes` are the nodes that the answer named, and `seen` those that a listing
has shown.
"""
COOLDOWNS = Table(
    "cooldowns",
    METADATA,
    _name("scope", key=True),
    Column("until", _Instant, nullable=False),
    Column("times", Integer, nullable=False),
    _name("kind"),
)
"""Refusals of the cloud: do not ask for a `scope` `until` an instant, after `times` refusals in a row."""
INSTANCES = Table(
    "instances",
    METADATA,
    _name("id", key=True),
    _name("instance_type"),
    Column("launched_at", _Instant, nullable=False),
    Column("launched_by", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("ready_at", _Instant),
    Column("idle_since", _Instant),
    Column("was_used", Boolean, nullable=False),
    Column("last_seen_at", _Instant, nullable=False),
    Column("ended_at", _Instant),
    Index("instances_by_end", "ended_at"),
)
"""Every node that a listing ever showed; `launched_by` is the id of the intent.

`node` is the `NodeState` as the codec writes it, as of `last_seen_at`. `ready_at` is when it could first run
a job, `idle_since` since when it has none, `was_used` whether it ever had one.
"""
CHARGES = Table(
    "charges",
    METADATA,
    _name("node", key=True),
    _name("instance_type"),
    Column("started_at", _Instant, nullable=False),
    Column("ended_at", _Instant, nullable=False),
    Column("micro_dollars", BigInteger, nullable=False),
)
"""Final bills: the cost of a `node` from launch to end, or of an hour of a standing cost.

For a standing cost, `node` names the hour and `instance_type` the kind, such as `gateway`.
"""
CHARGE_DAYS = Table(
    "charge_days",
    METADATA,
    _name("node", key=True),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("micro_dollars", BigInteger, nullable=False),
    Index("charge_days_by_day", "day"),
)
"""Final bills divided by `day` since the epoch (UTC)."""
PURSES = Table(
    "purses",
    METADATA,
    _name("team", key=True),
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    Column("micro_dollars", BigInteger, nullable=False),
    Index("purses_by_hour", "hour"),
)
"""Cost of a `team`'s ended generations, by the `hour` since the epoch in which it arose."""
POLICIES = Table(
    "policies", METADATA, _name("hash", key=True), Column("document", LargeBinary, nullable=False)
)
"""Policies that made decisions: `document` is the compressed `PolicyRecord`, `hash` its digest."""
DECISIONS = Table(
    "decisions",
    METADATA,
    Column("tick", BigInteger, primary_key=True, autoincrement=False),
    Column("at", _Instant, nullable=False),
    _name("inputs"),
    _name("outputs"),
    _name("policy"),
    Column("actions", Integer, nullable=False),
    Column("summary", Text, nullable=False),
    Column("state", LargeBinary),
    Index("decisions_by_at", "at"),
)
"""One row for each tick.

`inputs` and `outputs` are digests of the state and the actions, which a replay must reproduce; `policy` is a
hash in `policies`. `actions` is their number, `summary` the figures of the decision. `state` is the
compressed `ClusterState`; null when nothing was done, or once it is old.
"""
SAMPLES = Table(
    "samples",
    METADATA,
    Column("key", String(512), primary_key=True, nullable=False),
    _name("kind"),
    _name("class_name"),
    Column("at", _Instant, nullable=False),
    _name("gpu_type"),
    Column("gpus", Integer, nullable=False),
    Column("count", _Instant, nullable=False),
    Column("total", _Instant, nullable=False),
    Column("moment", _Instant, nullable=False),
    Column("seconds", _Instant, nullable=False),
    Column("batch", _Instant),
    Column("gradient_noise", _Instant),
)
"""Samples (`boa_daemon.learning.samples`); young rows are updated in place, old ones are combined."""
LEADER = Table(
    "leader",
    METADATA,
    _name("key", key=True),
    _name("holder"),
    Column("epoch", BigInteger, nullable=False),
    _name("host"),
    Column("pid", BigInteger, nullable=False),
    Column("since", _Instant, nullable=False),
    Column("expires_at", _Instant, nullable=False),
)
"""One row: the leader that acts for this database. Instants are by the server's clock."""
DOCUMENTS = Table(
    "documents",
    METADATA,
    _name("kind", key=True),
    _name("key", key=True),
    Column("document", Text, nullable=False),
)
ALERTS = Table(
    "alerts",
    METADATA,
    _name("key", key=True),
    Column("at", _Instant, nullable=False),
    Column("sentence", Text, nullable=False),
)
"""Alerts that were sent: a `key` that prevents a second one, and the `sentence`."""
