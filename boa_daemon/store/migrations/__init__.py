"""Alembic migrations: the schema as it grew."""
