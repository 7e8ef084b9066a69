"""Connections whose other end is gone without a word are ended; those whose other end is only slow are not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import pytest

from millpond.engines.kubernetes.cluster import silent_peers
from millpond.engines.kubernetes.cluster.silent_peers import MOST_UNANSWERED, end_when_gone


class _Kernel:
    """A connection, as the kernel tells of it at each look; then it is closed."""

    def __init__(self, looks: Sequence[tuple[int, int]], closed: Exception) -> None:
        self._looks, self._closed = iter(looks), closed
        self.is_open = True
        self.options: dict[int, int] = {}

    def getsockopt(self, level: int, option: int, length: int) -> bytes:
        for sent_again, asked_for_room in self._looks:
            return bytes([1, 0, sent_again, asked_for_room])[:length]
        raise self._closed

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if not self.is_open:
            raise self._closed
        self.options[option] = value


@pytest.mark.parametrize("closed", [OSError("closed"), ValueError("negative file descriptor")])
@pytest.mark.parametrize(
    ("looks", "ends"),
    [
        ([(0, 0), (MOST_UNANSWERED - 1, 0), (0, 0), (0, MOST_UNANSWERED - 1), (0, 1)], False),
        ([(0, 0), (MOST_UNANSWERED, 0)], True),
        ([(0, 0), (0, MOST_UNANSWERED)], True),
    ],
)
def test_a_connection_ends_when_much_in_a_row_is_answered_by_nobody(
    looks: list[tuple[int, int]], ends: bool, closed: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silent_peers, "LOOK_EVERY_S", 0.0)
    ended: list[bool] = []
    kernel = _Kernel(looks, closed)
    asyncio.run(end_when_gone(kernel, lambda: ended.append(True)))
    assert bool(ended) is ends
    assert kernel.options[socket.SO_KEEPALIVE] == 1, "idle ones are probed"


@pytest.mark.parametrize("closed", [OSError("closed"), ValueError("negative file descriptor")])
def test_a_connection_that_is_closed_at_once_is_left_alone(closed: Exception) -> None:
    kernel = _Kernel([(MOST_UNANSWERED, 0)], closed)
    kernel.is_open = False
    asyncio.run(end_when_gone(kernel, lambda: pytest.fail("it is not there")))
