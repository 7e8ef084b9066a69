"""Databases for the server's tests: SQLite always, PostgreSQL where its programs and a driver are installed."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from millpond.server.store.connecting import sqlite_url


def _program(name: str) -> str | None:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(installed[-1]) if installed else None)


@pytest.fixture(scope="session")
def _postgresql() -> Iterator[str]:
    """A database that listens on a socket in its own folder; PostgreSQL refuses to run as root."""
    if _program("initdb") is None:
        pytest.skip("the programs of PostgreSQL are not installed")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("the driver psycopg is not installed")
    # Not below pytest's own folder, which every other run of pytest closes to all accounts but its own again.
    folder = Path(tempfile.mkdtemp(prefix="millpond-pg-"))
    user = None
    if os.geteuid() == 0:
        user = "postgres" if "postgres" in {entry.pw_name for entry in pwd.getpwall()} else "nobody"
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)

    def call(program: str, *arguments: str) -> None:
        command = [_program(program) or program, *arguments]
        subprocess.run(command, user=user, cwd=folder, check=True, capture_output=True, timeout=60)

    data = folder / "data"
    call("initdb", "-D", str(data), "-A", "trust", "-U", "millpond", "--no-sync")
    call("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", f"-k {folder} -c listen_addresses=", "start")
    yield f"postgresql+psycopg://millpond@/postgres?host={folder}"
    call("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
    shutil.rmtree(folder)


@pytest.fixture
def postgresql_url(_postgresql: str) -> str:
    """A PostgreSQL database with nothing in it."""
    engine = sa.create_engine(_postgresql)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    engine.dispose()
    return _postgresql


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "millpond.db")
    url: str = request.getfixturevalue("postgresql_url")
    return url
