"""Queues that are defined while the server runs: through the API, by several admins, and by the file read again."""

from __future__ import annotations

import json
import re
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from auth_world import API, AuthWorld, error_of
from sqlalchemy.exc import OperationalError

from millpond.model.errors import MillpondError
from millpond.model.resources import Amount
from millpond.scheduling.scheduler import Scheduler
from millpond.server.runtime import loop
from millpond.server.runtime.queue_settings.service import QueueSettings
from millpond.server.runtime.recovery import recover
from millpond.server.store.store import Store
from millpond.specs.config.cluster import read_cluster
from millpond.specs.errors import SpecError

QUEUES = f"{API}/queues"


def add(world: AuthWorld, name: str, user: str = "amy", **fields: Any) -> Any:
    return world.client(user).post(QUEUES, json={"name": name, "fields": fields})


def change(world: AuthWorld, name: str, *, user: str = "amy", version: int | None = None, **fields: Any) -> Any:
    return world.client(user).patch(f"{QUEUES}/{name}", json={"fields": fields, "version": version})


def settings(world: AuthWorld, name: str) -> tuple[dict[str, Any], int]:
    detail = world.client("amy").get(f"{QUEUES}/{name}").json()
    return detail["settings"], detail["version"]


def queue_of_core(world: AuthWorld, name: str) -> Any:
    return {queue.name: queue for queue in world.loop.query(lambda core: core.scheduler.queues()).result(60)}.get(name)


def test_a_queue_is_added_changed_and_deleted(world: AuthWorld) -> None:
    answer = add(world, "lab", guarantee=3, limit={"gpus": 4, "memory": "64GiB"})
    assert (answer.status_code, answer.json()["version"], answer.json()["before"]) == (201, 1, None)
    answer = change(world, "lab", guarantee=2, weight=2.5)
    assert answer.json()["before"] == {"guarantee": 3, "limit": {"gpus": 4, "memory": "64GiB"}}
    assert answer.json()["after"] == {"guarantee": 2, "limit": {"gpus": 4, "memory": "64GiB"}, "weight": 2.5}
    assert change(world, "lab", limit=None).json()["after"] == {"guarantee": 2, "weight": 2.5}
    assert settings(world, "lab") == ({"guarantee": 2, "weight": 2.5}, 3)
    queue = queue_of_core(world, "lab")
    assert (queue.guarantee.gpu_milli, queue.limit, queue.weight) == (2000, None, 2.5)
    assert world.client("amy").delete(f"{QUEUES}/lab").status_code == 200
    assert queue_of_core(world, "lab") is None
    assert world.client("amy").get(f"{QUEUES}/lab").status_code == 404
    assert add(world, "lab").json()["version"] == 5, "versions go on, so that an old one never fits again"


def test_a_limit_below_what_is_held_is_taken_and_the_answer_names_each_resource_that_is_beyond_it(
    world: AuthWorld,
) -> None:
    job = world.submit("max", gpus=1, cpus=8, memory="16GiB")
    world.settled()
    answer = change(world, "vision", limit={"gpus": 4, "cpus": 6, "memory": "4GiB"})
    assert answer.json()["effects"] == [
        "vision holds 8 CPUs, 2 beyond its limit: nothing more of it starts, and nothing is ended",
        "vision holds 16 GiB of memory, 12 GiB beyond its limit: nothing more of it starts, and nothing is ended",
    ]
    assert world.client("max").get(f"{API}/jobs/{job}").json()["state"] in ("starting", "running")


def test_running_work_goes_on_and_the_answer_says_what_is_borrowed_now(world: AuthWorld) -> None:
    change(world, "vision", guarantee=4)
    job = world.submit("max", gpus=4)
    world.settled()
    answer = change(world, "vision", guarantee=1, limit=2)
    assert answer.json()["effects"] == [
        "3 of 4 cards that vision holds are borrowed now",
        "vision holds 4 GPUs, 2 beyond its limit: nothing more of it starts, and nothing is ended",
    ]
    world.settled()
    assert world.client("max").get(f"{API}/jobs/{job}").json()["state"] == "running"
    assert world.client("max").get(f"{QUEUES}/vision").json()["queue"]["borrowed_gpu_milli"] == 3000
    assert change(world, "vision", guarantee=2, limit=None).json()["effects"] == [
        "2 of 4 cards that vision holds are borrowed now, 3 before"
    ]


