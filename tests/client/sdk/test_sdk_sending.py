"""What a client sends of a folder, in how many requests, and what it fetches of an output."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest

from millpond.client.sdk.resources.files import FilesClient
from millpond.client.sdk.resources.uploads import WORTH_ASKING, Upload
from millpond.client.sdk.transport.failures import from_answer
from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from millpond.model.folders import LARGEST_BATCHED, batch_of, digest_of
from millpond.specs.api.jobs.files import (
    BlobInfo,
    BlobList,
    BlobProgress,
    DatasetList,
    OutputFile,
    OutputList,
    read_batch,
)
from millpond.specs.job.snapshots import FileEntry, FolderSnapshot, LinkEntry

TOO_SLOW = b'{"error": {"cause": "the body did not arrive", "code": "too-slow", "remedy": "try again"}}'


class Recipient:
    """A server that has nothing and keeps what it is sent.

    Attributes:
        requests: method and path of each.
        meanwhile: done before the first contents are read.
        told: what a person would be told.
        parts: what it has of contents that were cut off.
        busy: so often it says that another request sends.
        takes: bytes of a body, after which the connection breaks.
        waits_no_longer: it answers then, this once, instead.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.contents: dict[str, bytes] = {}
        self.meanwhile = lambda: None
        self.told: list[str] = []
        self.parts: dict[str, bytes] = {}
        self.busy = 0
        self.takes = 2**60
        self.waits_no_longer = False

    def ask(self, answer: Any, method: str, path: str, **request: Any) -> Any:
        self.requests.append(f"{method} {path.rpartition('/')[0] if method == 'PUT' else path}")
        if path == "/blobs/missing":
            self.meanwhile()
            return BlobList(digests=request["json"]["digests"])
        if method == "GET":
            return self.progress(path.rpartition("/")[2])
        sent = request["content"]
        if "Content-Range" in request.get("headers", {}):
            return self.take(path.rpartition("/")[2], request["headers"]["Content-Range"], sent)
        contents = read_batch(sent) if path == "/blobs" else [sent if isinstance(sent, bytes) else b"".join(sent)]
        self.contents |= {digest_of(content): content for content in contents}
        digests = [digest_of(content) for content in contents]
        return BlobList(digests=digests) if path == "/blobs" else BlobInfo(digest=digests[0])

    def progress(self, digest: str) -> BlobProgress:
        self.busy -= 1
        whole = digest in self.contents
        received = len(self.contents[digest] if whole else self.parts.get(digest, b""))
        return BlobProgress(digest=digest, whole=whole, received=received, busy=self.busy >= 0)

    def take(self, digest: str, told: str, sent: Iterator[bytes]) -> BlobInfo:
        first = int(told.removeprefix("bytes ").partition("-")[0])
        part = self.parts.pop(digest, b"")[:first]
        assert len(part) == first
        for piece in sent:
            part += piece
            if len(part) - first >= self.takes:
                self.parts[digest] = part
                if self.waits_no_longer:
                    self.takes = 2**60
                    raise from_answer(408, TOO_SLOW, "http://pool:1")
                raise UnavailableError("the connection broke", "try again") from httpx2.WriteError("reset")
        assert told == f"bytes {first}-{len(part) - 1}/{len(part)}"
        if digest_of(part) != digest:
            raise InvalidInputError("what came is not the content", "send it again")
        self.contents[digest] = part
        return BlobInfo(digest=digest)

    def files(self) -> FilesClient:
        return FilesClient(self, self.told.append)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(50):
        (tmp_path / f"{number}.txt").write_text(str(number))
    (tmp_path / "weights").write_bytes(b"w" * (LARGEST_BATCHED + 1))
    return tmp_path


def test_small_files_share_a_request_and_large_ones_have_their_own(folder: Path) -> None:
    server = Recipient()
    server.files().ship(folder)
    assert server.requests == ["POST /blobs/missing", "POST /blobs", "PUT /blobs", "POST /blobs/missing", "PUT /blobs"]
    assert all(digest_of((folder / f"{number}.txt").read_bytes()) in server.contents for number in range(50))


