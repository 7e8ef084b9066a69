"""The SFTP server of a session, packet by packet."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from millpond.node.sessions import sftp
from millpond.node.sessions.sftp import SftpServer
from millpond.node.sessions.sftp_wire import (
    CREATE,
    READ,
    WRITE,
    Fields,
    SftpAnswer,
    SftpRequest,
    Status,
    list_line,
    number,
    text,
)


class Client:
    """Asks one thing after another."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.server = SftpServer(self.sent.append)

    def ask(self, kind: int, *fields: bytes) -> tuple[int, Fields]:
        """Kind and fields of the answer, which is about this very question."""
        self.server.receive(text(bytes([kind]) + number(7) + b"".join(fields)))
        answer = self.sent.pop()
        assert int.from_bytes(answer[:4]) == len(answer) - 4
        assert answer[5:9] == number(7)
        return answer[4], Fields(answer[9:])

    def status(self, kind: int, *fields: bytes) -> Status:
        answer, rest = self.ask(kind, *fields)
        assert answer == SftpAnswer.STATUS
        return Status(rest.number())

    def open(self, name: str, flags: int = READ) -> bytes:
        answer, rest = self.ask(SftpRequest.OPEN, text(name.encode()), number(flags), number(0))
        assert answer == SftpAnswer.HANDLE
        return rest.text()


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.chdir(tmp_path)
    return Client()


def test_both_sides_agree_on_version_3(client: Client) -> None:
    client.server.receive(text(bytes([SftpRequest.INIT]) + number(6)))
    assert client.sent.pop()[4:9] == bytes([SftpAnswer.VERSION]) + number(3)


def test_packets_may_come_in_pieces(client: Client, tmp_path: Path) -> None:
    packet = text(bytes([SftpRequest.MKDIR]) + number(1) + text(b"folder") + number(0))
    for byte in packet:
        assert client.sent == []
        client.server.receive(bytes([byte]))
    assert (tmp_path / "folder").is_dir()


def test_a_file_is_written_and_read_at_any_place(client: Client, tmp_path: Path) -> None:
    handle = client.open("file", READ | WRITE | CREATE)
    assert client.status(SftpRequest.WRITE, text(handle), (3).to_bytes(8), text(b"def")) is Status.OK
    assert client.status(SftpRequest.WRITE, text(handle), (0).to_bytes(8), text(b"abc")) is Status.OK
    kind, data = client.ask(SftpRequest.READ, text(handle), (2).to_bytes(8), number(2))
    assert (kind, data.text()) == (SftpAnswer.DATA, b"cd")
    assert client.status(SftpRequest.READ, text(handle), (6).to_bytes(8), number(2)) is Status.EOF
    assert client.status(SftpRequest.CLOSE, text(handle)) is Status.OK
    assert client.status(SftpRequest.READ, text(handle), (0).to_bytes(8), number(2)) is Status.FAILURE
    assert (tmp_path / "file").read_bytes() == b"abcdef"


def test_a_rename_never_overwrites_and_its_extension_does(client: Client, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "new").write_text("new")
    assert client.status(SftpRequest.RENAME, text(b"old"), text(b"new")) is Status.FAILURE
    assert (tmp_path / "new").read_text() == "new"
    extension = text(b"posix-rename@openssh.com")
    assert client.status(SftpRequest.EXTENDED, extension, text(b"old"), text(b"new")) is Status.OK
    assert (tmp_path / "new").read_text() == "old"


def test_a_folder_of_any_size_and_any_names_is_listed_to_its_end(client: Client, tmp_path: Path) -> None:
    wanted = {b"n%d" % each for each in range(250)} | {b"\xff\xfe"}
    for name in wanted:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).touch()
    _, rest = client.ask(SftpRequest.OPENDIR, text(b""))
    handle, seen = rest.text(), []
    while (answer := client.ask(SftpRequest.READDIR, text(handle)))[0] == SftpAnswer.NAME:
        for _ in range(answer[1].number()):
            seen.append(answer[1].text())
            assert answer[1].text().startswith(b"-rw")
            sizes = answer[1].number(), answer[1].long()
            assert sizes[1] == 0
            [answer[1].number() for _ in range(5)]
    assert Status(answer[1].number()) is Status.EOF
    assert sorted(seen) == sorted(wanted)


def test_the_way_of_a_circle_of_links_is_told_and_ends_nothing(client: Client, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    assert client.ask(SftpRequest.REALPATH, text(b"circle"))[0] == SftpAnswer.NAME
    assert client.status(SftpRequest.STAT, text(b"circle")) is Status.FAILURE


def test_what_cannot_be_done_has_a_status_of_its_own(client: Client, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert client.status(SftpRequest.STAT, text(b"none")) is Status.NO_SUCH_FILE
    assert client.status(SftpRequest.RMDIR, text(b"file")) is Status.FAILURE
    assert client.status(SftpRequest.STAT, text(b"a\x00b")) is Status.BAD_MESSAGE
    assert client.status(SftpRequest.STAT, number(99)) is Status.BAD_MESSAGE
    assert client.status(SftpRequest.EXTENDED, text(b"statvfs@openssh.com"), text(b".")) is Status.UNSUPPORTED
    assert client.status(77) is Status.UNSUPPORTED
    assert client.status(SftpRequest.CLOSE, text(b"none")) is Status.FAILURE


def test_open_files_and_packets_are_bounded(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sftp, "MOST_HANDLES", 2)
    (tmp_path / "file").touch()
    handle = client.open("file")
    client.open("file")
    assert client.status(SftpRequest.OPEN, text(b"file"), number(READ), number(0)) is Status.FAILURE
    client.status(SftpRequest.CLOSE, text(handle))
    client.open("file")
    client.server.close()
    with pytest.raises(ValueError, match="a packet of"):
        client.server.receive(number(10_000_000))


def test_a_pipe_that_nobody_is_at_holds_nothing_up(client: Client, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert client.status(SftpRequest.OPEN, text(b"pipe"), number(WRITE), number(0)) is Status.FAILURE
    handle = client.open("pipe")
    assert client.status(SftpRequest.READ, text(handle), (0).to_bytes(8), number(2)) is Status.FAILURE


@pytest.mark.parametrize("changed", [-(10**17), -1, 0, 10**17])
def test_a_file_of_any_time_is_listed(changed: int) -> None:
    found = os.stat_result((stat.S_IFREG | 0o640, 1, 1, 1, 7, 7, 5, changed, changed, changed))
    assert list_line(b"name", found).startswith(b"-rw-r-----")
    assert list_line(b"name", found).endswith(b" name")
