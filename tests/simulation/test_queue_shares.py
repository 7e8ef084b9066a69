"""While all queues have more work than there is room for, what they hold follows their weights."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.tenancy.queue_shares import (
    DAY_S,
    NESTED,
    Case,
    Crowd,
    Policy,
    Saturation,
    entitled,
    finish_times,
    measured,
)
from millpond.model.tenancy.tenants import Queue
from seeds import few_then_many

WITHIN = 0.05
POLICIES = (
    Policy("fair"),
    Policy("default"),
    Policy("default", known=True),
    Policy("default", preempt=True),
    Policy("default", known=True, preempt=True),
)
FEW_POLICIES_FIRST = few_then_many((POLICIES[0],), POLICIES[1:])

lengths = st.sampled_from((600.0, 3_600.0, 36_000.0))
crowd_sizes = st.sampled_from((1, 10))
weights = st.sampled_from((1.0, 3.0, 10.0))


def worst_error(case: Case, policy: Policy) -> float:
    """The largest deviation of a leaf from what the weights entitle it to, relative to that."""
    span_s = case.days * DAY_S
    saturation = Saturation(case, policy)
    saturation.run(span_s)
    held = saturation.held_s(0.1 * span_s, span_s)
    total = sum(held.values())
    return max(abs(held[leaf] / total / entitled(case.queues, leaf) - 1.0) for leaf in held)


@pytest.mark.long
@pytest.mark.parametrize("policy", FEW_POLICIES_FIRST, ids=lambda policy: policy.label)
def test_ten_users_with_shorter_jobs_get_no_more_than_the_weight_of_their_queue(policy: Policy) -> None:
    queues = (Queue("a", weight=3.0), Queue("b"))
    case = Case("", queues, (Crowd("a", 7_200.0), Crowd("b", 1_800.0, users=10)), days=1.0)

    assert worst_error(case, policy) <= WITHIN


@pytest.mark.long
@pytest.mark.parametrize("policy", FEW_POLICIES_FIRST, ids=lambda policy: policy.label)
def test_a_queue_of_cpu_work_and_one_of_card_work_get_equal_parts_of_what_each_needs_most(policy: Policy) -> None:
    queues, crowds = (Queue("a"), Queue("b")), (Crowd("a", cpus=2), Crowd("b", cpus=24))
    row = measured(Case("", queues, crowds), policy, days=1.0)
    assert row["met"]
    assert row["jain_of_worst_day"] >= 0.98


@pytest.mark.long
def test_users_of_a_queue_get_equal_parts_under_fair_shares_however_long_their_jobs_are() -> None:
    crowds = (Crowd("a", 600.0), Crowd("a", 3_600.0), Crowd("a", 14_400.0))
    row = measured(Case("", (Queue("a"),), crowds), Policy("fair"), days=1.0)
    assert row["jain_of_users"] >= 0.98


@pytest.mark.long
def test_the_worst_user_fares_better_under_fair_shares_than_first_come_first_served() -> None:
    first_come, fair = (finish_times(ordering, 200)["rho_of_worst_user"] for ordering in ("fifo", "fair"))
    assert fair < first_come


@pytest.mark.long
@given(weights, weights, lengths, lengths, crowd_sizes, crowd_sizes, st.sampled_from(POLICIES))
@settings(max_examples=6, derandomize=True, deadline=None)
def test_two_queues_hold_what_their_weights_say(
    one: float, other: float, length: float, its_length: float, users: int, its_users: int, policy: Policy
) -> None:
    crowds = (Crowd("a", length, users=users), Crowd("b", its_length, users=its_users))
    case = Case("", (Queue("a", weight=one), Queue("b", weight=other)), crowds, days=6.0)

    assert worst_error(case, policy) <= WITHIN


@pytest.mark.long
@given(
    st.lists(st.tuples(lengths, crowd_sizes), min_size=4, max_size=4),
    st.lists(weights, min_size=6, max_size=6),
    st.sampled_from(POLICIES),
)
@example(  # what waits long in one leaf has lower keys than what waits shortly in the other
    [(600.0, 1), (3_600.0, 1), (36_000.0, 1), (600.0, 1)],
    [3.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    Policy("default", preempt=True),
)
@settings(max_examples=3, derandomize=True, deadline=None)
def test_leaves_of_two_levels_hold_what_their_weights_say(
    submitted: list[tuple[float, int]], weights: list[float], policy: Policy
) -> None:
    queues = tuple(
        Queue(queue.name, queue.parent, weight=min(weight, 3.0)) for queue, weight in zip(NESTED, weights, strict=True)
    )
    leaves = [queue.name for queue in NESTED[2:]]
    crowds = tuple(Crowd(leaf, length, users=users) for leaf, (length, users) in zip(leaves, submitted, strict=True))

    assert worst_error(Case("", queues, crowds, days=6.0), policy) <= WITHIN
