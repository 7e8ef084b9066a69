"""Work for a client that has left is given up."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request

from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.server.http.disconnects import while_connected


def request(*, leaves: bool) -> Request:
    async def receive() -> dict[str, str]:
        if not leaves:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http"}, receive)


def test_the_answer_comes_while_the_client_waits() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert asyncio.run(while_connected(request(leaves=False), work())) == 7


def test_work_ends_when_the_client_leaves() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    with pytest.raises(UnavailableError):
        asyncio.run(while_connected(request(leaves=True), work()))
    assert ended == ["cancelled"]


def test_an_error_of_the_work_is_the_answer() -> None:
    async def work() -> None:
        raise InvalidInputError("no")

    with pytest.raises(InvalidInputError):
        asyncio.run(while_connected(request(leaves=False), work()))
