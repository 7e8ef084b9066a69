"""Find the process at the other end of a connection to a port of this machine.

A port belongs to the process that binds it first, so the number that a task was given does not say who listens there. A
connection is judged once it stands and before anything is sent on it: what accepted it, or whatever may still do so, is
held open by the task's processes, or it is not the task's.

Standard library only. Source: sock_diag(7), ``linux/inet_diag.h``, proc(5) on ``/proc/pid/fd``.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress

_SOCK_DIAG_BY_FAMILY, _NETLINK_SOCK_DIAG = 20, 4  # linux/sock_diag.h, linux/netlink.h
_REQUEST, _DUMP, _ERROR, _DONE = 0x1, 0x300, 2, 3  # linux/netlink.h
_ESTABLISHED, _LISTEN = 1 << 1, 1 << 10  # net/tcp_states.h
_V6ONLY = 11  # INET_DIAG_SKV6ONLY
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_QUESTION = struct.Struct("=BBBxI")  # struct inet_diag_req_v2 up to its socket
_SOCKET = struct.Struct("!HH16s16s")  # struct inet_diag_sockid, ports and addresses
_INTERFACE_AND_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_ANSWER = struct.Struct("=BBxx2x2x16s16s4x8x12xII")  # struct inet_diag_msg: family, state, addresses, uid, inode
_ATTRIBUTE = struct.Struct("=HH")
_BLOCK = 65_536

_LOOPBACK = socket.inet_aton("127.0.0.1")
_MAPPED = b"\0" * 10 + b"\xff\xff" + _LOOPBACK
_ANY = b"\0" * 16


def is_held_by(connection: socket.socket, processes: Iterable[int]) -> bool:
    """Whether one of these processes has, or is sure to get, the other end of a connection over 127.0.0.1.

    Args:
        connection: established, and nothing sent on it yet.

    Raises:
        OSError: the kernel does not report it.
    """
    (_, own_port), (_, port) = connection.getsockname(), connection.getpeername()
    # First who listens: a connection not accepted after that waits with one of those.
    listeners = set(_listeners(port))
    accepted = _inode_of_peer(port, own_port)
    if accepted is None:
        return False
    return _hold_all({accepted} if accepted else listeners, processes)


def _listeners(port: int) -> Iterator[int]:
    """The inodes of all sockets that take connections to a port of 127.0.0.1."""
    for family in (socket.AF_INET, socket.AF_INET6):
        for address, inode, attributes in _ask(family, _LISTEN, _SOCKET.pack(port, 0, b"", b""), _DUMP):
            if family == socket.AF_INET:
                reached = address[:4] in (_LOOPBACK, _ANY[:4])
            else:
                reached = address == _MAPPED or (address == _ANY and not any(attributes.get(_V6ONLY, b"")))
            if reached:
                yield inode


def _inode_of_peer(port: int, own_port: int) -> int | None:
    """The inode of the other end; 0 while it is not accepted, None when it is gone."""
    wanted = _SOCKET.pack(port, own_port, _LOOPBACK, _LOOPBACK)
    return next((inode for _, inode, _ in _ask(socket.AF_INET, _ESTABLISHED, wanted, 0)), None)


def _ask(family: int, states: int, wanted: bytes, flags: int) -> Iterator[tuple[bytes, int, dict[int, bytes]]]:
    """Local address, inode and attributes of the TCP sockets that the kernel finds."""
    question = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, states) + wanted + _INTERFACE_AND_COOKIE
    message = _HEADER.pack(_HEADER.size + len(question), _SOCK_DIAG_BY_FAMILY, _REQUEST | flags, 1, 0) + question
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(message)
        while True:
            block = kernel.recv(_BLOCK)
            while block:
                size, kind, _, _, _ = _HEADER.unpack_from(block)
                if kind in (_DONE, _ERROR):  # of one that is not there, an error is the answer
                    return
                _, _, address, _, _, inode = _ANSWER.unpack_from(block, _HEADER.size)
                yield address, inode, _attributes(block[_HEADER.size + _ANSWER.size : size])
                block = block[_aligned(size) :]
            if not flags:
                return


def _attributes(rest: bytes) -> dict[int, bytes]:
    found = {}
    while len(rest) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(rest)
        found[kind] = rest[_ATTRIBUTE.size : size]
        rest = rest[max(_aligned(size), _ATTRIBUTE.size) :]
    return found


def _aligned(size: int) -> int:
    return (size + 3) & ~3


def _hold_all(inodes: set[int], processes: Iterable[int]) -> bool:
    """Whether each of the sockets is open in one of the processes."""
    missing = {f"socket:[{inode}]" for inode in inodes}
    if not missing:
        return False
    return any(_has_open(pid, missing) for pid in processes)


def _has_open(pid: int, missing: set[str]) -> bool:
    """Remove what a process has open; whether nothing is left. What is over, or not ours to look at, has nothing."""
    folder = f"/proc/{pid}/fd"
    try:
        with os.scandir(folder) as entries:
            numbers = [int(entry.name) for entry in entries]
        # What was accepted just now has one of the highest numbers, of thousands maybe.
        for number in sorted(numbers, reverse=True):
            with suppress(FileNotFoundError):  # closed meanwhile
                missing.discard(os.readlink(f"{folder}/{number}"))  # noqa: PTH115 - Path's costs five times as much
            if not missing:
                return True
    except OSError:
        pass
    return False
