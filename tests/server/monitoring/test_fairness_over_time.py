"""How fair cards were divided between sibling queues: who was due what, and the index of an interval."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.server.monitoring.time_series.fairness import due_of, fairness_of, index_of
from millpond.specs.api.pool.queues import QueueInfo
from millpond.specs.api.reports.fairness import SiblingFairness
from millpond.specs.api.reports.time_series import NamedSeries, TimeSeriesInfo


def series(name: str, used: float | None, waiting: float = 0.0, guaranteed: float = 0.0) -> NamedSeries:
    """A queue in one interval, in cards."""
    return NamedSeries(name=name, figures={"used": [used], "waiting": [waiting], "guaranteed": [guaranteed]})


def queue(name: str, weight: float = 1.0, limit: int | None = None, parent: str = "root", **more: bool) -> QueueInfo:
    """A queue of today; the limit is in cards."""
    return QueueInfo(
        name=name, parent=parent, weight=weight, limit_gpu_milli=None if limit is None else 1000 * limit, **more
    )


def divided(*pairs: tuple[QueueInfo, NamedSeries]) -> SiblingFairness:
    """The only division of one interval."""
    history = TimeSeriesInfo(
        subject="queues", begin=0.0, end=60.0, step_s=60, at=[0.0], series=[kept for _, kept in pairs]
    )
    (only,) = fairness_of(history, [of_today for of_today, _ in pairs], whole=True).siblings
    return only


def due(division: SiblingFairness) -> list[float | None]:
    return [each.due[0] for each in division.queues]


def test_what_two_full_queues_held_is_due_to_them_by_weight() -> None:
    found = divided((queue("a", 3), series("a", 4, 9)), (queue("b"), series("b", 4, 9)))
    assert due(found) == [6.0, 2.0]
    assert found.index == [round((4 / 6 + 2) ** 2 / (2 * ((4 / 6) ** 2 + 2**2)), 4)]


def test_a_guarantee_is_due_before_weights_as_far_as_it_is_demanded() -> None:
    full = divided((queue("a"), series("a", 2, 9, guaranteed=6)), (queue("b"), series("b", 6, 9)))
    assert due(full) == [7.0, 1.0]
    idle = divided((queue("a"), series("a", 2, 0, guaranteed=6)), (queue("b"), series("b", 6, 9)))
    assert (due(idle), idle.index) == ([2.0, 6.0], [1.0])


def test_guarantees_beyond_what_was_held_are_due_in_proportion() -> None:
    found = divided((queue("a"), series("a", 1, 9, guaranteed=6)), (queue("b"), series("b", 3, 9, guaranteed=2)))
    assert due(found) == [3.0, 1.0]


def test_what_a_queue_may_not_hold_is_not_due_to_it() -> None:
    limited = divided((queue("a", limit=2), series("a", 2, 9)), (queue("b"), series("b", 6, 9)))
    assert (due(limited), limited.index) == ([2.0, 6.0], [1.0])
    confined = divided((queue("a", borrows=False), series("a", 2, 9, 2)), (queue("b"), series("b", 6, 9)))
    assert (due(confined), confined.index) == ([2.0, 6.0], [1.0])


def test_a_queue_that_held_cards_while_none_were_due_to_it_counts_as_twice_its_due() -> None:
    found = divided((queue("a"), series("a", 6, 9, guaranteed=8)), (queue("b"), series("b", 2)))
    assert due(found) == [8.0, 0.0]
    assert found.index == [round((0.75 + 2) ** 2 / (2 * (0.75**2 + 2**2)), 4)]


def test_nothing_is_divided_while_fewer_than_two_have_a_demand() -> None:
    alone = divided((queue("a"), series("a", 6, 9)), (queue("b"), series("b", 0)))
    unknown = divided((queue("a"), series("a", 6, 9)), (queue("b"), series("b", None)))
    assert (alone.index, unknown.index, due(unknown)) == ([None], [None], [6.0, None])


def test_queues_are_compared_with_their_siblings_and_those_without_any_are_left_out() -> None:
    history = TimeSeriesInfo(
        subject="queues",
        begin=0.0,
        end=60.0,
        step_s=60,
        at=[0.0],
        series=[series("a", 2), series("b", 2), series("a1", 2), series("deleted", 9, 9)],
    )
    tree = [QueueInfo(name="root"), queue("a"), queue("a1", parent="a"), queue("b"), queue("new")]
    (only,) = fairness_of(history, tree, whole=True).siblings
    assert (only.parent, [each.name for each in only.queues], only.index) == ("root", ["a", "b"], [1.0])


_CARDS = st.floats(0, 100)
_ROWS = st.lists(st.tuples(_CARDS, _CARDS, _CARDS, st.floats(0.01, 100)), min_size=1, max_size=6)


@given(_ROWS)
def test_all_that_was_held_is_due_to_somebody_and_nobody_is_due_more_than_they_demanded(
    rows: Sequence[tuple[float, float, float, float]],
) -> None:
    got = [held for held, _, _, _ in rows]
    demands = [held + asked for held, asked, _, _ in rows]
    found = due_of(demands, [row[2] for row in rows], [row[3] for row in rows], sum(got))
    assert sum(found) == pytest.approx(sum(got))
    assert all(-1e-9 <= owed <= demand + 1e-9 for owed, demand in zip(found, demands, strict=True))
    index = index_of(got, found)
    assert index is None or 1 / len(rows) - 1e-3 <= index <= 1


def test_a_weight_that_is_next_to_nothing_beside_a_siblings_is_due_next_to_nothing() -> None:
    assert due_of([4.0, 4.0], [0.0, 0.0], [1.0, 1e-20], 4.0) == [4.0, pytest.approx(0.0)]
    assert due_of([4.0, 4.0], [0.0, 0.0], [1.0, 1e-20], 6.0) == [4.0, 2.0]
