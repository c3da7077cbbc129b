"""Alembic migrations of the database schema, one module per revision."""
