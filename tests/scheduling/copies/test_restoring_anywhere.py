"""Bursts of work of all kinds, and a scheduler that is restored from its snapshot, or forked, time and again.

It has to take every decision that its twin takes, which never was: what influences decisions lies in the snapshot and
in the fork, and what is asked in between influences none.
"""

from __future__ import annotations

import pytest
from bursts import FEW, KINDS, OTHERS
from restored import play

from seeds import few_then_many


@pytest.mark.parametrize("kind", few_then_many(FEW, OTHERS))
def test_a_scheduler_restored_anywhere_goes_on_as_if_it_had_not_been(kind: str) -> None:
    assert play(kind, 1, 40, 0.2).restored > 20


@pytest.mark.long
def test_a_reservation_that_was_found_in_a_trial_is_not_taken_for_fresh_once_that_is_rolled_back() -> None:
    assert play("nothing-preempted", 3, 40, 0.2).restored > 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("seed", "jobs"), few_then_many((), [(2, 60)], [(2, 100), (3, 100), (4, 100)]))
def test_long_logs_of_bursts_are_gone_on_with_from_anywhere(kind: str, seed: int, jobs: int) -> None:
    assert play(kind, seed, jobs, 0.2).restored > jobs / 2
