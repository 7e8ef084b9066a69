"""Work beside the engine's loop on a machine that is full."""

from __future__ import annotations

import asyncio
import threading

import pytest

from millpond.engines.local import background, suspension
from millpond.engines.local.background import Background
from millpond.node.sharing.backend import MoveOutcome, MoveResult
from millpond.node.task.records import TaskId


def test_work_for_which_there_is_no_thread_is_done_once_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, start, refused = asyncio.new_event_loop(), threading.Thread.start, list[str]()

    def refuse_once(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        refused.append(thread.name)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(background, "AGAIN_S", 0.0)
    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    done = loop.create_future()
    try:
        loop.call_soon(Background(loop).run, lambda: "swapped", done.set_result)
        assert loop.run_until_complete(asyncio.wait_for(done, 30)) == "swapped"
    finally:
        loop.close()
    assert refused == ["sharing"]


@pytest.mark.parametrize("room", [0, 1])
def test_tasks_for_which_there_is_no_thread_are_suspended_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    tasks, seen, start = [TaskId("gang-1", 1, number) for number in range(3)], list[TaskId](), threading.Thread.start
    started = threading.Event()

    def begin(thread: threading.Thread) -> None:
        if not room or started.is_set():
            raise RuntimeError("can't start new thread")
        started.set()
        start(thread)

    def freeze(task: TaskId) -> MoveResult:
        seen.append(task)
        return MoveResult(MoveOutcome.OK, f"task {task.task}")

    monkeypatch.setattr(threading.Thread, "start", begin)
    answers = suspension._all_at_once(freeze, tasks)
    assert [answer.reason for answer in answers] == ["task 0", "task 1", "task 2"]
    assert sorted(task.task for task in seen) == [0, 1, 2]
