"""Following logs: every byte once, in order, through attempts and interruptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from millpond.model.errors import InvalidInputError, NotFoundError
from millpond.node.records import TaskFiles, TaskId
from millpond.server import logs
from millpond.server.logs import LogReader, Wish
from millpond.specs.job_bodies import JobInfo, TaskInfo
from millpond.specs.log_bodies import FIRST_CURSOR, LogChunk


class Scene:
    """A job whose look and logs change at each poll, by a script."""

    def __init__(self, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state_dir = state_dir
        self.script: list[Callable[[], None]] = []
        self.set(state="running")
        monkeypatch.setattr(logs.asyncio, "sleep", self._next)

    def set(
        self, state: str, attempt: int = 1, tasks: int = 1, task_state: str = "", exit_code: int | None = None
    ) -> None:
        """The job looks so from now on."""
        infos = [TaskInfo(task=number, role="worker", state=task_state or state) for number in range(tasks)]
        self.info = JobInfo(
            id="j", name="", queue="default", pool="default", user="ada", kind="train", priority="normal", state=state,
            attempt=attempt, submitted_at=0.0, tasks=infos, exit_code=exit_code,
        )  # fmt: skip

    def write(self, data: bytes, attempt: int = 1, task: int = 0) -> None:
        """The task prints."""
        path = TaskFiles.of(self.state_dir, TaskId("j", attempt, task)).log
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)

    def read(self, wish: Wish, most: int | None = None) -> list[LogChunk]:
        """What a reader gets, at most so many pieces."""

        async def collect() -> list[LogChunk]:
            found: list[LogChunk] = []
            reader = LogReader(self.state_dir, lambda: self.info, wish, lambda: False)
            async for chunk in reader.chunks():
                found.append(chunk)
                if most is not None and len(found) == most:
                    break
            return found

        return asyncio.run(collect())

    async def _next(self, _seconds: float) -> None:
        assert self.script, "the reader waits for something that never comes"
        self.script.pop(0)()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


def text(chunks: list[LogChunk], task: int = 0) -> str:
    return "".join(chunk.data for chunk in chunks if chunk.task == task)


def test_without_follow_what_is_there_is_sent_and_the_stream_ends(scene: Scene) -> None:
    scene.write(b"hello\n")
    chunks = scene.read(Wish())
    assert text(chunks) == "hello\n"
    assert not chunks[-1].job_over


def test_follow_sends_what_comes_and_ends_with_the_job(scene: Scene) -> None:
    scene.write(b"one ")
    scene.script = [
        lambda: scene.write(b"two "),
        lambda: (scene.write(b"three"), scene.set("failed", exit_code=3)),
    ]
    chunks = scene.read(Wish(follow=True))
    assert text(chunks) == "one two three"
    assert (chunks[-1].job_over, chunks[-1].exit_code) == (True, 3)
    assert sum(chunk.attempt_over for chunk in chunks) == 1


def test_follow_goes_on_into_the_next_attempt(scene: Scene) -> None:
    scene.write(b"first")
    scene.script = [
        lambda: scene.set("queued"),
        lambda: (scene.set("running", attempt=2), scene.write(b"second", attempt=2)),
        lambda: scene.set("succeeded", attempt=2, exit_code=0),
    ]
    chunks = scene.read(Wish(follow=True))
    assert [(chunk.attempt, chunk.data) for chunk in chunks if chunk.data] == [(1, "first"), (2, "second")]
    assert chunks[-1].job_over


def test_following_one_attempt_ends_with_it(scene: Scene) -> None:
    scene.write(b"first")
    scene.script = [lambda: scene.set("running", attempt=2)]
    chunks = scene.read(Wish(follow=True, attempt=1))
    assert text(chunks) == "first"
    assert chunks[-1].attempt_over


def test_following_a_waiting_job_waits_for_its_first_attempt(scene: Scene) -> None:
    scene.set("queued", attempt=0)
    scene.script = [
        lambda: (scene.set("running"), scene.write(b"x")),
        lambda: scene.set("succeeded", exit_code=0),
    ]
    assert text(scene.read(Wish(follow=True))) == "x"


def test_following_a_job_that_was_withdrawn_ends(scene: Scene) -> None:
    scene.set("cancelled", attempt=0, exit_code=143)
    chunks = scene.read(Wish(follow=True))
    assert (chunks[-1].job_over, chunks[-1].exit_code) == (True, 143)


@pytest.mark.parametrize("taken", [1, 2, 3, 4])
def test_a_cursor_goes_on_behind_any_chunk_without_gap_or_repetition(scene: Scene, taken: int) -> None:
    scene.set("running", tasks=2)
    scene.write(b"a0", task=0)
    scene.write(b"b0", task=1)
    scene.script = [lambda: (scene.write(b"a1", task=0), scene.write(b"b1", task=1))]
    first = scene.read(Wish(follow=True), most=taken)
    scene.set("succeeded", tasks=2, exit_code=0)
    scene.write(b"" if taken > 2 else b"a1", task=0)
    scene.write(b"" if taken > 2 else b"b1", task=1)
    rest = scene.read(Wish(follow=True, cursor=first[-1].cursor))
    assert text(first, 0) + text(rest, 0) == "a0a1"
    assert text(first, 1) + text(rest, 1) == "b0b1"


def test_a_character_is_never_cut_in_two(scene: Scene) -> None:
    euro = "€".encode()
    scene.write(b"price " + euro[:2])
    scene.script = [lambda: scene.write(euro[2:]), lambda: scene.set("succeeded", exit_code=0)]
    chunks = scene.read(Wish(follow=True))
    assert text(chunks) == "price €"
    assert chunks[0].next_offset == 6


def test_bytes_that_are_no_text_are_replaced_and_counted(scene: Scene) -> None:
    scene.write(b"\xff\xfe ok \xe2\x82")
    scene.set("succeeded", exit_code=0)
    chunks = scene.read(Wish())
    assert text(chunks) == "�� ok �"
    assert chunks[-1].next_offset == 8


def test_a_long_log_comes_in_pieces(scene: Scene) -> None:
    scene.write(b"x" * (logs.CHUNK_BYTES * 20 + 5))
    scene.set("succeeded", exit_code=0)
    chunks = scene.read(Wish())
    assert len(text(chunks)) == logs.CHUNK_BYTES * 20 + 5
    assert max(len(chunk.data) for chunk in chunks) == logs.CHUNK_BYTES


def test_an_offset_begins_in_the_middle_of_one_task(scene: Scene) -> None:
    scene.write(b"0123456789")
    assert text(scene.read(Wish(task=0, offset=7))) == "789"


def test_a_silent_stream_shows_that_it_lives(scene: Scene) -> None:
    most = round(logs.KEEP_ALIVE_S / logs.LONGEST_POLL_S) + 20
    scene.script = [lambda: None] * most
    (chunk,) = scene.read(Wish(follow=True), most=1)
    assert (chunk.data, chunk.job_over) == ("", False)


@pytest.mark.parametrize(
    ("wish", "kind"),
    [
        (Wish(task=5), NotFoundError),
        (Wish(attempt=2), NotFoundError),
        (Wish(cursor="1:0=x"), InvalidInputError),
        (Wish(cursor="../etc"), InvalidInputError),
    ],
)
def test_what_does_not_exist_is_said_before_anything_is_sent(scene: Scene, wish: Wish, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        scene.read(wish)


def test_the_first_cursor_of_the_contract_stands_before_the_first_run(scene: Scene) -> None:
    scene.write(b"one\n")
    scene.set("running", attempt=2)
    scene.write(b"two\n", attempt=2)
    assert text(scene.read(Wish(cursor=FIRST_CURSOR), most=1)) == "one\n"
