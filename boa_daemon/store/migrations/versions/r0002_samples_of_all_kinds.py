"""Samples of speeds, arrivals and sizes; the table that they replace was never written."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table anew."""
    op.drop_table("samples")
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


def downgrade() -> None:
    """Make the table of the first schema."""
    op.drop_table("samples")
    op.create_table(
        "samples",
        sa.Column("job", sa.String(length=255), nullable=False),
        sa.Column("generation", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("samples", sa.Float(precision=53), nullable=True),
        sa.Column("seconds", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("job", "generation", "step"),
    )
