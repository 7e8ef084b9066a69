"""Databases for the server's tests: SQLite always, PostgreSQL where its programs and a driver are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.server.store.connecting import sqlite_url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "millpond.db")
    url: str = request.getfixturevalue("postgresql_url")
    return url
