"""Real programs: a server of the test's own, and the command line that talks to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from real_pond import Pond, alive

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder drives real programs."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.end_to_end)


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    """A command line whose server is not up yet; what was started is stopped at the end."""
    pond = Pond(tmp_path / "state")
    yield pond
    if pond.server_pid:
        if not alive(pond.server_pid):
            pond.up()
        done = pond("down")
        assert done.returncode == 0, done.stderr


@pytest.fixture
def running(pond: Pond) -> Pond:
    """A server that is up, with pretended cards."""
    pond.up()
    return pond


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    """One server for all tests of a file that leave it as they found it."""
    pond = Pond(tmp_path_factory.mktemp("shared") / "state")
    pond.up()
    yield pond
    done = pond("down")
    assert done.returncode == 0, done.stderr
