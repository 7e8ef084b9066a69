"""What the server's tests stand on: databases, a server whose turns are taken by hand, and one with its API.

SQLite always, PostgreSQL where its programs and a driver are installed.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from api_world import Api
from fastapi.routing import APIRoute
from fresh_databases import fresh_postgresql, fresh_sqlite
from one_loop import one_loop
from server_world import Clock, Server, World
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from millpond.node.host.files import write_json
from millpond.server.api.description import DescribedApi
from millpond.server.monitoring.time_series import load_history
from millpond.server.store.connection.database import sqlite_url


@pytest.fixture(scope="session", autouse=True)
def _loop() -> Iterator[None]:
    """The event loop of all test clients."""
    with one_loop():
        yield


@pytest.fixture(scope="session", autouse=True)
def _power_stays_on() -> Iterator[None]:
    """SQLite does not wait for the disk, which takes longer than all else about a commit: programs are killed here,
    machines are not."""

    def wait_for_no_disk(connection: Any, record: Any, _proxy: object) -> None:
        if isinstance(connection, sqlite3.Connection) and "waits for no disk" not in record.info:
            connection.execute("PRAGMA synchronous=OFF")
            record.info["waits for no disk"] = True

    sa.event.listen(sa.Pool, "checkout", wait_for_no_disk)
    yield
    sa.event.remove(sa.Pool, "checkout", wait_for_no_disk)


@pytest.fixture(scope="session", autouse=True)
def _statements_are_compiled_once() -> Iterator[None]:
    """By whichever SQLite database of these tests needs one first: each has an engine of its own, and to fill its cache
    takes a third of what a server takes to start."""
    compiled: dict[Any, Any] = {}

    def share(connection: sa.Connection) -> None:
        if isinstance(connection.dialect, SQLiteDialect_pysqlite):
            connection.execution_options(compiled_cache=compiled)

    sa.event.listen(sa.Engine, "engine_connect", share)
    with pytest.MonkeyPatch.context() as patch:  # they are keys of that cache, and those of a process are all alike
        patch.setattr(SQLiteDialect_pysqlite, "__eq__", lambda one, other: type(one) is type(other))
        patch.setattr(SQLiteDialect_pysqlite, "__hash__", lambda dialect: hash(type(dialect)))
        yield
    sa.event.remove(sa.Engine, "engine_connect", share)


@pytest.fixture(scope="session")
def folder_of_all(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one process of a run leaves for the others what each would else make anew."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if hasattr(request.config, "workerinput") else own


@pytest.fixture(scope="session", autouse=True)
def _routes_are_described_once(folder_of_all: Path) -> Iterator[None]:
    """For all servers that declare the same ones: a description takes ten times as long as to start such a server."""
    describe = DescribedApi.openapi
    described: dict[str, dict[str, Any]] = {}

    def described_once(app: DescribedApi) -> dict[str, Any]:
        routes = [route for route in app.routes if isinstance(route, APIRoute) and route.include_in_schema]
        declared = repr([(route.path, sorted(route.methods), route.endpoint.__qualname__) for route in routes])
        name = f"description-{sha256(declared.encode()).hexdigest()}.json"
        if name not in described:
            if not (folder_of_all / name).exists():
                write_json(folder_of_all / name, describe(app))
            described[name] = json.loads((folder_of_all / name).read_bytes())
        return described[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DescribedApi, "openapi", described_once)
        yield


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind; in quick tests, PostgreSQL has what is for it alone (`tests/server/store`)."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "millpond.db")
    url: str = request.getfixturevalue("postgresql_url")
    return url


@pytest.fixture
def database_url(empty_database_url: str, tmp_path: Path) -> str:
    """A database of each kind without rows, with its tables already, which is five times faster."""
    is_sqlite = empty_database_url.startswith("sqlite:")
    return fresh_sqlite(tmp_path) if is_sqlite else fresh_postgresql(empty_database_url)


@pytest.fixture
def saved_daily(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads of weeks, which a test lives through at once, are written once for each day."""
    monkeypatch.setattr(load_history, "_SAVE_EVERY_S", load_history.DAY_S)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server with a pretended engine; nothing happens before somebody takes its turn."""
    made = Server(tmp_path, World(), Clock())
    yield made
    made.store.close()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """The same at work, with everything that the API can be asked."""
    made = Api(tmp_path / "state")
    yield made
    made.close()
