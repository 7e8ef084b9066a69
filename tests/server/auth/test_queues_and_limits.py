"""Where submissions go, and what users and groups may hold, from the API to the scheduler."""

from __future__ import annotations

from typing import Any

import pytest
from auth_world import API, AuthWorld, error_of

from millpond.server.runtime.active_jobs.arrays import Arrays
from millpond.server.runtime.active_jobs.dependencies import Dependents
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.server.runtime.active_jobs.job_lookup import JobLookup


def submit(world: AuthWorld, user: str, **fields: Any) -> Any:
    return world.client(user).post(f"{API}/jobs", json={"command": "x", **fields})


def test_a_job_goes_to_the_queue_of_its_users_group(world: AuthWorld) -> None:
    job = submit(world, "max").json()
    assert (job["user"], job["queue"], job["group"]) == ("max", "vision", "vision")
    job = submit(world, "olga").json()
    assert (job["user"], job["queue"], job["group"]) == ("olga", "default", "")


def test_an_admin_may_use_every_queue_and_the_job_belongs_to_its_group(world: AuthWorld) -> None:
    job = submit(world, "amy", queue="speech").json()
    assert (job["user"], job["queue"], job["group"]) == ("amy", "speech", "speech")
    assert world.client("sam").get(f"{API}/jobs/{job['id']}").status_code == 200


@pytest.mark.parametrize("queue", ["speech", "default", "nowhere"])
def test_a_queue_of_others_is_refused_with_the_ones_that_may_be_used(world: AuthWorld, queue: str) -> None:
    answer = submit(world, "max", queue=queue)
    assert answer.status_code == 403
    assert error_of(answer).remedy == "use one of: vision"


def test_somebody_in_no_group_is_told_what_to_do(world: AuthWorld) -> None:
    error = error_of(submit(world, "nob"))
    assert (error.cause, error.remedy) == (
        "nob (in no group) may not submit jobs",
        "ask a lead or an admin for a role that may",
    )


def test_somebody_in_two_groups_chooses_the_queue(world: AuthWorld) -> None:
    world.clock.now += 1
    world.client("olga").put(f"{API}/groups/speech/members/max", json={"role": "member"})
    assert submit(world, "max").json()["queue"] == "vision"
    assert submit(world, "max", queue="speech").json()["group"] == "speech"


def test_a_viewer_of_the_first_group_submits_in_the_second(world: AuthWorld) -> None:
    world.client("olga").put(f"{API}/groups/speech/members/vic", json={"role": "member"})
    assert submit(world, "vic").json()["queue"] == "speech"


def test_who_left_the_group_keeps_their_jobs_and_may_submit_no_more(world: AuthWorld) -> None:
    job = submit(world, "max").json()["id"]
    world.client("lea").delete(f"{API}/groups/vision/members/max")
    assert submit(world, "max").status_code == 403
    assert world.client("max").get(f"{API}/jobs/{job}").status_code == 200


def test_the_same_key_of_two_people_is_two_jobs(world: AuthWorld) -> None:
    headers = {"Idempotency-Key": "nightly"}
    first, second = (
        world.client(user, **headers).post(f"{API}/jobs", json={"command": "x"}).json() for user in ("max", "mia")
    )
    assert first["id"] != second["id"]
    assert (first["user"], second["user"]) == ("max", "mia")


def test_the_log_tells_of_a_limit_to_whom_it_is_set_and_to_admins(world: AuthWorld) -> None:
    world.client("olga").patch(f"{API}/users/max", json={"limits": {"jobs": 7}})
    world.settled()
    hearing = {
        user
        for user in ("max", "mia", "sam", "amy", "nob")
        if "user max may run at most 7 jobs" in world.client(user).get(f"{API}/events").text
    }
    assert hearing == {"max", "amy"}


def test_a_users_limit_makes_jobs_wait_and_says_so(world: AuthWorld) -> None:
    world.client("olga").patch(f"{API}/users/max", json={"limits": {"jobs": 1}})
    running, waiting = (submit(world, "max").json()["id"] for _ in range(2))
    world.settled()
    why = world.client("max").get(f"{API}/jobs/{waiting}/why").json()
    assert (why["cause"], why["state"]) == ("user-limit", "queued")
    assert world.client("max").get(f"{API}/jobs/{running}").json()["state"] == "running"
    world.client("olga").patch(f"{API}/users/max", json={"limits": {}})
    world.settled()
    assert world.client("max").get(f"{API}/jobs/{waiting}").json()["state"] == "running"


