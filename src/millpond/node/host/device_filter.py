"""Deny the processes of a control group (version 2) certain device files, by a program in the kernel.

Container runtimes, systemd (``DeviceAllow=``) and Slurm keep work to its devices in this way: opening another one fails
with "operation not permitted", and CUDA does as if that card were not there. Needs root. Standard library only.

Source: Linux documentation, admin-guide/cgroup-v2.rst ("Device controller"); bpf(2); linux/bpf.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from millpond.node.host.libc import libc

DeviceNumber = tuple[int, int]
"""Major and minor number of a character device."""

_SYSTEM_CALLS: Final = {"x86_64": 321, "aarch64": 280}
_PROG_LOAD, _PROG_ATTACH = 5, 8
_OF_DEVICES, _AT_DEVICES = 15, 6
"""``BPF_PROG_TYPE_CGROUP_DEVICE``, ``BPF_CGROUP_DEVICE``."""
_BESIDE_OTHERS = 2
"""``BPF_F_ALLOW_MULTI``: programs of the groups above and below are asked too."""
_ATTRIBUTES_BYTES = 128
"""More than any release of Linux has; what one does not know has to be zero."""
_CHARACTER_DEVICE = 2
_LOAD_WORD, _AND, _SET, _EXIT, _IF_EQUAL, _UNLESS_EQUAL = 0x61, 0x54, 0xB7, 0x95, 0x15, 0x55
_ANSWER, _CONTEXT, _TYPE, _MAJOR, _MINOR = range(5)
"""Registers."""


def keep_off(group: Path, devices: Sequence[DeviceNumber]) -> None:
    """From now on no process of a group, or of one below it, can open these character devices.

    Raises:
        OSError: the kernel refuses.
    """
    with _loaded(_program(devices)) as program, _opened(group) as folder:
        _bpf(_PROG_ATTACH, struct.pack("=4I", folder, program, _AT_DEVICES, _BESIDE_OTHERS))


def trouble(group: Path) -> str:
    """Why processes of groups below this one cannot be kept off devices; empty: they can."""
    trial = group / "millpond-trial"
    try:
        trial.mkdir(exist_ok=True)
        try:
            keep_off(trial, [(0, 0)])
        finally:
            trial.rmdir()
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    return ""


def _program(devices: Sequence[DeviceNumber]) -> bytes:
    """What the kernel runs at each opening: 0 forbids it, 1 does not."""
    code = [
        _step(_LOAD_WORD, _TYPE, _CONTEXT, offset=0),
        _step(_AND, _TYPE, value=0xFFFF),  # above it, what is done with the device
        _step(_LOAD_WORD, _MAJOR, _CONTEXT, offset=4),
        _step(_LOAD_WORD, _MINOR, _CONTEXT, offset=8),
        _step(_UNLESS_EQUAL, _TYPE, offset=2 * len(devices), value=_CHARACTER_DEVICE),
    ]
    for left, (major, minor) in zip(reversed(range(len(devices))), devices, strict=True):
        code.append(_step(_UNLESS_EQUAL, _MAJOR, offset=1, value=major))
        code.append(_step(_IF_EQUAL, _MINOR, offset=2 * left + 2, value=minor))
    code += [_step(_SET, _ANSWER, value=1), _step(_EXIT), _step(_SET, _ANSWER, value=0), _step(_EXIT)]
    return b"".join(code)


def _step(operation: int, into: int = 0, source: int = 0, *, offset: int = 0, value: int = 0) -> bytes:
    """One instruction; ``offset`` of a jump counts instructions from the next one on."""
    return struct.pack("=BBhi", operation, into | source << 4, offset, value)


@contextlib.contextmanager
def _loaded(code: bytes) -> Iterator[int]:
    text, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"GPL")
    places = ctypes.addressof(text), ctypes.addressof(licence)
    handle = _bpf(_PROG_LOAD, struct.pack("=2I2Q", _OF_DEVICES, len(code) // 8, *places))
    try:
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _bpf(command: int, attributes: bytes) -> int:
    number = _SYSTEM_CALLS.get(platform.machine())
    if number is None:
        raise OSError(f"not known on {platform.machine()}")
    given = ctypes.create_string_buffer(attributes, _ATTRIBUTES_BYTES)
    answer = int(libc.syscall(number, command, given, _ATTRIBUTES_BYTES))
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer
