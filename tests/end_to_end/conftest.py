"""Real programs: a server of the test's own, and the command line that talks to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from real_pond import Pond, alive

HERE = Path(__file__).resolve().parent
LONG = {
    "test_agents",
    "test_applying",
    "test_array_walks",
    "test_awkward_tasks",
    "test_changing_jobs",
    "test_chaos",
    "test_clusters",
    "test_copies_of_servers",
    "test_encryption",
    "test_files_of_jobs",
    "test_functions",
    "test_guides",
    "test_images",
    "test_job_page_in_a_browser",
    "test_jobs_at_origins",
    "test_killed_server",
    "test_kubernetes_files",
    "test_logging_in_elsewhere",
    "test_make_up",
    "test_metrics_of_jobs",
    "test_monitoring",
    "test_next_version",
    "test_operating",
    "test_own_history",
    "test_portal_in_a_browser",
    "test_proxy",
    "test_readme",
    "test_registry",
    "test_services",
    "test_several_people",
    "test_ssh",
    "test_standby",
    "test_starting_the_server",
    "test_submitting_in_a_browser",
    "test_twin",
    "test_working_inside",
}
"""The files left out of `make test`: what they walk through is held in parts by faster tests as well."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder drives real programs."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.end_to_end)
            if item.path.stem in LONG:
                item.add_marker(pytest.mark.long)


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
