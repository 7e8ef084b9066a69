"""Test clients whose requests share one event loop, as those to a server do.

A ``TestClient`` alone begins and ends a loop with a thread for every request, which takes as long as most answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi.testclient import TestClient

_loops: list[BlockingPortal] = []


@contextmanager
def one_loop() -> Iterator[None]:
    """The loop of all clients made inside."""
    with start_blocking_portal() as portal:
        _loops.append(portal)
        try:
            yield
        finally:
            _loops.remove(portal)


def client_of(app: Any, **options: Any) -> TestClient:
    """A client of an application, on the loop that there is."""
    client = TestClient(app, **options)
    client.portal = _loops[-1]
    return client