@pytest.mark.parametrize("limit", ["jobs", "gpu_milli", "cpu_milli", "card_mib", "disk_bytes"])
def test_no_limit_is_null_and_not_false_which_is_none_of_the_numbers(world: AuthWorld, limit: str) -> None:
    owner = world.client("olga")
    refused = owner.patch(f"{API}/users/max", json={"limits": {limit: False}})
    assert (refused.status_code, error_of(refused).details[0].loc) == (422, f"body.limits.{limit}")
    assert owner.patch(f"{API}/users/max", json={"limits": {limit: None}}).json()["limits"][limit] is None


def test_a_groups_limit_counts_all_its_members(world: AuthWorld) -> None:
    world.client("olga").patch(f"{API}/groups/vision", json={"limits": {"gpu_milli": 2000}})
    jobs = [submit(world, user, gpus=1).json()["id"] for user in ("max", "mia", "lea")]
    world.settled()
    states = [world.client("olga").get(f"{API}/jobs/{job}").json()["state"] for job in jobs]
    assert states == ["running", "running", "queued"]
    answer = submit(world, "max", gpus=3)
    assert answer.status_code == 422
    assert "never holds more than 2" in error_of(answer).cause


def test_a_dev_job_gets_the_longest_time_its_user_and_group_may_have(world: AuthWorld) -> None:
    owner = world.client("olga")
    owner.patch(f"{API}/users/max", json={"limits": {"dev_s": 7200}})
    owner.patch(f"{API}/groups/vision", json={"limits": {"dev_s": 3600}})
    answer = submit(world, "max", kind="dev", time_limit="2h")
    assert answer.status_code == 422
    assert error_of(answer).remedy == "ask for a time_limit of at most 1h"
    job = submit(world, "max", kind="dev").json()["id"]
    limit = world.loop.query(lambda core: core.scheduler.jobs[job].job.time_limit_s).result(60)
    assert limit == 3600
    assert submit(world, "max", time_limit="2h").status_code == 201, "other kinds are not limited"


def test_a_group_may_own_a_configured_queue_but_not_a_branch(world: AuthWorld) -> None:
    owner = world.client("olga")
    assert owner.post(f"{API}/groups", json={"name": "ops", "queue": "default"}).status_code == 201
    assert owner.post(f"{API}/groups", json={"name": "all", "queue": "root"}).status_code == 422
    assert owner.post(f"{API}/groups", json={"name": "two", "queue": "vision"}).status_code == 409
    assert owner.post(f"{API}/groups", json={"name": "vision"}).status_code == 409


def test_the_owner_of_the_server_is_not_shut_out(world: AuthWorld) -> None:
    for change in ({"disabled": True}, {"admin": False}):
        answer = world.client("amy").patch(f"{API}/users/olga", json=change)
        assert answer.status_code == 409
        assert "owns this server" in error_of(answer).cause


def test_nobody_waits_for_a_job_that_is_not_theirs_to_see(world: AuthWorld) -> None:
    theirs = submit(world, "max").json()["id"]
    hidden, never = (submit(world, "sam", after=[name]) for name in (theirs, "never-was"))
    assert (hidden.status_code, never.status_code) == (422, 422)
    assert error_of(hidden).cause.replace(theirs, "never-was") == error_of(never).cause
    assert submit(world, "mia", after=[theirs]).status_code == 201


def test_a_job_that_waits_for_others_keeps_its_queue_and_group_through_a_restart(world: AuthWorld) -> None:
    first = submit(world, "max").json()["id"]
    waiting = submit(world, "max", after=[first]).json()
    assert (waiting["queue"], waiting["group"]) == ("vision", "vision")
    (kept,) = Dependents(
        world.store.jobs,
        JobLookup(JobCache(), world.store.jobs, Arrays(world.store.jobs, world.store.trials)),
        world.provisioning.staging,
    ).all
    assert (kept.job.queue, kept.job.group, kept.job.user) == ("vision", "vision", "max")


