"""What WebSockets hold of messages that are not passed on is bounded together."""

from __future__ import annotations

from millpond.server.http.held_messages import MOST_HELD_BYTES, HeldMessages

HALF = MOST_HELD_BYTES // 2


class Source:
    """A connection that remembers how it ended."""

    def __init__(self) -> None:
        self.is_open = True

    def abort(self) -> None:
        self.is_open = False


def test_where_all_is_too_much_the_one_leaves_that_has_passed_nothing_on_for_longest() -> None:
    held, (stuck, steady, newcomer) = HeldMessages(), [Source() for _ in range(3)]
    held.grow(stuck, HALF // 2)
    held.grow(steady, HALF)
    held.passed_on(steady, 10)
    held.grow(newcomer, HALF)
    assert stuck.is_open
    held.grow(steady, HALF - 10)
    assert [source.is_open for source in (stuck, steady, newcomer)] == [False, True, True]
    held.grow(steady, 1)
    assert [source.is_open for source in (stuck, steady, newcomer)] == [False, False, True]


def test_what_was_passed_on_and_who_is_gone_takes_no_room() -> None:
    held, (first, second, third) = HeldMessages(), [Source() for _ in range(3)]
    for _ in range(3):
        held.grow(first, MOST_HELD_BYTES)
        held.passed_on(first, 0)
    held.grow(second, MOST_HELD_BYTES)
    held.forget(second)
    held.grow(third, MOST_HELD_BYTES)
    assert all(source.is_open for source in (first, second, third))
