"""Alembic's entry point: runs the migrations on the connection that `db.schema` passes in."""

from alembic import context

from mcp_optimizer.db.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
