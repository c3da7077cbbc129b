"""The tables, for SQLite and PostgreSQL alike.

Instants are seconds since the epoch, money whole micro-dollars, documents JSON text. Charges and decisions
are only ever appended. A GPU is a row of `placements` or it is free, so no GPU can be held twice.
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
    """Return a column of short text."""
    return Column(name, String(255), primary_key=key, nullable=False)


META = Table("meta", METADATA, _name("key", key=True), Column("value", Text, nullable=False))
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
    Column("phase", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("started_at", _Instant),
    Column("ended_at", _Instant),
    Column("step", BigInteger),
    Column("cause", Text, nullable=False),
    Column("is_cancelled", Boolean, nullable=False),
    Index("jobs_by_status", "status", "seq"),
)
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
)
PLACEMENTS = Table(
    "placements",
    METADATA,
    _name("node", key=True),
    Column("gpu", Integer, primary_key=True, autoincrement=False),
    _name("job"),
    Column("generation", Integer, nullable=False),
    Index("placements_by_job", "job"),
)
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
COOLDOWNS = Table(
    "cooldowns",
    METADATA,
    _name("scope", key=True),
    Column("until", _Instant, nullable=False),
    Column("times", Integer, nullable=False),
    _name("kind"),
)
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
CHARGES = Table(
    "charges",
    METADATA,
    _name("node", key=True),
    _name("instance_type"),
    Column("started_at", _Instant, nullable=False),
    Column("ended_at", _Instant, nullable=False),
    Column("micro_dollars", BigInteger, nullable=False),
)
CHARGE_DAYS = Table(
    "charge_days",
    METADATA,
    _name("node", key=True),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("micro_dollars", BigInteger, nullable=False),
    Index("charge_days_by_day", "day"),
)
POLICIES = Table(
    "policies", METADATA, _name("hash", key=True), Column("document", LargeBinary, nullable=False)
)
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
"""What `boa_daemon.learning.samples` says; young rows are rewritten in place, old ones taken together."""
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
"""One row: who acts for this database. Instants are by the clock of the server."""
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
