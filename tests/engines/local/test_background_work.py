"""Work beside the engine's loop on a machine that is full."""

from __future__ import annotations

import asyncio
import threading

import pytest

from millpond.engines.local import background
from millpond.engines.local.background import Background


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
