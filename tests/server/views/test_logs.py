"""Following logs: every byte once, in order, through attempts and interruptions."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from job_infos import job_info
from millpond.model.errors import InvalidInputError, NotFoundError
from millpond.node.task.output import Mark, Stream
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.http.protocol import LARGEST_HEAD
from millpond.server.views import log_parts, logs
from millpond.server.views.logs import LogReader, LogRequest, Logs, Position
from millpond.specs.api.jobs.jobs import JobInfo, TaskInfo
from millpond.specs.api.jobs.logs import FIRST_CURSOR, LogChunk

OUT, ERR = Stream.STDOUT, Stream.STDERR


class Scene:
    """A job whose look and logs change at each poll, by a script."""

    def __init__(self, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state_dir = state_dir
        self.script: list[Callable[[], None]] = []
        self.set(state="running")
        monkeypatch.setattr(logs.asyncio, "sleep", self._next)

    def set(
        self,
        state: str,
        attempt: int = 1,
        tasks: int = 1,
        task_state: str = "",
        exit_code: int | None = None,
        kept_until: float | None = None,
    ) -> None:
        """The job looks so from now on."""
        infos = [TaskInfo(task=number, role="worker", state=task_state or state) for number in range(tasks)]
        ends = {"exit_code": exit_code, "kept_until": kept_until}
        self.info = job_info(id="j", state=state, attempt=attempt, tasks=infos, **ends)

    def write(self, data: bytes, attempt: int = 1, task: int = 0) -> None:
        """The task prints."""
        path = TaskFiles.of(self.state_dir, TaskId("j", attempt, task)).log
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)

    def read(self, wish: LogRequest, most: int | None = None) -> list[LogChunk]:
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


def test_of_a_part_of_a_log_no_more_is_read_than_was_asked_for(scene: Scene) -> None:
    scene.set(state="succeeded")
    scene.write(b"one\ntwo\nthree\n")
    chunks = scene.read(LogRequest(task=0, offset=4, end=8))
    assert [(chunk.offset, chunk.data) for chunk in chunks if chunk.data] == [(4, "two\n")]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


def packed(places: bytes) -> str:
    return urlsafe_b64encode(zlib.compress(places)).decode()


def text(chunks: list[LogChunk], task: int = 0) -> str:
    return "".join(chunk.data for chunk in chunks if chunk.task == task)


def test_without_follow_what_is_there_is_sent_and_the_stream_ends(scene: Scene) -> None:
    scene.write(b"hello\n")
    chunks = scene.read(LogRequest())
    assert text(chunks) == "hello\n"
    assert not chunks[-1].job_over


def test_follow_sends_what_comes_and_ends_with_the_job(scene: Scene) -> None:
    scene.write(b"one ")
    scene.script = [
        lambda: scene.write(b"two "),
        lambda: (scene.write(b"three"), scene.set("failed", exit_code=3)),
    ]
    chunks = scene.read(LogRequest(follow=True))
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
    chunks = scene.read(LogRequest(follow=True))
    assert [(chunk.attempt, chunk.data) for chunk in chunks if chunk.data] == [(1, "first"), (2, "second")]
    assert chunks[-1].job_over


def test_following_one_attempt_ends_with_it(scene: Scene) -> None:
    scene.write(b"first")
    scene.script = [lambda: scene.set("running", attempt=2)]
    chunks = scene.read(LogRequest(follow=True, attempt=1))
    assert text(chunks) == "first"
    assert chunks[-1].attempt_over


def test_following_a_waiting_job_waits_for_its_first_attempt(scene: Scene) -> None:
    scene.set("queued", attempt=0)
    scene.script = [
        lambda: (scene.set("running"), scene.write(b"x")),
        lambda: scene.set("succeeded", exit_code=0),
    ]
    assert text(scene.read(LogRequest(follow=True))) == "x"


def test_following_a_job_that_was_withdrawn_ends(scene: Scene) -> None:
    scene.set("cancelled", attempt=0, exit_code=143)
    chunks = scene.read(LogRequest(follow=True))
    assert (chunks[-1].job_over, chunks[-1].exit_code) == (True, 143)


@pytest.mark.parametrize("taken", [1, 2, 3, 4])
def test_a_cursor_goes_on_behind_any_chunk_without_gap_or_repetition(scene: Scene, taken: int) -> None:
    scene.set("running", tasks=2)
    scene.write(b"a0", task=0)
    scene.write(b"b0", task=1)
    scene.script = [lambda: (scene.write(b"a1", task=0), scene.write(b"b1", task=1))]
    first = scene.read(LogRequest(follow=True), most=taken)
    scene.set("succeeded", tasks=2, exit_code=0)
    scene.write(b"" if taken > 2 else b"a1", task=0)
    scene.write(b"" if taken > 2 else b"b1", task=1)
    rest = scene.read(LogRequest(follow=True, cursor=first[-1].cursor))
    assert text(first, 0) + text(rest, 0) == "a0a1"
    assert text(first, 1) + text(rest, 1) == "b0b1"


def test_a_character_is_never_cut_in_two(scene: Scene) -> None:
    euro = "€".encode()
    scene.write(b"price " + euro[:2])
    scene.script = [lambda: scene.write(euro[2:]), lambda: scene.set("succeeded", exit_code=0)]
    chunks = scene.read(LogRequest(follow=True))
    assert text(chunks) == "price €"
    assert chunks[0].next_offset == 6


def test_bytes_that_are_no_text_are_replaced_and_counted(scene: Scene) -> None:
    scene.write(b"\xff\xfe ok \xe2\x82")
    scene.set("succeeded", exit_code=0)
    chunks = scene.read(LogRequest())
    assert text(chunks) == "�� ok �"
    assert chunks[-1].next_offset == 8


def test_a_long_log_comes_in_pieces(scene: Scene) -> None:
    scene.write(b"x" * (logs.CHUNK_BYTES * 20 + 5))
    scene.set("succeeded", exit_code=0)
    chunks = scene.read(LogRequest())
    assert len(text(chunks)) == logs.CHUNK_BYTES * 20 + 5
    assert max(len(chunk.data) for chunk in chunks) == logs.CHUNK_BYTES


def test_an_offset_begins_in_the_middle_of_one_task(scene: Scene) -> None:
    scene.write(b"0123456789")
    assert text(scene.read(LogRequest(task=0, offset=7))) == "789"


def test_a_silent_stream_shows_that_it_lives(scene: Scene) -> None:
    most = round(logs.KEEP_ALIVE_S / logs.LONGEST_POLL_S) + 20
    scene.script = [lambda: None] * most
    (chunk,) = scene.read(LogRequest(follow=True), most=1)
    assert (chunk.data, chunk.job_over) == ("", False)


@pytest.mark.parametrize(
    ("wish", "kind"),
    [
        (LogRequest(task=5), NotFoundError),
        (LogRequest(attempt=2), NotFoundError),
        (LogRequest(cursor="1:0=x"), InvalidInputError),
        (LogRequest(cursor="../etc"), InvalidInputError),
        (LogRequest(cursor="1:zAAAA"), InvalidInputError),
        (LogRequest(cursor="1:zA"), InvalidInputError),
        (LogRequest(cursor=f"1:z{packed(b'1,x')}"), InvalidInputError),
    ],
)
def test_what_does_not_exist_is_said_before_anything_is_sent(
    scene: Scene, wish: LogRequest, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        scene.read(wish)


def test_the_first_cursor_of_the_contract_stands_before_the_first_run(scene: Scene) -> None:
    scene.write(b"one\n")
    scene.set("running", attempt=2)
    scene.write(b"two\n", attempt=2)
    assert text(scene.read(LogRequest(cursor=FIRST_CURSOR), most=1)) == "one\n"


def index(scene: Scene, *marks: tuple[int, Stream, float], rest: bytes = b"") -> None:
    """What was written from which offset on, to what, when."""
    path = TaskFiles.of(scene.state_dir, TaskId("j", 1, 0)).log_index
    packed = [Mark(offset, int(at * 1_000_000), stream).packed() for offset, stream, at in marks]
    path.write_bytes(b"".join(packed) + rest)


def told(chunks: list[LogChunk]) -> list[tuple[str, str]]:
    return [(chunk.stream, chunk.data) for chunk in chunks if chunk.data]


def test_each_chunk_is_of_one_stream(scene: Scene) -> None:
    scene.write(b"out\nerr\nerr\nout\n")
    index(scene, (0, OUT, 1.0), (4, ERR, 2.0), (8, ERR, 3.0), (12, OUT, 4.0), rest=b"half a ma")
    chunks = scene.read(LogRequest())
    assert told(chunks) == [("stdout", "out\n"), ("stderr", "err\nerr\n"), ("stdout", "out\n")]
    assert [(chunk.offset, chunk.next_offset) for chunk in chunks] == [(0, 4), (4, 12), (12, 16)]


def test_after_a_lost_connection_a_stream_is_known_in_the_midst_of_it(scene: Scene) -> None:
    scene.write(b"out\nerr\nout\n")
    index(scene, (0, OUT, 1.0), (4, ERR, 2.0), (8, OUT, 4.0))
    assert told(scene.read(LogRequest(cursor="1:0=6"))) == [("stderr", "r\n"), ("stdout", "out\n")]


def test_with_timestamps_each_chunk_says_when_it_was_written(scene: Scene) -> None:
    scene.write("aä".encode() * 2)
    index(scene, (0, OUT, 1.5), (2, OUT, 2.5), (4, OUT, 3.25))  # the second in the midst of a letter
    found = [(chunk.data, chunk.written_at) for chunk in scene.read(LogRequest(timestamps=True))]
    assert found == [("a", 1.5), ("äa", 2.5), ("ä", 3.25)]


def test_a_log_of_an_earlier_version_is_standard_output_of_an_unknown_time(scene: Scene) -> None:
    scene.write(b"old\n")
    [chunk] = scene.read(LogRequest(timestamps=True))
    assert (chunk.data, chunk.stream, chunk.written_at) == ("old\n", "stdout", None)


@pytest.mark.parametrize(
    ("written", "tail", "left"),
    [
        (b"a\nb\nc\n", 2, "b\nc\n"),
        (b"a\nb\nc", 2, "b\nc"),
        (b"a\nb\n", 5, "a\nb\n"),
        (b"a\n", 0, ""),
        (b"\n\n", 1, "\n"),
        (b"", 3, ""),
        (b"x" * 70_000 + b"\n" + b"y" * 70_000 + b"\n", 1, "y" * 70_000 + "\n"),
    ],
)
def test_tail_begins_with_the_last_lines(scene: Scene, written: bytes, tail: int, left: str) -> None:
    scene.write(written)
    assert text(scene.read(LogRequest(tail=tail))) == left


def test_tail_looks_at_a_bounded_end_of_the_output_and_begins_with_a_whole_line(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_parts, "MOST_TAIL_BYTES", 400_000)
    scene.set("running", tasks=2)
    for task in range(2):
        scene.write("".join(f"{number:99}\n" for number in range(10_000)).encode(), task=task)
    chunks = scene.read(LogRequest(tail=1_000_000))
    assert [text(chunks, task).split() for task in range(2)] == [[str(number) for number in range(8_001, 10_000)]] * 2


def test_tail_of_a_line_without_an_end_shows_its_last_part(scene: Scene) -> None:
    scene.write(b"")
    files = TaskFiles.of(scene.state_dir, TaskId("j", 1, 0))
    os.truncate(files.log, 10 * 1024**3)
    assert log_parts.begin_of(files, 1, None) == 10 * 1024**3 - log_parts.MOST_TAIL_BYTES
    os.truncate(files.log, 200_000)
    scene.write(b"\n")
    assert log_parts.begin_of(files, 1, None, tasks=1_000) == 200_001 - 131_072


def test_tail_is_of_each_task_and_follow_goes_on_from_there(scene: Scene) -> None:
    scene.set("running", tasks=2)
    for task in range(2):
        scene.write(f"old {task}\nlast {task}\n".encode(), task=task)
    scene.script = [lambda: (scene.write(b"new\n", task=1), scene.set("succeeded", tasks=2))]
    chunks = scene.read(LogRequest(tail=1, follow=True))
    assert (text(chunks, 0), text(chunks, 1)) == ("last 0\n", "last 1\nnew\n")


@pytest.mark.parametrize(("since", "left"), [(0.5, "a\nb\nc\n"), (1.5, "b\nc\n"), (2.0, "b\nc\n"), (9.0, "")])
def test_since_leaves_out_what_was_written_before(scene: Scene, since: float, left: str) -> None:
    scene.write(b"a\nb\nc\n")
    index(scene, (0, OUT, 1.0), (2, ERR, 2.0), (4, OUT, 3.0))
    assert text(scene.read(LogRequest(since=since))) == left


def test_a_follower_is_not_held_while_the_place_of_what_has_failed_is_kept(scene: Scene) -> None:
    def fails() -> None:
        scene.write(b"last words\n")
        scene.set(state="running", exit_code=3, kept_until=99.0)

    scene.script = [fails]
    chunks = scene.read(LogRequest(follow=True))
    assert text(chunks) == "last words\n"
    assert (chunks[-1].job_over, chunks[-1].exit_code) == (True, 3)


def test_a_cursor_of_thousands_of_tasks_fits_into_the_head_of_a_request_and_goes_on_from_its_places() -> None:
    draw = random.Random(1)
    offsets = {task: draw.randrange(10_000_000) for task in range(10_000) if task != 17}
    cursor = str(Position(3, offsets))
    assert len(urlencode({"cursor": cursor})) < LARGEST_HEAD - 4096
    assert Position.parse(cursor) == Position(3, offsets)


def test_what_a_cursor_unpacks_to_is_bounded() -> None:
    assert len(Position.parse(f"1:z{packed(b'1,' * 1_000_000)}").offsets) < 300_000


def test_a_cursor_of_tasks_that_the_job_does_not_have_is_not_sent_back_with_every_piece(scene: Scene) -> None:
    scene.write(b"hello\n")
    (chunk,) = scene.read(LogRequest(cursor="1:0=1," + ",".join(f"{task}=1" for task in range(1, 9_000))))
    assert (chunk.data, chunk.cursor) == ("ello\n", "1:0=6")


def long_log_of_a_running_job(state_dir: Path) -> tuple[Path, Any]:
    """The file, and what looks the job up."""
    log = TaskFiles.of(state_dir, TaskId("j", 1, 0)).log
    log.parent.mkdir(parents=True)
    log.write_bytes(b"x" * 10 * logs.CHUNK_BYTES)
    task = TaskInfo(task=0, role="worker", state="running")
    info = job_info(id="j", tasks=[task])

    class OneJob:
        def look(self, _job: str) -> JobInfo:
            return info

        look_at_one = look

    return log, OneJob()


def test_readers_of_long_logs_leave_the_loop_to_others_between_any_two_pieces(tmp_path: Path) -> None:
    _, job = long_log_of_a_running_job(tmp_path)

    async def visits() -> list[int]:
        server, taken, seen = Logs(tmp_path, job, threading.Event()), 0, [0]

        async def take_all() -> None:
            nonlocal taken
            async for _ in await server.read("j", LogRequest(), lambda: True):
                taken += 1

        readers = asyncio.gather(*(take_all() for _ in range(5)))
        while not readers.done():
            await asyncio.sleep(0)
            seen.append(taken)
        await readers
        return seen

    seen = asyncio.run(visits())
    assert seen[-1] == 50
    assert max(after - before for before, after in pairwise(seen)) == 1


def test_a_reader_that_is_closed_halfway_leaves_no_file_open(tmp_path: Path) -> None:
    log, job = long_log_of_a_running_job(tmp_path)

    def is_open() -> bool:
        return str(log) in {os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()}

    async def read_a_piece() -> None:
        chunks = await Logs(tmp_path, job, threading.Event()).read("j", LogRequest(follow=True), lambda: True)
        await anext(chunks)
        assert is_open()
        await chunks.aclose()
        assert not is_open()

    asyncio.run(read_a_piece())


def test_a_silent_reader_ends_soon_after_it_may_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, job = long_log_of_a_running_job(tmp_path)
    rights, real_sleep, waits = [True], asyncio.sleep, list[float]()

    async def sleep(seconds: float) -> None:
        if seconds > 0:
            waits.append(seconds)
            rights[0] = len(waits) < 3
        await real_sleep(0)

    monkeypatch.setattr(logs.asyncio, "sleep", sleep)

    async def follow() -> None:
        async for _ in await Logs(tmp_path, job, threading.Event()).read(
            "j", LogRequest(follow=True), lambda: rights[0]
        ):
            assert rights[0]

    asyncio.run(follow())
    assert len(waits) == 3
