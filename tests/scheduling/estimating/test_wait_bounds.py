"""When a future looks again at who waits in it."""

from __future__ import annotations

import pytest

from millpond.scheduling.estimating.lengths import Length
from millpond.scheduling.estimating.possible_jobs import Candidate, Demand, InLine
from millpond.scheduling.estimating.wait_bounds import WaitBounds
from millpond.scheduling.ordering.backlog import SMALL_LEAD, SMALL_WORK_S


def waiting(work: float, length_s: float) -> InLine:
    rank = 1.0, 0.0
    candidate = Candidate(
        0, Demand((), 0), rank, Length(), 0.0, 0.0, work=work, length_s=length_s, displaces_above=10.0
    )
    return InLine(rank, 5, 0.0, candidate)


def test_a_job_that_queues_again_may_be_looked_at_twice_at_one_instant() -> None:
    bounds = WaitBounds(8.0, crowds=False, backlog={}, first_key=0.0)
    for _ in range(2):
        bounds.watch(waiting(100.0, 100.0), now=10.0)
    assert len(list(bounds.due(1_000.0))) == 2


@pytest.mark.parametrize(
    ("crowds", "work", "goes_first_at", "above"),
    [(True, 8 * SMALL_WORK_S, 3_000.0, 10.0 * SMALL_LEAD), (True, 10 * SMALL_WORK_S, 4_000.0, 10.0),
     (False, 8 * SMALL_WORK_S, 4_000.0, 10.0)],
)  # fmt: skip
def test_a_job_that_is_small_beside_its_pool_does_not_wait_for_what_was_promised_where_equals_displace_each_other(
    crowds: bool, work: float, goes_first_at: float, above: float
) -> None:
    bounds = WaitBounds(8.0, crowds=crowds, backlog={}, first_key=0.0)
    entry = waiting(work, work / 8.0)
    bounds.promise(entry, 4_000.0, now=3_000.0)
    assert bounds.is_overdue(entry, goes_first_at)
    assert not bounds.is_overdue(entry, goes_first_at - 1.0)
    assert bounds.displaces_above(entry.candidate) == above
