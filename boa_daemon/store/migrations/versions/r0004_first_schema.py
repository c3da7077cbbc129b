"""The first schema that is released: `boa_daemon.store.engine` makes it of the tables; later ones begin here.

Numbers below it were never anybody's.
"""

revision = "0004"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing: whoever comes here has it."""
