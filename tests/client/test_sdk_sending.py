"""What a client sends of a folder, and in how many requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.client.sdk.files import Files
from millpond.model.errors import InvalidInputError
from millpond.specs.batches import LARGEST_BATCHED, read_batch
from millpond.specs.file_bodies import BlobInfo, BlobList
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
