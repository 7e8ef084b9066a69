"""Job arrays: one object, members as ordinary jobs, through ends, stops, restarts and kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from api_world import JOBS, Api, error_of
from server_world import Clock, KilledError, Server, World, killed_at
from sqlalchemy.exc import OperationalError

from millpond.model.states import JobState, Outcome
from millpond.node.task.records import TaskId
from millpond.server.operations.retention import RetentionLimits, RetentionWorker
from millpond.server.runtime.active_jobs.array import FEWEST_WAITING
from millpond.specs.api.codec import from_json
from millpond.specs.api.jobs.jobs import ArrayInfo, JobInfo
from seeds import few_then_many


def submit(server: Server, name: str, **fields: Any) -> JobInfo:
    handed_in = server.submit(name, **fields)
    server.turn()
    return handed_in.answer.result(0)


def look(server: Server, job: str) -> JobInfo:
    info = server.loop.job_cache.get(job) or server.store.jobs.ended_job(job)
    assert info is not None
    return info


def counts(server: Server, job: str) -> ArrayInfo:
    array = look(server, job).array
    assert array is not None
    return array


def finish(server: Server, *tasks: TaskId, outcome: Outcome = Outcome.SUCCESS) -> None:
    for task in tasks:
        server.engine.finish(task, outcome, 0 if outcome is Outcome.SUCCESS else 3)
    server.turn(3)


def run_out(server: Server, array: str) -> None:
    """Every task ends well, until the array is over."""
    for _ in range(200):
        if server.store.jobs.ended_job(array) is not None:
            return
        finish(server, *server.world.running)
    raise AssertionError(f"{array} never ended: {look(server, array)}")


def test_every_member_runs_once_and_few_are_in_line_at_a_time(server: Server) -> None:
    accepted = submit(server, "a", gpus=1, array=120)
    assert accepted.array is not None
    assert (accepted.state, accepted.array.unsubmitted) == ("queued", 120)
    most = 0
    while server.store.jobs.ended_job("a") is None:
        finish(server, *server.world.running)
        most = max(most, len(server.core.scheduler.jobs))
    assert most <= FEWEST_WAITING + 4
    assert counts(server, "a").succeeded == 120
    assert set(server.world.starts.values()) == {1}
    assert {task.job for task in server.world.starts} == {f"a.{index}" for index in range(120)}
    assert server.store.jobs.ended_counts() == {"succeeded": 120}


def test_no_more_members_than_it_allows_are_under_way(server: Server) -> None:
    submit(server, "a", array="0-19%3")
    most = 0
    while server.store.jobs.ended_job("a") is None:
        server.turn(2)
        most = max(most, len(server.core.scheduler.jobs))
        finish(server, *server.world.running[:1])
    assert most == 3
    assert counts(server, "a").succeeded == 20


def test_an_array_tells_how_its_members_ended(server: Server) -> None:
    submit(server, "a", gpus=1, array=4)
    server.turn(2)
    assert (look(server, "a").state, counts(server, "a").running) == ("running", 4)
    finish(server, TaskId("a.1", 1, 0), outcome=Outcome.USER_ERROR)
    assert counts(server, "a").summary == "1/4 done, 3 running, 1 failed"
    finish(server, *server.world.running)
    ended = look(server, "a")
    assert (ended.state, ended.exit_code, ended.first_started_at) == ("failed", 1, 1_002.0)
    assert counts(server, "a").summary == "4/4 done, 1 failed"
    assert (look(server, "a.1").exit_code, look(server, "a.1").parent, look(server, "a.1").index) == (3, "a", 1)


def test_a_failed_member_is_tried_again_as_often_as_its_file_says(server: Server) -> None:
    submit(server, "a", array=2, retries=1)
    server.turn(2)
    finish(server, TaskId("a.0", 1, 0), outcome=Outcome.USER_ERROR)
    assert TaskId("a.0", 2, 0) in server.world.running
    run_out(server, "a")
    assert look(server, "a").state == "succeeded"


def test_a_stopped_array_ends_what_runs_and_starts_no_more(server: Server) -> None:
    submit(server, "a", gpus=1, array=100)
    server.turn(3)
    answer = server.loop.stop_job("a", "ada")
    server.turn()
    assert answer.result(0).state == "stopping"
    server.turn(3)
    ended = look(server, "a")
    assert (ended.state, ended.exit_code) == ("cancelled", 143)
    assert (counts(server, "a").cancelled, counts(server, "a").unsubmitted) == (100, 0)
    assert server.world.running == []
    assert len(server.world.starts) == 4


def test_one_member_can_be_stopped_before_and_after_its_turn(server: Server) -> None:
    submit(server, "a", array="0-5%2")
    server.turn(2)
    answers = [server.loop.stop_job(member, "ada") for member in ("a.1", "a.4", "a.4")]
    server.turn(3)
    assert [answer.result(0).state for answer in answers] == ["stopping", "cancelled", "cancelled"]
    run_out(server, "a")
    assert (counts(server, "a").succeeded, counts(server, "a").cancelled) == (4, 2)
    assert TaskId("a.4", 1, 0) not in server.world.starts
    assert look(server, "a").state == "cancelled"


def test_a_restarted_server_goes_on_where_the_array_was(tmp_path: Path) -> None:
    world, clock = World(), Clock()
    first = Server(tmp_path, world, clock)
    submit(first, "a", array="0-9%2", key="once")
    first.turn(2)
    finish(first, TaskId("a.0", 1, 0))
    first.loop.stop_job("a.7", "ada")
    first.turn()
    first.store.close()
    second = Server(tmp_path, world, clock)
    assert (counts(second, "a").succeeded, counts(second, "a").running, counts(second, "a").cancelled) == (1, 2, 1)
    assert look(second, "a").first_started_at == 1_002.0
    again = second.submit("other", array="0-9%2", key="once")
    second.turn()
    assert again.answer.result(0).id == "a"
    run_out(second, "a")
    assert counts(second, "a").succeeded == 9
    assert set(world.starts.values()) == {1}
    second.store.close()


def test_an_array_that_is_being_stopped_is_so_after_a_restart_too(tmp_path: Path) -> None:
    world, clock = World(), Clock()
    first = Server(tmp_path, world, clock)
    submit(first, "a", array="0-9%2")
    first.turn(2)
    first.loop.stop_job("a", "ada")
    first.engine.trip = lambda where: (_ for _ in ()).throw(KilledError)
    with pytest.raises(KilledError):
        first.turn()
    first.store.close()
    second = Server(tmp_path, world, clock)
    second.turn(4)
    assert (look(second, "a").state, counts(second, "a").cancelled, len(world.starts)) == ("cancelled", 10, 2)
    second.store.close()


@pytest.mark.parametrize("place", ["before append", "after append", "before record", "after record", "before apply"])
@pytest.mark.parametrize("which", few_then_many([1, 3], [2, 5, 8, 13]))
def test_a_server_killed_anywhere_runs_each_member_once(tmp_path: Path, place: str, which: int) -> None:
    world, clock = World(), Clock()
    server = Server(tmp_path, world, clock)
    server.store.trip = server.engine.trip = killed_at(place, which)
    try:
        server.submit("a", array="0-11%3", gpus=1)
        server.turn()
        run_out(server, "a")
    except KilledError:
        server.store.close()
        server = Server(tmp_path, world, clock)
        if not server.store.jobs.is_job("a"):  # killed before it was durable: nobody was told that it was taken
            submit(server, "a", array="0-11%3", gpus=1)
        run_out(server, "a")
    assert counts(server, "a").succeeded == 12
    assert set(world.starts.values()) == {1}
    assert server.core.scheduler.jobs == {}
    server.store.close()


def test_an_array_outlasts_a_store_that_cannot_be_written_now_and_then(server: Server) -> None:
    submit(server, "a", array="0-11%3", gpus=1)
    calls = 0

    def trip(where: str) -> None:
        nonlocal calls
        calls += 1
        if where.startswith("before") and calls % 3 == 0:
            raise OperationalError("insert", {}, Exception("disk is full"))

    server.store.trip = trip
    run_out(server, "a")
    assert counts(server, "a").succeeded == 12
    assert set(server.world.starts.values()) == {1}


def test_jobs_wait_for_arrays_and_arrays_for_jobs(server: Server) -> None:
    submit(server, "first")
    submit(server, "a", array=3, after="first")
    submit(server, "last", after="a")
    server.turn(3)
    assert (look(server, "a").state, counts(server, "a").unsubmitted) == ("queued", 3)
    finish(server, TaskId("first", 1, 0))
    assert counts(server, "a").running == 3
    assert look(server, "last").state == "queued"
    finish(server, *server.world.running)
    assert look(server, "last").state == "running"


def test_an_array_whose_forerunner_fails_never_starts(server: Server) -> None:
    submit(server, "first")
    submit(server, "a", array=3, after="first")
    submit(server, "b", array=3, after="a.1")
    finish(server, TaskId("first", 1, 0), outcome=Outcome.USER_ERROR)
    ended = look(server, "a")
    assert (ended.state, counts(server, "a").cancelled) == ("cancelled", 3)
    assert ended.reason == "job first, which it waits for to succeed, failed"
    server.turn(2)
    assert look(server, "b").state == "cancelled"


def test_members_are_listed_by_their_index_from_the_first(server: Server) -> None:
    submit(server, "a", array=12)
    run_out(server, "a")
    listed = [info.index for info in server.store.jobs.ended_jobs(11, of="a")]
    assert listed == list(range(11))


def test_what_an_array_used_is_one_line_of_the_books(server: Server) -> None:
    submit(server, "a", array="0-4%2", gpus=1)
    submit(server, "b", gpus=1)
    run_out(server, "a")
    sums = {total.name: total for total in server.store.books.sums("job", 0.0, server.clock())}
    assert sums.keys() == {"a", "b"}
    assert (sums["a"].jobs, sums["b"].jobs) == (5, 1)
    (of_user,) = server.store.books.sums("user", 0.0, server.clock())
    assert 0 < sums["a"].gpu_seconds == of_user.gpu_seconds - sums["b"].gpu_seconds


def test_later_members_are_expected_to_run_as_long_as_earlier_ones(api: Api) -> None:
    array = api.submit(name="many", array="0-3%1")
    for index in range(2):
        api.job(array.id)
        api.clock.now += 100.0
        api.engine.finish(TaskId(f"{array.id}.{index}", 1, 0))
    api.job(array.id)
    told = [event["text"] for event in api.client.get(f"{JOBS}/{array.id}.2/events").json()["events"]]
    assert "expected to run 100 s, rarely more than 150 s" in told


def test_members_that_an_array_still_counts_are_not_forgotten(server: Server) -> None:
    submit(server, "a", array="0-3%2")
    server.turn(2)
    finish(server, TaskId("a.0", 1, 0))
    server.processor.keep_snapshot()
    later = RetentionWorker(server.store, server.state_dir, RetentionLimits(job_days=1.0), lambda: server.clock() + 1e6)
    assert later.look() == (0, 0)
    run_out(server, "a")
    for _ in range(2):
        submit(server, f"more{server.clock()}")
        server.processor.keep_snapshot()
    later.look()
    later.look()
    assert not any(server.store.jobs.is_job(name) for name in ("a", "a.0", "a.3"))


def test_an_array_is_one_line_and_its_members_are_listed_on_demand(api: Api) -> None:
    array = api.submit(name="many", array=3, gpus=1)
    assert api.job(array.id).state == "running"
    listed = api.client.get(JOBS).json()["jobs"]
    assert [job["id"] for job in listed] == [array.id]
    members = api.client.get(JOBS, params={"members": array.id}).json()["jobs"]
    assert [job["id"] for job in members] == [f"{array.id}.{index}" for index in range(3)]
    assert api.client.get("/api/v1/server").json()["jobs"] == {"running": 3}
    assert api.client.get(JOBS, params={"members": "nobody"}).status_code == 404


def test_a_member_is_there_before_its_turn(api: Api) -> None:
    array = api.submit(name="many", array="0-9%1", env={"A": "b"})
    api.job(array.id)
    member = f"{array.id}.9"
    assert api.job(member).state == "queued"
    assert api.client.get(f"{JOBS}/{member}/logs").status_code == 200
    assert api.client.get(f"{JOBS}/{member}/document").json()["env"]["MILLPOND_ARRAY_INDEX"] == "9"
    assert api.client.get(f"{JOBS}/{member}/why").json()["cause"] == "array-limit"
    assert api.client.post(f"{JOBS}/{member}/suspend").status_code == 409
    assert api.client.get(f"{JOBS}/{array.id}.10").status_code == 404
    api.client.post(f"{JOBS}/{array.id}/stop")
    assert api.job(array.id).state == "cancelled"
    assert api.job(member).state == "cancelled"


def test_a_member_is_there_while_it_is_handed_over(api: Api) -> None:
    array = api.submit(array="0-9%1").id
    last = f"{array}.9"
    assert api.client.get(f"{JOBS}/{last}").json()["state"] == "queued"
    known = api.processor._arrays.of(last)
    assert known is not None
    known.note(last, JobState.QUEUED)  # its row is written, and nobody has drawn it yet
    assert api.client.get(f"{JOBS}/{last}").json()["state"] == "queued"
    assert api.client.get(f"{JOBS}/{array}.10").status_code == 404


def test_why_names_the_first_that_waits_and_how_many_follow(api: Api) -> None:
    api.submit(name="big", gpus=4)
    array = api.submit(name="many", array=100, gpus=1)
    api.job(array.id)
    reason = api.client.get(f"{JOBS}/{array.id}/why").json()
    assert reason["cause"] == "no-room"
    assert reason["summary"].startswith(f"32 of 100 wait; 68 more follow; the first is {array.id}.0: ")
    assert api.job(array.id).reason == reason["summary"]
    limited = api.submit(name="few", array="100%2")
    api.job(limited.id)
    told = api.client.get(f"{JOBS}/{limited.id}/why").json()
    assert told["summary"] == "2 are under way, as many as its file allows at once; 98 more follow"
    later = api.submit(name="later", array="3%2", after=array.id)
    told = api.client.get(f"{JOBS}/{later.id}.0/why").json()
    assert (told["cause"], told["summary"]) == ("dependency", "its array waits for other jobs")
    assert api.client.get(f"{JOBS}/{later.id}/why").json()["blocked_by"] == array.id


def test_what_is_one_jobs_business_is_refused_to_an_array(api: Api) -> None:
    array = api.submit(name="many", array="3-5")
    api.job(array.id)
    for path in ("logs", "metrics", "output", "result"):
        answer = api.client.get(f"{JOBS}/{array.id}/{path}")
        assert (answer.status_code, error_of(answer).remedy) == (422, f"name a member: {array.id}.3")
    assert error_of(api.client.get(f"{JOBS}/{array.id}/trials")).cause == f"job '{array.id}' is not a sweep"


def test_the_running_members_of_an_array_are_suspended_and_resumed_at_once(api: Api) -> None:
    array = api.submit(name="many", array="3-5", gpus=1)

    def states() -> set[str]:
        api.job(array.id)
        listed = api.client.get(JOBS, params={"members": array.id}).json()["jobs"]
        return {job["state"] for job in listed}

    assert states() == {"running"}
    assert error_of(api.client.post(f"{JOBS}/{array.id}/resume")).cause.endswith("is suspended")
    assert api.client.post(f"{JOBS}/{array.id}/suspend").status_code == 202
    assert states() == {"suspended"}
    shown = api.job(array.id)
    assert shown.array is not None
    assert (shown.state, shown.array.running, shown.array.suspended) == ("suspended", 0, 3)
    assert shown.array.summary == "0/3 done, 3 suspended"
    assert api.job(f"{array.id}[3]").suspension == "frozen (suspended by ada)"
    assert api.client.post(f"{JOBS}/{array.id}/resume").status_code == 202
    assert states() == {"running"}


def test_all_members_of_an_array_that_wait_or_run_are_resized_at_once(api: Api) -> None:
    elastic = {"min": 1, "max": 2}
    array = api.submit(name="many", array=5, gpus=1, tasks=elastic, priority="low")
    ended = f"{array.id}.0"
    assert api.job(ended).state == "running"
    for task in list(api.world.running):
        if task.job == ended:
            api.engine.finish(task)
    assert api.job(ended).state == "succeeded"

    def resize(tasks: int, role: str = "") -> Any:
        return api.client.post(f"{JOBS}/{array.id}/resize", json={"tasks": tasks, "role": role})

    def sizes(job: str) -> int:
        return len([task for task in api.job(job).tasks if task.state not in ("succeeded", "failed", "cancelled")])

    answer = resize(1)
    assert answer.status_code == 202
    assert from_json(JobInfo, answer.content).array is not None
    others = [f"{array.id}.{index}" for index in range(1, 5)]
    assert {sizes(job) for job in others} == {1}
    assert {api.job(job).state for job in others} == {"running"}, "there is room for all of them now"
    assert resize(2).status_code == 202
    assert {sizes(job) for job in others} == {2}
    told = api.client.get(f"{JOBS}/{others[0]}/events").json()["events"]
    assert "role worker should have 2 tasks: ada asked for it" in [event["text"] for event in told]


def test_a_size_that_no_member_of_an_array_can_have_is_refused(api: Api) -> None:
    array = api.submit(name="many", array=2, tasks={"min": 1, "max": 2})
    first = f"{array.id}.0"
    api.job(first)
    for wish, status, words in (
        ({"tasks": 3}, 422, "(min 1, max 2)"),
        ({"tasks": 0}, 422, "cannot go without tasks"),
        ({"tasks": 1, "role": "ps"}, 404, "no role 'ps'"),
    ):
        answer = api.client.post(f"{JOBS}/{array.id}/resize", json=wish)
        assert (answer.status_code, words in error_of(answer).cause) == (status, True), error_of(answer)
    for task in list(api.world.running):
        api.engine.finish(task)
    api.job(first)
    assert api.client.post(f"{JOBS}/{array.id}/resize", json={"tasks": 1}).status_code == 409


def test_members_that_lost_their_run_while_suspended_are_resumed_with_the_others(api: Api) -> None:
    array = api.submit(name="many", array="3-5", gpus=1)
    api.job(array.id)
    api.client.post(f"{JOBS}/{array.id}/suspend")
    lost = f"{array.id}.4"
    api.engine.finish(TaskId(lost, 1, 0), Outcome.NODE_LOST)
    told = api.job(lost)
    assert (told.state, told.suspension) == ("queued", "suspended on request, and its run ended meanwhile")
    assert "once it is resumed" in api.client.get(f"{JOBS}/{lost}/why").json()["summary"]
    api.client.post(f"{JOBS}/{array.id}/resume")
    told = api.job(lost)
    assert (told.state, told.suspension, told.attempt) == ("running", "", 2)


def test_an_array_tells_its_story_and_is_deleted_as_a_whole(api: Api) -> None:
    array = api.submit(name="many", array=3)
    api.job(array.id)
    api.client.post(f"{JOBS}/{array.id}/stop")
    assert api.job(array.id).state == "cancelled"
    told = [event["text"] for event in api.client.get(f"{JOBS}/{array.id}/events").json()["events"]]
    assert told == [
        "submitted by ada to queue default: 3 jobs",
        "ada asked for its end",
        "cancelled: 3/3 done, 3 cancelled",
    ]
    answer = api.client.delete(f"{JOBS}/{array.id}.0")
    assert (answer.status_code, error_of(answer).remedy) == (409, f"delete all of it: `pond delete {array.id}`")
    assert api.client.delete(f"{JOBS}/{array.id}").status_code == 200
    for gone in (array.id, f"{array.id}.0", f"{array.id}.2"):
        assert api.client.get(f"{JOBS}/{gone}").status_code == 404


def test_an_array_that_no_machine_could_run_is_refused(api: Api) -> None:
    answer = api.client.post(JOBS, json={"command": "x", "array": 5, "gpus": 99})
    assert answer.status_code == 422
    assert api.client.get(JOBS, params={"all": True}).json()["jobs"] == []


def test_an_array_is_not_given_more_members_and_rigid_ones_are_not_resized(api: Api) -> None:
    job = api.submit(array=5).id
    api.job(f"{job}[0]")
    answer = api.client.post(f"{JOBS}/{job}/resize", json={"tasks": 2})
    assert answer.status_code == 422
    assert "(min 1, max 1)" in error_of(answer).cause