@pytest.mark.parametrize("content", ["other", "o" * (LARGEST_BATCHED + 1)])
def test_a_small_file_that_changes_while_it_is_sent_is_named(folder: Path, content: str) -> None:
    server = Recipient()
    server.meanwhile = lambda: (folder / "7.txt").write_text(content)
    with pytest.raises(InvalidInputError, match=r"7\.txt changed while it was sent"):
        server.files().ship(folder)


LARGE = bytes(range(256)) * (WORTH_ASKING // 256) + b"and more"


@pytest.fixture
def large(tmp_path: Path) -> Path:
    (tmp_path / "large.bin").write_bytes(LARGE)
    return tmp_path


def cut(server: Recipient, folder: Path) -> None:
    server.takes = 3 * 2**20
    with pytest.raises(UnavailableError) as failure:
        server.files().ship(folder)
    assert "the same command goes on" in failure.value.remedy
    server.takes = 2**60


def test_a_large_file_that_was_cut_off_goes_on_where_the_server_has_it(large: Path) -> None:
    server = Recipient()
    cut(server, large)
    assert server.told == []
    server.files().ship(large)
    assert server.contents[digest_of(LARGE)] == LARGE
    assert server.told == ["going on with large.bin at 3.0 MiB of 8.0 MiB"]


def test_a_large_file_goes_on_by_itself_where_the_server_waited_no_longer_for_a_machine_that_slept(large: Path) -> None:
    server = Recipient()
    server.takes, server.waits_no_longer = 3 * 2**20, True
    server.files().ship(large)
    assert server.contents[digest_of(LARGE)] == LARGE
    assert server.told == ["going on with large.bin at 3.0 MiB of 8.0 MiB"]


def test_a_file_that_only_lacked_its_name_there_sends_its_last_byte(large: Path) -> None:
    server = Recipient()
    server.parts[digest_of(LARGE)] = LARGE
    server.files().ship(large)
    assert server.contents[digest_of(LARGE)] == LARGE


def test_a_part_that_is_spoilt_there_is_sent_anew_by_itself(large: Path) -> None:
    server = Recipient()
    server.parts[digest_of(LARGE)] = b"x" * 2**20
    server.files().ship(large)
    assert server.contents[digest_of(LARGE)] == LARGE


def test_a_large_file_that_changes_while_it_is_sent_is_named(large: Path) -> None:
    server = Recipient()
    server.meanwhile = lambda: (large / "large.bin").write_bytes(LARGE[:-1])
    with pytest.raises(InvalidInputError, match=r"large\.bin: it changed while it was sent"):
        server.files().ship(large)
    server.meanwhile = lambda: (large / "large.bin").write_bytes(b"x" * len(LARGE))
    with pytest.raises(InvalidInputError, match=r"large\.bin: what came is not the content"):
        server.files().ship(large)


def test_who_finds_the_same_file_being_sent_waits_for_that(large: Path) -> None:
    server, waits = Recipient(), list[float]()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            server.contents[digest_of(LARGE)] = LARGE

    server.busy = 3
    Upload(server, large / "large.bin", digest_of(LARGE), len(LARGE), server.told.append, wait).send()
    assert len(waits) == 3
    assert server.told == ["large.bin is being sent by another command; waiting for that"]
    assert not [request for request in server.requests if request.startswith("PUT")]


def test_ctrl_c_says_that_the_same_command_goes_on(large: Path) -> None:
    server = Recipient()

    def interrupted(*_given: Any) -> None:
        raise KeyboardInterrupt

    server.take = interrupted  # type: ignore[assignment, method-assign]
    with pytest.raises(KeyboardInterrupt):
        server.files().ship(large)
    assert server.told == ["what was sent is kept for a day: the same command goes on with it"]


class Giver:
    """A server with the output of a job, whose connection breaks in the middle of ``torn``.

    Attributes:
        given: the name of each file that was asked for, and how many bytes of it were given.
        listed: what it says of the files' versions, where that is no longer so.
        together: of each request for several small files, how many were given.
        meanwhile: done before these are given.
    """

    def __init__(self, torn: str = "") -> None:
        self.torn = torn
        self.contents = {"a.bin": bytes(range(250)) * 2_000, "deep/b.bin": bytes(range(200)) * 2_500}
        self.given: list[tuple[str, int]] = []
        self.listed: dict[str, str] = {}
        self.together: list[int] = []
        self.meanwhile = lambda: None
        self.closed = ""

    def version(self, name: str) -> str:
        return digest_of(self.contents[name])

    def ask(self, *_: Any, **_params: Any) -> OutputList:
        files = [
            OutputFile(path=name, size=len(data), modified_at=1.5e9, version=self.listed.get(name, self.version(name)))
            for name, data in self.contents.items()
        ]
        return OutputList(job="j", attempt=1, files=files)

    def read(
        self, path: str, _params: Any, _silence_s: float, headers: Mapping[str, str] | None = None
    ) -> Iterator[bytes]:
        name, asked = unquote(path.partition("/output/")[2]), headers or {}
        if name not in self.contents:
            raise NotFoundError(f"no file {name!r} in the output", "")
        if name == self.closed:
            raise ConflictError(f"the rights of {name!r} do not let the server read it", "")
        if asked and asked["If-Match"] != f'"{self.version(name)}"':
            raise ConflictError("the file has changed since", "")
        left = self.contents[name][int(asked.get("Range", "bytes=0-")[6:-1]) :]
        self.given.append((name, 10 if name == self.torn else len(left)))
        yield left[:10]
        if name == self.torn:
            raise UnavailableError("the connection broke", "try again")
        yield left[10:]

    def send(self, *_: Any, json: dict[str, list[str]], **_params: Any) -> httpx2.Response:
        self.meanwhile()
        contents = [None if name == self.closed else self.contents.get(name) for name in json["paths"]]
        given = list(takewhile(lambda each: each is not None and len(each) <= LARGEST_BATCHED, contents))[:3]
        self.together.append(len(given))
        return httpx2.Response(200, content=batch_of(each for each in given if each is not None))

    def files(self) -> FilesClient:
        return FilesClient(self, print)  # type: ignore[arg-type]


def test_output_that_was_fetched_before_the_connection_broke_is_not_fetched_again(tmp_path: Path) -> None:
    giver = Giver(torn="deep/b.bin")
    with pytest.raises(UnavailableError):
        giver.files().get_output("j", tmp_path)
    assert not (tmp_path / "deep" / "b.bin").exists(), "half a file has no name of its own"
    giver.torn, giver.given = "", []
    places = giver.files().get_output("j", tmp_path)
    assert giver.given == [("deep/b.bin", 499_990)], "and of the other no more than it lacks"
    assert [place.read_bytes() for place in places] == list(giver.contents.values())
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["a.bin", "b.bin"]


@pytest.mark.parametrize("name", ["n" * 255, "ü" * 127, "n" * 236])
def test_a_file_whose_name_is_as_long_as_names_can_be_is_fetched_and_continued(tmp_path: Path, name: str) -> None:
    giver = Giver(torn=name)
    giver.contents |= {name: b"x" * 500_000, "m" * 255: b"small"}
    with pytest.raises(UnavailableError):
        giver.files().get_output("j", tmp_path)
    giver.torn, giver.given = "", []
    places = giver.files().get_output("j", tmp_path)
    assert (name, 499_990) in giver.given
    assert [place.read_bytes() for place in places] == list(giver.contents.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a.bin", "deep", name, "m" * 255])


def test_one_file_or_one_folder_of_the_output_is_fetched_alone(tmp_path: Path) -> None:
    giver = Giver()
    assert giver.files().get_output("j", tmp_path / "one", only="a.bin") == [tmp_path / "one/a.bin"]
    assert giver.files().get_output("j", tmp_path / "two", only="deep/") == [tmp_path / "two/deep/b.bin"]
    with pytest.raises(NotFoundError, match=r"no file 'a.bim'.*did you mean a\.bin\?"):
        giver.files().get_output("j", tmp_path, only="a.bim")


def test_output_without_room_is_refused_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=999_999))
    giver = Giver()
    with pytest.raises(UnavailableError, match=r"976\.6 KiB are to be fetched, and 976\.6 KiB are free in") as refused:
        giver.files().get_output("j", tmp_path / "new" / "folder")
    assert str(refused.value.remedy) == "make room, fetch into another folder, or fewer files"
    assert not giver.given
    assert not (tmp_path / "new").exists()
    giver.files().get_output("j", tmp_path, only="a.bin")
    giver.files().get_output("j", tmp_path)  # what is there needs no room again
    assert giver.given == [("a.bin", 500_000), ("deep/b.bin", 500_000)]


