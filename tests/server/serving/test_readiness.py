"""Which replicas count as ready: by what they say, and by what they said when they are silent for a moment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from millpond.engines.local.task_access import LocalTaskAccess
from millpond.node.task.records import TaskId
from millpond.server.serving.proxy.endpoints import TaskEndpoint
from millpond.server.serving.proxy.load_balancer import READY_FOR_S, SILENT_FOR_S, UNREADY_FOR_S, Readiness
from millpond.server.sessions.task_routes import TaskRoute

NOWHERE = LocalTaskAccess(Path("/nowhere"))
PLACES = [
    TaskEndpoint(TaskId("web", 1, number), TaskRoute(TaskId("web", 1, number), 20_000 + number, NOWHERE), "")
    for number in range(2)
]


class Asked:
    """Two replicas that say what they are told to say, and nothing while they wait for it."""

    def __init__(self, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.readiness = Readiness(LocalTaskAccess(state_dir), lambda: self.now)
        self.say: dict[int, bool | asyncio.Future[bool | None] | None] = {0: True, 1: True}
        self.questions: list[int] = []
        monkeypatch.setattr(self.readiness, "ask", self._ask)

    async def _ask(self, place: TaskEndpoint, path: str) -> bool | None:
        self.questions.append(place.task.task)
        said = self.say[place.task.task]
        return await said if isinstance(said, asyncio.Future) else said

    async def ready(self) -> list[int]:
        return [place.task.task for place in await self.readiness.ready_ones(PLACES, "/ready")]

    def ready_after(self, seconds: float) -> list[int]:
        self.now += seconds
        return asyncio.run(self.ready())


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(tmp_path, monkeypatch)


def test_one_that_says_no_is_asked_again_soon_and_one_that_says_yes_later(asked: Asked) -> None:
    asked.say[1] = False
    assert asked.ready_after(0) == [0]
    asked.say = {0: False, 1: True}
    assert asked.ready_after(UNREADY_FOR_S + 0.01) == [0, 1]
    assert asked.ready_after(READY_FOR_S) == [1]


def test_one_that_was_ready_and_falls_silent_counts_for_a_while_and_one_that_never_was_does_not(asked: Asked) -> None:
    asked.say[1] = None
    assert asked.ready_after(0) == [0]
    asked.say[0] = None
    nobody_asked_for = 10 * SILENT_FOR_S
    assert asked.ready_after(nobody_asked_for) == [0]
    assert asked.ready_after(SILENT_FOR_S - 1) == [0]
    assert asked.ready_after(2) == []
    asked.say[0] = True
    assert asked.ready_after(UNREADY_FOR_S + 0.01) == [0]
    asked.say[0] = None
    assert asked.ready_after(nobody_asked_for) == [0]


def test_one_that_was_silent_and_says_no_is_not_ready_however_silent_it_is_then(asked: Asked) -> None:
    assert asked.ready_after(0) == [0, 1]
    asked.say[0] = False
    assert asked.ready_after(READY_FOR_S + 1) == [1]
    asked.say[0] = None
    assert asked.ready_after(UNREADY_FOR_S + 1) == [1]


def test_all_who_want_to_know_at_once_share_a_question_though_the_first_of_them_leaves(asked: Asked) -> None:
    async def walk() -> list[list[int]]:
        loop = asyncio.get_running_loop()
        asked.say = {0: loop.create_future(), 1: True}
        first, *others = [asyncio.create_task(asked.ready()) for _ in range(5)]
        while len(asked.questions) < 2:
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        asked.say[0].set_result(True)
        return await asyncio.gather(*others)

    assert asyncio.run(walk()) == [[0, 1]] * 4
    assert sorted(asked.questions) == [0, 1]
