"""Alembic migrations of the catalog, run by `db.database` when a file is not at `HEAD`."""