def test_a_file_that_lies_where_a_folder_of_the_output_is_to_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "deep").write_text("mine")
    with pytest.raises(UnavailableError, match="cannot be written"):
        Giver().files().get_output("j", tmp_path)
    assert (tmp_path / "deep").read_text() == "mine"


def test_small_files_of_an_output_share_requests(tmp_path: Path) -> None:
    giver = Giver()
    giver.contents |= {f"small/{number}": b"x" * number for number in range(8)}
    places = giver.files().get_output("j", tmp_path)
    assert (giver.given, giver.together) == ([("a.bin", 500_000), ("deep/b.bin", 500_000)], [3, 3, 2])
    assert [place.read_bytes() for place in places] == list(giver.contents.values())
    assert {place.stat().st_mtime for place in places} == {1.5e9}
    assert giver.files().get_output("j", tmp_path) == places
    assert giver.together == [3, 3, 2], "nothing is fetched again"


def test_a_small_file_that_has_grown_since_it_was_listed_is_fetched_by_itself_and_one_that_is_gone_is_named(
    tmp_path: Path,
) -> None:
    giver = Giver()
    giver.contents = {f"small/{number}": b"x" for number in range(4)}
    giver.meanwhile = lambda: giver.contents.update({"small/1": b"x" * 400_000})
    places = giver.files().get_output("j", tmp_path)
    assert [place.stat().st_size for place in places] == [1, 400_000, 1, 1]
    assert (giver.given, giver.together) == ([("small/1", 400_000)], [1, 0, 2])
    giver.contents["new"] = giver.contents["small/1"] = b"x"
    giver.meanwhile = lambda: giver.contents.pop("new", b"") and None
    with pytest.raises(NotFoundError, match="no file 'new'"):
        giver.files().get_output("j", tmp_path)


