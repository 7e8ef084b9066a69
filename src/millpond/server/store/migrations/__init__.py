"""Alembic's scripts; ``store.connecting`` runs them when a server starts."""
