"""Answers that are made while they are sent: their source ends with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from millpond.server.api.ranges import answer_with
from millpond.server.http.long_answers import StreamedAnswer
from millpond.server.storage.files.outputs import OpenedFile


async def send_until_the_client_leaves(answer: Response) -> None:
    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("nothing more comes")

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            raise OSError("the client has left")

    with pytest.raises(ClientDisconnect):
        await answer({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send)


def test_the_source_of_an_answer_is_closed_when_its_client_leaves() -> None:
    happened: list[str] = []

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"more"
        finally:
            happened.append("closed")

    async def serve() -> None:
        answer = StreamedAnswer(endless())  # still known when its client has left, as in a traceback
        await send_until_the_client_leaves(answer)
        happened.append("left")

    asyncio.run(serve())
    assert happened == ["closed", "left"]


def test_a_file_is_closed_when_its_client_leaves(tmp_path: Path) -> None:
    path = tmp_path / "output"
    path.write_bytes(b"much")

    async def serve() -> None:
        file = path.open("rb")
        answer = answer_with(OpenedFile(file, 4, "1"), Headers())
        await send_until_the_client_leaves(answer)
        assert file.closed

    asyncio.run(serve())