def test_a_guarantee_beyond_all_machines_is_refused_and_all_stays_as_it_was(world: AuthWorld) -> None:
    change(world, "vision", guarantee=3)
    answer = change(world, "speech", guarantee=2)
    assert (answer.status_code, error_of(answer).cause) == (422, "more would be guaranteed than there is")
    [detail] = error_of(answer).details
    assert (detail.loc, detail.message) == (
        "speech.guarantee",
        "all queues together are guaranteed 5 GPUs, but all machines have 4 GPUs",
    )
    assert detail.hint == "lower it, or add may_exceed_cluster: true where more machines will join"
    assert queue_of_core(world, "speech").guarantee.gpu_milli == 0
    assert change(world, "speech", guarantee=1).status_code == 200
    assert change(world, "speech", guarantee={"gpus": 1, "memory": "900TiB"}).status_code == 422
    assert add(world, "org", guarantee=1).status_code == 422


def test_cells_of_more_cards_than_a_queue_is_guaranteed_are_refused_and_all_stays_as_it_was(world: AuthWorld) -> None:
    answer = change(world, "vision", guarantee=3, cells={"node": 1})
    assert answer.status_code == 422
    [detail] = error_of(answer).details
    assert (detail.loc, detail.message, detail.hint) == (
        "vision.cells",
        "cells of at least 4 cards, but vision is guaranteed 3 GPUs",
        "let its guarantee cover its cells",
    )
    assert change(world, "vision", guarantee=4, cells={"node": 1}).status_code == 200
    assert change(world, "vision", guarantee=3).status_code == 422
    assert change(world, "vision", weight=2).status_code == 200
    queues = world.service.queue_settings
    config = read_cluster("queues:\n- name: lab\n  guarantee: 3\n  cells: {node: 1}\n", "pond.yaml")
    with pytest.raises(MillpondError, match=r"pond.yaml:4:\d+: queues.0.cells: cells of at least 4 cards"):
        queues.apply_file(config.queue_documents, config.located)


@pytest.mark.parametrize(
    ("field", "value", "written", "cause"),
    [
        ("cells", {"rack of 4 nodes": 1}, "{rack of 4 nodes: 1}", "is owed 'rack of 4 nodes', and no machine has such"),
        ("cells", {"node": 2}, "{node: 2}", "1 x node of queue 'lab' have no place beside all other cells"),
        ("pinned", ["gone"], "[gone]", "is owed machine 'gone', and no machine with cards has this name"),
    ],
)
def test_cells_that_no_machine_has_are_refused_with_their_line(
    field: str, value: Any, written: str, cause: str, world: AuthWorld
) -> None:
    answer = add(world, "lab", guarantee=64, may_exceed_cluster=True, **{field: value})
    assert answer.status_code == 422
    [detail] = error_of(answer).details
    assert detail.loc == f"lab.{field}"
    assert cause in detail.message
    text = f"queues:\n- {{name: lab, guarantee: 64, may_exceed_cluster: true,\n   {field}: {written}}}\n"
    config = read_cluster(text, "pond.yaml")
    with pytest.raises(MillpondError, match=rf"pond.yaml:3:\d+: queues.0.{field}: .*{re.escape(cause)}"):
        world.service.queue_settings.apply_file(config.queue_documents, config.located)


def test_a_guarantee_may_exceed_the_cluster_where_its_queue_says_so(world: AuthWorld) -> None:
    answer = change(world, "vision", guarantee=6, may_exceed_cluster=True)
    assert answer.json()["effects"] == ["2 of 6 GPUs that are guaranteed are on no machine that is open"]
    assert change(world, "vision", weight=2).json()["effects"] == []
    assert change(world, "speech", guarantee=1).status_code == 422
    assert change(world, "speech", guarantee=1, may_exceed_cluster=True).json()["effects"] == [
        "3 of 7 GPUs that are guaranteed are on no machine that is open"
    ]
    assert change(world, "vision", guarantee=5, may_exceed_cluster=None).status_code == 200, "it promises less"
    assert change(world, "vision", guarantee=3).json()["effects"] == []


