"""Servers with people, for tests of who may do what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from auth_world import AuthWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AuthWorld]:
    """A server of the test's own."""
    made = AuthWorld(tmp_path).populate()
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthWorld]:
    """One server for all tests of a file that make what they change themselves."""
    made = AuthWorld(tmp_path_factory.mktemp("shared")).populate()
    yield made
    made.close()
