"""Alembic's entry: run the migrations on the connection, and inside the transaction, that the journal hands over."""

from alembic import context

from agent.journal.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
