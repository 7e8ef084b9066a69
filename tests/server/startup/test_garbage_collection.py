"""What is loaded is left out when garbage is looked for, and circles of what comes later are still found."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millpond.server.startup import http_stack
from millpond.server.startup.configuration import Current
from millpond.server.startup.garbage_collection import YOUNG_OBJECTS, keep_what_is_loaded
from millpond.specs.config.cluster import ClusterConfig


class Linked:
    """May refer to itself."""

    def __init__(self) -> None:
        self.other: Linked | None = None


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_a_second_call_leaves_out_what_was_made_since_the_first_and_later_circles_are_found() -> None:
    keep_what_is_loaded()
    described = [Linked() for _ in range(100)]
    assert any(each is described for each in gc.get_objects())
    keep_what_is_loaded()
    assert not any(each is described for each in gc.get_objects())
    assert gc.isenabled()
    assert gc.get_threshold()[0] == YOUNG_OBJECTS
    watched = weakref.ref(described.pop())
    assert watched() is None, "without a circle it goes with its last reference"
    circle = Linked()
    circle.other = circle
    watched = weakref.ref(circle)
    del circle
    gc.collect()
    assert watched() is None


def test_a_server_that_is_up_describes_its_machines_and_leaves_the_descriptions_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described: list[Linked] = []

    async def describe() -> None:
        described.append(Linked())

    def up(_app: object, ready: Callable[[], None], *_others: object) -> SimpleNamespace:
        return SimpleNamespace(ready=ready)

    monkeypatch.setattr(http_stack, "HttpServer", up)
    for name in ("make_app", "seen_from_outside", "portal_routes", "_portal_note"):
        monkeypatch.setattr(http_stack, name, lambda *_: "")
    monkeypatch.setattr(http_stack, "_notes", lambda *_: [])
    post = SimpleNamespace(encryption=None, left=SimpleNamespace(url="http://127.0.0.1:1"))
    lead = SimpleNamespace(post=post, state=SimpleNamespace(announce=lambda _left: None), leadership=None)
    base = SimpleNamespace(
        components=SimpleNamespace(loop=SimpleNamespace(when_failed=lambda _stop: None)),
        security=None,
        tenants=None,
        token="",
    )

    async def begin() -> None:
        task: list[asyncio.Task[None]] = []

        def prepare() -> asyncio.Task[None]:
            task.append(asyncio.get_running_loop().create_task(describe()))
            return task[0]

        service = SimpleNamespace(metrics=SimpleNamespace(prepare=prepare), about=SimpleNamespace(notes=()))
        made: Any = http_stack.make_http_server(
            cast(Any, SimpleNamespace(host="127.0.0.1")),
            Current(ClusterConfig()),
            cast(Any, lead),
            cast(Any, base),
            cast(Any, service),
        )
        made.ready()
        assert not described, "it is up before"
        await task[0]
        await asyncio.sleep(0)

    asyncio.run(begin())
    assert not any(each is described[0] for each in gc.get_objects())
