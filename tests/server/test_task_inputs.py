"""Standard input from clients: a piece that comes again is taken once, one that is missing is asked for."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from millpond.model.errors import ConflictError
from millpond.node.input_ring import ROOM_BYTES, InputRing
from millpond.node.records import TaskFiles, TaskId
from millpond.server import task_inputs
from millpond.server.task_inputs import InputPiece, TaskInputs
from millpond.specs.job_bodies import JobInfo, TaskInfo
from millpond.specs.job_requests import InputInfo


class Scene:
    """A running job that reads standard input."""

    def __init__(self, state_dir: Path) -> None:
        self.path = TaskFiles.of(state_dir, TaskId("j", 1, 0)).input
        self.path.parent.mkdir(parents=True)
        self.live: JobInfo | None = self.job()
        self.inputs = TaskInputs(state_dir, lambda _: self.live, threading.Event())

    def job(self, state: str = "running") -> JobInfo:
        return JobInfo(
            id="j", name="", queue="default", pool="default", user="ada", kind="train", priority="normal", state=state,
            attempt=1, submitted_at=0.0, tasks=[TaskInfo(task=0, role="worker", state=state)],
        )  # fmt: skip

    def send(self, data: bytes, offset: int = 0, *, end: bool = False, attempt: int = 1) -> InputInfo:
        return asyncio.run(self.inputs.receive(self.job(), InputPiece(attempt, offset, data, end)))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(task_inputs, "WAIT_S", 0.0)
    return Scene(tmp_path)


def test_a_piece_that_comes_again_is_taken_once(scene: Scene) -> None:
    with InputRing.create(scene.path) as ring:
        assert scene.send(b"abc") == InputInfo(received=3, open=True)
        assert scene.send(b"abcdef") == InputInfo(received=6, open=True)
        assert scene.send(b"def", 3, end=True) == InputInfo(received=6, open=False)
        assert (ring.next(100), ring.ended) == (b"abcdef", True)


def test_what_lacks_something_before_it_is_refused(scene: Scene) -> None:
    InputRing.create(scene.path).close()
    with pytest.raises(ConflictError, match=r"byte 5 .* byte 0"):
        scene.send(b"x", 5)


def test_no_more_is_taken_than_there_is_room_for_and_the_end_waits_for_the_rest(scene: Scene) -> None:
    with InputRing.create(scene.path) as ring:
        assert scene.send(b"x" * (ROOM_BYTES + 9), end=True) == InputInfo(received=ROOM_BYTES, open=True)
        assert not ring.ended
        ring.take(9)
        assert scene.send(b"x" * 9, ROOM_BYTES, end=True) == InputInfo(received=ROOM_BYTES + 9, open=False)
        assert ring.ended


def test_a_task_that_reads_no_more_and_a_run_that_is_over_take_nothing(scene: Scene) -> None:
    with InputRing.create(scene.path) as ring:
        assert not scene.send(b"x", attempt=2).open
        scene.live = None
        assert not scene.send(b"x").open
        scene.live = scene.job()
        ring.close_reader()
        assert not scene.send(b"x").open


def test_a_job_without_standard_input_says_so(scene: Scene) -> None:
    with pytest.raises(ConflictError, match="reads no standard input"):
        scene.send(b"x")
