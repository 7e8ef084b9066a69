"""Scalars of TensorBoard's event files, read as they grow, without TensorFlow.

Source: the format of records in tensorflow/core/lib/io/record_writer.h (length, its checksum, data, checksum of the
data) and the messages of tensorflow/core/util/event.proto, of which only scalars are looked at. The checksum of each
length is compared, so that a file that was cut or filled with zeros is never read past the damage; that of the data is
not, as it costs more than all else.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from millpond.server.jobs.curves.growing_files import PIECE, GrowingFile

_HEAD: Final = struct.Struct("<QI")
_DOUBLE: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")
_TAIL_BYTES: Final = 4
LARGEST_READ: Final = 64 * 2**10
"""Bytes of a record that is looked into: one with scalars has some hundred, one with pictures has megabytes."""
_MASK: Final = 0xFFFFFFFF


class Scalar(NamedTuple):
    """One value of one tag; None where it is not finite."""

    tag: str
    step: int
    at: float
    value: float | None


class EventFile:
    """One event file.

    Attributes:
        trouble: why nothing further is read of it; empty while all is well.
    """

    def __init__(self, folder: Path, path: str) -> None:
        self._file = GrowingFile(folder, path)
        self.trouble = ""
        self.restarts = 0

    def fresh(self, until: float = math.inf) -> Iterator[Scalar]:
        """The scalars that came since the last time, or as many as are read by an instant of ``time.monotonic``."""
        opened = self._file.opened()
        if self.restarts != self._file.restarts:
            self.restarts, self.trouble = self._file.restarts, ""
        if opened is None:
            return
        with opened.file as file:
            data, begin = b"", self._file.offset
            while self._file.offset + _HEAD.size <= opened.size and not self.trouble:
                at = self._file.offset - begin
                if at + _HEAD.size > len(data):
                    if time.monotonic() > until:
                        return
                    file.seek(self._file.offset)
                    data, begin, at = file.read(PIECE), self._file.offset, 0
                    if len(data) < _HEAD.size:
                        return
                length, check = _HEAD.unpack_from(data, at)
                if masked_crc32c(data[at : at + 8]) != check:
                    self.trouble = f"damaged at byte {self._file.offset}"
                    return
                whole = _HEAD.size + length + _TAIL_BYTES
                if self._file.offset + whole > opened.size:
                    return  # its end is still to be written
                if length <= LARGEST_READ:
                    if at + whole > len(data):
                        file.seek(self._file.offset)
                        data, begin, at = file.read(PIECE), self._file.offset, 0
                    yield from scalars_of(data[at + _HEAD.size : at + _HEAD.size + length])
                self._file.offset += whole


def scalars_of(event: bytes) -> list[Scalar]:
    """The scalars of one event; of what is no event, none."""
    try:
        at, step, summaries = 0.0, 0, []
        for number, value in _fields(event):
            if number == 1 and isinstance(value, bytes) and len(value) == 8:
                at = _DOUBLE.unpack(value)[0]
            elif number == 2 and isinstance(value, int):
                step = value - 2**64 if value >= 2**63 else value
            elif number == 5 and isinstance(value, bytes):
                summaries.append(value)
        return [
            Scalar(tag, step, at if math.isfinite(at) else 0.0, number if math.isfinite(number) else None)
            for summary in summaries
            for _, part in _fields(summary)
            if isinstance(part, bytes) and (found := _value_of(part)) is not None
            for tag, number in [found]
        ]
    except (ValueError, struct.error):
        return []


def _value_of(part: bytes) -> tuple[str, float] | None:
    """Tag and number of one value of a summary; None where it is no scalar."""
    tag, number = "", None
    for field, value in _fields(part):
        if field == 1 and isinstance(value, bytes):
            tag = value.decode(errors="replace")
        elif field == 2 and isinstance(value, bytes) and len(value) == 4:
            number = _FLOAT.unpack(value)[0]
        elif field == 8 and isinstance(value, bytes):
            number = _tensor(value)
    return None if number is None or not tag else (tag, number)


def _tensor(message: bytes) -> float | None:
    """The number of a tensor that has exactly one."""
    kind, found = 0, []
    for field, value in _fields(message):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field == 5 and isinstance(value, bytes):
            found += [each for (each,) in _FLOAT.iter_unpack(value)]
        elif field == 6 and isinstance(value, bytes):
            found += [each for (each,) in _DOUBLE.iter_unpack(value)]
        elif field == 4 and isinstance(value, bytes) and kind in (1, 2):
            found += [each for (each,) in (_FLOAT if kind == 1 else _DOUBLE).iter_unpack(value)]
    return found[0] if len(found) == 1 else None


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer: whole numbers as such, all others as their bytes.

    Raises:
        ValueError: it is none.
    """
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("a kind of field that no event has")
        if at + size > end:
            raise ValueError("a field that is longer than its message")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("a number without an end")
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _table() -> tuple[int, ...]:
    found = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        found.append(value)
    return tuple(found)


_CRC32C: Final = _table()


def masked_crc32c(data: bytes) -> int:
    """The checksum of records: CRC-32C, turned and moved."""
    crc = _MASK
    for byte in data:
        crc = _CRC32C[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= _MASK
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _MASK
