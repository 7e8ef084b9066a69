"""Makes what lies beside this file, and the benchmarks, importable by all tests; a PostgreSQL for those that ask."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from own_postgresql import own_postgresql, what_is_missing


@pytest.fixture(scope="session")
def _postgresql() -> Iterator[str]:
    """One for all tests of a process; where its programs or the driver are missing, they are skipped."""
    if missing := what_is_missing():
        pytest.skip(missing)
    with own_postgresql() as url:
        yield url


@pytest.fixture
def postgresql_url(_postgresql: str) -> str:
    """A PostgreSQL database with nothing in it."""
    engine = sa.create_engine(_postgresql)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    engine.dispose()
    return _postgresql
