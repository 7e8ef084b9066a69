"""What an SFTP packet consists of: numbers, strings, attributes. Standard library only.

It runs in people's images too, by the Python that is there (``sftp_inside``): 3.8 and newer.

Source: draft-ietf-secsh-filexfer-02, which is version 3, the one that OpenSSH speaks.
"""

from __future__ import annotations

import os
import stat
import struct
import time
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Self

VERSION = 3
LONGEST_PACKET = 262_144 + 1_024
"""OpenSSH takes no longer ones either."""


class SftpRequest(IntEnum):
    """What a client can ask for (section 3)."""

    INIT = 1
    OPEN = 3
    CLOSE = 4
    READ = 5
    WRITE = 6
    LSTAT = 7
    FSTAT = 8
    SETSTAT = 9
    FSETSTAT = 10
    OPENDIR = 11
    READDIR = 12
    REMOVE = 13
    MKDIR = 14
    RMDIR = 15
    REALPATH = 16
    STAT = 17
    RENAME = 18
    READLINK = 19
    SYMLINK = 20
    EXTENDED = 200


class SftpAnswer(IntEnum):
    """What it is answered."""

    VERSION = 2
    STATUS = 101
    HANDLE = 102
    DATA = 103
    NAME = 104
    ATTRS = 105


class Status(IntEnum):
    """How it went (section 7)."""

    OK = 0
    EOF = 1
    NO_SUCH_FILE = 2
    PERMISSION_DENIED = 3
    FAILURE = 4
    BAD_MESSAGE = 5
    UNSUPPORTED = 8


READ, WRITE, APPEND, CREATE, TRUNCATE, EXCLUSIVE = (1 << bit for bit in range(6))
"""How a file is opened (section 6.3)."""
_SIZE, _OWNER, _MODE, _TIMES, _EXTENDED = 1, 2, 4, 8, 1 << 31


class MalformedError(ValueError):
    """A packet that ends too early."""


class Fields:
    """The fields of a packet, read one after another."""

    def __init__(self, packet: bytes) -> None:
        self._packet = packet
        self._at = 0

    def number(self) -> int:
        """An unsigned number of 32 bits."""
        return int.from_bytes(self._take(4), "big")

    def long(self) -> int:
        """An unsigned number of 64 bits."""
        return int.from_bytes(self._take(8), "big")

    def text(self) -> bytes:
        """A string with its length in front."""
        return self._take(self.number())

    def _take(self, count: int) -> bytes:
        found = self._packet[self._at : self._at + count]
        if len(found) < count:
            raise MalformedError(f"{count} bytes wanted, {len(found)} left")
        self._at += count
        return found


class Attributes(NamedTuple):
    """What is to be changed of a file; None: leave it.

    Attributes:
        times: of last access and last change, seconds since 1970.
    """

    size: int | None = None
    owner: tuple[int, int] | None = None
    mode: int | None = None
    times: tuple[int, int] | None = None

    @classmethod
    def read(cls, fields: Fields) -> Self:
        """The next field as attributes (section 5)."""
        flags = fields.number()
        size = fields.long() if flags & _SIZE else None
        owner = (fields.number(), fields.number()) if flags & _OWNER else None
        mode = stat.S_IMODE(fields.number()) if flags & _MODE else None
        times = (fields.number(), fields.number()) if flags & _TIMES else None
        if flags & _EXTENDED:
            for _ in range(fields.number()):
                fields.text(), fields.text()
        return cls(size, owner, mode, times)


def number(value: int) -> bytes:
    """An unsigned number of 32 bits."""
    return struct.pack(">I", value & 0xFFFF_FFFF)


def text(value: bytes) -> bytes:
    """A string with its length in front."""
    return number(len(value)) + value


def attributes(found: os.stat_result) -> bytes:
    """What is known of a file."""
    return struct.pack(
        ">IQIIIII",
        _SIZE | _OWNER | _MODE | _TIMES,
        found.st_size,
        *(each & 0xFFFF_FFFF for each in (found.st_uid, found.st_gid, found.st_mode)),
        *map(_time, (found.st_atime, found.st_mtime)),
    )


def list_line(name: bytes, found: os.stat_result) -> bytes:
    """A line as ``ls -l`` prints it, which clients show as it is (section 7)."""
    changed = time.strftime("%b %d %H:%M %Y", time.localtime(_time(found.st_mtime)))
    columns = f"{stat.filemode(found.st_mode)} {found.st_nlink:>4} {found.st_uid:<8} {found.st_gid:<8}"
    return f"{columns} {found.st_size:>10} {changed} ".encode() + name


def _time(instant: float) -> int:
    """As it is sent: a file may say any time, also one that no clock shows."""
    return int(instant) & 0xFFFF_FFFF