@pytest.mark.parametrize("closed", ["small/1", "a.bin"])
def test_a_file_that_the_server_may_not_read_keeps_no_other_from_being_fetched(tmp_path: Path, closed: str) -> None:
    giver = Giver()
    giver.contents |= {f"small/{number}": b"x" for number in range(4)}
    giver.closed = closed
    with pytest.raises(ConflictError, match=f"the rights of '{closed}'"):
        giver.files().get_output("j", tmp_path)
    there = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert there == set(giver.contents) - {closed}, "nor is half of it left"


def test_parts_of_other_versions_are_removed_and_those_of_other_files_stay(tmp_path: Path) -> None:
    giver = Giver()
    giver.contents |= {"c": b"1", "d": b"2"}
    for name in (".c.0123456789ab.part", ".c.d.0123456789ab.part", ".part", ".c.part"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / f".d.{digest_of(giver.version('d').encode())[:12]}.part").symlink_to(tmp_path / "elsewhere")
    giver.files().get_output("j", tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".c.d.0123456789ab.part", ".c.part", ".part", "a.bin", "c", "d", "deep"]


class Shelf:
    """A server with one dataset of two versions."""

    def __init__(self, contents: dict[str, bytes], links: dict[str, str]) -> None:
        self.contents, self.asked = contents, list[str]()
        files = [
            FileEntry(path=path, digest=digest_of(data), size=len(data), executable=data.startswith(b"#!"))
            for path, data in contents.items()
        ]
        self.snapshot = FolderSnapshot(
            files=tuple(files), links=tuple(LinkEntry(path=path, target=target) for path, target in links.items())
        )

    def files(self) -> FilesClient:
        return FilesClient(self, print)  # type: ignore[arg-type]

    def ask(self, _answer: Any, _method: str, path: str) -> DatasetList | FolderSnapshot:
        self.asked.append(path)
        if path != "/datasets":
            return self.snapshot
        fields = {"digest": "0" * 64, "files": 2, "size": 1, "user": "ada", "created_at": 1.5e9}
        found = [{"name": "words", "version": n, "reference": f"dataset/words@{n}", **fields} for n in (2, 1)]
        return DatasetList.model_validate({"datasets": found})

    def send(self, _method: str, _path: str, *, json: dict[str, list[str]], **_: Any) -> httpx2.Response:
        return httpx2.Response(200, content=batch_of(self.contents[path] for path in json["paths"]))

    def read(self, path: str, _params: Any, _silence_s: float, _headers: Any = None) -> Iterator[bytes]:
        yield self.contents[unquote(path.partition("/files/")[2])]


