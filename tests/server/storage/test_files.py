"""Files over the API: what is sent, named, read, left behind and collected."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from api_world import JOBS, Api, error_of

from millpond.model.errors import InvalidInputError
from millpond.model.folders import DEEPEST, LARGEST_BATCH, LARGEST_BATCHED, MOST_BATCHED, batch_of, batches, digest_of
from millpond.node.task.records import TaskFiles, TaskId, attempt_dir, note_of_removal
from millpond.node.task.workspace import OUTPUT, blob_path, lay_out_dataset
from millpond.server.storage.disk_use import size_of
from millpond.server.storage.files import collector as collector_module
from millpond.server.storage.files import outputs
from millpond.server.storage.files.blobs import BlobStore
from millpond.server.storage.files.datasets import Dataset, Datasets
from millpond.server.storage.files.mounts import MountRules
from millpond.specs.api.jobs.files import read_batch
from millpond.specs.config.cluster import read_cluster
from millpond.specs.config.queue_documents import read_queue_rules
from millpond.specs.job.job_spec import check_job
from millpond.specs.job.snapshots import FileEntry, FolderSnapshot
from nested_folders import nested

BLOBS = "/api/v1/blobs"
DATASETS = "/api/v1/datasets"


def put(api: Api, data: bytes) -> str:
    digest = digest_of(data)
    assert api.client.put(f"{BLOBS}/{digest}", content=data).status_code == 201
    return digest


def send(api: Api, files: dict[str, bytes]) -> str:
    entries = tuple(FileEntry(path=path, digest=put(api, data), size=len(data)) for path, data in files.items())
    return put(api, FolderSnapshot(files=entries).encoded())


def missing(api: Api, *digests: str) -> list[str]:
    return api.client.post(f"{BLOBS}/missing", json={"digests": list(digests)}).json()["digests"]


def test_only_contents_that_are_not_here_are_asked_for(api: Api) -> None:
    here, absent = put(api, b"x"), digest_of(b"y")
    assert missing(api, here, absent) == [absent]


def test_a_content_that_is_not_what_it_is_called_is_refused_and_leaves_no_trace(api: Api) -> None:
    answer = api.client.put(f"{BLOBS}/{digest_of(b'x')}", content=b"y")
    assert answer.status_code == 422
    assert "is not the content" in error_of(answer).cause
    assert [path for path in (api.state_dir / "blobs").rglob("*") if path.is_file()] == []


def test_what_lies_too_deep_to_be_laid_out_is_refused(api: Api) -> None:
    deep, too_deep = (send(api, {"d/" * depth + "f": b""}) for depth in (DEEPEST, DEEPEST + 1))
    answer = api.client.post(f"{DATASETS}/deep", json={"snapshot": too_deep})
    assert answer.status_code == 422
    assert "lies below more than 200 folders" in error_of(answer).cause
    assert api.client.post(f"{DATASETS}/deep", json={"snapshot": deep}).status_code == 201


def test_many_small_contents_travel_together(api: Api) -> None:
    contents = [b"", b"one", b"x" * LARGEST_BATCHED, b"one"]
    answer = api.client.post(BLOBS, content=batch_of(contents))
    digests = [digest_of(content) for content in contents]
    assert (answer.status_code, answer.json()["digests"]) == (201, digests)
    assert missing(api, *digests) == []


@pytest.mark.parametrize(
    "batch",
    [
        b"short",
        batch_of([b"one"])[:-1],
        b"\xff" * 8 + b"one",
        batch_of([b"x" * (LARGEST_BATCHED + 1)]),
        batch_of([b""] * (MOST_BATCHED + 1)),
        b"\0" * (LARGEST_BATCH + 1),
    ],
    ids=["no batch", "cut off", "a length beyond its end", "a large one", "too many", "too large"],
)
def test_what_is_no_batch_is_refused_whole(api: Api, batch: bytes) -> None:
    answer = api.client.post(BLOBS, content=batch)
    assert answer.status_code == 422, answer.text
    assert error_of(answer).remedy
    assert not list((api.state_dir / "blobs").glob("*/*"))


def test_batches_are_as_few_as_may_be_and_keep_the_order() -> None:
    contents = [bytes([number % 251]) * (number % 7) * 40_000 for number in range(300)]
    made = list(batches(contents))
    assert [content for batch in made for content in read_batch(batch)] == contents
    assert all(len(batch) <= LARGEST_BATCH for batch in made)
    assert len(made) == -(-sum(8 + len(content) for content in contents) // LARGEST_BATCH)


@pytest.mark.parametrize("name", ["..%2F..%2Fx", "A" * 64, "0" * 63, "0" * 65])
def test_a_content_is_named_by_a_digest_and_nothing_else(api: Api, name: str) -> None:
    assert api.client.put(f"{BLOBS}/{name}", content=b"x").status_code in (404, 405, 422)


def test_a_job_whose_folder_was_not_wholly_sent_is_refused_by_file(api: Api) -> None:
    entry = FileEntry(path="train.py", digest=digest_of(b"never sent"), size=10)
    answer = api.client.post(JOBS, json={"command": "x", "ship": put(api, FolderSnapshot(files=(entry,)).encoded())})
    assert answer.status_code == 422
    assert "train.py" in error_of(answer).cause


@pytest.mark.parametrize("broken", ["the file", "the snapshot"])
def test_a_content_that_a_power_cut_has_emptied_is_asked_for_again(api: Api, broken: str) -> None:
    ship = send(api, {"train.py": b"text"})
    digest = digest_of(b"text") if broken == "the file" else ship
    os.truncate(blob_path(api.state_dir / "blobs", digest), 0)
    answer = api.client.post(JOBS, json={"command": "x", "ship": ship})
    assert (answer.status_code, "again" in error_of(answer).remedy) == (422, True)
    assert not blob_path(api.state_dir / "blobs", digest).exists()
    assert send(api, {"train.py": b"text"}) == ship
    assert api.client.post(JOBS, json={"command": "x", "ship": ship}).status_code == 201


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ship": True}, "was not sent"),
        ({"ship": digest_of(b"?")}, "was not sent"),
        ({"payload": digest_of(b"?")}, "was not sent"),
        ({"data": {"a": "/no/such/place"}}, "nothing at the data path"),
        ({"data": {"a": "dataset/none"}}, "no dataset dataset/none"),
        ({"output": "/etc/passwd"}, "is a file"),
    ],
)
def test_what_a_job_refers_to_must_be_there(api: Api, fields: dict[str, Any], words: str) -> None:
    answer = api.client.post(JOBS, json={"command": "x", **fields})
    assert answer.status_code in (404, 422)
    assert words in error_of(answer).cause


def test_the_servers_own_state_is_nobodys_data(api: Api, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(api.state_dir)
    for path in (api.state_dir, api.state_dir / "blobs", tmp_path, tmp_path / "way", "/"):
        for field in ({"data": {"a": str(path)}}, {"output": str(path)}):
            answer = api.client.post(JOBS, json={"command": "x", **field})
            assert answer.status_code == 422, (path, field)


def test_datasets_have_versions_that_stay_what_they_are(api: Api) -> None:
    first = api.client.post(f"{DATASETS}/mini", json={"snapshot": send(api, {"a": b"1"})}).json()
    again = api.client.post(f"{DATASETS}/mini", json={"snapshot": send(api, {"a": b"1"})}).json()
    second = api.client.post(f"{DATASETS}/mini", json={"snapshot": send(api, {"a": b"2"})}).json()
    assert (first["reference"], again["version"], second["version"]) == ("dataset/mini@1", 1, 2)
    assert first["digest"] != second["digest"]
    assert (second["files"], second["size"], second["user"]) == (1, 1, "ada")
    listed = api.client.get(DATASETS).json()["datasets"]
    assert [item["version"] for item in listed] == [2, 1]


def test_versions_of_a_dataset_that_come_at_the_same_time_each_get_a_number(api: Api) -> None:
    datasets = Datasets(api.store.database)
    puts = [Dataset("mnist", 0, digest_of(b"%d" % number), 1, 1, "ada", 0.0) for number in range(64)]
    with ThreadPoolExecutor(8) as threads:
        added = list(threads.map(datasets.add, puts))
    assert sorted(each.version for each in added) == list(range(1, 65))


def test_a_version_of_a_dataset_is_given_out_file_by_file(api: Api) -> None:
    contents = {"a": b"1", "deep/b": b"22", "deep/ä b": b"3"}
    api.client.post(f"{DATASETS}/mini", json={"snapshot": send(api, contents)})
    files = f"{DATASETS}/mini/1/files"
    listed = FolderSnapshot.model_validate_json(api.client.get(files).content)
    assert {entry.path: api.client.get(f"{files}/{quote(entry.path)}").content for entry in listed.files} == contents
    part = api.client.get(f"{files}/deep/b", headers={"Range": "bytes=1-"})
    assert (part.status_code, part.content) == (206, b"2")
    assert [api.client.get(f"{files}/{path}").status_code for path in ("b", "deep", "..%2fa", "")] == [404] * 4
    assert api.client.get(f"{DATASETS}/mini/2/files").status_code == 404


def test_small_files_of_an_output_and_of_a_dataset_are_given_out_together(api: Api) -> None:
    contents = {"a": b"1", "deep/b": b"22", "large": b"x" * (LARGEST_BATCHED + 1), "c": b""}
    job = api.submit()
    for path, content in contents.items():
        place = output_of(api, job.id) / path
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(content)
    (output_of(api, job.id) / "link").symlink_to("a")
    api.client.post(f"{DATASETS}/mini", json={"snapshot": send(api, contents)})
    for address in (f"{JOBS}/{job.id}/output", f"{DATASETS}/mini/1/files"):

        def given(*paths: str, address: str = address) -> list[bytes]:
            return read_batch(api.client.post(address, json={"paths": paths}).content)

        assert given("deep/b", "c", "a") == [b"22", b"", b"1"]
        for stop in ("large", "gone", "deep", "link", "../a", "a\0", ""):
            assert given("a", stop, "c") == [b"1"], stop
        assert given() == []
        assert api.client.post(address, json={"paths": ["a"] * (MOST_BATCHED + 1)}).status_code == 422
    assert api.client.post(f"{JOBS}/none/output", json={"paths": ["a"]}).status_code == 404
    assert api.client.post(f"{DATASETS}/mini/2/files", json={"paths": ["a"]}).status_code == 404


def test_so_many_small_files_are_given_out_together_as_a_batch_takes(api: Api) -> None:
    job = api.submit()
    (output_of(api, job.id) / "a").write_bytes(b"x" * LARGEST_BATCHED)
    answer = api.client.post(f"{JOBS}/{job.id}/output", json={"paths": ["a"] * 100})
    assert len(read_batch(answer.content)) == LARGEST_BATCH // (LARGEST_BATCHED + 8)


def test_a_job_reads_the_version_that_was_latest_when_it_was_submitted(api: Api) -> None:
    api.client.post(f"{DATASETS}/mini", json={"snapshot": send(api, {"a": b"1"})})
    job = api.submit(data={"train": "dataset/mini"})
    api.client.post(f"{DATASETS}/mini", json={"snapshot": send(api, {"a": b"2"})})
    document = api.store.jobs.document(job.id)
    assert document is not None
    assert document["data"] == {"train": "dataset/mini@1"}
    workspace = api.service.files.workspace(check_job(document).file)
    assert [mount.snapshot for mount in workspace.data] == [send(api, {"a": b"1"})]


def test_a_version_that_a_living_job_reads_stays_and_a_removed_number_is_not_used_again(api: Api) -> None:
    api.client.post(f"{DATASETS}/mini", json={"snapshot": send(api, {"a": b"1"})})
    job = api.submit(data={"train": "dataset/mini@1"})
    assert api.client.delete(f"{DATASETS}/mini/1").status_code == 409
    api.client.post(f"{JOBS}/{job.id}/stop")
    api.job(job.id)
    assert api.client.delete(f"{DATASETS}/mini/1").status_code == 200
    assert api.client.delete(f"{DATASETS}/mini/1").status_code == 404
    assert api.client.get(DATASETS).json()["datasets"] == []
    again = api.client.post(f"{DATASETS}/mini", json={"snapshot": send(api, {"a": b"1"})}).json()
    assert again["version"] == 2


def test_contents_that_nothing_refers_to_are_removed_when_they_are_old(api: Api) -> None:
    kept = [send(api, {"a": b"job"}), send(api, {"a": b"data"}), put(api, b"payload")]
    api.submit(ship=kept[0])
    api.client.post(f"{DATASETS}/mini", json={"snapshot": kept[1]})
    api.submit(payload=kept[2])
    lost = send(api, {"a": b"lost"})
    everything = [*kept, lost, *(digest_of(data) for data in (b"job", b"data", b"lost"))]
    collector = api.service.files.collector
    assert collector.collect(time.time()).blobs == 0, "what was sent just now may be about to be referred to"
    assert collector.collect(time.time() + 7_200).blobs == 2
    assert set(missing(api, *everything)) == {lost, digest_of(b"lost")}


def test_a_content_that_was_asked_about_is_spared(api: Api) -> None:
    digest = put(api, b"x")
    os.utime(blob_path(api.state_dir / "blobs", digest), (0, 0))
    assert missing(api, digest) == []
    assert api.service.files.collector.collect(time.time()).blobs == 0


def test_a_content_of_nobody_is_not_kept_by_asking_for_it_again_and_again(api: Api) -> None:
    collector, digest = api.service.files.collector, put(api, b"x")
    (api.state_dir / "blobs/sent/of-ada").unlink()  # the server was killed before it noted whose that is
    now = time.time()
    assert collector.collect(now).blobs == 0
    assert missing(api, digest) == []
    os.utime(blob_path(api.state_dir / "blobs", digest), (now - 0.01, now - 0.01))  # a tick of the kernel earlier
    assert collector.collect(now).blobs == 0, "it may be about to be referred to since the collection began"
    assert collector.collect(time.time() + 1).blobs == 1


def test_a_payload_is_never_read_as_a_whole_to_see_what_it_lists(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = put(api, b"payload")
    api.submit(payload=payload)
    monkeypatch.setattr(BlobStore, "read", lambda *_: pytest.fail("it may be larger than memory"))
    assert api.service.files.collector.collect(time.time() + 7_200).blobs == 0


def test_what_cannot_be_removed_keeps_nothing_else(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    job = api.submit(ship=send(api, {"a": b"x"}))
    (attempt_dir(api.state_dir, job.id, 1) / "files/work").mkdir(parents=True)
    api.client.post(f"{JOBS}/{job.id}/stop")
    api.job(job.id)
    lost, others = put(api, b"lost"), list[float]()
    monkeypatch.setattr(collector_module, "remove_tree", lambda _: Path("/proc").rmdir())
    api.service.files.collector.also(others.append)
    with pytest.raises(OSError, match="/proc"):
        api.service.files.collector.tidy(now := time.time() + 7_200)
    assert missing(api, lost) == [lost]
    assert others == [now]


def test_what_was_left_of_laying_out_a_dataset_goes_unless_that_goes_on(api: Api) -> None:
    used, removed = (send(api, {"a": data}) for data in (b"1", b"2"))
    assert api.client.post(f"{DATASETS}/mini", json={"snapshot": used}).status_code == 201
    folder, blobs = api.state_dir / "datasets", api.state_dir / "blobs"
    for digest in (used, removed):
        lay_out_dataset(blobs, folder, digest)
        (folder / f"{digest}.new" / "half").mkdir(parents=True)
    collector = api.service.files.collector
    with (folder / f"{used}.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        collector.collect(time.time())
    assert {path.name for path in folder.iterdir()} == {used, f"{used}.lock", f"{used}.new"}
    collector.collect(time.time())
    assert {path.name for path in folder.iterdir()} == {used, f"{used}.lock"}
    assert (folder / used / "a").read_bytes() == b"1"


def test_the_copy_of_an_ended_job_goes_and_what_it_left_stays(api: Api) -> None:
    jobs = [api.submit(ship=send(api, {"a": b"x"})) for _ in range(2)]
    for job in jobs:
        files = attempt_dir(api.state_dir, job.id, 1) / "files"
        (files / "work/sub").mkdir(parents=True)
        (files / "work/sub").chmod(0o500)
        (files / "output").mkdir()
        (files / "payload").touch()
    api.client.post(f"{JOBS}/{jobs[0].id}/stop")
    api.job(jobs[0].id)
    collector = api.service.files.collector
    collector.collect(api.clock.now)
    assert (attempt_dir(api.state_dir, jobs[0].id, 1) / "files/work").exists(), "somebody may be looking"
    collector.collect(api.clock.now + 7_200)
    left = [{path.name for path in (attempt_dir(api.state_dir, job.id, 1) / "files").iterdir()} for job in jobs]
    assert left == [{"output"}, {"work", "output", "payload"}]


def output_of(api: Api, job: str) -> Path:
    folder = attempt_dir(api.state_dir, job, 1) / OUTPUT
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_outputs_are_listed_and_fetched(api: Api) -> None:
    job = api.submit()
    folder = output_of(api, job.id)
    (folder / "sub").mkdir()
    (folder / "sub/model.pt").write_bytes(b"weights")
    listed = api.client.get(f"{JOBS}/{job.id}/output").json()
    assert [(file["path"], file["size"]) for file in listed["files"]] == [("sub/model.pt", 7)]
    fetched = api.client.get(f"{JOBS}/{job.id}/output/sub/model.pt")
    assert fetched.content == b"weights"
    assert fetched.headers["content-disposition"].startswith("attachment")


def test_files_of_an_output_whose_names_cannot_be_printed_are_counted(api: Api) -> None:
    job = api.submit()
    folder = output_of(api, job.id)
    for name in (b"model.pt", b"two\nlines", b"red \x1b[31m", b"bad \xff", "9.41\u202fAM.png".encode()):
        (folder / os.fsdecode(name)).write_bytes(b"weights")
    (folder / "li\nnk").symlink_to("model.pt")
    listed = api.client.get(f"{JOBS}/{job.id}/output").json()
    assert [file["path"] for file in listed["files"]] == ["model.pt"]
    assert listed["left_out"] == 4


def test_of_one_folder_of_an_output_that_alone_is_listed_and_counted(api: Api) -> None:
    job = api.submit()
    output = output_of(api, job.id)
    (output / "deep" / "er").mkdir(parents=True)
    (output / "deeper").mkdir()
    for name in ("deep/a", "deep/er/b", "deep/er/two\nlines", "deeper/c", "two\nlines"):
        (output / name).write_text("x")
    for name in ("link", "deep/link", "deep/er/link"):
        (output / name).symlink_to("nowhere")
    counted = {}
    for under in ("deep", "deep/", "deep/er", "deep/a", "de", "deep/link"):
        listed = api.client.get(f"{JOBS}/{job.id}/output", params={"under": under}).json()
        counted[under] = ([file["path"] for file in listed["files"]], listed["left_out"], listed["no_files"])
    both = (["deep/a", "deep/er/b"], 1, 2)
    assert counted == {
        "deep": both,
        "deep/": both,
        "deep/er": (["deep/er/b"], 1, 1),
        "deep/a": (["deep/a"], 0, 0),
        "de": ([], 0, 0),
        "deep/link": ([], 0, 1),
    }


def test_a_part_of_an_output_is_given_of_the_version_that_is_meant_only(api: Api) -> None:
    job = api.submit()
    place = output_of(api, job.id) / "model.pt"
    place.write_bytes(b"0123456789")
    path = f"{JOBS}/{job.id}/output/model.pt"
    (file,) = api.client.get(f"{JOBS}/{job.id}/output").json()["files"]

    def get(asked: str, **headers: str) -> tuple[int, bytes, str]:
        answer = api.client.get(
            path, headers={"Range": asked} | {name.replace("_", "-"): headers[name] for name in headers}
        )
        return answer.status_code, answer.content, answer.headers.get("content-range", "")

    tag = f'"{file["version"]}"'
    assert api.client.get(path).headers["etag"] == tag
    for asked, content, told in (
        ("bytes=4-", b"456789", "bytes 4-9/10"),
        ("bytes=4-5", b"45", "bytes 4-5/10"),
        ("bytes=4-99", b"456789", "bytes 4-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
    ):
        assert get(asked) == get(asked, if_match=tag) == get(asked, if_range=tag) == (206, content, told)
    for whole in ("bytes=0-", "bytes=-99", "bytes=1-2,4-5", "bytes=5-4", "lines=1-", "bytes=-", ""):
        assert get(whole) == (200, b"0123456789", ""), whole
    for none in ("bytes=10-", "bytes=-0"):
        status, content, told = get(none)
        assert (status, told) == (416, "bytes */10")
        assert b"10 bytes" in content
        chinese = {"Range": none, "Accept-Language": "zh-CN"}
        assert "10 字节" in api.client.get(path, headers=chinese).json()["error"]["cause"]
    place.write_bytes(b"abcdefghij0")
    assert get("bytes=4-", if_range=tag) == (200, b"abcdefghij0", "")
    status, content, _ = get("bytes=4-", if_match=tag)
    assert status == 412
    assert b"changed since" in content


@pytest.mark.parametrize(
    "path", ["..%2F..%2F..%2F..%2Fmillpond.db", "%2Fetc%2Fpasswd", "link", "linked/x", "pipe", "sub", "none", "a%00"]
)
def test_nothing_but_regular_files_of_the_output_is_given_out(api: Api, path: str, tmp_path: Path) -> None:
    job = api.submit()
    folder = output_of(api, job.id)
    (tmp_path / "x").write_text("secret")
    (folder / "sub").mkdir()
    (folder / "link").symlink_to(tmp_path / "x")
    (folder / "linked").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    answer = api.client.get(f"{JOBS}/{job.id}/output/{path}")
    assert answer.status_code == 404, answer.text
    listed = api.client.get(f"{JOBS}/{job.id}/output").json()
    assert (listed["files"], listed["no_files"], listed["left_out"]) == ([], 3, 0)


@pytest.mark.parametrize("closed", ["sub/model", "sub"])
def test_a_file_that_the_job_has_closed_to_the_server_is_said_to_be_closed(
    api: Api, closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = api.submit()
    place = output_of(api, job.id) / "sub" / "model"
    place.parent.mkdir()
    place.write_text("weights")
    opens, shut = os.open, (output_of(api, job.id) / closed).stat()

    def guarded(path: Any, flags: int, *args: Any, dir_fd: int | None = None) -> int:
        """As the kernel opens for an account that is not root."""
        handle = opens(path, flags, *args, dir_fd=dir_fd)
        if os.path.samestat(os.fstat(handle), shut):
            os.close(handle)
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return handle

    monkeypatch.setattr(os, "open", guarded)
    answer = api.client.get(f"{JOBS}/{job.id}/output/sub/model")
    assert answer.status_code == 409
    assert error_of(answer).cause == "the rights of 'sub/model' in the output do not let the server read it"
    assert "chmod -R u+rX $MILLPOND_OUTPUT" in error_of(answer).remedy
    together = api.client.post(f"{JOBS}/{job.id}/output", json={"paths": ["sub/model"]})
    assert (together.status_code, together.content) == (200, b""), "it is asked for by itself, and then refused"


@pytest.mark.long
def test_an_output_nested_beyond_all_bounds_is_listed_measured_and_deleted(api: Api) -> None:
    job = api.submit()
    with nested(output_of(api, job.id), 2_500) as folder:
        (folder / "model.pt").write_bytes(b"weights")
        listed = api.client.get(f"{JOBS}/{job.id}/output").json()
        assert [file["path"] for file in listed["files"]] == ["model.pt"], "what no program can name is not listed"
        curves = api.client.get("/api/v1/curves", params={"job": job.id})
        assert curves.status_code == 200, curves.text
        assert size_of(folder) > 5_000
        api.client.post(f"{JOBS}/{job.id}/stop")
        api.job(job.id)
        assert api.client.delete(f"{JOBS}/{job.id}").status_code == 200
        assert not folder.exists()


def test_output_on_a_folder_of_the_machine_is_told_not_fetched(api: Api, tmp_path: Path) -> None:
    job = api.submit()
    folder = attempt_dir(api.state_dir, job.id, 1) / OUTPUT
    folder.parent.mkdir(parents=True)
    folder.symlink_to(tmp_path)
    answer = api.client.get(f"{JOBS}/{job.id}/output")
    assert answer.status_code == 409
    assert str(tmp_path) in error_of(answer).cause


def test_metrics_are_what_tasks_reported_and_what_is_no_report_is_skipped(api: Api) -> None:
    job = api.submit(tasks=2)
    for task in range(2):
        path = TaskFiles.of(api.state_dir, TaskId(job.id, 1, task)).metrics
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            f'{{"at": {step}, "step": {step}, "values": {{"loss": {1 / (step + task + 1)}}}}}' for step in range(5)
        ]
        odd = [
            "{",
            "[]",
            '{"at": NaN, "step": 1, "values": {"loss": 1}}',
            '{"at": 1, "step": 1, "values": {"x": 1e999}}',
        ]
        path.write_text("\n".join([*lines, *odd, '{"at": 9, "step": 9, "values": {"loss": 9}']))
    found = api.client.get(f"{JOBS}/{job.id}/metrics").json()
    assert [(series["task"], series["name"], len(series["points"])) for series in found["series"]] == [
        (0, "loss", 5),
        (1, "loss", 5),
    ]
    last = api.client.get(f"{JOBS}/{job.id}/metrics", params={"task": 1, "last": 1}).json()
    assert last["truncated"]
    assert last["series"][0]["points"] == [{"at": 4.0, "value": pytest.approx(1 / 6), "step": 4.0}]


def test_of_the_metrics_of_many_tasks_so_much_is_read_and_that_is_said(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = api.submit(tasks=3)
    line = '{"at": 1, "step": 1, "values": {"loss": 1}}\n'
    for task in range(3):
        path = TaskFiles.of(api.state_dir, TaskId(job.id, 1, task)).metrics
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line * 10)
    monkeypatch.setattr(outputs, "MOST_READ", 15 * len(line))
    given = api.client.get(f"{JOBS}/{job.id}/metrics").json()
    assert [(series["task"], len(series["points"])) for series in given["series"]] == [(0, 10), (1, 4)]
    assert given["truncated"]


def test_an_output_that_leads_to_a_name_that_no_answer_can_carry_is_told(api: Api) -> None:
    job = api.submit()
    folder = attempt_dir(api.state_dir, job.id, 1) / "files"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "output").symlink_to(os.fsdecode(b"/\xff\x1b]0;owned\x07"))
    answer = api.client.get(f"{JOBS}/{job.id}/output")
    assert (answer.status_code, error_of(answer).cause) == (409, "the job writes its output to /??]0;owned?")
    assert api.client.get("/api/v1/curves", params={"job": job.id}).status_code == 200


def test_an_output_that_was_removed_to_make_room_is_not_said_to_be_empty(api: Api) -> None:
    job = api.submit()
    output_of(api, job.id)
    note_of_removal(api.state_dir, job.id).touch()
    for path in ("output", "output/model.pt"):
        answer = api.client.get(f"{JOBS}/{job.id}/{path}")
        assert answer.status_code == 404
        assert "was removed to make room" in error_of(answer).cause


def test_names_of_metrics_that_no_answer_can_carry_are_mended(api: Api) -> None:
    job = api.submit()
    metrics = TaskFiles.of(api.state_dir, TaskId(job.id, 1, 0)).metrics
    metrics.parent.mkdir(parents=True)
    names = ["half \\ud800", "null \\u0000", "é" * 300, ""]
    metrics.write_text("".join(f'{{"at": 1, "step": 1, "values": {{"{name}": 1}}}}\n' for name in names))
    expected = {"half ?", "null \0", "é" * 200, ""}
    given = api.client.get(f"{JOBS}/{job.id}/metrics").json()["series"]
    assert {series["name"] for series in given} == expected
    assert set(api.client.get("/api/v1/curves", params={"job": job.id}).json()["metrics"]) == expected


def test_a_result_is_given_out_as_it_was_written(api: Api) -> None:
    job = api.submit()
    assert api.client.get(f"{JOBS}/{job.id}/result").status_code == 404
    path = TaskFiles.of(api.state_dir, TaskId(job.id, 1, 0)).result
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x80anything")
    assert api.client.get(f"{JOBS}/{job.id}/result").content == b"\x80anything"
    for params in ({"task": 1}, {"attempt": 2}):
        assert api.client.get(f"{JOBS}/{job.id}/result", params=params).status_code == 404


def test_what_is_larger_than_any_result_is_not_given_out(api: Api) -> None:
    job = api.submit()
    path = TaskFiles.of(api.state_dir, TaskId(job.id, 1, 0)).result
    path.parent.mkdir(parents=True)
    path.touch()
    os.truncate(path, 2**30)
    refused = api.client.get(f"{JOBS}/{job.id}/result")
    assert refused.status_code == 409
    assert "has 1.0 GiB, which no result has" in refused.json()["error"]["cause"]


@pytest.mark.parametrize("trap", ["link", "linked folder", "pipe"])
def test_what_a_task_puts_where_its_reports_belong_leads_the_server_nowhere(
    api: Api, tmp_path: Path, trap: str
) -> None:
    job = api.submit()
    files = TaskFiles.of(api.state_dir, TaskId(job.id, 1, 0))
    secret = tmp_path / "secret"
    secret.mkdir()
    for path in (files.result, files.metrics):
        (secret / path.name).write_text('{"at": 1, "step": 1, "values": {"secret": 1}}\n')
    if trap == "linked folder":
        files.result.parent.parent.mkdir(parents=True)
        files.result.parent.symlink_to(secret)
    else:
        files.result.parent.mkdir(parents=True)
        for path in (files.result, files.metrics):
            if trap == "link":
                path.symlink_to(secret / path.name)
            else:
                os.mkfifo(path)
    assert api.client.get(f"{JOBS}/{job.id}/result").status_code == 404
    assert api.client.get(f"{JOBS}/{job.id}/metrics").json()["series"] == []


@pytest.mark.parametrize("what", ["metrics", "result", "output", "output/x"])
def test_files_of_a_job_that_is_not_there_are_not_there(api: Api, what: str) -> None:
    assert api.client.get(f"{JOBS}/nobody/{what}").status_code == 404


def test_the_key_of_a_job_file_counts_like_the_header(api: Api) -> None:
    first, second = api.submit(idempotency_key="k"), api.submit(idempotency_key="k")
    assert first.id == second.id
    other = api.client.post(JOBS, json={"command": "other", "idempotency_key": "k"})
    assert other.status_code == 409


def test_queues_may_only_read_and_write_where_their_list_or_their_parents_says(tmp_path: Path) -> None:
    for name in ("sets", "sets/mini", "secret", "out", "state"):
        (tmp_path / name).mkdir()
    (tmp_path / "sets/way").symlink_to(tmp_path / "secret")
    config = read_cluster(
        f"queues:\n- {{name: org, data: [{tmp_path}/sets], output: []}}\n"
        f"- {{name: team, parent: org, output: [{tmp_path}/out]}}\n- {{name: free}}\n"
    )
    queues = read_queue_rules(config.queue_documents)
    rules = MountRules(lambda: queues, tmp_path / "state")
    assert rules.readable("team", f"{tmp_path}/sets/mini") == tmp_path / "sets/mini"
    assert rules.writable("team", f"{tmp_path}/out/run") == tmp_path / "out/run"
    assert rules.readable("free", f"{tmp_path}/secret")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(InvalidInputError, match=r"the data path .*circle/x leads nowhere"):
        rules.readable("free", f"{tmp_path}/circle/x")
    for path in ("secret", "sets/way", "sets/../secret"):
        with pytest.raises(InvalidInputError, match="may not read"):
            rules.readable("team", f"{tmp_path}/{path}")
    with pytest.raises(InvalidInputError, match="may not write"):
        rules.writable("org", f"{tmp_path}/out/run")
