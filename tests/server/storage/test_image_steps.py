"""Work on images: reported line by line, and out of the way of all else."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from millpond.model.errors import ConflictError
from millpond.node.containers.programs import Notify
from millpond.server.storage.provisioning.catalogue import CatalogueImage
from millpond.server.storage.provisioning.image_steps import MOST_UNTAKEN, ImageSteps, Work
from millpond.specs.api.jobs.images import ImageInfo

WITHIN_S = 20.0


def steps() -> ImageSteps:
    return ImageSteps(lambda _entry: cast(ImageInfo, None))


def hanging_until(goes_on: threading.Event) -> Work:
    """Work that does nothing until it is let go on, and is refused then."""

    def hang(notify: Notify) -> CatalogueImage:
        notify("begun")
        goes_on.wait(WITHIN_S)
        raise ConflictError("refused", "")

    return hang


def test_work_that_hangs_leaves_the_threads_of_other_requests_alone() -> None:
    goes_on = threading.Event()

    hang = hanging_until(goes_on)

    async def scene() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        hanging = steps().run(hang, "ann", lambda _status, _words: None)
        assert (await anext(hanging)).line == "begun"
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), WITHIN_S / 2) == 1
        goes_on.set()
        (last,) = [step async for step in hanging]
        assert last.error is not None
        assert last.error.cause == "refused"

    asyncio.run(scene())


def test_the_end_of_a_server_waits_until_broken_off_work_has_told_what_came_of_it() -> None:
    has_left, goes_on, told = threading.Event(), threading.Event(), list[tuple[int, str]]()

    def tidy(notify: Notify) -> CatalogueImage:
        notify("begun")
        try:
            while True:
                notify("")
        finally:
            has_left.set()
            goes_on.wait(WITHIN_S)

    async def scene() -> ImageSteps:
        work = steps()
        running = work.run(tidy, "ann", lambda status, words: told.append((status, words)))
        await anext(running)
        await running.aclose()
        return work

    closing = threading.Thread(target=asyncio.run(scene()).close)
    assert has_left.wait(WITHIN_S)
    closing.start()
    closing.join(0.1)  # it would be over where it did not wait
    assert closing.is_alive()
    goes_on.set()
    closing.join(WITHIN_S)
    assert told == [(409, "the client that asked for it is gone")]


def test_what_was_not_begun_when_its_client_left_is_told_to_have_ended() -> None:
    goes_on, told = threading.Event(), list[tuple[int, str]]()

    hang = hanging_until(goes_on)

    async def scene() -> None:
        work = steps()
        running = [work.run(hang, user, lambda status, words: told.append((status, words))) for user in "abcdefgh"]
        for each in running:
            await anext(each)
        waiting = asyncio.ensure_future(anext(work.run(hang, "i", lambda status, words: told.append((status, words)))))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert told == [(409, "the client that asked for it is gone")]
        goes_on.set()
        for each in running:
            assert [step.error is not None async for step in each] == [True]

    asyncio.run(scene())


def test_work_that_says_more_than_its_client_takes_waits_for_it() -> None:
    said, lines = 0, 20 * MOST_UNTAKEN

    def talk(notify: Notify) -> CatalogueImage:
        nonlocal said
        for _ in range(lines):
            notify("more")
            said += 1
        raise ConflictError("refused", "")

    async def scene() -> None:
        taken = 0
        async for step in steps().run(talk, "ann", lambda _status, _words: None):
            taken += step.line == "more"
            assert said - taken <= MOST_UNTAKEN
        assert taken == lines

    asyncio.run(scene())


def test_work_of_one_user_that_hangs_keeps_no_other_user_waiting() -> None:
    goes_on = threading.Event()

    hang = hanging_until(goes_on)

    async def scene() -> None:
        work = steps()
        of_one = [asyncio.ensure_future(anext(work.run(hang, "eve", lambda *_: None))) for _ in range(10)]
        of_another = anext(work.run(hang, "ben", lambda *_: None))
        for begins in (of_one[0], of_another):  # on two threads, of which either may be the first to say so
            assert (await asyncio.wait_for(begins, WITHIN_S / 2)).line == "begun"
        assert [each.done() for each in of_one] == [True] + 9 * [False]
        for each in of_one:
            each.cancel()
        await asyncio.wait(of_one)
        goes_on.set()

    asyncio.run(scene())
