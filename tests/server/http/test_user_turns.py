"""Turns: of one user one after the other, so that others wait for their own work alone."""

from __future__ import annotations

import asyncio

import pytest

from millpond.model.errors import BusyError
from millpond.server.http.user_turns import MOST_OF_ONE, UserTurns


def test_many_turns_of_one_user_do_not_keep_another_waiting() -> None:
    async def scene() -> list[str]:
        turns, going, had = UserTurns(2), asyncio.Event(), list[str]()

        async def work(user: str) -> None:
            async with turns.turn(user):
                had.append(user)
                await going.wait()

        working = [asyncio.create_task(work("eve")) for _ in range(MOST_OF_ONE)]
        await asyncio.sleep(0)
        working.append(asyncio.create_task(work("ada")))
        await asyncio.sleep(0)
        before = [*had]
        with pytest.raises(BusyError, match="8 long answers to eve are under way"):
            await work("eve")
        going.set()
        await asyncio.gather(*working)
        await work("eve")
        return before

    assert asyncio.run(scene()) == ["eve", "ada"]


def test_a_turn_that_is_given_up_while_it_waits_is_nobodys() -> None:
    async def scene() -> int:
        turns, had = UserTurns(1), 0
        async with turns.turn("ada"):
            waiting = asyncio.create_task(turns.turn("eve").__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        for _ in range(MOST_OF_ONE + 1):
            async with turns.turn("eve"):
                had += 1
        return had

    assert asyncio.run(scene()) == MOST_OF_ONE + 1