def test_a_file_that_guarantees_more_than_all_machines_have_is_refused_with_its_line(world: AuthWorld) -> None:
    queues = world.service.queue_settings
    queues.apply_file({"lab": {"guarantee": 1}})
    config = read_cluster("queues:\n- name: bench\n- name: lab\n  guarantee: 9\n", "pond.yaml")
    refused = r"pond.yaml:4:14: queues.1.guarantee: all queues together are guaranteed 9 GPUs, but all machines have 4"
    with pytest.raises(MillpondError, match=refused):
        queues.apply_file(config.queue_documents, config.located)
    begun = world.loop.query(lambda core: queues.begin(core, config.queue_documents, config.located)).result(60)
    assert (begun, "pond.yaml:4:14" in queues.trouble) == ([], True)
    assert (settings(world, "lab")[0], queue_of_core(world, "bench")) == ({"guarantee": 1}, None)


def test_of_guarantees_beyond_all_machines_those_that_were_lowered_are_not_named(world: AuthWorld) -> None:
    queues = world.service.queue_settings
    queues.apply_file({"lab": {"guarantee": 2}, "bench": {"guarantee": 2}})
    config = read_cluster("queues:\n- {name: lab, guarantee: 4}\n- {name: bench, guarantee: 1}\n", "pond.yaml")
    with pytest.raises(SpecError) as refused:
        queues.apply_file(config.queue_documents, config.located)
    assert [problem.line for problem in refused.value.problems] == [2]


def test_a_dry_run_says_the_same_and_changes_nothing(world: AuthWorld) -> None:
    change(world, "vision", guarantee=4)
    world.submit("max", gpus=4)
    world.settled()
    client, known = world.client("amy"), queue_of_core(world, "vision")
    dry = client.patch(f"{QUEUES}/vision", json={"fields": {"guarantee": 1}, "dry_run": True}).json()
    assert (dry["before"]["guarantee"], dry["after"]["guarantee"], dry["dry_run"]) == (4, 1, True)
    assert dry["effects"] == ["3 of 4 cards that vision holds are borrowed now"]
    assert client.post(QUEUES, json={"name": "lab", "dry_run": True}).status_code == 201
    client.delete(f"{QUEUES}/vision", params={"dry_run": True})
    assert settings(world, "vision")[1] == dry["version"] == 1
    assert (queue_of_core(world, "vision"), queue_of_core(world, "lab")) == (known, None)


def test_who_has_not_seen_the_latest_change_overwrites_nothing(world: AuthWorld) -> None:
    assert change(world, "vision", weight=2, version=0).status_code == 200
    answer = change(world, "vision", user="olga", weight=3, version=0)
    assert answer.status_code == 409
    assert error_of(answer).cause == "queue 'vision' was changed by amy meanwhile: it has version 1, not 0"
    assert error_of(answer).remedy == "look at `pond queue show vision`, then ask with --version 1"
    assert world.client("olga").delete(f"{QUEUES}/vision", params={"version": 0}).status_code == 409
    assert change(world, "vision", user="olga", weight=3, version=1).json()["version"] == 2


def test_of_two_admins_at_once_one_is_refused_and_without_versions_no_field_is_lost(world: AuthWorld) -> None:
    add(world, "lab")
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda weight: change(world, "lab", weight=weight, version=1), (2, 3)))
        assert sorted(answer.status_code for answer in answers) == [200, 409]
        list(pool.map(lambda field: change(world, "lab", **field), ({"guarantee": 1}, {"limit": 3})))
    document, version = settings(world, "lab")
    assert (document["guarantee"], document["limit"], version) == (1, 3, 4)


@pytest.mark.parametrize(
    ("name", "fields", "cause"),
    [
        ("lab", {"guarante": 1}, "did you mean 'guarantee'?"),
        ("lab", {"weight": 0}, "0 is too small"),
        ("lab", {"weight": "heavy"}, "is not a number"),
        ("lab", {"guarantee": 5, "limit": 4}, "at most 4 GPUs, but it is guaranteed 5 GPUs"),
        ("lab", {"parent": "nowhere"}, "unknown queue 'nowhere'"),
        ("lab", {"parent": "lab"}, "queue 'lab' is below itself"),
        ("lab", {"parent": "org", "guarantee": 7}, "the queues below org are guaranteed 7 GPUs together"),
        ("lab", {"guarantee": {"gpus": 10**400}}, "too many digits"),
        ("lab", {"data": "\ud800"}, "characters that are no text"),
        ("../../etc", {}, "characters that are not allowed here"),
        ("a\nb", {}, "characters that are not allowed here"),
        ("x" * 100, {"parent": ["org"]}, "is not text"),
        ("root", {}, "there is a queue 'root' already"),
    ],
)
def test_a_queue_that_cannot_be_is_refused_by_the_words_of_the_file(
    world: AuthWorld, name: str, fields: dict[str, Any], cause: str
) -> None:
    add(world, "org", guarantee=4)
    before = world.store.queue_settings.all()
    body = json.dumps({"name": name, "fields": fields})
    answer = world.client("amy", **{"Content-Type": "application/json"}).post(QUEUES, content=body)
    assert answer.status_code in (409, 422), answer.text
    error = error_of(answer)
    assert cause in " ".join([error.cause, *(f"{each.message} {each.hint}" for each in error.details)])
    assert world.store.queue_settings.all() == before