def test_a_dev_job_gets_no_more_time_than_each_queue_above_it_allows(world: AuthWorld) -> None:
    admin = world.client("amy")
    house = {"name": "house", "fields": {"max_dev_hours": 0.5}}
    lab = {"name": "lab", "fields": {"parent": "house", "max_dev_hours": 8}}
    assert [admin.post(f"{API}/queues", json=each).status_code for each in (house, lab)] == [201, 201]
    answer = submit(world, "olga", queue="lab", kind="dev", time_limit="2h")
    assert answer.status_code == 422
    assert error_of(answer).cause == "a dev job of 2h; a job of queue house may have those of up to 30m"
    assert error_of(answer).remedy == "ask for a time_limit of at most 30m"
    job = submit(world, "olga", queue="lab", kind="dev").json()["id"]
    assert world.loop.query(lambda core: core.scheduler.jobs[job].job.time_limit_s).result(60) == 1800
    extended = world.client("olga").post(f"{API}/jobs/{job}/extend", json={"by_s": 60})
    assert "more than the 30m allowed here" in error_of(extended).cause
    assert submit(world, "olga", queue="lab", time_limit="2h").status_code == 201, "other kinds are not limited"
    admin.patch(f"{API}/queues/house", json={"fields": {"max_dev_hours": None}})
    assert submit(world, "olga", queue="lab", kind="dev", time_limit="2h").status_code == 201


def test_a_queue_says_which_classes_its_jobs_may_have_and_how_many_run(world: AuthWorld) -> None:
    admin = world.client("amy")
    fields = {"priorities": ["low", "normal"], "max_running_jobs": 1, "min_run": "30m", "max_dev_hours": 8}
    assert admin.post(f"{API}/queues", json={"name": "lab", "fields": fields}).status_code == 201
    answer = submit(world, "olga", queue="lab", priority="high")
    assert answer.status_code == 422
    assert "jobs of queue 'lab' may have low, normal" in error_of(answer).cause
    assert error_of(answer).remedy == "use priority low or normal, or another queue"
    first, second = (submit(world, "olga", queue="lab").json()["id"] for _ in range(2))
    world.settled()
    reason = world.client("olga").get(f"{API}/jobs/{second}/why").json()
    assert reason["summary"].startswith("queue lab runs 1 job with ")
    assert "may have at most 1 running job" in reason["summary"]
    assert admin.patch(f"{API}/queues/lab", json={"fields": {"priorities": ["low"]}}).status_code == 200
    world.settled()
    assert world.client("olga").get(f"{API}/jobs/{first}").json()["state"] == "running"
    shown = admin.get(f"{API}/queues/lab").json()["queue"]
    assert (shown["priorities"], shown["limit_jobs"], shown["minimum_run_s"], shown["longest_dev_s"]) == (
        ["low"],
        1,
        1800.0,
        28800.0,
    )


def test_rules_of_a_queue_that_are_none_are_refused_by_name(world: AuthWorld) -> None:
    admin = world.client("amy")
    for field, value in (("priorities", ["urgent"]), ("priorities", []), ("max_running_jobs", -1), ("min_run", "soon"),
                         ("max_dev_hours", 0)):  # fmt: skip
        answer = admin.post(f"{API}/queues", json={"name": "lab", "fields": {field: value}})
        assert answer.status_code == 422, field
        assert f"lab.{field}" in answer.text
    assert admin.get(f"{API}/queues/lab").status_code == 404


def test_members_read_of_their_own_limits_and_of_no_others(world: AuthWorld) -> None:
    world.client("olga").patch(f"{API}/groups/vision", json={"limits": {"gpu_milli": 3000}})
    for name, jobs in (("max", 7), ("mia", 8)):
        world.client("olga").patch(f"{API}/users/{name}", json={"limits": {"jobs": jobs}})
    world.settled()
    answer = world.client("max").get(f"{API}/events")
    assert answer.status_code == 200
    limits = [each["data"]["limit"] for each in answer.json()["events"] if each["what"] == "LimitChanged"]
    assert limits
    assert {each.get("user") for each in limits} == {"max"}
