"""The schema: the first that is released. Numbers below it were never anybody's, and nothing goes back."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "alerts",
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("sentence", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "charge_days",
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("micro_dollars", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node", "day"),
    )
    op.create_index("charge_days_by_day", "charge_days", ["day"], unique=False)
    op.create_table(
        "charges",
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("instance_type", sa.String(length=255), nullable=False),
        sa.Column("started_at", sa.Float(precision=53), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=False),
        sa.Column("micro_dollars", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node"),
    )
    op.create_table(
        "cooldowns",
        sa.Column("scope", sa.String(length=255), nullable=False),
        sa.Column("until", sa.Float(precision=53), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("scope"),
    )
    op.create_table(
        "decisions",
        sa.Column("tick", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("inputs", sa.String(length=255), nullable=False),
        sa.Column("outputs", sa.String(length=255), nullable=False),
        sa.Column("policy", sa.String(length=255), nullable=False),
        sa.Column("actions", sa.Integer(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("tick"),
    )
    op.create_index("decisions_by_at", "decisions", ["at"], unique=False)
    op.create_table(
        "generations",
        sa.Column("job", sa.String(length=255), nullable=False),
        sa.Column("generation", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("gpu_type", sa.String(length=255), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("slots", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Float(precision=53), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.Column("end", sa.Text(), nullable=False),
        sa.Column("micro_dollars", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("job", "generation"),
    )
    op.create_index("generations_by_start", "generations", ["started_at"], unique=False)
    op.create_table(
        "instances",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("instance_type", sa.String(length=255), nullable=False),
        sa.Column("launched_at", sa.Float(precision=53), nullable=False),
        sa.Column("launched_by", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("ready_at", sa.Float(precision=53), nullable=True),
        sa.Column("idle_since", sa.Float(precision=53), nullable=True),
        sa.Column("was_used", sa.Boolean(), nullable=False),
        sa.Column("last_seen_at", sa.Float(precision=53), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("instances_by_end", "instances", ["ended_at"], unique=False)
    op.create_table(
        "intents",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("kind", sa.String(length=255), nullable=False),
        sa.Column("target", sa.String(length=255), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=255), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("nodes", sa.Text(), nullable=True),
        sa.Column("seen", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("intents_by_at", "intents", ["at"], unique=False)
    op.create_index("intents_by_status", "intents", ["status"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("user_name", sa.String(length=255), nullable=False),
        sa.Column("class_name", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=255), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("arrived_at", sa.Float(precision=53), nullable=False),
        sa.Column("remaining_gpu_hours", sa.Float(precision=53), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Float(precision=53), nullable=True),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("is_cancelled", sa.Boolean(), nullable=False),
        sa.Column("team_name", sa.String(length=255), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("seq"),
    )
    op.create_index("jobs_by_status", "jobs", ["status", "seq"], unique=False)
    op.create_table(
        "meta",
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "placements",
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("gpu", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job", sa.String(length=255), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("node", "gpu"),
    )
    op.create_index("placements_by_job", "placements", ["job"], unique=False)
    op.create_table(
        "policies",
        sa.Column("hash", sa.String(length=255), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )
    op.create_table(
        "samples",
        sa.Column("key", sa.String(length=512), nullable=False),
        sa.Column("kind", sa.String(length=255), nullable=False),
        sa.Column("class_name", sa.String(length=255), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("gpu_type", sa.String(length=255), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("count", sa.Float(precision=53), nullable=False),
        sa.Column("total", sa.Float(precision=53), nullable=False),
        sa.Column("moment", sa.Float(precision=53), nullable=False),
        sa.Column("seconds", sa.Float(precision=53), nullable=False),
        sa.Column("batch", sa.Float(precision=53), nullable=True),
        sa.Column("gradient_noise", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "leader",
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("holder", sa.String(length=255), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.Float(precision=53), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "documents",
        sa.Column("kind", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "key"),
    )
    op.create_table(
        "purses",
        sa.Column("team", sa.String(length=255), nullable=False),
        sa.Column("hour", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("micro_dollars", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("team", "hour"),
    )
    op.create_index("purses_by_hour", "purses", ["hour"])
    op.create_index("jobs_by_user", "jobs", ["user_name", "seq"])
    op.create_index("jobs_by_team", "jobs", ["team_name", "seq"])
    op.create_index("jobs_by_end", "jobs", ["ended_at"])
    op.create_index("generations_by_end", "generations", ["ended_at"])
