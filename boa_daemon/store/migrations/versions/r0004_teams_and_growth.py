"""Which team pays for a job, what teams have spent, and an index for each way in which jobs are sought."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table of purses, the column of the team, and the indexes."""
    op.create_table(
        "purses",
        sa.Column("team", sa.String(length=255), nullable=False),
        sa.Column("hour", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("micro_dollars", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("team", "hour"),
    )
    op.create_index("purses_by_hour", "purses", ["hour"])
    op.add_column("jobs", sa.Column("team_name", sa.String(length=255), nullable=False, server_default=""))
    op.create_index("jobs_by_user", "jobs", ["user_name", "seq"])
    op.create_index("jobs_by_team", "jobs", ["team_name", "seq"])
    op.create_index("jobs_by_end", "jobs", ["ended_at"])
    op.create_index("generations_by_end", "generations", ["ended_at"])


def downgrade() -> None:
    """Take them away."""
    op.drop_index("generations_by_end", "generations")
    op.drop_index("jobs_by_end", "jobs")
    op.drop_index("jobs_by_team", "jobs")
    op.drop_index("jobs_by_user", "jobs")
    op.drop_column("jobs", "team_name")
    op.drop_index("purses_by_hour", "purses")
    op.drop_table("purses")