def test_what_is_used_is_not_deleted_and_says_by_what(world: AuthWorld) -> None:
    add(world, "lab")
    add(world, "bench", parent="lab")
    world.submit("amy", queue="bench")
    causes = {
        name: error_of(world.client("amy").delete(f"{QUEUES}/{name}")).cause
        for name in ("lab", "bench", "vision", "default", "root", "nowhere")
    }
    assert causes == {
        "lab": "queue 'lab' cannot be deleted: bench is below it",
        "bench": "queue 'bench' cannot be deleted: 1 job of it has not ended",
        "vision": "queue 'vision' cannot be deleted: group vision owns it",
        "default": "queue 'default' cannot be deleted: it is always there",
        "root": "the root of the queues has no fields",
        "nowhere": "no queue 'nowhere'",
    }


def test_jobs_that_wait_for_others_keep_their_queue_too(world: AuthWorld) -> None:
    add(world, "lab")
    first = world.submit("amy", gpus=1)
    world.submit("amy", queue="lab", after=[first])
    assert world.client("amy").delete(f"{QUEUES}/lab").status_code == 409


def test_a_queue_with_a_reservation_stays_and_others_can_be_changed(world: AuthWorld) -> None:
    world.service.queue_settings.apply_file({"lab": {"guarantee": 2}})
    wanted = {"queue": "lab", "cards": 1, "begin": 4e9, "until": 4e9 + 3600}
    assert world.client("amy").put(f"{API}/reservations/demo", json=wanted).status_code == 200
    cause = error_of(world.client("amy").delete(f"{QUEUES}/lab")).cause
    assert cause == "queue 'lab' cannot be deleted: it has a reservation: demo"
    world.service.queue_settings.apply_file({})
    assert queue_of_core(world, "lab").guarantee.gpu_milli == 2000
    assert change(world, "vision", weight=2).status_code == 200


def test_a_guarantee_below_what_is_reserved_is_refused_by_name_however_it_is_asked_for(world: AuthWorld) -> None:
    queues = world.service.queue_settings
    queues.apply_file({"lab": {"guarantee": 2}})
    wanted = {"queue": "lab", "cards": 2, "begin": 4e9, "until": 4e9 + 3600}
    assert world.client("amy").put(f"{API}/reservations/demo", json=wanted).status_code == 200
    answer = change(world, "lab", guarantee=1)
    assert (answer.status_code, "reservation 'demo' of 2 cards would no longer fit" in error_of(answer).cause) == (
        409,
        True,
    )
    config = read_cluster("queues:\n- {name: bench, weight: 2}\n- name: lab\n  guarantee: 1\n", "pond.yaml")
    refused = "pond.yaml:3:3: queues.1: reservation 'demo' of 2 cards would no longer fit"
    with pytest.raises(SpecError, match=re.escape(refused)):
        queues.apply_file(config.queue_documents, config.located)
    begun = world.loop.query(lambda core: queues.begin(core, config.queue_documents, config.located)).result(60)
    assert (begun, refused in queues.trouble) == ([], True)
    assert (settings(world, "lab")[0], queue_of_core(world, "lab").guarantee.gpu_milli) == ({"guarantee": 2}, 2000)
    assert change(world, "lab", guarantee=3).status_code == 200


@pytest.mark.sources
def test_at_a_first_start_the_file_is_held_to_the_machines_that_are_about_to_join(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scheduler, "all_machines", lambda _scheduler: Amount())
    queues, text = world.service.queue_settings, {"lab": {"guarantee": 3}}
    assert change(world, "speech", guarantee=1).status_code == 200, "no machine is known: more may come"
    assert world.loop.query(lambda core: queues.begin(core, text, None, Amount(3_000))).result(60) == []
    assert "lab.guarantee: all queues together are guaranteed 4 GPUs, but all machines have 3 GPUs" in queues.trouble
    assert len(world.loop.query(lambda core: queues.begin(core, text, None, Amount(4_000))).result(60)) == 1