def test_a_dataset_is_fetched_with_its_rights_and_links(tmp_path: Path) -> None:
    shelf = Shelf({"run me": b"#!x", "deep/b": b"1"}, {"deep/c": "b"})
    for version, number in ((None, 2), (1, 1), (1, 1)):
        assert shelf.files().get_dataset("words", tmp_path, version).version == number
        assert shelf.asked.pop() == f"/datasets/words/{number}/files"
    assert os.access(tmp_path / "run me", os.X_OK)
    assert (tmp_path / "deep/c").read_bytes() == b"1"
    with pytest.raises(NotFoundError, match="words@3"):
        shelf.files().get_dataset("words", tmp_path, 3)


@pytest.mark.parametrize(
    ("contents", "links"),
    [({"../a": b"1"}, {}), ({}, {"../a": "b"}), ({}, {"a": "../../b"}), ({}, {"a": "/etc/passwd"})],
    ids=["file", "link", "target", "absolute"],
)
def test_nothing_of_a_dataset_is_written_out_of_its_folder(tmp_path: Path, contents: Any, links: Any) -> None:
    with pytest.raises(InvalidInputError, match="leads out of"):
        Shelf(contents, links).files().get_dataset("words", tmp_path / "in")
    assert not [path for path in tmp_path.rglob("*") if not path.is_dir()]


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_part_of_what_has_changed_there_since_is_not_gone_on_with(tmp_path: Path, is_listed: bool) -> None:
    giver = Giver(torn="a.bin")
    before = giver.version("a.bin")
    with pytest.raises(UnavailableError):
        giver.files().get_output("j", tmp_path)
    giver.torn, giver.contents["a.bin"] = "", b"c" * 500_000
    giver.listed = {} if is_listed else {"a.bin": before}  # else it changes between the list and the fetching
    places = giver.files().get_output("j", tmp_path)
    assert places[0].read_bytes() == b"c" * 500_000
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["a.bin", "b.bin"]


def test_what_only_lacked_its_name_is_not_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    giver = Giver()
    with monkeypatch.context() as cut:
        cut.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(5, "cut off")))
        with pytest.raises(UnavailableError):
            giver.files().get_output("j", tmp_path)
    giver.given = []
    first, _ = giver.files().get_output("j", tmp_path)
    assert giver.given == [("deep/b.bin", 500_000)]
    assert first.read_bytes() == giver.contents["a.bin"]


def test_output_that_was_changed_here_since_is_fetched_again(tmp_path: Path) -> None:
    giver = Giver()
    first, _ = giver.files().get_output("j", tmp_path)
    first.write_bytes(b"c" * 500_000)
    giver.given = []
    giver.files().get_output("j", tmp_path)
    assert giver.given == [("a.bin", 500_000)]
    assert first.read_bytes() == giver.contents["a.bin"]
