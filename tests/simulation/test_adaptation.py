"""Which policy is promoted on which figures, and when one is given up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millpond.model.policy_trials import ClusterPolicies
from millpond.simulation.adaptation import (
    TriedPolicy,
    WindowFigures,
    choose_policy,
    is_worse,
    window_figures,
    windows_of,
)

PRESENT, OTHER, THIRD = (ClusterPolicies(name, "default", False, True) for name in ("default", "sjf", "fair"))
MARGIN = 0.05


def tried(choice: ClusterPolicies, *slowdowns: float, wait_s: float = 600.0, jobs: int = 100) -> TriedPolicy:
    return TriedPolicy(choice, tuple(WindowFigures(jobs, slowdown, wait_s) for slowdown in slowdowns))


def test_a_candidate_that_is_better_where_it_was_chosen_and_later_is_promoted_with_its_numbers() -> None:
    verdict = choose_policy(tried(PRESENT, 4, 4, 4), [tried(THIRD, 3.7, 1, 1), tried(OTHER, 3, 3.5, 3.7)], MARGIN)
    assert verdict.choice == OTHER
    assert verdict.why == (
        "ordering sjf, placement default instead of ordering default, placement default: mean slowdown 4.00 -> 3.00, "
        "4.00 -> 3.50, 4.00 -> 3.70; minutes that 95 % wait at most 10 -> 10, 10 -> 10, 10 -> 10"
    )


@pytest.mark.parametrize(
    ("slowdowns", "where"),
    [((3.9, 1, 1), "in window 1"), ((1, 3.9, 1), "in window 2"), ((1, 1, 3.9), "in window 3")],
)
def test_one_that_is_not_better_by_the_margin_in_every_window_is_not(slowdowns: tuple[float, ...], where: str) -> None:
    verdict = choose_policy(tried(PRESENT, 4, 4, 4), [tried(OTHER, *slowdowns)], MARGIN)
    assert verdict.choice is None
    assert verdict.why.startswith(f"no candidate is better by 5% {where}")


def test_the_first_days_choose_among_those_that_are_better_on_all() -> None:
    """One that was best on the first days and worse later stands in nobody's way; the later days only judge."""
    verdict = choose_policy(tried(PRESENT, 4, 4, 4), [tried(OTHER, 2, 5, 5), tried(THIRD, 3, 1, 1)], MARGIN)
    assert verdict.choice == THIRD
    assert (
        choose_policy(tried(PRESENT, 4, 4, 4), [tried(OTHER, 2, 3, 3), tried(THIRD, 3, 1, 1)], MARGIN).choice == OTHER
    )
    neither = choose_policy(tried(PRESENT, 4, 4, 4), [tried(OTHER, 2, 5, 5), tried(THIRD, 3, 1, 4)], MARGIN)
    assert neither.choice is None
    assert "in window 2; ordering sjf" in neither.why


def test_waits_may_grow_by_the_part_by_which_the_slowdown_falls_and_no_more() -> None:
    assert choose_policy(tried(PRESENT, 4, 4, 4), [tried(OTHER, 1, 1, 1, wait_s=1110)], MARGIN).choice == OTHER
    refused = choose_policy(tried(PRESENT, 4, 4, 4), [tried(OTHER, 1, 1, 1, wait_s=1111)], MARGIN)
    assert refused.choice is None
    assert refused.why.startswith("the best candidate lets some wait longer by more than 75% in window 1")


def test_in_a_window_in_which_nothing_could_be_better_a_candidate_only_must_not_be_worse() -> None:
    present = tried(PRESENT, 1.04, 4, 4)
    verdict = choose_policy(present, [tried(OTHER, 1.04, 3, 3), tried(THIRD, 1.0, 3.5, 1)], MARGIN)
    assert verdict.choice == OTHER, "chosen in the first window that is not quiet"
    worse = choose_policy(present, [tried(OTHER, 1.10, 3, 3)], MARGIN)
    assert worse.choice is None
    assert worse.why.startswith("the best candidate is worse by 5% in window 1; ordering sjf")
    quiet = choose_policy(tried(PRESENT, 1.04, 1.0, 4), [tried(OTHER, 1, 1, 1)], MARGIN)
    assert quiet.choice is None
    assert quiet.why == "hardly anything waits, so nothing can be better by 5%: mean slowdown 1.04, 1.00, 4.00"


def test_too_few_jobs_and_replays_that_took_too_long_are_named() -> None:
    few = choose_policy(tried(PRESENT, 4, 4, 4, jobs=49), [tried(OTHER, 1, 1, 1)], MARGIN)
    assert few.why == "too few jobs to judge by: 49, 49, 49 in a window, 50 are needed"
    cut = TriedPolicy(PRESENT, ())
    assert choose_policy(cut, [tried(OTHER, 1, 1, 1)], MARGIN).why == "the replay of the present policy took too long"
    slow = choose_policy(tried(PRESENT, 4, 4, 4), [replace(cut, choice=OTHER)], MARGIN)
    assert (slow.choice, slow.why) == (None, "the replays of all candidates took too long")


def test_figures_are_of_the_jobs_that_came_in_the_window() -> None:
    jobs = [(0.0, 100.0, 100.0), (10.0, 310.0, 100.0), (99.0, 100.0, 1.0), (100.0, 9_999.0, 1.0)]
    figures = window_figures(jobs, (0.0, 100.0))
    assert (figures.jobs, figures.slowdown) == (3, pytest.approx((1.0 + 3.0 + 1.0) / 3))
    assert figures.p95_wait_s == pytest.approx(180.0)
    assert window_figures([], (0.0, 1.0)).jobs == 0
    assert windows_of(0.0, 9.0) == ((0.0, 3.0), (3.0, 6.0), (6.0, 9.0))


def test_worse_is_judged_beside_what_replays_missed_before_the_change() -> None:
    measured, replayed = WindowFigures(100, 3.0, 0.0), WindowFigures(100, 2.0, 0.0)
    assert is_worse(measured, replayed, 1.0, MARGIN)
    assert not is_worse(measured, replayed, 1.5, MARGIN)
