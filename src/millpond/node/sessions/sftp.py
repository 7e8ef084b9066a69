"""Files of a task for an SFTP client, served from the task's own place: what it may not reach, no client reaches.

A session (``session``) enters the task's sandbox and becomes this server, so it needs no program there, is frozen and
killed with the task, and has the rights of a command that runs beside it. Relative paths begin in the task's directory.
Standard library only.

In a container it is the image's Python that runs this (``sftp_inside``): 3.8 and newer.

Source: draft-ietf-secsh-filexfer-02; the extensions ``posix-rename`` and ``fsync`` as in OpenSSH's file PROTOCOL.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millpond.node.sessions import sftp_wire as wire
from millpond.node.sessions.sftp_wire import Attributes, Fields, SftpAnswer, SftpRequest, Status

if TYPE_CHECKING:
    from io import BufferedReader, BufferedWriter

MOST_HANDLES: Final = 256
_LONGEST_READ: Final = 262_144
_NAMES_AT_ONCE: Final = 100
_EXTENSIONS: Final = {b"posix-rename@openssh.com": b"1", b"fsync@openssh.com": b"1"}


class RefusedError(Exception):
    """What was asked for is not done."""

    def __init__(self, status: Status, why: str) -> None:
        super().__init__(why)
        self.status = status


class SftpServer:
    """Answers the packets of one client.

    Args:
        send: takes what is to go to the client.
    """

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._received = b""
        self._files: dict[bytes, int] = {}
        self._folders: dict[bytes, list[os.DirEntry[str]]] = {}
        self._handles = 0
        self._answers: dict[SftpRequest, Callable[[Fields], bytes | None]] = {
            SftpRequest.OPEN: self._open,
            SftpRequest.CLOSE: self._close,
            SftpRequest.READ: self._read,
            SftpRequest.WRITE: self._write,
            SftpRequest.LSTAT: lambda fields: _attributes(_path(fields).lstat()),
            SftpRequest.STAT: lambda fields: _attributes(_path(fields).stat()),
            SftpRequest.FSTAT: lambda fields: _attributes(os.fstat(self._file(fields))),
            SftpRequest.SETSTAT: lambda fields: _change(_path(fields), Attributes.read(fields)),
            SftpRequest.FSETSTAT: lambda fields: _change(self._file(fields), Attributes.read(fields)),
            SftpRequest.OPENDIR: self._open_folder,
            SftpRequest.READDIR: self._read_folder,
            SftpRequest.REMOVE: lambda fields: _path(fields).unlink(),
            SftpRequest.MKDIR: _make_folder,
            SftpRequest.RMDIR: lambda fields: _path(fields).rmdir(),
            SftpRequest.REALPATH: lambda fields: _name(os.path.realpath(_path(fields))),
            SftpRequest.RENAME: _rename,
            SftpRequest.READLINK: lambda fields: _name(os.readlink(_path(fields))),  # noqa: PTH115 - Path's came with 3.9
            SftpRequest.SYMLINK: _link,
            SftpRequest.EXTENDED: self._extended,
        }

    def receive(self, data: bytes) -> None:
        """Take what the client sent, whole packets or parts of them.

        Raises:
            ValueError: it does not speak SFTP.
        """
        self._received += data
        while len(self._received) >= 4:
            length = int.from_bytes(self._received[:4], "big")
            if not 0 < length <= wire.LONGEST_PACKET:
                raise ValueError(f"a packet of {length} bytes")
            if len(self._received) < 4 + length:
                return
            packet, self._received = self._received[4 : 4 + length], self._received[4 + length :]
            answer = self._answered(packet)
            self._send(wire.text(answer))

    def close(self) -> None:
        """The client is gone."""
        for handle in self._files.values():
            os.close(handle)
        self._files.clear()
        self._folders.clear()

    def _answered(self, packet: bytes) -> bytes:
        kind, fields = packet[0], Fields(packet[1:])
        if kind == SftpRequest.INIT:
            extensions = b"".join(wire.text(name) + wire.text(version) for name, version in _EXTENSIONS.items())
            return bytes([SftpAnswer.VERSION]) + wire.number(wire.VERSION) + extensions
        about = wire.number(fields.number())
        try:
            answer = self._answer(kind, fields) or _status(Status.OK, "")
        except RefusedError as refusal:
            answer = _status(refusal.status, str(refusal))
        except FileNotFoundError as error:
            answer = _status(Status.NO_SUCH_FILE, error.strerror or "")
        except PermissionError as error:
            answer = _status(Status.PERMISSION_DENIED, error.strerror or "")
        except OSError as error:
            answer = _status(Status.FAILURE, error.strerror or str(error))
        except (ValueError, OverflowError) as error:  # no path at all, a time that no clock shows
            answer = _status(Status.BAD_MESSAGE, str(error))
        return answer[:1] + about + answer[1:]

    def _answer(self, kind: int, fields: Fields) -> bytes | None:
        try:
            ask = SftpRequest(kind)
        except ValueError as error:
            raise RefusedError(Status.UNSUPPORTED, f"no request of kind {kind}") from error
        return self._answers[ask](fields)

    # ---- files --------------------------------------------------------------------------------------------------

    def _open(self, fields: Fields) -> bytes:
        path, wish = _path(fields), fields.number()
        mode = Attributes.read(fields).mode
        flags = (
            os.O_CLOEXEC | os.O_NONBLOCK
        )  # a pipe that nobody is at would keep this session, and its place, for ever
        if wish & wire.WRITE:
            flags |= os.O_RDWR if wish & wire.READ else os.O_WRONLY
        for bit, flag in (
            (wire.APPEND, os.O_APPEND),
            (wire.CREATE, os.O_CREAT),
            (wire.TRUNCATE, os.O_TRUNC),
            (wire.EXCLUSIVE, os.O_EXCL),
        ):
            flags |= flag if wish & bit else 0
        self._require_room()
        handle = self._new_handle()
        self._files[handle] = os.open(path, flags, 0o666 if mode is None else mode)
        return bytes([SftpAnswer.HANDLE]) + wire.text(handle)

    def _close(self, fields: Fields) -> None:
        handle = fields.text()
        if handle in self._files:
            os.close(self._files.pop(handle))
        elif self._folders.pop(handle, None) is None:
            raise RefusedError(Status.FAILURE, "no such handle")

    def _read(self, fields: Fields) -> bytes:
        file, offset, length = self._file(fields), fields.long(), fields.number()
        data = os.pread(file, min(length, _LONGEST_READ), offset)
        if not data and length:
            raise RefusedError(Status.EOF, "end of file")
        return bytes([SftpAnswer.DATA]) + wire.text(data)

    def _write(self, fields: Fields) -> None:
        file, offset, data = self._file(fields), fields.long(), fields.text()
        while data:
            written = os.pwrite(file, data, offset)
            data, offset = data[written:], offset + written

    # ---- folders ------------------------------------------------------------------------------------------------

    def _open_folder(self, fields: Fields) -> bytes:
        self._require_room()
        with os.scandir(_path(fields)) as entries:
            found = list(entries)
        handle = self._new_handle()
        self._folders[handle] = found
        return bytes([SftpAnswer.HANDLE]) + wire.text(handle)

    def _read_folder(self, fields: Fields) -> bytes:
        entries = self._folders.get(fields.text())
        if entries is None:
            raise RefusedError(Status.FAILURE, "no such handle")
        names: list[bytes] = []
        while entries and len(names) < _NAMES_AT_ONCE:
            entry = entries.pop()
            with contextlib.suppress(FileNotFoundError):  # removed since the folder was opened
                found = entry.stat(follow_symlinks=False)
                name = os.fsencode(entry.name)
                names.append(_entry(name, wire.list_line(name, found), wire.attributes(found)))
        if not names:
            raise RefusedError(Status.EOF, "no more")
        return bytes([SftpAnswer.NAME]) + wire.number(len(names)) + b"".join(names)

    def _extended(self, fields: Fields) -> None:
        name = fields.text()
        if name == b"posix-rename@openssh.com":
            _path(fields).replace(_path(fields))
        elif name == b"fsync@openssh.com":
            os.fsync(self._file(fields))
        else:
            raise RefusedError(Status.UNSUPPORTED, f"no extension {name.decode(errors='replace')}")

    def _file(self, fields: Fields) -> int:
        file = self._files.get(fields.text())
        if file is None:
            raise RefusedError(Status.FAILURE, "no such handle")
        return file

    def _require_room(self) -> None:
        if len(self._files) + len(self._folders) >= MOST_HANDLES:
            raise RefusedError(Status.FAILURE, f"more than {MOST_HANDLES} files are open")

    def _new_handle(self) -> bytes:
        self._handles += 1
        return b"%d" % self._handles


def serve(client: BufferedReader, answers: BufferedWriter) -> None:
    """Answer the client at the other end of two pipes until it leaves."""

    def send(data: bytes) -> None:
        answers.write(data)
        answers.flush()

    server = SftpServer(send)
    while data := client.read1(_LONGEST_READ):
        server.receive(data)


def _path(fields: Fields) -> Path:
    return Path(os.fsdecode(fields.text()))


def _make_folder(fields: Fields) -> None:
    path, mode = _path(fields), Attributes.read(fields).mode
    path.mkdir(0o777 if mode is None else mode)


def _rename(fields: Fields) -> None:
    """Never over another file (section 6.5); the extension does that."""
    old, new = _path(fields), _path(fields)
    if os.path.lexists(new):
        raise RefusedError(Status.FAILURE, "the new name is taken")
    old.rename(new)


def _link(fields: Fields) -> None:
    """What it leads to comes first: OpenSSH has it so, the draft the other way round, and clients follow OpenSSH."""
    target, link = os.fsdecode(fields.text()), _path(fields)
    link.symlink_to(target)


def _change(file: Path | int, wish: Attributes) -> None:
    if wish.size is not None:
        os.truncate(file, wish.size)
    if wish.mode is not None:
        os.fchmod(file, wish.mode) if isinstance(file, int) else file.chmod(wish.mode)
    if wish.times is not None:
        os.utime(file, wish.times)
    if wish.owner is not None:
        os.chown(file, *wish.owner)


def _attributes(found: os.stat_result) -> bytes:
    return bytes([SftpAnswer.ATTRS]) + wire.attributes(found)


def _name(path: Path | str) -> bytes:
    name = os.fsencode(path)
    return bytes([SftpAnswer.NAME]) + wire.number(1) + _entry(name, name, wire.number(0))


def _entry(name: bytes, line: bytes, attributes: bytes) -> bytes:
    return wire.text(name) + wire.text(line) + attributes


def _status(status: Status, why: str) -> bytes:
    return bytes([SftpAnswer.STATUS]) + wire.number(status) + wire.text(why.encode()) + wire.text(b"en")
