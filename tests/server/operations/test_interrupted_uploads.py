"""Large contents that were cut off on their way: kept aside, gone on with, and never taken for what they are not."""

from __future__ import annotations

import asyncio
import os
import tarfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from api_world import JOBS, Api, error_of

from millpond.model.errors import ConflictError, InvalidInputError, UnavailableError
from millpond.model.folders import digest_of
from millpond.server.auth.records import Group, User
from millpond.server.auth.roles import UserRole
from millpond.server.operations.backup import back_up
from millpond.server.storage.files import service as file_service
from millpond.server.storage.files.partials import KEPT_S, SILENT_S, SMALLEST_KEPT, GrowingPart, Partials
from millpond.server.storage.files.service import Span

BLOBS = "/api/v1/blobs"
CONTENT = os.urandom(3 * SMALLEST_KEPT)
DIGEST = digest_of(CONTENT)
HALF = len(CONTENT) // 2


async def _cut(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
    raise ConnectionResetError


def cut_off(api: Api, data: bytes, user: str = "ada", first: int = 0) -> None:
    """A connection that breaks when so much has come."""
    with pytest.raises(ConnectionResetError):
        asyncio.run(api.service.files.receive(user, DIGEST, Span(first), _cut(data)))


def progress(api: Api) -> tuple[bool, int, bool]:
    found = api.client.get(f"{BLOBS}/{DIGEST}").json()
    return found["whole"], found["received"], found["busy"]


def go_on(api: Api, first: int, data: bytes | None = None, told: str = "") -> int:
    told = told or f"bytes {first}-{len(CONTENT) - 1}/{len(CONTENT)}"
    rest = CONTENT[first:] if data is None else data
    return api.client.put(f"{BLOBS}/{DIGEST}", content=rest, headers={"Content-Range": told}).status_code


def parts(api: Api) -> list[Path]:
    return list((api.state_dir / "blobs/partials").glob("*"))


def test_what_was_cut_off_goes_on_as_often_as_it_takes(api: Api) -> None:
    assert progress(api) == (False, 0, False)
    cut_off(api, CONTENT[:HALF])
    assert progress(api) == (False, HALF, False)
    cut_off(api, CONTENT[HALF : HALF + 10], first=HALF)
    assert progress(api) == (False, HALF + 10, False)
    assert go_on(api, HALF + 10) == 201
    assert progress(api) == (True, len(CONTENT), False)
    assert not parts(api)
    assert api.service.files._blobs.read(DIGEST) == CONTENT  # nothing gives out contents but by a job


def test_it_may_go_on_before_where_it_ended_and_not_behind(api: Api) -> None:
    cut_off(api, CONTENT[:HALF])
    answer = api.client.put(
        f"{BLOBS}/{DIGEST}",
        content=CONTENT[HALF + 1 :],
        headers={"Content-Range": f"bytes {HALF + 1}-{len(CONTENT) - 1}/{len(CONTENT)}"},
    )
    assert answer.status_code == 409
    assert error_of(answer).cause.startswith(f"{HALF} bytes of the content")
    assert progress(api) == (False, HALF, False)
    assert go_on(api, HALF - 7) == 201
    assert progress(api)[0]


def test_a_client_that_lies_is_found_out_and_begins_anew(api: Api) -> None:
    cut_off(api, b"x" * HALF)
    assert go_on(api, HALF) == 422
    assert progress(api) == (False, 0, False)
    assert not parts(api)
    assert api.client.put(f"{BLOBS}/{DIGEST}", content=CONTENT).status_code == 201


@pytest.mark.parametrize(
    "told",
    [
        "bytes 5-4/9",
        "bytes 0-3/9",
        "bytes 0-8/*",
        "bytes */9",
        "0-8/9",
        "bytes 0-8/9, 1-2/9",
        "bytes -1-8/9",
        "x" * 999,
    ],
)
def test_a_span_that_is_not_the_rest_of_a_content_is_refused(api: Api, told: str) -> None:
    assert go_on(api, 0, told=told) == 422
    assert not parts(api)


def test_a_body_of_another_length_than_is_told_is_refused(api: Api) -> None:
    assert go_on(api, 0, CONTENT[:-1]) == 422
    assert go_on(api, 0, told=f"bytes 0-{2**60}/{2**60 + 1}") == 422
    assert not parts(api)

    def shorter() -> Iterator[bytes]:
        yield CONTENT[:HALF]

    told = {"Content-Range": f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}"}
    answer = api.client.put(f"{BLOBS}/{DIGEST}", content=shorter(), headers=told)
    assert answer.status_code == 503
    assert progress(api) == (False, HALF, False), (
        "a proxy on the way may end a body that was cut off as if it were whole"
    )


def test_little_is_not_worth_keeping(api: Api) -> None:
    cut_off(api, CONTENT[: SMALLEST_KEPT - 1])
    assert progress(api) == (False, 0, False)
    assert not parts(api)


def test_nobody_sees_or_spoils_the_part_of_another(api: Api) -> None:
    cut_off(api, b"x" * HALF, "max")
    assert progress(api) == (False, 0, False)
    cut_off(api, CONTENT[:HALF])
    assert progress(api) == (False, HALF, False)
    assert go_on(api, HALF) == 201


def test_a_part_counts_for_whoever_sends_it_until_it_is_forgotten(api: Api) -> None:
    accounts = api.security.accounts
    accounts.add_group(Group("vision", "vision"))
    accounts.add_user(User("bob"), "vision", UserRole.MEMBER)
    cut_off(api, CONTENT[:HALF], "bob")
    cut_off(api, CONTENT[:HALF], "ada")
    use = api.service.disk.look()
    assert use.users["bob"] >= HALF
    assert use.groups["vision"] >= HALF
    assert api.client.patch("/api/v1/users/ada", json={"limits": {"disk_bytes": HALF // 2}}).status_code == 200
    assert go_on(api, HALF) == 409
    assert api.client.post(JOBS, json={"command": "work"}).status_code == 409
    collector = api.service.files.collector
    collector.tidy(time.time() + KEPT_S - 60)
    assert len(parts(api)) == 2
    collector.tidy(time.time() + KEPT_S + 60)
    assert not parts(api)
    assert api.service.disk.look().users.get("ada", 0) == 0
    assert go_on(api, 0) == 201


def test_what_is_under_way_is_collected_with_no_other_content(api: Api) -> None:
    cut_off(api, CONTENT[:HALF])
    api.service.files.collector.collect(time.time() + KEPT_S)
    assert progress(api) == (False, HALF, False)


def test_a_backup_leaves_parts_out(api: Api, tmp_path: Path) -> None:
    cut_off(api, CONTENT[:HALF])
    back_up(api.state_dir, tmp_path / "all.tar.gz", 1.0)
    with tarfile.open(tmp_path / "all.tar.gz") as archive:
        assert not [name for name in archive.getnames() if "partials" in name]


def test_a_full_disk_leaves_no_part_behind(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off(api, CONTENT[:HALF])
    (part,) = parts(api)
    with Path("/dev/full").open("r+b", buffering=0) as full:
        monkeypatch.setattr(GrowingPart, "_open", lambda self: (full, part))
        answer = api.client.put(f"{BLOBS}/{DIGEST}", content=CONTENT)
    assert answer.status_code == 503
    assert "disk is full" in error_of(answer).cause
    assert not parts(api)


def test_who_sends_nothing_for_long_is_cut_off(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_service, "SILENCE_S", 0.01)

    async def silent() -> AsyncIterator[bytes]:
        yield CONTENT[:HALF]
        await asyncio.Event().wait()

    with pytest.raises(UnavailableError, match="not all"):
        asyncio.run(api.service.files.receive("ada", DIGEST, Span(0, len(CONTENT)), silent()))
    assert progress(api) == (False, HALF, False)


class Hands:
    """Two requests that send the same content of one user."""

    def __init__(self, state_dir: Path) -> None:
        self.now = 0.0
        self.state_dir = state_dir
        self.partials = Partials(state_dir, lambda: self.now)

    def send(self, first: int):  # type: ignore[no-untyped-def]
        incoming = self.partials.receive("ada", DIGEST, first, 2**30).__enter__()
        incoming.catch_up()
        return incoming

    def content(self) -> bytes:
        return (self.state_dir / "blobs" / DIGEST[:2] / DIGEST[2:]).read_bytes()


def test_two_that_begin_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    hands = Hands(tmp_path)
    one, other = hands.send(0), hands.send(0)
    for piece in (CONTENT[:HALF], CONTENT[HALF:]):
        one.write(piece)
        other.write(b"x" * 9)
    with pytest.raises(InvalidInputError):
        other.finish()
    other.__exit__(InvalidInputError, InvalidInputError(""), None)
    one.finish()
    one.__exit__(None, None, None)
    assert hands.content() == CONTENT
    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == [
        tmp_path / "blobs" / DIGEST[:2] / DIGEST[2:]
    ]


def test_nobody_goes_on_with_what_grows_unless_its_sender_has_gone_silent(tmp_path: Path) -> None:
    hands = Hands(tmp_path)
    one = hands.send(0)
    one.write(CONTENT[:HALF])
    hands.now = SILENT_S / 2
    one.heard()
    hands.now = 1.4 * SILENT_S
    assert hands.partials.progress("ada", DIGEST).busy
    with pytest.raises(ConflictError, match="being sent"):
        hands.send(HALF)
    hands.now = 1.6 * SILENT_S
    assert not hands.partials.progress("ada", DIGEST).busy
    other = hands.send(HALF)
    with pytest.raises(ConflictError, match="another request goes on"):
        one.write(CONTENT[HALF:])
    one.__exit__(ConflictError, ConflictError(""), None)
    assert hands.partials.progress("ada", DIGEST).busy, "the end of the one is not that of the other"
    other.write(CONTENT[HALF:])
    other.finish()
    other.__exit__(None, None, None)
    assert hands.content() == CONTENT
    assert not hands.partials.progress("ada", DIGEST).busy


def test_one_that_gave_way_in_the_middle_of_a_write_has_written_it_before_the_other_goes_on(tmp_path: Path) -> None:
    hands = Hands(tmp_path)
    one = hands.send(0)
    written = threading.Event()

    def slowly(data: bytes) -> None:
        one.write(data)
        written.set()

    with one._writing:  # as in the middle of a write
        writer = threading.Thread(target=slowly, args=(CONTENT[:HALF],))
        writer.start()
        assert not written.is_set()
    writer.join()
    hands.now = 2 * SILENT_S
    other = hands.send(HALF)
    assert other.size == HALF
    other.write(CONTENT[HALF:])
    other.finish()
    assert hands.content() == CONTENT
