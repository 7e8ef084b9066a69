"""Reservations through the API: who may make, change and cancel which, and what is said of those that do not fit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from auth_world import API, AuthWorld, error_of

from millpond.model.errors import NotAllowedError
from millpond.model.events import QueueChanged
from millpond.model.reasons import Cause, Reason, StartEstimate
from millpond.model.resources import Amount
from millpond.model.states import JobState
from millpond.model.tenancy.tenants import Queue
from millpond.server.jobs import reservations
from millpond.server.jobs.reservations import Reservations
from millpond.server.views.reasons import reason_info
from millpond.specs.api.pool.reservations import ReserveRequest


@pytest.fixture
def shared(world: AuthWorld) -> AuthWorld:
    """A server whose queue vision is guaranteed two cards."""
    world.loop.notify([QueueChanged(world.clock.now, Queue("vision", guarantee=Amount(2_000)))])
    world.settled()
    return world


def reserve(world: AuthWorld, user: str, name: str = "demo", **fields: Any) -> Any:
    wanted = {"queue": "vision", "cards": 1, "begin": 4e9, "until": 4e9 + 3_600, **fields}
    return world.client(user).put(f"{API}/reservations/{name}", json=wanted)


def test_who_may_submit_to_a_queue_reserves_within_its_guarantee_and_its_groups_see_that(shared: AuthWorld) -> None:
    made = reserve(shared, "max")
    assert made.status_code == 200, made.text
    assert (made.json()["by"], made.json()["state"], made.json()["cards"]) == ("max", "agreed", 1)
    for user, sees in (("mia", True), ("vic", True), ("olga", True), ("sam", False)):
        found = shared.client(user).get(f"{API}/reservations").json()["reservations"]
        assert [each["name"] for each in found] == (["demo"] if sees else [])


def test_what_does_not_fit_is_refused_with_the_numbers_and_the_nearest_time(shared: AuthWorld) -> None:
    reserve(shared, "max", cards=2)
    answer = reserve(shared, "mia", name="more")
    assert answer.status_code == 409
    assert "of the 2 cards that queue vision is guaranteed, 0 are neither reserved then" in error_of(answer).cause
    assert error_of(answer).remedy.startswith("it fits from 2096-10-02")


def test_a_user_has_a_bounded_number_of_reservations_and_an_admin_any(
    shared: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservations, "MOST_RESERVATIONS", 2)
    for day in range(2):
        begin = 4e9 + day * 86_400
        assert reserve(shared, "max", f"day-{day}", begin=begin, until=begin + 3_600).status_code == 200
    later = {"begin": 5e9, "until": 5e9 + 3_600}
    refused = reserve(shared, "max", "day-2", **later)
    assert (refused.status_code, error_of(refused).cause) == (409, "'max' has 2 reservations")
    assert reserve(shared, "max", "day-1", **later).status_code == 200, "one of theirs can still be changed"
    assert reserve(shared, "mia", "hers").status_code == 200
    for day in range(3):
        begin = 6e9 + day * 86_400
        assert reserve(shared, "amy", f"admins-{day}", begin=begin, until=begin + 3_600).status_code == 200


def test_of_two_who_make_a_reservation_of_one_name_at_the_same_time_one_is_refused(shared: AuthWorld) -> None:
    made, request = Reservations(shared.loop, shared.accounts), ReserveRequest(queue="vision", cards=1, until=4e9)
    max_, mia = (shared.accounts.caller_named(name) for name in ("max", "mia"))
    assert max_ is not None
    assert mia is not None

    async def both() -> list[Any]:
        puts = (made.put("demo", request, caller) for caller in (max_, mia))
        return await asyncio.gather(*puts, return_exceptions=True)

    first, second = asyncio.run(both())
    assert (first.by, type(second)) == ("max", NotAllowedError)
    (kept,) = shared.client("max").get(f"{API}/reservations").json()["reservations"]
    assert kept["by"] == "max"


def test_nobody_reads_of_the_reservations_of_others_in_the_history(shared: AuthWorld) -> None:
    reserve(shared, "max")
    reserve(shared, "mia", "hers")
    assert shared.client("max").delete(f"{API}/reservations/demo").status_code == 204
    shared.settled()
    for user, names in (("olga", ["demo", "hers", "demo"]), ("max", ["demo", "demo"]), ("sam", []), ("nob", [])):
        events = shared.client(user).get(f"{API}/events").json()["events"]
        told = [each["data"] for each in events if each["what"].startswith("Reservation")]
        assert [each.get("name") or each["reservation"]["name"] for each in told] == names, user


def test_beyond_the_guarantee_an_admin_alone_reserves(shared: AuthWorld) -> None:
    assert reserve(shared, "lea", cards=3, beyond_guarantee=True).status_code == 403
    assert reserve(shared, "amy", cards=3, beyond_guarantee=True).status_code == 200


def test_ones_own_is_changed_and_cancelled_by_oneself_the_lead_and_admins(shared: AuthWorld) -> None:
    reserve(shared, "max")
    assert reserve(shared, "mia", cards=2).status_code == 403
    assert reserve(shared, "sam", name="demo", queue="speech").status_code == 409
    assert reserve(shared, "lea", cards=2).json()["by"] == "max"
    path = f"{API}/reservations/demo"
    assert shared.client("mia").delete(path).status_code == 403
    assert shared.client("sam").delete(path).status_code == 404
    assert shared.client("max").delete(path).status_code == 204
    assert shared.client("max").delete(path).status_code == 404


def test_a_job_names_the_reservation_that_it_waits_for(shared: AuthWorld) -> None:
    reserve(shared, "max")
    job = shared.client("max").post(f"{API}/jobs", json={"command": "x", "gpus": 1, "reservation": "demo"}).json()
    why = shared.client("max").get(f"{API}/jobs/{job['id']}/why").json()
    assert why["cause"] == "reservation"
    assert "it waits for its reservation demo, which has not begun; that is 2096-10-02" in why["summary"]
    answer = shared.client("max").post(f"{API}/jobs", json={"command": "x", "gpus": 1, "reservation": "other"})
    cause = "no reservation 'other' for queue 'vision' in pool 'default'"
    assert (answer.status_code, error_of(answer).cause) == (404, cause)


@pytest.mark.parametrize("path", ["jobs", "jobs/plan", "what-if"])
def test_a_reservation_of_another_group_is_as_one_that_is_not_there_for_who_would_use_it(
    shared: AuthWorld, path: str
) -> None:
    assert reserve(shared, "max").status_code == 200
    answers = []
    for name in ("demo", "never-made"):
        job = {"command": "x", "gpus": 1, "reservation": name}
        answer = shared.client("sue").post(f"{API}/{path}", json={"submit": [job]} if path == "what-if" else job)
        error = error_of(answer)
        answers.append((answer.status_code, error.cause.replace(name, "NAME"), error.remedy))
    assert answers[0] == answers[1]
    assert answers[0][:2] == (404, "no reservation 'NAME' for queue 'speech' in pool 'default'")


def test_cards_that_are_kept_for_others_are_so_until_the_end_also_where_a_start_is_foreseen() -> None:
    start = StartEstimate(3e9, 4e9, "")
    kept = Reason(Cause.RESERVATION, "1 card is kept", (("reserved", 1),), start=start, opens_at=4e9)
    assert reason_info("j", JobState.QUEUED, kept).summary.startswith("1 card is kept; until 2096-10-02")


def test_a_group_is_given_no_limit_below_what_is_reserved_for_its_queue(shared: AuthWorld) -> None:
    owner = shared.client("olga")
    reserve(shared, "max", cards=2)
    answer = owner.patch(f"{API}/groups/vision", json={"limits": {"gpu_milli": 1_000}})
    assert answer.status_code == 409
    assert "would no longer fit: the group of queue vision may have 1 card, of which 0 are" in error_of(answer).cause
    assert owner.get(f"{API}/groups").json()["groups"][1]["limits"]["gpu_milli"] is None
    assert owner.patch(f"{API}/groups/vision", json={"limits": {"gpu_milli": 2_000}}).status_code == 200
