"""What jobs need before they queue: near copies of far data, images; and what they are refused."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from api_world import JOBS, Api, error_of

from millpond.model.contents import USE_HALF_LIFE_S
from millpond.model.errors import ConflictError, InvalidInputError, NotAllowedError, UnavailableError
from millpond.node.containers.container import Runtime
from millpond.node.containers.detection import Containers
from millpond.node.containers.images import LocalImage
from millpond.node.containers.logins import RegistryLogin
from millpond.node.containers.oci import Podman
from millpond.node.containers.programs import Notify
from millpond.node.host.folder_trees import remove_tree
from millpond.server.auth.roles import Caller, UserRole
from millpond.server.startup.local_engine import Launcher
from millpond.server.storage.job_files import JobFiles
from millpond.server.storage.provisioning import cache as data_cache
from millpond.server.storage.provisioning import components, copying, host
from millpond.server.storage.provisioning.cache import READ_IN_PLACE, CopyProgress, DataCache
from millpond.server.storage.provisioning.catalogue import Catalogue, CatalogueImage, held_as
from millpond.server.storage.provisioning.containerfile import bases_of
from millpond.server.storage.provisioning.staging import (
    AT_ONCE,
    ENDS_WITHIN_S,
    LONGEST_PAUSE_S,
    OF_ONE_USER,
    Item,
    Staging,
)
from millpond.specs.api.jobs.images import ImageAdd
from millpond.specs.config.cluster import read_cluster
from millpond.specs.config.provisioning import DataSource, ProvisioningRules
from millpond.specs.config.queues import QueueRules
from millpond.specs.errors import SpecError
from millpond.specs.job.job_spec import check_job
from nested_folders import nested
from real_containers import IMAGE, RealPodman

PATIENCE_S = 60.0


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether what other threads do comes about in time."""
    pause, give_up = threading.Event(), time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < give_up:
        pause.wait(0.01)
    return condition()


# ---- near copies of far data -----------------------------------------------------------------------------------


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """A slow place with two folders of data."""
    place = tmp_path / "far"
    for name, size in (("one", 600), ("two", 500)):
        (place / name / "deep").mkdir(parents=True)
        (place / name / "deep/words").write_bytes(b"w" * size)
        (place / name / "link").symlink_to("deep/words")
    return place


class Shelf:
    """A cache of 1,000 bytes, and which of its copies are in use."""

    def __init__(self, folder: Path, far: Path) -> None:
        self.in_use: set[str] = set()
        self.folder, self.far, self.now = folder, far, 0.0
        self.cache = self.anew()

    def anew(self) -> DataCache:
        """As of a server that was started again."""
        source = DataSource("nfs", self.far, 1_000)
        return DataCache(self.folder, lambda: (source,), lambda: frozenset(self.in_use), lambda: self.now)

    def fetch(self, path: Path, stop: Callable[[], None] = lambda: None) -> str:
        return self.cache.fetch(path, CopyProgress(), stop)

    def fetch_new(self, name: str, size: int, seconds: float = 1.0) -> str:
        """A copy of a file that is made for this, which takes so long."""
        (self.far / name).write_bytes(b"w" * size)
        before = self.now

        def take_time() -> None:
            self.now = before + seconds

        return self.fetch(self.far / name, take_time)

    def wait(self, days: float) -> None:
        """All that was wanted so far was wanted so much earlier."""
        for record in self.folder.glob("*/*.json"):
            then = record.stat().st_mtime - days * USE_HALF_LIFE_S
            os.utime(record, (then, then))


@pytest.fixture
def shelf(tmp_path: Path, far: Path) -> Shelf:
    return Shelf(tmp_path / "cache", far)


def test_a_copy_is_what_the_original_was_and_is_made_once(shelf: Shelf, far: Path) -> None:
    key = shelf.fetch(far / "one")
    copied = shelf.cache.place(key)
    assert (copied / "link").read_bytes() == b"w" * 600
    original = (far / "one/deep/words").stat()
    assert (copied / "deep/words").stat().st_mtime_ns == original.st_mtime_ns
    inode = (copied / "deep/words").stat().st_ino
    assert shelf.fetch(far / "one") == key
    assert (copied / "deep/words").stat().st_ino == inode
    (only,) = shelf.cache.copies()
    assert (only.key, only.size, only.path) == (key, 600, str(far / "one"))


def test_a_folder_that_was_closed_is_closed_in_the_copy(shelf: Shelf, far: Path) -> None:
    (far / "one/deep").chmod(0o700)
    (far / "one/empty").mkdir(mode=0o750)
    copied = shelf.cache.place(shelf.fetch(far / "one"))
    assert [(copied / name).stat().st_mode & 0o777 for name in ("deep", "empty")] == [0o700, 0o750]
    (far / "one/deep").chmod(0o755)
    assert shelf.cache.place(shelf.fetch(far / "one")) != copied


def test_a_copy_of_a_program_gives_nobody_the_rights_of_its_owner(shelf: Shelf, far: Path) -> None:
    (far / "one/deep/words").chmod(0o6755)
    copied = shelf.cache.place(shelf.fetch(far / "one"))
    assert stat.S_IMODE((copied / "deep/words").stat().st_mode) == 0o755


@pytest.mark.long
def test_folders_too_deep_in_each_other_are_refused_by_name(shelf: Shelf, far: Path) -> None:
    with nested(far / "one", 1_500), pytest.raises(InvalidInputError, match="one has folders too deep"):
        shelf.fetch(far / "one")


