"""What is too old goes, the rest stays, and a restart replays as if nothing had gone."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest
from server_world import Clock, Server, World

from millpond.model.errors import NotFoundError
from millpond.node.host import folder_trees
from millpond.node.task.records import TaskFiles, TaskId, job_dir, note_of_removal
from millpond.server.operations import retention
from millpond.server.operations.retention import RetentionLimits, RetentionWorker
from millpond.server.views.logs import LogReader, LogRequest

DAY_S = 86_400.0


class Scene:
    """Three jobs that ended a day apart, each with some output; a fourth that runs."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.clock, self.world = Clock(), World()
        self.server = Server(state_dir, self.world, self.clock)
        for name in ("a", "b", "c"):
            self.server.submit(name, key=name)
            self.server.run_to_the_end()
            self.write(name, 100_000)
            self.clock.now += DAY_S
        self.server.submit("lives")
        self.server.turn(2)
        self.write("lives", 100_000)

    def write(self, job: str, size: int) -> None:
        log = TaskFiles.of(self.state_dir, TaskId(job, 1, 0)).log
        log.parent.mkdir(parents=True)
        log.write_bytes(b"x" * size)

    def look(self, limits: RetentionLimits) -> tuple[int, int]:
        return RetentionWorker(self.server.store, self.state_dir, limits, self.clock).look()

    def snapshot(self) -> None:
        """Two snapshots later no restart replays what has been."""
        for _ in range(2):
            self.server.processor.keep_snapshot()
            self.server.submit(f"s{self.server.core.seq}")
            self.server.turn(2)

    def there(self) -> str:
        return "".join(
            sorted(path.name for path in (self.state_dir / "jobs").iterdir() if (path / "attempt-1").exists())
        )


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_jobs_that_ended_long_ago_are_forgotten_with_all_they_left(scene: Scene) -> None:
    scene.snapshot()
    assert scene.look(RetentionLimits(job_days=1.5)) == (2, 0)
    store = scene.server.store
    assert scene.there() == "clives"
    assert [store.jobs.is_job(name) for name in ("a", "b", "c", "lives")] == [False, False, True, True]
    assert store.histories.of_job("a") == ([], [])
    assert store.jobs.repeated("a") is None
    assert store.histories.of_job("c")[0]
    again = Server(scene.state_dir, scene.world, scene.clock)
    assert again.loop.job_cache.get("lives").state == "running"


def test_what_a_restart_would_replay_stays(scene: Scene) -> None:
    assert scene.look(RetentionLimits(job_days=0)) == (0, 0)
    assert scene.there() == "abclives"
    Server(scene.state_dir, scene.world, scene.clock)


def test_too_much_output_goes_from_the_oldest_end_and_readers_are_told(scene: Scene) -> None:
    assert scene.look(RetentionLimits(log_gib=250_000 / 2**30)) == (0, 2)
    assert scene.there() == "clives"
    info = scene.server.store.jobs.ended_job("a")
    assert info is not None
    with pytest.raises(NotFoundError, match="removed to make room"):
        LogReader(scene.state_dir, lambda: info, LogRequest(), lambda: False)
    assert scene.look(RetentionLimits(log_gib=250_000 / 2**30)) == (0, 0)


def test_work_that_lives_keeps_its_output_however_large(scene: Scene) -> None:
    scene.look(RetentionLimits(log_gib=0))
    assert scene.there() == "lives"
    assert job_dir(scene.state_dir, "lives").exists()


@pytest.fixture
def in_use(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the first job that ended cannot be removed, as when something is mounted in it."""
    folder = job_dir(scene.state_dir, "a")

    def remove_tree(top: Path) -> None:
        if top == folder:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), "data")
        folder_trees.remove_tree(top)

    monkeypatch.setattr(retention, "remove_tree", remove_tree)
    monkeypatch.setattr(retention, "AT_ONCE", 1)
    monkeypatch.setattr(retention, "PAUSE_S", 0.0)
    return folder


def test_a_job_whose_folder_cannot_be_removed_is_kept_and_keeps_no_other_one(scene: Scene, in_use: Path) -> None:
    scene.snapshot()
    for _ in range(2):
        with pytest.raises(OSError, match=re.escape(str(in_use))):
            scene.look(RetentionLimits(job_days=1.5))
        assert scene.there() == "aclives"
        assert [scene.server.store.jobs.is_job(name) for name in ("a", "b")] == [True, False]


def test_old_jobs_are_looked_for_once_however_many_transactions_they_take(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.snapshot()
    monkeypatch.setattr(retention, "AT_ONCE", 1)
    monkeypatch.setattr(retention, "PAUSE_S", 0.0)
    looks = []
    find = scene.server.store.deletion.forgettable
    monkeypatch.setattr(scene.server.store.deletion, "forgettable", lambda before: looks.append(before) or find(before))
    assert scene.look(RetentionLimits(job_days=0.5)) == (3, 0)
    assert len(looks) == 2  # the second finds arrays whose members went, and here nothing


def test_output_that_cannot_be_removed_does_not_count_as_removed(scene: Scene, in_use: Path) -> None:
    with pytest.raises(OSError, match=re.escape(str(in_use))):
        scene.look(RetentionLimits(log_gib=250_000 / 2**30))
    assert scene.there() == "alives"
    assert not note_of_removal(scene.state_dir, "a").exists()


def test_a_clock_that_leaps_makes_nothing_old_until_it_has_gone_on_for_a_day(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.snapshot()
    month, before = RetentionLimits(job_days=30), scene.clock.now
    assert scene.look(month) == (0, 0)
    scene.clock.now += 3_650 * DAY_S
    assert scene.look(month) == (0, 0)
    assert "the clock is 3650.0 days ahead of the last look for old jobs; none is forgotten for a day" in caplog.text
    scene.clock.now += 0.9 * DAY_S
    assert scene.look(month) == (0, 0)
    scene.clock.now = before + 2 * 3_600  # it is put right
    assert scene.look(month) == (0, 0)
    assert scene.look(RetentionLimits(job_days=1.5)) == (2, 0)


def test_jobs_are_forgotten_a_day_after_a_time_in_which_the_server_did_not_run(scene: Scene) -> None:
    scene.snapshot()
    month = RetentionLimits(job_days=30)
    assert scene.look(month) == (0, 0)
    scene.clock.now += 60 * DAY_S
    looks = [scene.look(month)]
    for _ in range(2):
        scene.clock.now += 0.5 * DAY_S
        looks.append(scene.look(month))
    assert looks == [(0, 0), (0, 0), (3, 0)]
