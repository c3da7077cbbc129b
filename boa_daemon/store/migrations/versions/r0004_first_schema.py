"""The first released schema; `boa_daemon.store.database_setup` creates it, and later migrations begin here.

Numbers below it were never anybody's.
"""

revision = "0004"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing: whoever comes here has it."""