def test_a_file_that_was_replaced_after_it_was_listed_is_not_copied(shelf: Shelf, far: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"s" * 600)
    words = far / "one/deep/words"
    entries = copying.listing(far / "one")
    words.unlink()
    words.symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match=r"symbolic links|changed"):
        copying.copy(far / "one", entries, tmp_path / "copy", lambda _: None)
    words.unlink()
    words.write_bytes(b"s" * 600)
    with pytest.raises(OSError, match="changed"):
        copying.copy(far / "one", entries, tmp_path / "copy", lambda _: None)


def test_a_file_by_itself_can_be_copied(shelf: Shelf, far: Path) -> None:
    assert shelf.cache.place(shelf.fetch(far / "two/deep/words")).read_bytes() == b"w" * 500


def test_a_changed_original_makes_another_copy_and_the_old_one_stays_as_it_was(shelf: Shelf, far: Path) -> None:
    words = far / "one/deep/words"
    words.write_bytes(b"a" * 300)
    old = shelf.fetch(far / "one")
    words.write_bytes(b"b" * 300)
    os.utime(words, ns=(1, 1))
    new = shelf.fetch(far / "one")
    assert old != new
    assert (shelf.cache.place(old) / "deep/words").read_bytes() == b"a" * 300
    assert (shelf.cache.place(new) / "deep/words").read_bytes() == b"b" * 300


def test_a_copy_makes_room_but_never_one_in_use(shelf: Shelf, far: Path) -> None:
    one = shelf.fetch(far / "one")
    two = shelf.fetch(far / "two")
    assert not shelf.cache.has(one), "1,100 bytes do not fit into 1,000"
    shelf.in_use.add(two)
    with pytest.raises(UnavailableError, match="full of data in use"):
        shelf.fetch(far / "one")
    assert shelf.cache.has(two)


def test_of_copies_used_alike_the_one_wanted_longest_ago_makes_room(shelf: Shelf) -> None:
    copies = []
    for name in ("a", "b", "c"):
        copies.append(shelf.fetch_new(name, 300))
        shelf.wait(0.1)
    shelf.fetch_new("d", 300)
    assert [shelf.cache.has(key) for key in copies] == [False, True, True]


def test_a_large_copy_that_is_hardly_used_goes_before_a_small_one_that_is_used_often(shelf: Shelf) -> None:
    small = shelf.fetch_new("small", 100)
    for _ in range(4):
        shelf.fetch(shelf.far / "small")
    shelf.wait(1)
    large = shelf.fetch_new("large", 700)
    shelf.fetch_new("another", 400)
    assert (shelf.cache.has(small), shelf.cache.has(large)) == (True, False)


def test_data_that_is_read_once_does_not_drive_out_what_is_used_daily_though_the_server_starts_anew(
    shelf: Shelf,
) -> None:
    daily = shelf.fetch_new("daily", 400)
    for _ in range(3):
        shelf.wait(1)
        shelf.cache = shelf.anew()
        shelf.fetch(shelf.far / "daily")
    shelf.wait(0.5)
    for number in range(20):
        shelf.cache = shelf.anew()
        shelf.fetch_new(f"once-{number}", 400)
    assert shelf.cache.has(daily)
    shelf.wait(4)
    shelf.fetch_new("later", 400)
    assert shelf.cache.has(daily)
    shelf.fetch_new("later still", 400)
    assert not shelf.cache.has(daily), "it is not used any more"


def test_of_copies_used_alike_the_one_that_took_longest_by_byte_stays(shelf: Shelf) -> None:
    slow = shelf.fetch_new("many small files", 400, seconds=60)
    quick = shelf.fetch_new("one large file", 400, seconds=1)
    shelf.fetch_new("another", 400)
    assert (shelf.cache.has(slow), shelf.cache.has(quick)) == (True, False)


def test_a_copy_by_an_earlier_version_counts_as_used_once_and_is_counted_on(shelf: Shelf) -> None:
    old = shelf.fetch_new("old", 400, seconds=400 / 125e6)
    (record,) = shelf.folder.glob("*/*.json")
    (before,) = shelf.cache.copies()
    plain = json.loads(record.read_text())
    then = record.stat().st_mtime
    record.write_text(json.dumps({name: plain[name] for name in ("path", "size", "files", "checksum")}))
    os.utime(record, (then, then))
    assert shelf.cache.copies() == [before]
    shelf.fetch(shelf.far / "old")
    assert json.loads(record.read_text())["uses"] == pytest.approx(2, abs=0.1)
    assert shelf.cache.has(old)


