"""Alembic's entry point: runs the scripts on the connection that the server hands over."""

from __future__ import annotations

from alembic import context

from millpond.server.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
