"""More time for a job with a time limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from server_world import Clock, Server, World

from millpond.model.errors import NotFoundError
from millpond.model.events import ResumeRequested, SuspendRequested, TimeLimitChanged
from millpond.scheduling.records import JobRecord
from millpond.server.jobs.time_limits import limits_left
from millpond.server.runtime.inbox import ChangeJob
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.config.cluster import read_cluster
from millpond.specs.config.tasks import DevFile
from millpond.specs.errors import SpecError


def extend(server: Server, job: str, limit_s: float) -> ChangeJob:
    def change(_record: JobRecord, now: float) -> TimeLimitChanged:
        return TimeLimitChanged(now, job, limit_s)

    asked = ChangeJob(job, change)
    server.loop.change_job(asked)
    server.turn()
    return asked


@pytest.fixture
def server(tmp_path: Path) -> Server:
    server = Server(tmp_path, World(), Clock())
    server.submit("lab", kind="dev", time_limit="100s")
    server.turn(2)
    return server


def test_an_extended_job_runs_to_its_new_limit_and_no_further(server: Server) -> None:
    assert extend(server, "lab", 300.0).answer.result(0).state == "running"
    server.clock.now += 150
    server.turn(2)
    assert [task.job for task in server.world.running] == ["lab"]
    server.clock.now += 150
    server.turn(2)
    assert server.world.running == []


def test_a_shortened_job_ends_at_once_when_it_has_run_for_longer(server: Server) -> None:
    server.clock.now += 50
    extend(server, "lab", 20.0)
    server.turn(2)
    assert server.world.running == []


def test_the_new_limit_survives_a_killed_server(server: Server, tmp_path: Path) -> None:
    extend(server, "lab", 300.0)
    server.store.close()
    again = Server(tmp_path, server.world, server.clock)
    again.clock.now += 150
    again.turn(2)
    assert [task.job for task in again.world.running] == ["lab"]
    again.clock.now += 150
    again.turn(2)
    assert again.world.running == []


def test_a_job_that_is_not_there_gets_no_more_time(server: Server) -> None:
    with pytest.raises(NotFoundError):
        extend(server, "other", 300.0).answer.result(0)


def test_it_is_known_when_the_time_limit_of_a_job_ends_while_it_runs(server: Server) -> None:
    began = viewed(server).started_at
    assert began is not None
    assert viewed(server).limit_ends_at == pytest.approx(began + 100)
    server.clock.now += 30
    assert extend(server, "lab", 300.0).answer.result(0).limit_ends_at == pytest.approx(began + 300)
    server.loop.change_job(ChangeJob("lab", lambda _, now: SuspendRequested(now, "lab")))
    server.turn(2)
    assert (viewed(server).state, viewed(server).limit_ends_at) == ("suspended", None)
    server.clock.now += 50
    server.loop.change_job(ChangeJob("lab", lambda _, now: ResumeRequested(now, "lab")))
    server.turn(2)
    again = viewed(server)
    assert again.limit_ends_at == pytest.approx(began + 300 + again.suspended_s, abs=3)
    left = server.loop.query(lambda core: limits_left(core, ["lab"], server.clock.now))
    server.turn()
    assert left.result(0)["lab"].ends_at == again.limit_ends_at
    server.clock.now = again.limit_ends_at + 1
    server.turn(3)
    assert server.world.running == []


def viewed(server: Server) -> JobInfo:
    info = server.loop.job_cache.get("lab")
    assert info is not None
    return info


def test_the_configuration_has_rules_for_places_to_work() -> None:
    text = "dev: {idle_after: 1h, warn_before: 5m, on_idle: stop, longest: 2d}"
    assert read_cluster(text).dev == DevFile(idle_after="1h", warn_before="5m", on_idle="stop", longest="2d")
    assert read_cluster("{}").dev == DevFile()
    assert read_cluster("dev: {open_pages: ignore}").dev.open_pages == "ignore"
    with pytest.raises(SpecError, match="open_pages"):
        read_cluster("dev: {open_pages: never}")
    with pytest.raises(SpecError, match="earlier than the idle time"):
        read_cluster("dev: {idle_after: 5m, warn_before: 10m}")
