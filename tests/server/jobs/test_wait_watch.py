"""Why a job waited can be read after it has started and after it has ended, and only changes are kept."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from api_world import Api

from millpond.client.cli.commands.inspection.why import waits_of
from millpond.model.energy import RateMeasure
from millpond.model.events import EnergyRatePredicted, NodeClosed, NodeOpened, QueueChanged, WaitExplained
from millpond.model.hardware.nodes import Cordon
from millpond.model.reasons import Reason
from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import Queue
from millpond.model.units import HOUR_S
from millpond.node.task.records import TaskId
from millpond.scheduling.scheduler import Scheduler
from millpond.server.jobs.monitors import wait_watch
from millpond.server.jobs.monitors.wait_watch import WaitWatch
from millpond.server.wording import local_time
from millpond.specs.api.codec import from_json
from millpond.specs.api.jobs.reasons import ReasonInfo


def why(api: Api, job: str) -> ReasonInfo:
    answer = api.client.get(f"/api/v1/jobs/{job}/why")
    assert answer.status_code == 200, answer.text
    return from_json(ReasonInfo, answer.content)


def settle(api: Api) -> None:
    for _ in range(3):
        api.loop.query(lambda core: None).result(60)


def notes(api: Api, job: str) -> list[WaitExplained]:
    settle(api)
    happened, _ = api.store.histories.of_job(job)
    return [entry.event for entry in happened if isinstance(entry.event, WaitExplained)]


def look(api: Api, watch: WaitWatch, after_s: float) -> None:
    api.clock.now += after_s
    watch.look()
    settle(api)


def test_a_look_that_takes_long_goes_on_at_the_next_one(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = WaitWatch(api.loop, api.store.histories, api.clock)
    api.submit(gpus=4)
    first, second = (api.submit(gpus=4) for _ in range(2))
    instants = iter((100.0, 100.5, 101.5, 200.0, 200.5, 200.6))
    monkeypatch.setattr(wait_watch, "time", SimpleNamespace(monotonic=lambda: next(instants)))
    look(api, watch, 70.0)
    assert [len(notes(api, job.id)) for job in (first, second)] == [1, 0]
    look(api, watch, 15.0)
    assert [len(notes(api, job.id)) for job in (first, second)] == [1, 1]


def test_the_history_of_a_job_says_until_when_it_is_held_for_cheaper_hours(api: Api) -> None:
    begin = api.clock.now // HOUR_S * HOUR_S
    prices = EnergyRatePredicted(api.clock.now, RateMeasure.PRICE, begin, (0.4, 0.4, 0.1, 0.4))
    api.loop.notify([prices])
    settle(api)
    job = api.submit(gpus=1, flexible="3h", time_limit="30m")
    look(api, WaitWatch(api.loop, api.store.histories, api.clock), 70.0)
    until, by = local_time(begin + 2 * HOUR_S), local_time(job.submitted_at + 2.25 * HOUR_S)
    (noted,) = notes(api, job.id)
    assert noted.summary == f"it waits for cheaper hours until {until}; it lines up by {by} at the latest"


def test_why_a_job_waits_is_noted_also_after_the_clock_was_set_back(api: Api) -> None:
    watch = WaitWatch(api.loop, api.store.histories, lambda: api.clock() - 7_200.0)
    api.submit(gpus=4)
    waiting = api.submit(gpus=4)
    api.clock.now += 70.0
    settle(api)
    look(api, watch, 0.0)
    assert len(notes(api, waiting.id)) == 1


def test_a_started_and_an_ended_job_say_why_they_waited_and_how_true_the_estimate_was(api: Api) -> None:
    watch = WaitWatch(api.loop, api.store.histories, api.clock)
    holder = api.submit(gpus=4, time_limit="1h")
    assert api.job(holder.id).state == "running"
    waiting = api.submit(gpus=2)
    look(api, watch, 30.0)
    assert notes(api, waiting.id) == []
    look(api, watch, 40.0)
    look(api, watch, 40.0)
    (noted,) = notes(api, waiting.id)
    assert noted.latest_at is not None
    api.loop.notify([NodeClosed(api.clock.now, "n1", Cordon(api.clock.now, reason="repairs"))])
    look(api, watch, 40.0)
    api.engine.finish(TaskId(holder.id, 1, 0))
    settle(api)
    look(api, watch, 40.0)
    api.loop.notify([NodeOpened(api.clock.now, "n1")])
    assert api.job(waiting.id).state == "running"
    waits = why(api, waiting.id).waits
    assert [wait.cause for wait in waits] == ["no-room", "nodes-closed"]
    assert [wait.started for wait in waits] == [False, True]
    assert waits[0].until == waits[1].since
    assert waits[0].since == waiting.submitted_at
    assert [title for title, _ in waits_of(why(api, waiting.id))] == ["waited", "waited"]
    api.clock.now += 10.0
    api.engine.finish(TaskId(waiting.id, 1, 0))
    assert api.job(waiting.id).state == "succeeded"
    assert why(api, waiting.id).waits == waits


def test_what_was_foreseen_is_shown_beside_what_came(api: Api) -> None:
    holder = api.submit(gpus=4, time_limit="1h")
    waiting = api.submit(gpus=2)
    look(api, WaitWatch(api.loop, api.store.histories, api.clock), 70.0)
    api.engine.finish(TaskId(holder.id, 1, 0))
    assert api.job(waiting.id).state == "running"
    (_, waited), (title, start) = waits_of(why(api, waiting.id))
    assert title == "start"
    assert "no node has room" in waited
    assert start.startswith("foreseen ")
    assert "; it came " in start


def test_a_job_whose_reason_cannot_be_found_keeps_no_other_from_being_noted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.submit(gpus=4)
    broken, waiting = api.submit(gpus=2), api.submit(gpus=2)
    cause = Scheduler.cause

    def failing(scheduler: Scheduler, job: str, now: float) -> Reason:
        if job == broken.id:
            raise KeyError("odd")
        return cause(scheduler, job, now)

    monkeypatch.setattr(Scheduler, "cause", failing)
    with pytest.raises(KeyError):
        look(api, WaitWatch(api.loop, api.store.histories, api.clock), 70.0)
    assert (len(notes(api, broken.id)), len(notes(api, waiting.id))) == (0, 1)


def test_a_server_that_was_restarted_does_not_note_the_same_reason_again(api: Api) -> None:
    api.submit(gpus=4)
    waiting = api.submit(gpus=2)
    look(api, WaitWatch(api.loop, api.store.histories, api.clock), 70.0)
    look(api, WaitWatch(api.loop, api.store.histories, api.clock), 70.0)
    assert len(notes(api, waiting.id)) == 1


def test_a_job_that_still_waits_shows_its_present_reason_alone(api: Api) -> None:
    api.submit(gpus=4)
    waiting = api.submit(gpus=2)
    look(api, WaitWatch(api.loop, api.store.histories, api.clock), 70.0)
    reason = why(api, waiting.id)
    assert (reason.state, reason.waits) == ("queued", [])


def test_names_of_other_jobs_are_not_kept_in_notes(api: Api) -> None:
    first = api.submit(gpus=4)
    blocked = api.submit(gpus=4)
    behind = api.submit(gpus=2)
    look(api, WaitWatch(api.loop, api.store.histories, api.clock), 70.0)
    for job in (blocked, behind):
        for noted in notes(api, job.id):
            assert first.id not in noted.summary
            assert blocked.id not in noted.summary


def test_a_queue_in_the_way_keeps_its_name(api: Api) -> None:
    watch = WaitWatch(api.loop, api.store.histories, api.clock)
    api.loop.notify([QueueChanged(api.clock.now, Queue("narrow", limit=Amount(2_000)))])
    api.settled()
    api.submit(gpus=2, queue="narrow", time_limit="1h")
    waiting = api.submit(gpus=2, queue="narrow")
    look(api, watch, 70.0)
    (noted,) = notes(api, waiting.id)
    assert noted.summary.startswith("queue narrow holds 2 GPUs")