def test_a_queue_that_takes_jobs_and_is_used_gets_none_below_it(world: AuthWorld) -> None:
    add(world, "lab")
    world.submit("amy", queue="lab")
    assert "1 job of it has not ended" in error_of(add(world, "bench", parent="lab")).cause
    assert "group vision owns it" in error_of(add(world, "max", parent="vision")).cause


def test_a_queue_does_not_move(world: AuthWorld) -> None:
    add(world, "lab")
    assert "would move from 'root' to 'lab'" in error_of(change(world, "vision", parent="lab")).cause


@pytest.mark.parametrize(
    ("queue", "other", "cause"),
    [
        ("name: vision, parent: lab", "lab", "queue 'vision' would move from 'root' to 'lab'"),
        ("name: bench, parent: vision", "vision", "queue 'bench' cannot be below 'vision': group vision owns it"),
    ],
)
def test_a_file_in_which_a_queue_cannot_be_where_it_is_is_refused_with_its_line(
    queue: str, other: str, cause: str, world: AuthWorld
) -> None:
    config = read_cluster(f"queues:\n- {{name: {other}}}\n- {{{queue}}}\n", "pond.yaml")
    with pytest.raises(SpecError, match=rf"pond.yaml:3:\d+: queues.1.parent: {cause}"):
        world.service.queue_settings.apply_file(config.queue_documents, config.located)


def test_every_edit_is_in_the_audit_log_with_before_and_after(world: AuthWorld) -> None:
    change(world, "vision", guarantee={"gpus": 2, "cpus": 8})
    change(world, "vision", guarantee=1, limit=3)
    change(world, "vision", user="max", guarantee=4)
    entries = world.client("amy").get(f"{API}/audit", params={"object": "vision"}).json()["entries"]
    found = [(entry["user"], entry["before"], entry["after"], entry["status"]) for entry in entries if entry["verb"]]
    assert found[:3] == [
        ("max", "", "", 403),
        ("amy", "guarantee: {gpus: 2, cpus: 8}", "guarantee: 1, limit: 3", 200),
        ("amy", "defaults", "guarantee: {gpus: 2, cpus: 8}", 200),
    ]


# ---- the file, and other starts -------------------------------------------------------------------------------------


def test_the_file_read_again_changes_what_it_says_otherwise_and_no_more(world: AuthWorld) -> None:
    queues = world.service.queue_settings
    queues.apply_file({"lab": {"guarantee": 3}, "bench": {"weight": 2}})
    change(world, "lab", guarantee=1)
    queues.apply_file({"lab": {"guarantee": 3}, "bench": {"weight": 3}})
    assert settings(world, "lab")[0] == {"guarantee": 1}
    assert settings(world, "bench")[0] == {"weight": 3}
    queues.apply_file({"lab": {"guarantee": 2}})
    assert queue_of_core(world, "lab").guarantee.gpu_milli == 2000
    assert queue_of_core(world, "bench") is None


def test_a_file_that_does_not_go_together_with_later_changes_changes_nothing(world: AuthWorld) -> None:
    queues = world.service.queue_settings
    queues.apply_file({"lab": {"guarantee": 1}})
    change(world, "lab", limit=2)
    with pytest.raises(MillpondError, match=r"lab.limit: at most 2 GPUs, but it is guaranteed 3 GPUs"):
        queues.apply_file({"lab": {"guarantee": 3}, "bench": {}})
    assert settings(world, "lab")[0] == {"guarantee": 1, "limit": 2}
    assert queue_of_core(world, "bench") is None


def test_paths_follow_what_queues_say(world: AuthWorld) -> None:
    add(world, "lab", data=["/data/lab"])
    assert world.service.queue_settings.rules["lab"].data == (Path("/data/lab"),)
    change(world, "lab", data=None)
    assert world.service.queue_settings.rules["lab"].data is None


