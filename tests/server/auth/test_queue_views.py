"""What ``pond queue show`` shows of one queue, and to whom."""

from __future__ import annotations

import time
from typing import Any

from auth_world import API, AuthWorld

from millpond.model.events import QueueChanged
from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import Queue
from millpond.server.store.statistics.time_series import SeriesRow


def guarantee(world: AuthWorld, **cards: int) -> None:
    world.loop.notify(
        [QueueChanged(world.clock.now, Queue(name, guarantee=Amount(1000 * milli))) for name, milli in cards.items()]
    )
    world.settled()


def shown(world: AuthWorld, user: str, queue: str) -> dict[str, Any]:
    answer = world.client(user).get(f"{API}/queues/{queue}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_queue_is_shown_with_its_users_and_why_its_largest_job_waits(world: AuthWorld) -> None:
    guarantee(world, vision=2)
    world.submit("max", gpus=2)
    world.submit("mia", gpus=1)
    waiting = world.submit("mia", gpus=4, name="large")
    world.settled()
    detail = shown(world, "lea", "vision")
    queue = detail["queue"]
    assert (queue["gpu_milli"], queue["within_gpu_milli"], queue["borrowed_gpu_milli"]) == (3000, 2000, 1000)
    assert (queue["running"], queue["waiting"], queue["waiting_gpu_milli"]) == (2, 1, 4000)
    users = {each["user"]: (each["gpu_milli"], each["waiting_gpu_milli"]) for each in detail["users"]}
    assert users == {"max": (2000, 0), "mia": (1000, 4000)}
    largest = detail["largest"]
    assert (largest["job"], largest["name"], largest["gpu_milli"]) == (waiting, "large", 4000)
    assert largest["reason"]


def test_a_group_sees_that_others_have_borrowed_and_an_admin_sees_who(world: AuthWorld) -> None:
    guarantee(world, vision=2, speech=2)
    world.submit("sam", gpus=4)
    world.settled()
    assert shown(world, "max", "vision")["queue"]["lent_gpu_milli"] == 2000
    assert shown(world, "max", "vision")["borrowers"] == [{"queue": "queues of other groups", "gpu_milli": 2000}]
    assert shown(world, "amy", "vision")["borrowers"] == [{"queue": "speech", "gpu_milli": 2000}]
    assert shown(world, "sam", "speech")["borrowers"] == []


def test_nothing_is_borrowed_where_nothing_is_guaranteed(world: AuthWorld) -> None:
    world.submit("max", gpus=2)
    world.settled()
    queue = shown(world, "max", "vision")["queue"]
    assert (queue["gpu_milli"], queue["within_gpu_milli"], queue["borrowed_gpu_milli"]) == (2000, None, None)


def test_the_history_of_queues_is_that_of_ones_own(world: AuthWorld) -> None:
    now = int(time.time()) // 60 * 60
    figures = dict.fromkeys(("vision", "speech"), (1.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    world.store.time_series.write([SeriesRow("queues", 60, now, 1, figures)])
    seen = {
        user: [each["name"] for each in world.client(user).get(f"{API}/time-series?subject=queues").json()["series"]]
        for user in ("max", "sam", "nob", "amy")
    }
    assert seen == {"max": ["vision"], "sam": ["speech"], "nob": [], "amy": ["speech", "vision"]}


def test_fairness_is_that_between_the_queues_that_one_may_see_as_if_there_were_no_others(world: AuthWorld) -> None:
    guarantee(world, vision=0, speech=0, other=0)
    figures = {"vision": 6.0, "speech": 2.0, "other": 4.0}
    rows = {name: (0.0, held, None, None, 1.0, 9.0) for name, held in figures.items()}
    world.store.time_series.write([SeriesRow("queues", 60, int(time.time()) // 60 * 60, 1, rows)])

    def seen(user: str) -> Any:
        return world.client(user).get(f"{API}/time-series/fairness").json()

    assert [seen(user)["siblings"] for user in ("max", "nob")] == [[], []]
    added = world.client("amy").put(f"{API}/groups/speech/members/max", json={"role": "viewer"})
    assert added.status_code < 300, added.text
    (both,) = seen("max")["siblings"]
    held_and_due = {each["name"]: (each["got"], each["due"]) for each in both["queues"]}
    assert held_and_due == {"speech": ([2.0], [4.0]), "vision": ([6.0], [4.0])}
    assert (seen("max")["whole"], seen("amy")["whole"]) == (False, True)
    (everything,) = seen("amy")["siblings"]
    assert {each["name"]: each["due"] for each in everything["queues"]} == {name: [4.0] for name in figures}


def test_fairness_of_a_span_that_ends_before_it_begins_is_refused(world: AuthWorld) -> None:
    assert world.client("amy").get(f"{API}/time-series/fairness?from=10&to=5").status_code == 422
