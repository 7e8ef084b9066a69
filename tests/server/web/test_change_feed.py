"""The stream that tells open pages of changes."""

from __future__ import annotations

import asyncio

import pytest

from millpond.server.web import change_feed
from millpond.server.web.change_feed import ChangeFeed


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(change_feed, "KEEP_ALIVE_S", 0.02)


class Scene:
    def __init__(self) -> None:
        self.version = 0
        self.closing = False
        self.may = True
        self.feed = ChangeFeed(lambda: self.version, lambda: self.closing)


def test_all_open_pages_hear_of_a_change_and_only_then() -> None:
    async def walk() -> None:
        scene = Scene()
        streams = [scene.feed.events(lambda: True) for _ in range(3)]
        assert [await anext(each) for each in streams] == [b"event: hello\ndata: 0\n\n"] * 3
        assert await anext(streams[0]) == b"event: alive\n\n", "nothing has changed"
        scene.version += 1
        for stream in streams:
            said = await anext(stream)
            assert said == b"event: changed\ndata: 1\n\n"
        for stream in streams:
            await stream.aclose()

    asyncio.run(walk())


def test_many_open_pages_are_told_one_after_the_other_and_none_is_forgotten() -> None:
    async def walk() -> None:
        scene, told = Scene(), list[int]()
        streams = [scene.feed.events(lambda: True) for _ in range(3 * change_feed.PAGES_A_LOOK)]
        for stream in streams:
            await anext(stream)
        scene.version += 1

        async def heard(number: int) -> None:
            while not (await anext(streams[number])).startswith(b"event: changed\n"):
                pass
            told.append(number)
            scene.version += number == 0  # whoever is told first is behind again before the last has been told

        await asyncio.gather(*(heard(number) for number in range(len(streams))))
        assert told == list(range(len(streams)))
        for stream in streams:
            await stream.aclose()

    asyncio.run(walk())


def test_a_stream_ends_with_the_server_and_with_the_login() -> None:
    async def walk() -> None:
        scene = Scene()
        mine = scene.feed.events(lambda: scene.may)
        await anext(mine)
        scene.may = False
        assert not any([b"event: changed" in each async for each in mine])
        other = scene.feed.events(lambda: True)
        await anext(other)
        scene.closing = True
        assert not any([b"event: changed" in each async for each in other])

    asyncio.run(walk())


def test_nothing_is_looked_at_once_nobody_listens() -> None:
    async def walk() -> None:
        scene = Scene()
        stream = scene.feed.events(lambda: True)
        await anext(stream)
        await stream.aclose()
        assert scene.feed._task is not None
        await asyncio.wait_for(scene.feed._task, 60)

    asyncio.run(walk())
