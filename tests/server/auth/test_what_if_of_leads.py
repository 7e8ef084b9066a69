"""A lead asks what a change of the group's own queue would do, and learns no names of other groups."""

from __future__ import annotations

from auth_world import API, AuthWorld, error_of

from millpond.specs.api.codec import from_json
from millpond.specs.api.reports.what_if import WhatIfInfo

OWN = {"set": [{"queue": "vision", "field": "weight", "value": 3}]}


def busy(world: AuthWorld) -> tuple[list[str], list[str]]:
    """Vision holds all cards; jobs of both groups wait."""
    vision = [world.submit("max", gpus=4, queue="vision", time_limit="1h") for _ in range(2)]
    speech = [world.submit("sam", gpus=4, queue="speech", time_limit="1h") for _ in range(2)]
    world.settled()
    world.service.what_if._clock = world.clock
    return vision, speech


def test_a_lead_sees_own_jobs_and_of_others_how_many_there_are(world: AuthWorld) -> None:
    vision, _ = busy(world)
    cancels = {"cancel": [vision[0]]}
    every = world.client("amy").post(f"{API}/what-if", json=cancels)
    assert every.status_code == 200, every.text
    own = world.client("lea").post(f"{API}/what-if", json=cancels)
    whole, seen = from_json(WhatIfInfo, every.content), from_json(WhatIfInfo, own.content)
    assert {job.queue for job in whole.jobs} == {"vision", "speech"}
    assert {job.queue for job in seen.jobs} == {"vision"}
    assert seen.hidden == len(whole.jobs) - len(seen.jobs) > 0
    assert {share.name for share in seen.queues} == {"vision"}
    assert {share.name for share in seen.users} == {"max"}
    assert b"sam" not in own.content
    assert seen.before.mean_wait_s == whole.before.mean_wait_s


def test_a_lead_asks_about_no_other_queue_job_node_or_policy(world: AuthWorld) -> None:
    _, speech = busy(world)
    lea = world.client("lea")
    assert lea.post(f"{API}/what-if", json=OWN).status_code == 200
    other = {"set": [{"queue": "speech", "field": "weight", "value": 3}]}
    refusals = [other, {"add_nodes": ["1x4"]}, {"ordering": "fifo"}, {"remove_nodes": ["n1"]}]
    for question in refusals:
        assert lea.post(f"{API}/what-if", json=question).status_code == 403, question
    absent = lea.post(f"{API}/what-if", json={"cancel": ["never-was"]})
    theirs = lea.post(f"{API}/what-if", json={"cancel": [speech[0]]})
    assert (theirs.status_code, absent.status_code) == (404, 404)
    assert error_of(theirs).cause == error_of(absent).cause.replace("never-was", speech[0])
