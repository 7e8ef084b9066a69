"""What a client sends of a folder, in how many requests, and what it fetches of an output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from millpond.client.sdk.files import Files
from millpond.model.errors import ConflictError, InvalidInputError, UnavailableError
from millpond.specs.batches import LARGEST_BATCHED, read_batch
from millpond.specs.file_bodies import BlobInfo, BlobList, OutputFile, OutputList
from millpond.specs.files import digest_of


class Recipient:
    """A server that has nothing and keeps what it is sent.

    Attributes:
        requests: method and path of each.
        meanwhile: done before the first contents are read.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.contents: dict[str, bytes] = {}
        self.meanwhile = lambda: None

    def ask(self, answer: Any, method: str, path: str, **request: Any) -> Any:
        self.requests.append(f"{method} {path.rpartition('/')[0] if method == 'PUT' else path}")
        if path == "/blobs/missing":
            self.meanwhile()
            return BlobList(digests=request["json"]["digests"])
        sent = request["content"]
        contents = read_batch(sent) if path == "/blobs" else [sent if isinstance(sent, bytes) else b"".join(sent)]
        self.contents |= {digest_of(content): content for content in contents}
        digests = [digest_of(content) for content in contents]
        return BlobList(digests=digests) if path == "/blobs" else BlobInfo(digest=digests[0])

    def files(self) -> Files:
        return Files(self.ask, lambda *_: iter(()))


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


class Giver:
    """A server with the output of a job, whose connection breaks in the middle of ``torn``.

    Attributes:
        given: the name of each file that was asked for, and how many bytes of it were given.
        listed: what it says of the files' versions, where that is no longer so.
    """

    def __init__(self, torn: str = "") -> None:
        self.torn = torn
        self.contents = {"a.bin": bytes(range(250)) * 4, "deep/b.bin": bytes(range(200)) * 5}
        self.given: list[tuple[str, int]] = []
        self.listed: dict[str, str] = {}

    def version(self, name: str) -> str:
        return digest_of(self.contents[name])

    def ask(self, *_: Any) -> OutputList:
        files = [
            OutputFile(path=name, size=len(data), modified_at=1.5e9, version=self.listed.get(name, self.version(name)))
            for name, data in self.contents.items()
        ]
        return OutputList(job="j", attempt=1, files=files)

    def stream(
        self, path: str, _params: Any, _silence_s: float, headers: Mapping[str, str] | None = None
    ) -> Iterator[bytes]:
        name, asked = path.partition("/output/")[2], headers or {}
        if asked and asked["If-Match"] != f'"{self.version(name)}"':
            raise ConflictError("the file has changed since", "")
        left = self.contents[name][int(asked.get("Range", "bytes=0-")[6:-1]) :]
        self.given.append((name, 10 if name == self.torn else len(left)))
        yield left[:10]
        if name == self.torn:
            raise UnavailableError("the connection broke", "try again")
        yield left[10:]

    def files(self) -> Files:
        return Files(lambda *given, **params: self.ask(*given), self.stream)


def test_output_that_was_fetched_before_the_connection_broke_is_not_fetched_again(tmp_path: Path) -> None:
    giver = Giver(torn="deep/b.bin")
    with pytest.raises(UnavailableError):
        giver.files().get_output("j", tmp_path)
    assert not (tmp_path / "deep" / "b.bin").exists(), "half a file has no name of its own"
    giver.torn, giver.given = "", []
    places = giver.files().get_output("j", tmp_path)
    assert giver.given == [("deep/b.bin", 990)], "and of the other no more than it lacks"
    assert [place.read_bytes() for place in places] == list(giver.contents.values())
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["a.bin", "b.bin"]


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_part_of_what_has_changed_there_since_is_not_gone_on_with(tmp_path: Path, is_listed: bool) -> None:
    giver = Giver(torn="a.bin")
    before = giver.version("a.bin")
    with pytest.raises(UnavailableError):
        giver.files().get_output("j", tmp_path)
    giver.torn, giver.contents["a.bin"] = "", b"c" * 1000
    giver.listed = {} if is_listed else {"a.bin": before}  # else it changes between the list and the fetching
    places = giver.files().get_output("j", tmp_path)
    assert places[0].read_bytes() == b"c" * 1000
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["a.bin", "b.bin"]


def test_what_only_lacked_its_name_is_not_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    giver = Giver()
    with monkeypatch.context() as cut:
        cut.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(5, "cut off")))
        with pytest.raises(UnavailableError):
            giver.files().get_output("j", tmp_path)
    giver.given = []
    first, _ = giver.files().get_output("j", tmp_path)
    assert giver.given == [("deep/b.bin", 1000)]
    assert first.read_bytes() == giver.contents["a.bin"]


def test_output_that_was_changed_here_since_is_fetched_again(tmp_path: Path) -> None:
    giver = Giver()
    first, _ = giver.files().get_output("j", tmp_path)
    first.write_bytes(b"c" * 1000)
    giver.given = []
    giver.files().get_output("j", tmp_path)
    assert giver.given == [("a.bin", 1000)]
    assert first.read_bytes() == giver.contents["a.bin"]
