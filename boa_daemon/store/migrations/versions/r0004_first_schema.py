"""The first released schema; `boa_daemon.store.database_setup` creates it, and later migrations begin here.

Lower numbers were never released.
"""

revision = "0004"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do nothing: `migrate` creates this schema directly."""
