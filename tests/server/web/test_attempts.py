"""The attempts of a job as its history tells them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from job_infos import job_info
from millpond.model.decisions import Decision, Placement, Start, Stop
from millpond.model.events import Confirmed, Ended, Event, Kept, Refused
from millpond.model.reasons import Cause
from millpond.model.states import Outcome
from millpond.server.store.histories import DecisionEntry, LogEntry
from millpond.server.views.events import story
from millpond.server.web.jobs.attempts import AttemptEnd, AttemptRow, attempts_of
from millpond.specs.api.jobs.jobs import JobInfo

RUNS = job_info(id="j", attempt=2, submitted_at=1.0)


def placed(*tasks: int, node: str = "") -> tuple[Placement, ...]:
    return tuple(Placement(task, "worker", node or f"n{task}") for task in tasks)


def start(number: int, attempt: int, *tasks: int, joins: bool = False, node: str = "") -> Start:
    return Start(number, "j", attempt, Cause.FITS, placed(*(tasks or (0,)), node=node), joins)


def stop(number: int, attempt: int, cause: Cause, *tasks: int, for_job: str = "") -> Stop:
    return Stop(number, "j", attempt, cause, tasks, 30.0, for_job)


def ended(at: float, attempt: int, outcome: Outcome, code: int | None = None, task: int = 0, detail: str = "") -> Ended:
    return Ended(at, "j", attempt, outcome, task, code, detail)


def rows(job: JobInfo, *history: Event | tuple[float, Decision]) -> list[AttemptRow]:
    """The attempts after a history: events, and decisions with when they were taken."""
    happened = [LogEntry(seq, each, "j") for seq, each in enumerate(history) if isinstance(each, Event)]
    decided = [DecisionEntry(seq, *each) for seq, each in enumerate(history) if isinstance(each, tuple)]
    return attempts_of(job, story(happened, decided))


def first(*history: Event | tuple[float, Decision]) -> AttemptRow:
    """The first attempt of a job that has begun its second."""
    return rows(RUNS, *history, (100.0, start(90, 2)))[-1]


def test_a_job_that_never_started_has_none_and_one_that_runs_has_one_without_an_end() -> None:
    assert rows(replace(RUNS, attempt=0, state="queued")) == []
    (row,) = rows(replace(RUNS, attempt=1), (10.0, start(1, 1)), Confirmed(11.0, 1))
    assert row == AttemptRow(1, 11.0, None, ("n0",), (), 0, (), None)


def test_a_failure_that_was_tried_again_is_told_as_the_history_does() -> None:
    failed = ended(20.0, 1, Outcome.USER_ERROR, 3, detail="exit code 3: it is no tensor")
    newest, row = rows(RUNS, (10.0, start(1, 1)), Confirmed(11.0, 1), failed, (30.0, start(2, 2, node="m")))
    assert (newest.number, newest.nodes, newest.end, newest.ended_at) == (2, ("m",), None, None)
    assert (row.number, row.started_at, row.ended_at, row.codes) == (1, 11.0, 20.0, ((-1, 3),))
    assert row.end == AttemptEnd(text="task 0 ended (user-error, exit code 3): it is no tensor")


def test_a_preempted_attempt_names_the_job_that_got_the_room_and_not_how_the_program_took_it() -> None:
    preempted = (20.0, stop(2, 1, Cause.PREEMPTED, for_job="big"))
    row = first((10.0, start(1, 1)), Confirmed(11.0, 1), preempted, ended(25.0, 1, Outcome.USER_ERROR, 143))
    assert (row.ended_at, row.codes) == (25.0, ((-1, 143),))
    assert row.end == AttemptEnd("preempted", "big", "")
    lost = ended(25.0, 1, Outcome.DEVICE_LOST, None, detail="XID 79")
    row = first((10.0, start(1, 1)), Confirmed(11.0, 1), (20.0, stop(2, 1, Cause.DEVICE_FAILED)), lost)
    assert (row.codes, row.end) == ((), AttemptEnd("device-failed", "", "XID 79"))


def test_a_start_that_was_refused_is_an_attempt_that_never_ran() -> None:
    row = first((10.0, start(1, 1)), Refused(12.0, 1, "no such image"))
    assert (row.started_at, row.ended_at, row.codes) == (None, 12.0, ())
    assert row.end == AttemptEnd(text="could not be started: no such image")


def test_a_gang_ended_by_the_task_that_failed_first_and_not_by_those_that_were_ended_for_it() -> None:
    row = first(
        (10.0, start(1, 1, 0, 1, 2)),
        Confirmed(11.0, 1),
        ended(20.0, 1, Outcome.USER_ERROR, 7, task=1),
        (20.0, stop(2, 1, Cause.GANG_BROKEN)),
        ended(21.0, 1, Outcome.USER_ERROR, 1, task=0),
        ended(22.0, 1, Outcome.STOPPED, 0, task=2),
    )
    assert row.nodes == ("n0", "n1", "n2")
    assert row.codes == ((0, 1), (1, 7), (2, 0))
    assert (row.ended_at, row.end) == (22.0, AttemptEnd(text="task 1 ended (user-error, exit code 7)"))


def test_tasks_that_were_started_again_belong_to_the_attempt_of_their_mates() -> None:
    again = (
        (10.0, start(1, 1, 0, 1)),
        Confirmed(11.0, 1),
        ended(20.0, 1, Outcome.USER_ERROR, 7, task=1),
        (21.0, start(2, 1, 1, joins=True, node="spare")),
        Refused(22.0, 2, "it could not join"),
        (23.0, start(3, 1, 1, joins=True, node="spare")),
        Confirmed(24.0, 3),
    )
    (row,) = rows(replace(RUNS, attempt=1), *again)
    assert (row.restarted, row.nodes, row.started_at, row.end) == ((1,), ("n0", "n1", "spare"), 11.0, None)
    row = first(*again, ended(30.0, 1, Outcome.NODE_LOST, None, task=0))
    assert row.end == AttemptEnd(text="task 0 ended (node-lost)")


@pytest.mark.parametrize(("state", "ends"), [("queued", True), ("failed", True), ("suspended", False)])
def test_the_newest_attempt_has_an_end_once_the_job_waits_again_or_is_over(state: str, ends: bool) -> None:
    job = replace(RUNS, attempt=1, state=state)
    (row,) = rows(job, (10.0, start(1, 1)), Confirmed(11.0, 1), ended(20.0, 1, Outcome.NODE_LOST))
    assert (row.end is not None, row.ended_at is not None) == (ends, ends)


def test_an_attempt_that_succeeded_though_a_task_was_lost_says_so() -> None:
    job = replace(RUNS, attempt=1, state="succeeded")
    lost, well = ended(20.0, 1, Outcome.NODE_LOST, task=1), ended(30.0, 1, Outcome.SUCCESS, 0)
    (row,) = rows(job, (10.0, start(1, 1, 0, 1)), Confirmed(11.0, 1), lost, well)
    assert row.end == AttemptEnd(text="task 0 ended (success, exit code 0)")


def test_exit_codes_of_a_large_gang_are_bounded_and_those_of_failures_come_first() -> None:
    ends = [ended(20.0, 1, Outcome.SUCCESS, 0, task=task) for task in range(6)]
    failed = ended(21.0, 1, Outcome.OUT_OF_MEMORY, 137, task=6)
    row = first((10.0, start(1, 1, *range(7))), Confirmed(11.0, 1), *ends, failed)
    assert (row.codes, row.codes_left_out) == (((6, 137), (0, 0), (1, 0), (2, 0)), 3)
    alike = [ended(20.0, 1, Outcome.USER_ERROR, 1, task=task) for task in range(3)]
    assert first((10.0, start(1, 1, 0, 1, 2)), Confirmed(11.0, 1), *alike).codes == ((-1, 1),)


def test_a_place_that_was_kept_is_an_end_by_the_failure_it_was_kept_for() -> None:
    kept = Kept(20.0, "j", 1, 0, Outcome.USER_ERROR, 500.0, 9)
    given_back = (30.0, stop(2, 1, Cause.STOP_REQUESTED, 0))
    row = first((10.0, start(1, 1)), Confirmed(11.0, 1), kept, given_back, ended(31.0, 1, Outcome.STOPPED, 9))
    assert row.end is not None
    assert row.end.text.startswith("task 0 ended (user-error, exit code 9)")
    assert row.ended_at == 31.0
