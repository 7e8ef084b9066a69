"""Starts are let in a few at a time, in their order."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millpond.engines.local.start_pacing import LONGEST_S, Leave, Pace


class Moments:
    """A loop on a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + delay, next(self._order), callback))

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_later(0.0, callback)

    def run(self, until: float) -> None:
        while self._due and self._due[0][0] <= until:
            self.now, _, callback = heapq.heappop(self._due)
            callback()
        self.now = until


def paced(most: int) -> tuple[Moments, Pace]:
    loop: Any = Moments()
    return loop, Pace(loop, most)


@given(most=st.integers(1, 5), lengths=st.lists(st.floats(0.001, LONGEST_S * 3), max_size=30))
def test_no_more_than_allowed_are_inside_and_all_come_in_in_their_order(most: int, lengths: list[float]) -> None:
    loop, pace = paced(most)
    begun: list[int] = []
    counted: set[int] = set()

    def start(number: int, length_s: float) -> Callable[[Leave], None]:
        def begin(leave: Leave) -> None:
            begun.append(number)
            counted.add(number)
            assert len(counted) <= most
            loop.call_later(min(length_s, LONGEST_S), lambda: counted.discard(number))
            loop.call_later(length_s, leave)

        return begin

    for number, length_s in enumerate(lengths):
        pace.enter(start(number, length_s))
    assert len(begun) == min(most, len(lengths))
    loop.run(until=1e3)
    assert begun == list(range(len(lengths)))


def test_one_that_is_through_at_once_lets_the_next_in() -> None:
    loop, pace = paced(1)
    begun: list[int] = []
    for number in range(1_000):
        pace.enter(lambda leave, number=number: (begun.append(number), leave(), leave()))  # type: ignore[misc]
    loop.run(until=0.0)
    assert len(begun) == 1_000


def test_one_that_takes_long_keeps_others_waiting_for_a_moment_only() -> None:
    loop, pace = paced(1)
    begun: list[float] = []
    for _ in range(3):
        pace.enter(lambda _leave: begun.append(loop.now))
    loop.run(until=1.0)
    assert begun == [0.0, LONGEST_S, 2 * LONGEST_S]
