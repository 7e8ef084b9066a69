"""Jobs that start anew on request, and get another class of priority: through the API, and through crashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from api_world import JOBS, Api, error_of
from server_world import Clock, KilledError, Server, World, killed_at

from millpond.model.events import PriorityChanged, RequeueRequested
from millpond.model.states import Outcome
from millpond.model.workloads import Priority
from millpond.node.task.records import TaskId
from millpond.server.runtime.inbox import ChangeJob
from millpond.specs.api.base import IDEMPOTENCY_HEADER
from seeds import few_then_many


def requeue(api: Api, job: str, key: str = "") -> Any:
    return api.client.post(f"{JOBS}/{job}/requeue", headers={IDEMPOTENCY_HEADER: key} if key else {})


def give(api: Api, job: str, priority: str) -> Any:
    return api.client.post(f"{JOBS}/{job}/priority", json={"priority": priority})


def told(api: Api, job: str) -> list[str]:
    return [item["text"] for item in api.client.get(f"{JOBS}/{job}/events").json()["events"]]


def finish(api: Api, job: str, outcome: Outcome = Outcome.SUCCESS, code: int = 0) -> None:
    attempt = api.job(job).attempt
    api.engine.finish(TaskId(job, attempt, 0), outcome, code)
    api.job(job)


def test_a_running_job_keeps_its_id_and_begins_another_attempt(api: Api) -> None:
    job = api.submit(gpus=1).id
    api.job(job)
    answer = requeue(api, job)
    assert (answer.status_code, answer.json()["id"]) == (202, job)
    again = api.job(job)
    assert (again.state, again.attempt, again.failures, again.preemptions) == ("running", 2, 0, 0)
    assert "ada asked that it go back to its queue and start anew" in told(api, job)
    assert any(text.startswith("end all tasks within") and "(requeued)" in text for text in told(api, job))


def test_a_task_that_waits_again_has_no_place(api: Api) -> None:
    job = api.submit(gpus=4).id
    assert [(task.node != "", len(task.devices)) for task in api.job(job).tasks] == [(True, 4)]
    first = api.submit(gpus=4, priority="high").id
    requeue(api, job)
    assert api.job(first).state == "running"
    assert [(task.state, task.node, task.devices) for task in api.job(job).tasks] == [("queued", "", [])]


def test_a_job_that_waits_is_refused_with_the_reason(api: Api) -> None:
    api.submit(gpus=4)
    waits = api.submit(gpus=4).id
    api.job(waits)
    answer = requeue(api, waits)
    assert answer.status_code == 409
    assert error_of(answer).cause == f"job '{waits}' is queued"


def test_an_ended_job_of_ones_own_is_submitted_again_once_for_each_key(api: Api) -> None:
    job = api.submit(name="train", gpus=1, env={"A": "b"}, idempotency_key="nightly").id
    api.job(job)
    finish(api, job, Outcome.USER_ERROR, 3)
    assert api.job(job).state == "failed"
    again = requeue(api, job, "k").json()["id"]
    assert again != job
    assert api.job(again).state == "running"
    assert requeue(api, job, "k").json()["id"] == again
    assert requeue(api, job).json()["id"] not in (job, again)
    document = api.client.get(f"{JOBS}/{again}/document").json()
    assert (document["env"], "idempotency_key" in document) == ({"A": "b"}, False)


def test_several_are_requeued_by_one_request_which_says_what_each_became(api: Api) -> None:
    runs, over = api.submit(gpus=1).id, api.submit(gpus=1).id
    api.job(over)
    finish(api, over)
    body = {"act": "requeue", "jobs": [runs, over, "nobody"]}
    first, second, third = api.client.post(f"{JOBS}/act", json=body).json()["jobs"]
    assert (first["state"], first["successor"]) == ("stopping", "")
    assert api.job(second["successor"]).state == "running"
    assert third["error"]["code"] == "not-found"


def test_the_runs_of_an_array_are_requeued_together(api: Api) -> None:
    array = api.submit(array=3, gpus=1).id
    api.job(array)
    assert requeue(api, array).status_code == 202
    assert [api.job(f"{array}.{index}").attempt for index in range(3)] == [2, 2, 2]
    finish(api, f"{array}.0")
    refused = requeue(api, f"{array}.0")
    assert (refused.status_code, "--failed" in error_of(refused).remedy) == (409, True)


def test_what_read_standard_input_is_not_submitted_again(api: Api) -> None:
    job = api.submit(stdin=True).id
    api.client.post(f"{JOBS}/{job}/stop")
    api.job(job)
    answer = requeue(api, job)
    assert (answer.status_code, error_of(answer).remedy) == (422, f"submit it without: `pond clone {job}`")


def test_a_waiting_job_goes_first_once_it_is_raised(api: Api) -> None:
    busy = api.submit(gpus=4, priority="critical").id
    first, second = api.submit(gpus=4).id, api.submit(gpus=4).id
    assert give(api, second, "high").json()["priority"] == "high"
    finish(api, busy)
    assert (api.job(first).state, api.job(second).state) == ("queued", "running")
    assert "ada gave it priority high" in told(api, second)


@pytest.mark.parametrize("body", [{}, {"priority": "urgent"}, {"priority": 3}, {"priority": None}])
def test_what_is_no_class_is_refused(api: Api, body: dict[str, Any]) -> None:
    job = api.submit().id
    assert api.client.post(f"{JOBS}/{job}/priority", json=body).status_code == 422
    act = {"act": "priority", "jobs": [job], **{name: value for name, value in body.items() if value is not None}}
    assert api.client.post(f"{JOBS}/act", json=act).status_code == 422
    assert api.client.post(f"{JOBS}/act", json={"act": "stop", "jobs": [job], "priority": "low"}).status_code == 422


def test_several_get_their_class_by_one_request(api: Api) -> None:
    jobs = [api.submit().id for _ in range(3)]
    acted = api.client.post(f"{JOBS}/act", json={"act": "priority", "priority": "low", "jobs": jobs}).json()["jobs"]
    assert [each["error"] for each in acted] == [None] * 3
    assert {api.job(job).priority for job in jobs} == {"low"}


def test_background_work_is_told_how_to_become_something_else(api: Api) -> None:
    job = api.submit(priority="background").id
    api.job(job)
    answer = give(api, job, "low")
    assert answer.status_code == 409
    assert error_of(answer).remedy == f"submit it again, with `pond clone {job} --set priority=low`"


def test_an_array_has_its_class_with_all_members_those_that_follow_too(api: Api) -> None:
    array = api.submit(array="0-9%2", gpus=2).id
    api.job(array)
    assert give(api, array, "high").status_code == 202
    assert (api.job(array).priority, api.job(f"{array}.0").priority, api.job(f"{array}.9").priority) == ("high",) * 3
    finish(api, f"{array}.0")
    assert (api.job(f"{array}.2").state, api.job(f"{array}.2").priority) == ("running", "high")
    assert "ada gave it priority high" in told(api, array)


def test_a_job_that_waits_for_another_has_its_class_when_its_turn_comes(api: Api) -> None:
    first = api.submit(name="first").id
    second = api.submit(name="second", after=[first]).id
    assert give(api, second, "critical").json()["priority"] == "critical"
    finish(api, first)
    assert (api.job(second).state, api.job(second).priority) == ("running", "critical")


def test_what_waits_for_another_keeps_its_share_class_with_another_priority_after_a_restart_too(tmp_path: Path) -> None:
    world, clock = World(), Clock()
    first = Server(tmp_path, world, clock)
    first.submit("runs", gpus=1)
    first.turn()
    first.submit("waits", after=["runs"])
    first.submit("many", after=["runs"], array=3)
    first.turn()
    for name in ("waits", "many"):
        first.loop.change_job(
            ChangeJob(name, lambda _, now: PriorityChanged(now, "", Priority.LOW), priority=Priority.LOW)
        )
    first.turn()
    before = [first.loop.job_cache.get(name) for name in ("waits", "many")]
    assert [(info.priority, info.share_class) for info in before if info] == [("low", "normal")] * 2
    second = Server(tmp_path, world, clock)
    assert [second.loop.job_cache.get(name) for name in ("waits", "many")] == before
    second.run_to_the_end()
    assert second.store.jobs.ended_job("many.2").share_class == "normal"


@pytest.mark.parametrize("place", ["before append", "after append", "before record", "after record", "before apply"])
@pytest.mark.parametrize("which", few_then_many([2], [1, 3]))
def test_a_server_killed_anywhere_requeues_once_and_forgets_no_class(tmp_path: Path, place: str, which: int) -> None:
    world, clock = World(), Clock()

    def ask(server: Server) -> None:
        """Until it is answered, as a client does."""
        wishes = [
            ChangeJob("a", lambda _, now: RequeueRequested(now, "a", "ada")),
            *(
                ChangeJob(job, lambda _, now, job=job: PriorityChanged(now, job, Priority.HIGH), priority=Priority.HIGH)
                for job in ("b", "many", "later")
            ),
        ]
        for wish in wishes:
            server.loop.change_job(wish)
        server.turn(3)

    server = Server(tmp_path, world, clock)
    for name, fields in (
        ("a", {"gpus": 4}), ("b", {"gpus": 4}), ("many", {"array": "0-3%1"}), ("later", {"after": "b"}),
    ):  # fmt: skip
        server.submit(name, **fields)
        server.turn()
    server.turn(2)
    server.store.trip = server.engine.trip = killed_at(place, which)
    try:
        ask(server)
    except KilledError:
        server.store.close()
        server = Server(tmp_path, world, clock)
        server.turn(3)
        if world.starts[TaskId("a", 2, 0)] + world.starts[TaskId("b", 1, 0)] == 0:
            ask(server)
    cache = server.loop.job_cache
    assert [cache.get(job).priority for job in ("b", "many", "later")] == ["high"] * 3
    server.store.close()
    server = Server(tmp_path, world, clock)
    assert [server.loop.job_cache.get(job).priority for job in ("b", "many", "later")] == ["high"] * 3
    server.run_to_the_end()
    assert world.starts[TaskId("a", 2, 0)] == 1
    assert all(count == 1 for count in world.starts.values())
    server.store.close()