def test_a_copy_is_used_though_the_disk_has_no_room_to_count_that(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = shelf.fetch(shelf.far / "one")

    def full(*_args: Any, **_kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(data_cache, "write_json", full)
    shelf.wait(3)
    (before,) = shelf.cache.copies()
    assert shelf.fetch(shelf.far / "one") == key
    (after,) = shelf.cache.copies()
    assert after.worth > before.worth


def test_a_copy_whose_removal_was_cut_off_is_made_anew_and_what_was_left_of_others_goes(
    shelf: Shelf, far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = shelf.fetch(far / "one")
    with monkeypatch.context() as patch:
        patch.setattr(data_cache, "remove_tree", _killed)
        with pytest.raises(KilledError):
            shelf.fetch(far / "two")
    assert not shelf.cache.has(one)
    assert shelf.fetch(far / "one") == one
    assert (shelf.cache.place(one) / "deep/words").read_bytes() == b"w" * 600
    (shelf.folder / f"{one}.json").unlink()  # as a removal by an earlier version left it
    (shelf.cache.place(one) / "deep/words").unlink()
    assert shelf.cache.copies() == []
    two = shelf.fetch(far / "two")
    assert [path.name for path in (shelf.folder / "nfs").iterdir() if path.is_dir()] == [two.partition("/")[2]]
    assert shelf.fetch(far / "one") == one
    assert (shelf.cache.place(one) / "deep/words").read_bytes() == b"w" * 600


def test_while_a_copy_is_removed_others_are_found_and_fetched(
    shelf: Shelf, far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.fetch_new("large", 900)
    (far / "small").write_bytes(b"s" * 100)
    others: list[str] = []

    def remove(folder: Path) -> None:
        """As slow as one where files are many: meanwhile others come, in the same thread."""
        if not others:
            others.extend((shelf.fetch(far / "small"), shelf.fetch(far / "small")))
        remove_tree(folder)

    monkeypatch.setattr(data_cache, "remove_tree", remove)
    two = shelf.fetch(far / "two")
    assert [shelf.cache.has(key) for key in (two, *others)] == [True, True, True]
    assert {copy.key for copy in shelf.cache.copies()} == {two, others[0]}
    assert not list((shelf.folder / "nfs").glob("*.gone"))


def test_where_the_disk_is_full_below_the_limit_more_copies_go_and_what_is_being_removed_is_waited_for(
    shelf: Shelf, far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = shelf.fetch_new("older", 200), shelf.fetch_new("newer", 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: DiskUsage(500 + 200 * (not older_is_there())))

    def older_is_there() -> bool:
        return any(path.stat().st_size == 200 for path in (shelf.folder / "nfs").glob("*/data"))

    assert shelf.cache.has(shelf.fetch(far / "one"))
    assert (shelf.cache.has(older), shelf.cache.has(newer)) == (False, True)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: DiskUsage(0))
    shelf.in_use |= {copy.key for copy in shelf.cache.copies()}
    with pytest.raises(UnavailableError, match="no room on the disk"):
        shelf.fetch_new("more", 10)


class DiskUsage(NamedTuple):
    """How much of a disk is free."""

    free: int


class KilledError(BaseException):
    """The server was killed here."""


def _killed(_: Path) -> None:
    raise KilledError


def test_what_would_never_fit_is_read_where_it_is(shelf: Shelf, far: Path) -> None:
    (far / "one/huge").write_bytes(b"h" * 1_001)
    assert shelf.fetch(far / "one") == READ_IN_PLACE
    assert shelf.cache.copies() == []


def test_a_copying_that_was_stopped_is_gone_on_with(shelf: Shelf, far: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_PIECE", 100)
    (far / "one/a").write_bytes(b"a" * 50)
    calls = iter(range(100))

    class StopError(Exception):
        pass

    def stop() -> None:
        if next(calls) == 5:
            raise StopError

    with pytest.raises(StopError):
        shelf.fetch(far / "one", stop)
    (part,) = (shelf.folder / "nfs").glob("*.part")
    half = (part / "data/deep/words").stat()
    assert 0 < half.st_size < 600
    key = shelf.fetch(far / "one")
    words = shelf.cache.place(key) / "deep/words"
    assert (words.read_bytes(), words.stat().st_ino) == (b"w" * 600, half.st_ino)
    assert not list((shelf.folder / "nfs").glob("*.part"))


def test_an_original_that_changes_meanwhile_is_no_copy(shelf: Shelf, far: Path) -> None:
    def meddle() -> None:
        (far / "one/new").touch()

    with pytest.raises(UnavailableError, match="changed while it was copied"):
        shelf.fetch(far / "one", meddle)
    assert shelf.cache.copies() == []


def test_copies_that_are_made_at_once_leave_each_other_what_they_have_and_keep_the_limit(
    shelf: Shelf, far: Path
) -> None:
    (far / "small").write_bytes(b"s" * 300)
    keys: list[str] = []

    def another_comes() -> None:
        if keys:
            return
        shelf.in_use.add(progress.key)
        keys.append(shelf.fetch(far / "small"))
        shelf.in_use.add(keys[0])
        with pytest.raises(UnavailableError, match="900 of 1000"):
            shelf.fetch(far / "two")

    progress = CopyProgress()
    keys.append(shelf.cache.fetch(far / "one", progress, another_comes))
    assert [shelf.cache.has(key) for key in keys] == [True, True]


# ---- waiting ---------------------------------------------------------------------------------------------------


class Gate:
    """Fetches only when told to."""

    def __init__(self) -> None:
        self.fetched: list[Item] = []
        self.pins: dict[str, Mapping[str, str]] = {}
        self.open = threading.Event()
        self.troubles: dict[str, list[Exception]] = {}
        self.woken = threading.Semaphore(0)

    def items(self, document: Mapping[str, Any]) -> dict[str, Item]:
        return {name: Item("data", path) for name, path in document["data"].items()}

    def fetch(self, item: Item, progress: CopyProgress, stop: Callable[[], None]) -> str:
        progress.total, progress.done, progress.key = 3 * 2**30, 2**30, f"nfs{item.name}"
        while not self.open.wait(0.01):
            stop()
        self.fetched.append(item)
        if troubles := self.troubles.get(item.name):
            raise troubles.pop(0)
        return f"nfs{item.name}"

    def pin(self, job: str, found: Mapping[str, str]) -> None:
        self.pins[job] = found


@pytest.fixture
def gate() -> Gate:
    return Gate()


class Patience:
    """Time that passes as somebody likes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def staging(gate: Gate) -> Iterator[Staging]:
    made = Staging(gate, gate.woken.release, Patience())
    made.start()
    yield made
    made.close()


def test_jobs_that_need_the_same_wait_for_one_fetching(gate: Gate, staging: Staging) -> None:
    for job in ("a", "b"):
        staging.begin(job, {"data": {"train": "/far/one"}}, "ann")
    assert not staging.look("a").ready
    gate.open.set()
    for _ in range(2):
        assert gate.woken.acquire(timeout=PATIENCE_S)
    assert sorted(staging.settled()) == ["a", "b"]
    assert staging.look("a").ready
    assert len(gate.fetched) == 1
    assert gate.pins == {job: {"train": "nfs/far/one"} for job in ("a", "b")}


def test_what_is_on_its_way_to_a_job_counts_as_found_until_it_is_written_down(gate: Gate, staging: Staging) -> None:
    staging.begin("a", {"data": {"train": "/far/one"}}, "ann")
    assert eventually(lambda: "nfs/far/one" in staging.found())
    gate.open.set()
    assert gate.woken.acquire(timeout=PATIENCE_S)
    assert staging.found() == {"nfs/far/one"}, "the job is not forgotten yet"
    staging.forget("a")
    assert staging.found() == frozenset()


def test_a_copy_found_for_a_job_is_not_dropped_before_that_is_written_down(
    gate: Gate, shelf: Shelf, far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = shelf.fetch(far / "one")
    staging = Staging(gate, gate.woken.release, Patience())
    cache = DataCache(shelf.folder, lambda: (DataSource("nfs", far, 1_000),), staging.found)
    room: list[str] = []

    def fetch(item: Item, progress: CopyProgress, stop: Callable[[], None]) -> str:
        key = cache.fetch(Path(item.name), progress, stop)
        try:
            room.append(cache.fetch(far / "two", CopyProgress(), stop))
        except UnavailableError:
            room.append("none")
        return key

    monkeypatch.setattr(gate, "fetch", fetch)
    staging.start()
    try:
        staging.begin("a", {"data": {"train": str(far / "one")}}, "ann")
        assert gate.woken.acquire(timeout=PATIENCE_S)
    finally:
        staging.close()
    assert room == ["none"]
    assert gate.pins == {"a": {"train": one}}
    assert cache.has(one)


def test_a_job_that_needs_nothing_is_ready_at_once(gate: Gate, staging: Staging) -> None:
    staging.begin("a", {"data": {}}, "ann")
    assert staging.look("a").ready
    assert not gate.woken.acquire(blocking=False), "nobody is woken for it"


def test_a_job_that_waits_tells_how_far_it_is(gate: Gate, staging: Staging) -> None:
    staging.begin("a", {"data": {"train": "/far/one"}}, "ann")
    assert eventually(lambda: "1.0 of 3.0 GiB" in staging.look("a").summary)
    assert staging.look("a").summary == "it waits for data /far/one to be copied: 1.0 of 3.0 GiB"
    assert staging.look("a").numbers["bytes_total"] == 3 * 2**30


def test_what_can_never_be_had_ends_its_job_and_what_fails_now_is_tried_again(gate: Gate) -> None:
    clock = Patience()
    staging = Staging(gate, gate.woken.release, clock)
    gate.open.set()
    gate.troubles["/far/one"] = [UnavailableError("the disk is away"), InvalidInputError("it is gone for good")]
    staging.start()
    staging.begin("a", {"data": {"train": "/far/one"}}, "ann")
    assert eventually(lambda: staging.look("a").summary.endswith("tried again"))
    assert "the disk is away; it is tried again" in staging.look("a").summary
    clock.now += 5.0
    staging.begin("b", {"data": {"train": "/far/two"}}, "ann")  # somebody comes, and the threads look at the clock
    for _ in range(2):
        assert gate.woken.acquire(timeout=PATIENCE_S)
    assert staging.look("a").unsatisfiable == "it is gone for good"
    staging.close()


def test_a_defect_in_fetching_ends_no_thread_and_is_tried_again(gate: Gate) -> None:
    clock = Patience()
    staging = Staging(gate, gate.woken.release, clock)
    gate.open.set()
    items = {f"odd-{number}": f"/far/{number}" for number in range(2 * AT_ONCE)}
    gate.troubles = {path: [KeyError("digest")] for path in items.values()}
    staging.start()
    for job, path in items.items():
        staging.begin(job, {"data": {"train": path}}, "ann")
    assert eventually(lambda: all("a defect (KeyError)" in staging.look(job).summary for job in items))
    gate.troubles = {}
    clock.now += LONGEST_PAUSE_S
    staging.begin("plain", {"data": {"train": "/far/other"}}, "ann")
    for _ in range(len(items) + 1):
        assert gate.woken.acquire(timeout=PATIENCE_S)
    assert sorted(staging.settled()) == sorted([*items, "plain"])
    staging.close()


def test_what_one_user_fetches_that_never_comes_keeps_no_other_waiting(gate: Gate, staging: Staging) -> None:
    for number in range(2 * AT_ONCE):
        staging.begin(f"silent-{number}", {"data": {"train": f"/silent/{number}"}}, "eve")
    assert eventually(lambda: len(staging.found()) == OF_ONE_USER)
    staging.begin("b", {"data": {"train": "/far/one"}}, "ben")
    staging.begin("c", {"data": {"train": f"/silent/{2 * AT_ONCE - 1}"}}, "cleo")  # held as eve's, and another's now
    begun = {f"nfs/silent/{number}" for number in (*range(OF_ONE_USER), 2 * AT_ONCE - 1)} | {"nfs/far/one"}
    assert eventually(lambda: staging.found() == begun)
    gate.open.set()
    for _ in range(2 * AT_ONCE + 2):
        assert gate.woken.acquire(timeout=PATIENCE_S)
    assert len(staging.settled()) == 2 * AT_ONCE + 2, "what had no room is fetched behind the others"


def test_the_server_ends_in_time_however_much_does_not_stop(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, begun, goes_on = Patience(), threading.Semaphore(0), threading.Event()
    staging = Staging(gate, gate.woken.release, clock)

    def hang(*_: object) -> str:
        begun.release()
        return str(goes_on.wait(PATIENCE_S))

    monkeypatch.setattr(gate, "fetch", hang)
    staging.start()
    for number in range(2 * OF_ONE_USER):
        staging.begin(f"hung-{number}", {"data": {"train": f"/far/{number}"}}, f"user-{number}")
        assert begun.acquire(timeout=PATIENCE_S)

    def join(_: threading.Thread, timeout: float) -> None:
        clock.now += timeout

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", join)
        staging.close()
    assert clock.now <= ENDS_WITHIN_S
    goes_on.set()
    staging.close()


def test_what_nobody_wants_any_more_is_stopped(gate: Gate, staging: Staging) -> None:
    staging.begin("a", {"data": {"train": "/far/one"}}, "ann")
    staging.forget("a")
    staging.begin("b", {"data": {"train": "/far/two"}}, "ann")
    gate.open.set()
    assert gate.woken.acquire(timeout=PATIENCE_S)
    assert staging.settled() == ["b"]


@pytest.fixture
def api(tmp_path: Path, far: Path) -> Iterator[Api]:
    """A server with a source whose data is not fetched before somebody says so."""
    queues = {"default": QueueRules("root", images=("nvcr.io/nvidia",))}
    provisioning = ProvisioningRules(
        sources=(DataSource("nfs", far, 10_000),), images={"gold": ("nvcr.io/nvidia/cuda",)}
    )
    made = Api(tmp_path / "state", provisioning, lambda: queues)
    yield made
    made.close()


def test_a_job_holds_nothing_until_its_data_is_near_and_then_reads_the_copy(api: Api, far: Path) -> None:
    job = api.submit(gpus=4, data={"train": str(far / "one")})
    other = api.submit(gpus=4)
    assert api.job(other.id).state == "running", "the cards are not held meanwhile"
    why = api.client.get(f"{JOBS}/{job.id}/why").json()
    assert (why["cause"], why["state"]) == ("waiting-for-data", "queued")
    assert str(far / "one") in why["summary"]
    api.client.post(f"{JOBS}/{other.id}/stop")
    api.provisioning.staging.start()
    assert eventually(lambda: api.job(job.id).state == "running")
    service, provisions = api.service, api.provisioning.provisions
    launcher = Launcher(JobFiles(api.store.jobs), service.files, api.isolation, api.vault, provisions, api.state_dir)
    launch = launcher.launch_of(job.id)
    assert launch.workspace is not None
    (mount,) = launch.workspace.data
    assert Path(mount.path).is_relative_to(api.state_dir / "cache")
    assert (Path(mount.path) / "deep/words").read_bytes() == b"w" * 600
    (copy,) = api.provisioning.cache.copies()
    assert copy.key in api.store.jobs.pinned_copies(), "it is not removed while the job lives"


def test_a_job_that_waits_for_data_can_be_stopped(api: Api, far: Path) -> None:
    job = api.submit(data={"train": str(far / "one")})
    assert api.client.post(f"{JOBS}/{job.id}/stop").status_code == 202
    assert api.job(job.id).state == "cancelled"


def test_a_restarted_server_goes_on_with_what_a_job_waits_for(tmp_path: Path, far: Path) -> None:
    provisioning = ProvisioningRules(sources=(DataSource("nfs", far, 10_000),))
    killed = Api(tmp_path / "state", provisioning)
    waiting = killed.submit(data={"train": str(far / "one")})
    after = killed.submit(after=waiting.id)
    killed.close()
    api = Api(tmp_path / "state", provisioning)
    assert api.client.get(f"{JOBS}/{waiting.id}/why").json()["cause"] == "waiting-for-data"
    assert api.client.get(f"{JOBS}/{after.id}/why").json()["cause"] == "dependency"
    api.provisioning.staging.start()
    assert eventually(lambda: api.job(waiting.id).state == "running")
    api.close()


def test_sources_within_each_other_are_refused() -> None:
    text = "sources:\n- {name: a, path: /mnt, cache: 1GiB}\n- {name: b, path: /mnt/x, cache: 1GiB}\n"
    with pytest.raises(SpecError, match="lies within the source /mnt"):
        read_cluster(text)


# ---- images ----------------------------------------------------------------------------------------------------


class NoRegistry:
    """Images of a machine that has one."""

    def find(self, reference: str) -> LocalImage | None:
        here = reference in ("sha256:" + "1" * 64, "nvcr.io/nvidia/here:1", "docker.io/library/here:1")
        return LocalImage("sha256:" + "1" * 64, 1, "sha256:" + "1" * 64) if here else None

    def at(self, digest: str) -> LocalImage:
        return LocalImage(digest, 1, digest)

    def pull(self, reference: str, tell: Notify, login: RegistryLogin | None = None) -> LocalImage:
        raise UnavailableError(f"{reference} cannot be fetched", "")


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    found = Podman("/usr/bin/podman")
    monkeypatch.setattr(host, "find_containers", lambda *_: Containers(found, "podman 5", NoRegistry(), {}))  # type: ignore[arg-type]
    return found


def refused(api: Api, **fields: Any) -> str:
    answer = api.client.post(JOBS, json={"command": "x", **fields})
    assert answer.status_code == 422, answer.text
    assert error_of(answer).remedy
    return error_of(answer).cause


def test_where_nothing_runs_containers_the_submission_is_refused_with_what_was_looked_for(
    api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    cause = refused(api, image="torch:2.4")
    assert cause.startswith("the job asks for the image 'torch:2.4': no container runtime works here: podman is not")
    optional = api.submit(image={"name": "torch:2.4", "optional": True})
    assert any("'torch:2.4' is not used" in warning for warning in optional.warnings)
    assert "image" not in api.client.get(f"{JOBS}/{optional.id}/document").json()


def test_an_image_is_pinned_by_its_digest_whatever_somebody_wrote(api: Api, runtime: Runtime) -> None:
    job = api.submit(image="nvcr.io/nvidia/here:1", pinned={"image": "sha256:" + "0" * 64, "data": {"x": "nfs/y"}})
    pinned = api.client.get(f"{JOBS}/{job.id}/document").json()["pinned"]
    assert pinned == {"image": "sha256:" + "1" * 64, "data": {}, "within": False}
    plain = api.submit(pinned={"image": "sha256:" + "0" * 64, "data": {}})
    assert "pinned" not in api.client.get(f"{JOBS}/{plain.id}/document").json()


def test_an_image_comes_from_where_the_queue_may_have_it_from_or_from_the_catalogue(api: Api, runtime: Runtime) -> None:
    assert "may not have the image docker.io/library/here:1" in refused(api, image="here:1")
    assert "goes round the catalogue" in refused(api, image="localhost/millpond/here:1")
    entry = CatalogueImage("here", "1", "built", "sha256:" + "1" * 64, 1, "ada", "", "private", "", 0.0)
    api.provisioning.catalogue.put(entry)
    assert api.submit(image="here:1").state in ("queued", "starting", "running")


def test_an_image_has_to_be_allowed_in_the_pool_too(api: Api, runtime: Runtime) -> None:
    assert "jobs of queue 'default' may not have" in refused(api, image="quay.io/here:1", pool="gold")
    assert "jobs in pool 'gold' may not have" in refused(api, image="nvcr.io/nvidia/here:1", pool="gold")
    entry = CatalogueImage("here", "1", "built", "sha256:" + "1" * 64, 1, "ada", "", "private", "", 0.0)
    api.provisioning.catalogue.put(entry)
    document = check_job({"command": "x", "image": "here:1", "pool": "gold"})
    assert api.provisioning.provisions.settle(document.file, document.document, Caller("ada")).waits is False


def test_the_catalogue_is_filled_from_where_ones_queue_may_have_images_from(api: Api, runtime: Runtime) -> None:
    images = api.service.images
    with pytest.raises(InvalidInputError, match=r"may not have the image docker\.io/a/b:1"):
        images.add(ImageAdd(name="b", reference="a/b:1"), Caller("mia"), "default")
    assert images.add(ImageAdd(name="b", reference="a/b:1"), Caller("olga", admin=True), "")


def test_an_image_that_is_not_here_is_fetched_before_the_job_queues(api: Api, runtime: Runtime) -> None:
    job = api.submit(image="nvcr.io/nvidia/far:1", gpus=1)
    why = api.client.get(f"{JOBS}/{job.id}/why").json()
    assert (why["cause"], why["summary"]) == (
        "waiting-for-image",
        "it waits for image nvcr.io/nvidia/far:1 to be fetched",
    )


def why(api: Api, job: str) -> tuple[str, str]:
    told = api.client.get(f"{JOBS}/{job}/why").json()
    return told["state"], told["cause"]


@pytest.fixture
def far_image(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> str:
    """An image of a registry that gives it to whoever asks."""
    digest = "sha256:" + "1" * 64
    monkeypatch.setattr(NoRegistry, "pull", lambda *_: LocalImage(digest, 1, digest))
    return "nvcr.io/nvidia/far:1"


def test_an_array_waits_for_its_image_as_one_and_all_members_run_in_the_same(api: Api, far_image: str) -> None:
    array = api.submit(image=far_image, array="0-2", gpus=1)
    assert why(api, array.id) == ("queued", "waiting-for-image")
    assert not api.world.running
    api.provisioning.staging.start()
    assert eventually(lambda: bool(api.job(array.id)) and len(api.world.running) == 3)
    members = [api.service.job_files.latest(f"{array.id}.{index}") for index in range(3)]
    assert {member.spec.file.pinned.image for member in members if member.spec.file.pinned} == {"sha256:" + "1" * 64}


def test_an_array_that_waits_for_its_image_can_be_stopped_and_never_starts(api: Api, runtime: Runtime) -> None:
    array = api.submit(image="nvcr.io/nvidia/far:1", array="0-2")
    assert api.client.post(f"{JOBS}/{array.id}/stop").status_code == 202
    assert api.job(array.id).state == "cancelled"
    assert not api.world.starts


def test_a_revision_waits_for_its_image_while_the_one_before_goes_on(api: Api, far_image: str) -> None:
    file = {"kind": "service", "name": "web", "command": "old", "tasks": 1}
    job = api.submit(**file).id
    coming = {"document": file | {"command": "new", "image": far_image}}
    answer = api.client.post(f"{JOBS}/{job}/revisions", json=coming)
    assert answer.status_code == 201, answer.text
    for _ in range(2):
        api.service.rollouts.look()
        api.job(job)
    assert why(api, f"{job}.r2") == ("queued", "waiting-for-image")
    assert api.job(job).state == "running"
    api.provisioning.staging.start()
    assert eventually(lambda: api.job(f"{job}.r2").state == "running")


@pytest.mark.parametrize("folder", ["/", "/etc", "/usr/local", "/run/user", "/tmp", "/proc/self"])
def test_no_container_is_given_what_is_the_machines_own(api: Api, runtime: Runtime, folder: str) -> None:
    assert "what is the machine's own" in refused(api, image="nvcr.io/nvidia/here:1", workdir=folder)


def test_a_variable_of_several_lines_is_refused_before_anything_starts(api: Api, runtime: Runtime) -> None:
    assert "has several lines" in refused(api, image="nvcr.io/nvidia/here:1", env={"KEY": "a\nb"})


@pytest.mark.parametrize(
    ("text", "bases"),
    [
        ("FROM a/b:1\n", ["a/b:1"]),
        (
            "from --platform=linux/amd64 a AS one\nFROM one\nCOPY --from=one x y\nCOPY --from=c/d:2 x y\n",
            ["a", "c/d:2"],
        ),
        ("FROM late\nCOPY --from=7 x y\nFROM scratch AS late\nFROM late\nCOPY --from=0 x y\n", ["late", "7"]),
        ("FR\\\nOM a/b:\\  \n1\n", ["a/b:1"]),
        ("FROM scratch\nRUN --mount=type=bind,from=e:3,target=/x \\\n  make\nCOPY --from=0 a b\n", ["e:3"]),
        ("FROM scratch\nRUN --mount=from=e:3,from=f:4 make\n", ["e:3", "f:4"]),
        ("\ufeffFROM a/b:1\n", ["a/b:1"]),
        ("# a comment does not go on \\\nFROM a/b:1\n", ["a/b:1"]),
        ("FROM scratch\nCOPY --fr\\\n # a comment ends no line\nom=e:3 x y\n", ["e:3"]),
        ("FROM scratch\nCOPY --fr\"om\"=e:3 x y\nCOPY --f\\rom='f:4' x y\n", ["e:3", "f:4"]),
        ("FROM scratch\nCOPY <<END /x\nFROM scratch AS e/f:3\nEND\nCOPY --from=e/f:3 x y\n", ["e/f:3"]),
        ("# syntax=docker/dockerfile:1\nFROM a/b:1\nRUN --network=none echo $PATH --to=$HOME\n", ["a/b:1"]),
    ],
)
def test_what_a_build_is_built_upon_is_known(text: str, bases: list[str]) -> None:
    assert bases_of(text) == bases


def test_a_build_upon_what_is_not_written_out_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no plain reference"):
        bases_of("ARG base=x\nFROM ${base}\n")
    with pytest.raises(InvalidInputError, match="an escape character of its own"):
        bases_of("# escape=`\nFR`\nOM a\n")
    for first in ("# syntax=e/f:3", "#syntax = docker/dockerfile.evil.org/x", "// syntax=e", '{"syntax": "e/f"}'):
        with pytest.raises(InvalidInputError, match="a syntax of its own"):
            bases_of(f"{first}\nFROM a\n")
    for option in ("--${F}om=e:3", "--mount=type=bind,${F}om=e:3"):
        with pytest.raises(InvalidInputError, match=r"the build has the option '--.*om=e:3'"):
            bases_of(f"FROM a\nARG F=fr\nONBUILD RUN --network=none {option} make\n")


@pytest.mark.long
def test_what_left_the_catalogue_or_was_replaced_there_goes_and_what_other_servers_hold_stays(
    api: Api, real_podman: RealPodman, tmp_path: Path
) -> None:
    images = api.provisioning.host.containers().images
    context = tmp_path / "context"
    context.mkdir()

    def made(name: str, version: int) -> str:
        (context / "Containerfile").write_text(f"FROM {IMAGE}\nLABEL version={version}\n")
        return images.build(context, "Containerfile", name, lambda _line: None, {}).digest

    def put(tag: str) -> None:
        wish = {"name": "made", "tag": tag, "reference": "localhost/own:1"}
        assert api.client.post("/api/v1/images", json=wish).status_code == 200

    first = made("localhost/own:1", 1)
    put("1")
    second = made("localhost/own:1", 2)
    put("1")
    third = made("localhost/own:1", 3)
    put("2")
    images.drop("localhost/own:1")
    foreign = made(held_as("foreign", "1"), 4)
    api.provisioning.catalogue.remove(api.provisioning.catalogue.find("made", "2"))  # as by a server killed right then
    assert all(map(images.find, (first, second, third, foreign)))
    api.provisioning.tidy(0.0)
    assert [images.find(each) is not None for each in (first, second, third, foreign)] == [False, True, False, True]
    assert api.provisioning.held.all() == {second}
    for name in (held_as("made", "1"), held_as("foreign", "1")):
        images.drop(name)


def test_a_name_that_another_user_took_while_an_image_was_fetched_stays_theirs(
    api: Api, far_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for order in ("name", "drop"):
        monkeypatch.setattr(NoRegistry, order, lambda *_: None, raising=False)
    mia = Caller("mia", roles=(("vision", UserRole.MEMBER),))
    work = api.service.images.add(ImageAdd(name="torch", tag="1", reference=far_image), mia, "")
    of_ada = CatalogueImage("torch", "1", "built", "sha256:" + "2" * 64, 1, "ada", "", "private", "", 0.0)
    api.provisioning.catalogue.put(of_ada)
    with pytest.raises(NotAllowedError, match="torch:1"):
        work(lambda _line: None)
    assert api.provisioning.catalogue.find("torch", "1") == of_ada


def test_the_name_of_an_image_that_comes_while_its_predecessor_is_removed_is_held(
    api: Api, far_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    olga, held = Caller("olga", admin=True), set[str]()
    work = api.service.images.add(ImageAdd(name="torch", tag="1", reference=far_image), olga, "")
    coming = threading.Thread(target=work, args=(lambda _line: None,))

    def drop(_images: NoRegistry, name: str) -> None:
        if name == held_as("torch", "1"):
            coming.start()
            coming.join(0.5)
            held.remove(name)

    monkeypatch.setattr(NoRegistry, "name", lambda _images, _image, name: held.add(name), raising=False)
    monkeypatch.setattr(NoRegistry, "drop", drop, raising=False)
    work(lambda _line: None)
    api.service.images.remove("torch", "1")
    coming.join(PATIENCE_S)
    assert api.provisioning.catalogue.find("torch", "1")
    assert held == {held_as("torch", "1")}


def test_an_image_that_comes_while_containers_are_tidied_up_stays(
    api: Api, far_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = set[str]()
    monkeypatch.setattr(NoRegistry, "name", lambda _images, _image, name: held.add(name), raising=False)
    monkeypatch.setattr(NoRegistry, "drop", lambda _images, name: held.discard(name), raising=False)
    monkeypatch.setattr(NoRegistry, "discard", lambda _images, digest: None, raising=False)
    monkeypatch.setattr(NoRegistry, "names", lambda _images, _prefix: sorted(held), raising=False)
    monkeypatch.setattr(NoRegistry, "find", lambda _images, name: LocalImage("sha256:" + "1" * 64, 1, name))
    wanted = ImageAdd(name="torch", tag="1", reference=far_image)

    def another_comes(*_: object) -> int:
        api.service.images.add(wanted, Caller("olga", admin=True), "")(lambda _line: None)
        return 0

    api.provisioning.held.note("sha256:" + "2" * 64)
    monkeypatch.setattr(components, "drop_ended", another_comes)
    monkeypatch.setattr(components, "drop_lost", lambda *_: 0)
    api.provisioning.tidy(0.0)
    assert held == {held_as("torch", "1")}


def test_other_words_about_an_image_that_was_replaced_meanwhile_bring_the_old_one_not_back(api: Api) -> None:
    catalogue = Catalogue(api.store.database)
    old = catalogue.put(
        CatalogueImage("torch", "2.4", "from", "sha256:old", 1, "ada", "", "private", "", 0.0, exact="old@sha256:0")
    )
    new = replace(old, digest="sha256:new", exact="new@sha256:1")

    def replaced_meanwhile(image: CatalogueImage) -> CatalogueImage:
        catalogue.put(new)
        return replace(image, visibility="everyone")

    with pytest.raises(ConflictError, match=r"the image torch:2\.4 was replaced meanwhile"):
        catalogue.change("torch", "2.4", replaced_meanwhile)
    assert catalogue.find("torch", "2.4") == new
    assert catalogue.change("torch", "2.4", lambda image: replace(image, description="ours")).description == "ours"
    assert catalogue.find("torch", "2.4") == replace(new, description="ours")


def test_an_image_that_would_copy_from_one_of_others_is_not_built_upon(
    api: Api, real_podman: RealPodman, tmp_path: Path
) -> None:
    (tmp_path / "Containerfile").write_text(f"FROM {IMAGE}\nONBUILD COPY --from={held_as('others', '1')} / /\n")
    made = real_podman("build", "--format", "docker", "--tag", "localhost/trap:1", str(tmp_path))
    assert made.returncode == 0, made.stderr
    caller, base = Caller("root", admin=True), api.provisioning.sources.base
    assert base(IMAGE, caller, "", lambda _line: None).digest
    with pytest.raises(InvalidInputError, match=r"what is built upon .* uses other images"):
        base("localhost/trap:1", caller, "", lambda _line: None)
    api.provisioning.host.containers().images.drop("localhost/trap:1")
