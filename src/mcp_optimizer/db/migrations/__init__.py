"""Alembic migrations of the catalog, run by `db.schema` when a database is not at `HEAD`."""
