"""The next step of a revision that comes: bounds, undoing, and that every rollout comes to its end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.server.serving.front import Routes, Split
from millpond.server.serving.revisions import (
    GONE,
    TO_BE_SUBMITTED,
    Phase,
    Revision,
    RolloutStep,
    Side,
    next_step,
    sizes,
)
from millpond.specs.errors import SpecError
from millpond.specs.job.job_ids import revision_job, service_of
from millpond.specs.job.job_spec import check_job
from millpond.specs.job.serving import Rollout

RULE = Rollout()


def revision(phase: Phase = Phase.ROLLING, **fields: object) -> Revision:
    fields = {"target": 3, "before": 3} | fields
    return Revision("web-a", 2, "web-a.r2", {}, "ada", "", 0.0, phase, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("coming", "present", "now"),
    [
        (Side(1, 0), Side(3, 3), (1, 3)),
        (Side(1, 1), Side(3, 3), (1, 2)),
        (Side(1, 1), Side(2, 2), (2, 2)),
        (Side(3, 3), Side(1, 1), (3, 0)),
        (Side(1, 0), Side(3, 1, waiting=2), (1, 1)),
    ],
)
def test_one_more_comes_then_one_goes(coming: Side, present: Side, now: tuple[int, int]) -> None:
    assert sizes(coming, present, 3, RULE) == now


@given(
    target=st.integers(1, 6),
    before=st.integers(0, 6),
    surge=st.integers(0, 3),
    missing=st.integers(0, 3),
    data=st.data(),
)
def test_never_too_many_never_too_few_and_it_comes_to_its_end(target, before, surge, missing, data) -> None:
    rule = Rollout(max_surge=surge if missing else surge + 1, max_unavailable=missing)
    of_both = revision(target=target, before=before)
    coming, present = Side(0, 0), Side(before, before)
    fewest = min(target, before) - rule.max_unavailable
    for _ in range(200):
        step = next_step(of_both, rule, coming, present, overdue=False)
        if step.phase is not None:
            assert (step.phase, coming.ready, present.desired) == (Phase.CURRENT, target, 0)
            return
        assert step.coming is not None
        assert step.present is not None
        # Replicas of the coming one become ready in their own time, those of the present one end at once.
        ready = data.draw(st.integers(coming.ready, step.coming))
        coming = Side(step.coming, max(ready, min(coming.ready + 1, step.coming)))
        present = Side(step.present, step.present)
        assert coming.ready + present.ready >= fewest
        assert coming.desired + present.desired <= max(target + rule.max_surge, before)
    raise AssertionError("it never ends")


def test_what_is_not_ready_in_time_or_ends_is_withdrawn_and_the_present_one_gets_its_replicas_back() -> None:
    late = next_step(revision(), RULE, Side(1, 0), Side(3, 3), overdue=True)
    assert late == RolloutStep(Phase.UNDOING, "no further replica was ready within 10m")
    assert next_step(revision(), RULE, GONE, Side(2, 2), overdue=False).phase is Phase.UNDOING
    undoing = revision(Phase.UNDOING)
    assert next_step(undoing, RULE, Side(2, 0), Side(2, 2), overdue=True) == RolloutStep(coming=1, present=2)
    assert next_step(undoing, RULE, Side(1, 0), Side(2, 2), overdue=True) == RolloutStep(coming=1, present=3)
    assert next_step(undoing, RULE, Side(1, 0), Side(3, 3), overdue=True) == RolloutStep(coming=0, present=3)
    assert next_step(undoing, RULE, GONE, Side(3, 1), overdue=True).phase is Phase.UNDONE


def test_a_canary_and_one_that_is_paused_wait_for_people() -> None:
    for waiting in (revision(Phase.CANARY, percent=10.0), revision(paused=True)):
        assert next_step(waiting, RULE, Side(1, 1), Side(3, 3), overdue=False) == RolloutStep()
    begin = next_step(revision(Phase.CANARY, percent=40.0), RULE, TO_BE_SUBMITTED, Side(3, 3), overdue=False)
    assert begin == RolloutStep(coming=2), "so many begin as its part of the requests asks for"
    at_rest = next_step(revision(Phase.CANARY, percent=40.0), RULE, Side(0, 0), Side(3, 3), overdue=False)
    assert at_rest == RolloutStep(), "its own load wakes it"


def test_whoever_is_left_alone_stays() -> None:
    assert next_step(revision(), RULE, Side(1, 1), GONE, overdue=False).phase is Phase.CURRENT
    assert next_step(revision(), RULE, GONE, GONE, overdue=False).phase is Phase.UNDONE
    assert next_step(revision(Phase.UNDOING), RULE, Side(1, 1), GONE, overdue=False).phase is Phase.CURRENT


def test_a_canary_gets_its_part_of_the_requests() -> None:
    routes = Routes(seed=7)
    routes.put("web-a", Split(("web-a",), "web-a.r2", 10.0))
    first = [routes.ways("web-a")[0][0] for _ in range(10_000)]
    assert 0.09 < first.count("web-a.r2") / len(first) < 0.11
    assert set(routes.ways("web-a")) == {("web-a",), ("web-a.r2",)}, "each stands in for the other"


def test_the_job_of_a_revision_is_called_after_its_service() -> None:
    assert service_of(revision_job("web-a", 12)) == "web-a"
    assert (service_of("web-a"), service_of("web.rest")) == ("web-a", "web.rest")


def test_a_rollout_that_could_not_move_is_refused() -> None:
    rollout = {"max_surge": 0, "max_unavailable": 0}
    with pytest.raises(SpecError, match="neither one more nor one fewer"):
        check_job({"command": "x", "kind": "service", "serve": {"rollout": rollout}})