def test_a_server_that_died_before_the_scheduler_heard_of_a_change_goes_on_with_it(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(world, "lab", guarantee=1)
    [row] = [row for row in world.store.queue_settings.all().values() if row.name == "lab"]
    world.close()
    store = Store(world.store.database.url.render_as_string(hide_password=False))
    store.queue_settings.save([type(row)("lab", {"guarantee": 2}, None, 2, "amy", 1.0)])
    core = recover(store)
    queues = QueueSettings(store.queue_settings, world.loop, world.accounts, world.clock)
    assert [event.queue.guarantee.gpu_milli for event in queues.begin(core, {})] == [2000]  # type: ignore[attr-defined]
    store.close()


def test_at_a_start_a_file_that_goes_together_with_nothing_leaves_all_as_it_was(world: AuthWorld) -> None:
    queues = world.service.queue_settings
    queues.apply_file({"lab": {"guarantee": 1}})
    change(world, "lab", limit=2)
    begun = world.loop.query(lambda core: queues.begin(core, {"lab": {"guarantee": 3}})).result(60)
    assert begun == []
    assert "at most 2 GPUs, but it is guaranteed 3 GPUs" in queues.trouble


def test_an_edit_of_which_the_scheduler_said_nothing_in_time_has_changed_nothing_and_is_tried_again(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "ANSWER_WITHIN_S", 0.0)
    monkeypatch.setattr(world.loop, "query", lambda _question, **_: Future())
    answer = add(world, "lab", weight=2)
    assert (answer.status_code, error_of(answer).remedy) == (503, "try again in a moment")
    monkeypatch.undo()
    assert queue_of_core(world, "lab") is None


def test_a_change_that_the_scheduler_has_taken_up_when_its_time_is_over_is_not_taken_back(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Future[None]] = []

    def take_up(_event: Any) -> Future[None]:
        sent.append(Future())
        assert sent[-1].set_running_or_notify_cancel()
        monkeypatch.setattr(loop, "ANSWER_WITHIN_S", 0.0)
        return sent[-1]

    monkeypatch.setattr(world.loop, "change_setting", take_up)
    answer = change(world, "vision", weight=5)
    assert (answer.status_code, error_of(answer).remedy) == (503, "look whether it was done before you try again")
    monkeypatch.undo()
    assert settings(world, "vision")[0]["weight"] == 5
    assert world.service.queue_settings._store.all()["vision"].document == {"parent": "root", "weight": 5}


def test_a_change_that_the_scheduler_refuses_after_all_is_taken_back(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job came in between the look at the queue and its removal."""
    add(world, "lab", weight=2)
    queues = world.service.queue_settings
    save = queues._store.save

    def save_and_submit(rows: Any) -> None:
        save(rows)
        if all(row.document is None for row in rows) and not world.loop.job_cache.newest_first():
            world.submit("amy", queue="lab")

    monkeypatch.setattr(queues._store, "save", save_and_submit)
    answer = world.client("amy").delete(f"{QUEUES}/lab")
    assert (answer.status_code, "has a job that has not ended" in error_of(answer).cause) == (409, True)
    assert settings(world, "lab")[0] == {"weight": 2}
    assert queue_of_core(world, "lab").weight == 2


def test_a_refused_change_that_the_store_cannot_take_back_says_when_it_takes_effect(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(world, "lab", weight=2)
    queues = world.service.queue_settings
    save = queues._store.save

    def save_once(rows: Any) -> None:
        if any(row.document is not None for row in rows):
            raise OperationalError("insert", {}, Exception("the disk is full"))
        save(rows)
        world.submit("amy", queue="lab")

    monkeypatch.setattr(queues._store, "save", save_once)
    answer = world.client("amy").delete(f"{QUEUES}/lab")
    cause = error_of(answer).cause
    assert (answer.status_code, "has a job that has not ended" in cause) == (503, True)
    assert "the store cannot take the change back (the disk is full): the next start makes it" in cause
    assert queue_of_core(world, "lab").weight == 2


def test_where_nothing_can_be_stored_nothing_is_changed(world: AuthWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(rows: Any) -> None:
        raise OperationalError("insert", {}, Exception("the disk is full"))

    monkeypatch.setattr(world.service.queue_settings._store, "save", full)
    answer = change(world, "vision", weight=5)
    assert (answer.status_code, "the disk is full" in error_of(answer).cause) == (503, True)
    assert queue_of_core(world, "vision").weight == 1


def test_a_limit_of_a_model_is_shown_and_what_is_beyond_it_is_named(world: AuthWorld) -> None:
    job = world.submit("max", gpus=2)
    world.settled()
    [model] = world.client("amy").get(f"{QUEUES}/vision").json()["queue"]["models"]
    answer = change(world, "vision", limit={"models": {model: 1}})
    assert answer.json()["effects"] == [
        f"vision holds 2 GPUs of model {model}, 1 beyond its limit: nothing more of it starts, and nothing is ended"
    ]
    shown = world.client("amy").get(f"{QUEUES}/vision").json()["queue"]
    assert (shown["models"], shown["limit_models"]) == ({model: 2000}, {model: 1000})
    assert world.client("max").get(f"{API}/jobs/{job}").json()["state"] == "running"


def test_a_limit_of_card_memory_is_shown_and_what_is_beyond_it_is_named(world: AuthWorld) -> None:
    world.submit("max", gpus=2)
    world.settled()
    held = world.client("amy").get(f"{QUEUES}/vision").json()["queue"]["card_mib"]
    assert held > 1024
    answer = change(world, "vision", limit={"card_memory": f"{held - 1024}MiB"})
    [effect] = answer.json()["effects"]
    assert effect.startswith("vision holds ")
    assert effect.endswith("of card memory, 1 GiB beyond its limit: nothing more of it starts, and nothing is ended")
    shown = world.client("amy").get(f"{QUEUES}/vision").json()["queue"]
    assert (shown["card_mib"], shown["limit_card_mib"]) == (held, held - 1024)
    answer = change(world, "vision", limit=None, guarantee={"card_memory": "900TiB"}, may_exceed_cluster=True)
    assert "of 921600 GiB of card memory that are guaranteed are on no machine" in " ".join(answer.json()["effects"])


def test_a_limit_of_a_model_that_no_machine_has_is_refused(world: AuthWorld) -> None:
    answer = change(world, "vision", limit={"models": {"Z9000": 1}})
    assert answer.status_code == 422
    assert error_of(answer).cause == "vision.limit.models: no machine has cards of model 'Z9000'"
    assert settings(world, "vision")[0].get("limit") is None


def test_a_model_that_no_machine_has_and_that_stays_as_it_is_bars_no_change_of_other_fields(world: AuthWorld) -> None:
    unknown = {"gpus": 1, "models": {"Z9000": 1}}
    queues = world.service.queue_settings
    text = {"guarantee": unknown, "may_exceed_cluster": True}
    begun = world.loop.query(lambda core: queues.begin(core, {"lab": text})).result(60)
    world.loop.notify(begun)
    answer = change(world, "lab", weight=2)
    assert answer.status_code == 200, answer.text
    assert settings(world, "lab")[0] == {**text, "weight": 2}
    answer = change(world, "lab", weight=0)
    assert error_of(answer).details[0].loc == "lab.weight"
    answer = change(world, "lab", guarantee={"gpus": 2, "models": {"Z9000": 2}})
    assert error_of(answer).cause == "lab.guarantee.models: no machine has cards of model 'Z9000'"


def test_a_guarantee_of_a_model_is_shown_by_model_and_a_shortage_of_it_is_named(world: AuthWorld) -> None:
    world.submit("max", gpus=2)
    world.settled()
    [model] = world.client("amy").get(f"{QUEUES}/vision").json()["queue"]["models"]
    answer = change(world, "vision", guarantee={"models": {"Z9000": 1}})
    assert answer.status_code == 422
    assert error_of(answer).cause == "vision.guarantee.models: no machine has cards of model 'Z9000'"
    answer = change(world, "vision", guarantee={"models": {model: 1}})
    assert answer.status_code == 200, answer.text
    assert any("are borrowed now" in each or "is borrowed now" in each for each in answer.json()["effects"])
    shown = world.client("amy").get(f"{QUEUES}/vision").json()["queue"]
    assert (shown["guarantee_gpu_milli"], shown["guarantee_models"]) == (1_000, {model: 1_000})
    [of_model, others] = shown["model_shares"]
    assert (of_model["model"], of_model["gpu_milli"], of_model["within_gpu_milli"]) == (model, 2_000, 1_000)
    assert (others["model"], others["gpu_milli"]) == ("", 0)
    answer = change(world, "vision", guarantee={"models": {model: 1_000}}, may_exceed_cluster=True)
    assert f"of 1000 GPUs of model {model} that are guaranteed are on no machine" in " ".join(answer.json()["effects"])
