"""Who holds how much of the server's disk, what follows from too much, and what from too little room."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from api_world import JOBS, Api, error_of
from sqlalchemy.exc import OperationalError

from millpond.model.errors import ConflictError
from millpond.model.folders import batch_of, digest_of
from millpond.node.host.identities import shared_account
from millpond.node.task.records import TaskFiles, TaskId
from millpond.node.task.workspace import blob_path
from millpond.server.auth.records import Group, User
from millpond.server.auth.roles import UserRole
from millpond.server.operations.disk_watch import DiskWatch, HoldersWatch
from millpond.server.storage.disk_use import DiskBooks
from millpond.server.storage.files.datasets import Dataset, Datasets
from millpond.server.storage.files.sent_contents import SentContents
from millpond.server.storage.files.service import Span
from millpond.server.views import about
from millpond.server.views.prometheus import metrics_page
from millpond.specs.api.accounts.accounts import AccountLimits
from millpond.specs.api.codec import from_json
from millpond.specs.api.server import HealthInfo
from millpond.specs.job.snapshots import FileEntry, FolderSnapshot

MIB = 2**20
MNIST = Dataset("mnist", 1, "ab" * 32, 2, 5 * MIB, "bob", 1.0)


class Room:
    """A disk with as much free room as it is told."""

    def __init__(self, free_mib: int = 10_000) -> None:
        self.free_mib = free_mib

    def __call__(self, path: Path) -> int:
        return self.free_mib * MIB


def watch_of(api: Api, room: Room) -> DiskWatch:
    api.service.disk.free = room
    return DiskWatch(api.loop, api.store, api.service.disk, api.state_dir, 1.0, api.clock)


def write(api: Api, job: str, size_mib: int) -> None:
    log = TaskFiles.of(api.state_dir, TaskId(job, 1, 0)).log
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"x" * size_mib * MIB)


def limit(api: Api, **limits: int) -> None:
    assert api.client.patch("/api/v1/users/ada", json={"limits": limits}).status_code == 200


def test_what_jobs_wrote_and_datasets_count_for_whoever_they_belong_to(api: Api) -> None:
    accounts = api.security.accounts
    accounts.add_group(Group("vision", "vision"))
    accounts.add_user(User("bob"), "vision", UserRole.MEMBER)
    job = api.submit()
    write(api, job.id, 3)
    Datasets(api.store.database).add(MNIST)
    use = DiskBooks(
        api.store.jobs, Datasets(api.store.database), api.state_dir, accounts, api.service.files.sent
    ).look()
    assert 3 * MIB <= use.users["ada"] < 4 * MIB
    assert (use.users["bob"], use.groups["vision"]) == (5 * MIB, 5 * MIB)


def test_ended_work_is_measured_once_and_counts_no_more_when_it_is_deleted(api: Api) -> None:
    job = api.submit()
    assert api.job(job.id).state == "running"
    (task,) = api.world.running
    api.engine.finish(task)
    assert api.job(job.id).state == "succeeded"
    write(api, job.id, 2)
    books = api.service.disk
    assert books.look().users["ada"] >= 2 * MIB
    write(api, job.id, 4)
    assert books.look().users["ada"] < 4 * MIB
    assert api.client.delete(f"{JOBS}/{job.id}").status_code == 200
    assert books.look().users.get("ada", 0) == 0


def test_what_is_removed_counts_no_more_at_once(api: Api) -> None:
    job = api.submit()
    assert api.job(job.id).state == "running"
    (task,) = api.world.running
    write(api, job.id, 2)
    api.engine.finish(task)
    assert api.job(job.id).state == "succeeded"
    Datasets(api.store.database).add(replace(MNIST, user="ada"))
    limit(api, disk_bytes=MIB)
    books = api.service.disk
    assert books.look().users["ada"] >= 7 * MIB
    assert api.client.delete("/api/v1/datasets/mnist/1").status_code == 200
    assert 2 * MIB <= books.of_user("ada").used_bytes < 3 * MIB
    assert api.client.post(JOBS, json={"command": "work"}).status_code == 409
    assert api.client.delete(f"{JOBS}/{job.id}").status_code == 200
    assert books.of_user("ada").used_bytes == 0
    assert api.client.post(JOBS, json={"command": "work"}).status_code == 201


def test_a_home_in_the_state_directory_counts_for_whose_it_is(api: Api) -> None:
    home = Path(shared_account("ada", api.state_dir).home)
    (home / ".cache").mkdir()
    (home / ".cache" / "weights").write_bytes(b"x" * 3 * MIB)
    limit(api, disk_bytes=2 * MIB)
    assert 3 * MIB <= api.service.disk.look().users["ada"] < 4 * MIB
    assert api.client.post(JOBS, json={"command": "work"}).status_code == 409


def test_who_holds_too_much_is_told_so_and_submits_no_more_until_there_is_less(api: Api) -> None:
    job = api.submit()
    write(api, job.id, 3)
    limit(api, disk_bytes=2 * MIB)
    api.service.disk.look()
    refused = api.client.post(JOBS, json={"command": "work"})
    assert refused.status_code == 409
    assert error_of(refused).cause == "user ada holds 3.0 MiB on the server's disk and may hold at most 2.0 MiB"
    assert "pond delete JOB" in error_of(refused).remedy
    data = api.client.post("/api/v1/datasets/mnist", json={"snapshot": "ab" * 32})
    assert data.status_code == 409
    for sent in (api.client.put(f"/api/v1/blobs/{'ab' * 32}"), api.client.post("/api/v1/blobs")):
        assert sent.status_code == 409, "contents take room too, one by one or many together"
    write(api, job.id, 1)
    api.service.disk.look()
    assert api.client.post(JOBS, json={"command": "work"}).status_code == 201


def send(api: Api, *contents: bytes) -> int:
    """The status with which contents are taken that nothing refers to yet."""
    return api.client.post("/api/v1/blobs", content=batch_of(contents)).status_code


def test_what_was_sent_and_is_never_used_counts_for_its_sender(api: Api) -> None:
    limit(api, disk_bytes=MIB)
    contents = [bytes([number]) * (MIB // 4) for number in range(9)]
    assert send(api, *contents[:3], contents[0]) == 201
    assert api.service.disk.of_user("ada").used_bytes == 3 * MIB // 4
    assert send(api, *contents[:2]) == 201, "they are here, and take no more room"
    assert send(api, *contents[3:6]) == 201, "the limit is looked at between pieces"
    assert send(api, contents[6]) == 409
    assert DiskBooks(  # and so it is after a restart
        api.store.jobs, Datasets(api.store.database), api.state_dir, api.security.accounts, SentContents(api.state_dir)
    ).excess("ada", "")
    api.service.files.collector.collect(time.time() + 7_200)
    assert api.service.disk.of_user("ada").used_bytes == 0
    assert send(api, contents[6]) == 201


def test_what_was_sent_counts_on_where_a_full_disk_keeps_it_from_being_written_down(tmp_path: Path) -> None:
    sent = SentContents(tmp_path)
    for user in ("ada", "bob"):
        sent.note(user, [("ab" * 32, MIB)])
    (tmp_path / "blobs" / "sent" / "new-ada").mkdir()  # where a file cannot be written
    with pytest.raises(OSError, match="new-ada"):
        sent.settle(lambda digest: True)
    assert sent.held() == {"ada": MIB, "bob": MIB}


def put_dataset(api: Api, content: bytes, name: str = "fresh") -> int:
    """Send a folder with one file, and make it the next version of a dataset; returns its number."""
    entry = FileEntry(path="a", digest=digest_of(content), size=len(content))
    snapshot = FolderSnapshot(files=(entry,)).encoded()
    assert send(api, content, snapshot) == 201
    return api.client.post(f"/api/v1/datasets/{name}", json={"snapshot": digest_of(snapshot)}).json()["version"]


def test_what_was_sent_for_a_dataset_counts_once_and_goes_with_it(api: Api) -> None:
    books, collector, size = api.service.disk, api.service.files.collector, MIB // 4
    put_dataset(api, b"x" * size)
    assert size < books.look().users["ada"] < 2 * size
    collector.collect(time.time())
    assert books.look().users["ada"] == size
    removed = put_dataset(api, b"y" * size)
    assert 2 * size < books.of_user("ada").used_bytes < 3 * size
    assert api.client.delete(f"/api/v1/datasets/fresh/{removed}").status_code == 200
    assert books.of_user("ada").used_bytes == books.look().users["ada"] == size
    assert api.service.files.missing([digest_of(b"y" * size)]), "or it would take room that counts for nobody"


@pytest.mark.parametrize("used_by", ["another dataset", "a job", "a submission on its way"])
def test_what_was_sent_for_a_removed_dataset_stays_and_counts_if_something_else_uses_it(api: Api, used_by: str) -> None:
    content = b"x" * (MIB // 4)
    if used_by == "a job":
        assert send(api, content) == 201
        api.submit(payload=digest_of(content))
    if used_by == "another dataset":
        put_dataset(api, content, "other")
    version = put_dataset(api, content)
    if used_by == "a submission on its way":
        asked_at = time.time() + 0.1  # the time of files lags behind the clock
        os.utime(blob_path(api.state_dir / "blobs", digest_of(content)), (asked_at, asked_at))
    assert api.client.delete(f"/api/v1/datasets/fresh/{version}").status_code == 200
    assert api.service.files.missing([digest_of(content)]) == []
    assert MIB // 4 <= api.service.disk.of_user("ada").used_bytes < MIB // 2


def test_many_small_contents_count_as_the_blocks_that_they_take(api: Api) -> None:
    limit(api, disk_bytes=MIB)
    assert send(api, *(str(number).encode() for number in range(300))) == 201
    assert api.service.disk.of_user("ada").used_bytes == 300 * 4_096
    assert send(api, b"one more") == 409


def test_a_large_content_is_cut_off_where_its_sender_holds_too_much(api: Api) -> None:
    limit(api, disk_bytes=MIB)
    content = os.urandom(12 * MIB)
    api.service.files.sent.note("ada", [("ab" * 32, MIB)])
    taken = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal taken
        for start in range(0, len(content), MIB):
            taken += MIB
            yield content[start : start + MIB]
            api.service.files.sent.note("ada", [("cd" * 32, 1)])

    with pytest.raises(ConflictError, match="may hold at most"):
        asyncio.run(
            api.service.files.receive("ada", digest_of(content), Span(), api.service.disk.bounded("ada", "", pieces()))
        )
    assert taken < 4 * MIB


def test_what_jobs_were_sent_counts_once_for_all_jobs_of_a_user(api: Api) -> None:
    payload = b"x" * MIB
    assert api.client.put(f"/api/v1/blobs/{digest_of(payload)}", content=payload).status_code == 201
    jobs = [api.submit(payload=digest_of(payload)).id for _ in range(2)]
    assert api.service.disk.of_user("ada").used_bytes == MIB
    api.service.files.collector.collect(time.time())
    assert api.service.disk.look().users["ada"] == MIB
    for job in jobs:
        api.client.post(f"{JOBS}/{job}/stop")
        api.job(job)
        assert api.client.delete(f"{JOBS}/{job}").status_code == 200
    api.service.files.collector.collect(time.time() + 7_200)
    assert api.service.disk.look().users.get("ada", 0) == 0


def test_a_group_has_a_limit_of_its_own(api: Api) -> None:
    accounts = api.security.accounts
    accounts.add_group(Group("vision", "vision", limits=AccountLimits(disk_bytes=MIB)))
    Datasets(api.store.database).add(MNIST)
    accounts.add_user(User("bob"), "vision", UserRole.MEMBER)
    api.service.disk.look()
    assert api.service.disk.excess("eve", "vision").startswith("group vision holds 5.0 MiB")
    assert api.service.disk.excess("bob", "") == ""


def test_running_jobs_of_those_who_hold_too_much_are_told_once(api: Api) -> None:
    job = api.submit()
    assert api.job(job.id).state == "running"
    write(api, job.id, 3)
    limit(api, disk_bytes=MIB)
    watch = HoldersWatch(api.loop, api.service.disk, api.clock)
    for _ in range(2):
        watch.look()
    api.job(job.id)
    told = [event["text"] for event in api.client.get(f"{JOBS}/{job.id}/events").json()["events"]]
    (warning,) = [text for text in told if "on the server's disk" in text]
    assert warning.endswith("no more jobs and datasets of theirs are taken on")


def test_what_one_holds_is_shown_with_its_limit(api: Api) -> None:
    job = api.submit()
    write(api, job.id, 3)
    limit(api, disk_bytes=10 * MIB)
    api.service.disk.look()
    (mine,) = api.client.get("/api/v1/whoami").json()["disk"]
    assert (mine["kind"], mine["name"], mine["limit_bytes"]) == ("user", "ada", 10 * MIB)
    assert mine["used_bytes"] >= 3 * MIB
    assert api.client.get("/api/v1/usage?by=user").json()["disk"] == [mine]
    assert api.client.get("/api/v1/usage?by=model").json()["disk"] == []


def test_nothing_new_starts_on_a_full_disk_and_work_goes_on_when_there_is_room(api: Api) -> None:
    room = Room()
    watch = watch_of(api, room)
    running = api.submit(gpus=4)
    waiting = api.submit(gpus=1)
    room.free_mib = 500
    watch.look_at_room()
    free = api.submit()
    assert api.job(running.id).state == "running"
    for name in (waiting.id, free.id):
        reason = api.client.get(f"{JOBS}/{name}/why").json()
        assert reason["cause"] == "disk-full"
        assert "500.0 MiB are free on the server's disk, and at least 1.0 GiB should be" in reason["summary"]
    room.free_mib = 1_030  # enough, and so little more that it would not last
    watch.look_at_room()
    assert api.job(free.id).state == "queued"
    room.free_mib = 2_000
    watch.look_at_room()
    assert api.job(free.id).state == "running"


def readiness(api: Api) -> tuple[int, str, str]:
    """Code, status, and in which respect the server is degraded."""
    answer = api.client.get("/readyz", headers={"Authorization": ""})
    health = from_json(HealthInfo, answer.content)
    return answer.status_code, health.status, health.degraded


def test_readyz_says_that_the_schedulers_time_is_ahead_of_a_clock_that_was_set_back(api: Api) -> None:
    api.loop.query(lambda core: None).result(30)
    assert readiness(api) == (200, "ready", "")
    api.loop.now = time.time() + 2 * 3600.0
    code, status, degraded = readiness(api)
    assert (code, status) == (200, "degraded")
    assert degraded.startswith("the machine's clock was set back, ")
    assert degraded.endswith("reservations are 2.0 h early, and right in 20 h")


def test_readyz_keeps_requests_coming_and_says_that_nothing_is_taken_on_or_started(api: Api) -> None:
    room = Room(1_001)
    watch = watch_of(api, room)
    watch.look_at_room()
    held = "nothing new starts: 1001.0 MiB are free on the server's disk, and at least 1.0 GiB should be; "
    api.loop.query(lambda core: None).result(30)
    code, status, degraded = readiness(api)
    assert (code, status, degraded.startswith(held)) == (200, "degraded", True)
    room.free_mib = 7
    full = "nothing is taken on: the server's disk is full: 7.0 MiB are free"
    assert readiness(api) == (200, "degraded", full)
    assert "millpond_server_degraded 1.0" in api.client.get("/metrics").text
    assert error_of(api.client.post(JOBS, json={"command": "work"})).cause in full
    room.free_mib = 10_000
    api.service.disk.free_files = lambda _: 7
    assert readiness(api)[1:] == (
        "degraded",
        "nothing is taken on: the server's disk is full: it has room for 7 more files",
    )
    api.service.disk.free_files = lambda _: None
    watch.look_at_room()
    api.loop.query(lambda core: None).result(30)
    assert readiness(api) == (200, "ready", "")
    assert "millpond_server_degraded 0.0" in api.client.get("/metrics").text


def test_a_store_that_cannot_be_read_degrades_the_server_until_it_can(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> int:
        raise OperationalError("SELECT", {}, sqlite3.DatabaseError("database disk image is malformed"))

    with monkeypatch.context() as patched:
        patched.setattr(api.store, "latest_snapshot_seq", fails)
        assert readiness(api) == (503, "the store cannot be read (database disk image is malformed)", "")
        page = api.client.get("/metrics").text
        assert "millpond_server_degraded 1.0" in page
        assert "millpond_node_gpus{" in page, "the scheduler still answers"
    assert "millpond_server_degraded 0.0" in api.client.get("/metrics").text


def test_while_the_store_hangs_the_figures_say_so_without_those_of_the_pool_and_one_thread_waits_for_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(about, "STORE_ANSWERS_WITHIN_S", 0.05)
    monkeypatch.setattr(metrics_page, "POOL_WITHIN_S", 0.05)
    answers, asked = threading.Event(), list[str]()

    def hangs() -> int:
        asked.append("the store")
        answers.wait(60)
        return 1

    monkeypatch.setattr(api.store, "latest_snapshot_seq", hangs)
    api.loop.query(lambda core: answers.wait(60))  # the scheduler has something to store
    try:
        for _ in range(3):
            page = api.client.get("/metrics").text
            assert "millpond_server_degraded 1.0" in page
            assert "millpond_scheduler_cycle_seconds_count " in page
            assert "millpond_node_gpus{" not in page
        assert readiness(api) == (503, "the store does not answer within 0.05 s", "")
        assert len(asked) == 1
    finally:
        answers.set()
        monkeypatch.undo()
    api.settled()
    page = api.client.get("/metrics").text
    assert "millpond_server_degraded 0.0" in page
    assert "millpond_node_gpus{" in page


def test_a_damaged_audit_log_degrades_the_server(api: Api) -> None:
    api.security.audit.trouble = "the audit log cannot be read (it is malformed)"
    code, status, _ = readiness(api)
    assert code == 503
    assert status.startswith("the audit log cannot be read (it is malformed); ")
    assert "millpond_server_degraded 1.0" in api.client.get("/metrics").text
