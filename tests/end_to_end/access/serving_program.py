"""What the tests of the proxy run as a job: tells what it was asked, and speaks back on a WebSocket."""

from __future__ import annotations

import asyncio
import json
import os
from http import HTTPStatus

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response


def answer(connection: ServerConnection, request: Request) -> Response | None:
    """HTTP answers by path; None lets a WebSocket be opened."""
    path = request.path.partition("?")[0]
    if path.endswith("/socket"):
        return None
    if path.endswith("/leave"):
        connection.transport.abort()
    if path.endswith("/die"):
        os._exit(1)
    told = {"path": request.path, "headers": [[name.lower(), value] for name, value in request.headers.raw_items()]}
    headers = Headers({"Content-Type": "application/json", "X-Own": "yes"})
    if path.endswith("/cookies"):
        headers["Set-Cookie"] = "own=1; Path=/; Domain=example.org; HttpOnly"
        headers["Set-Cookie"] = "millpond_pass=stolen; Path=/"
        headers["Service-Worker-Allowed"] = "/"
    if path.endswith("/moved"):
        headers["Location"] = "/elsewhere"
        return Response(HTTPStatus.FOUND, "Found", headers, b"")
    body = json.dumps(told).encode()
    headers["Content-Length"] = str(len(body))
    return Response(HTTPStatus.OK, "OK", headers, body)


async def echo(connection: ServerConnection) -> None:
    """Say everything back; a request to close is granted with a code of its own."""
    assert connection.request is not None
    await connection.send(connection.request.headers.get("Authorization", "none"))
    async for message in connection:
        if message == "close":
            await connection.close(4321, "as you wish")
        await connection.send(message)


async def main() -> None:
    """Serve where the job was told to."""
    port = int(os.environ["MILLPOND_PORT"])
    async with serve(echo, "127.0.0.1", port, process_request=answer, subprotocols=["talk"], max_size=None):
        print(os.environ["MILLPOND_ACCESS_KEY"], flush=True)
        await asyncio.Future()


if __name__ == "__main__":
    asyncio.run(main())
