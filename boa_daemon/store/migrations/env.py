"""Run the migrations on the connection that `boa_daemon.store.database_setup.migrate` passes."""

from alembic import context

from boa_daemon.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"], target_metadata=METADATA, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
