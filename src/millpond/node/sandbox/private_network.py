"""A network for the tasks of one gang alone: nothing but a loopback, closed to all other processes of the machine.

Imported by the supervisor: standard library only. Source: unshare(2), setns(2), user_namespaces(7), netdevice(7).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

from millpond.node.host import procfs
from millpond.node.host.files import read_json, write_json

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000  # linux/sched.h
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1  # linux/sockios.h, linux/if.h
_INTERFACE = struct.Struct("16sh22x")  # struct ifreq, as far as flags go

_PROBE_S = 10.0

_libc = ctypes.CDLL(None, use_errno=True)


def leave_for_a_new_one() -> None:
    """Have this process, and what it starts, be in a new network. It must have one thread only.

    Without the right to make networks it becomes the lord of a user namespace, in which it has that right.

    Raises:
        OSError: the kernel makes none.
    """
    uid, gid = os.geteuid(), os.getegid()
    if _libc.unshare(_CLONE_NEWNET) != 0:
        if ctypes.get_errno() != errno.EPERM:
            raise _error("a network of its own cannot be made")
        if _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
            raise _error("a network of its own cannot be made")
        own = Path("/proc/self")
        (own / "setgroups").write_text("deny")
        (own / "uid_map").write_text(f"{uid} {uid} 1")
        (own / "gid_map").write_text(f"{gid} {gid} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, _INTERFACE.pack(b"lo", 0))
        name, flags = _INTERFACE.unpack(asked)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _INTERFACE.pack(name, flags | _IFF_UP))


def share(members: Path) -> None:
    """Have this process be in the network of a gang: that of a living member, or a new one.

    Args:
        members: names those who are in it: a file that only the members' supervisors get at.

    Raises:
        OSError: the kernel makes no network, or the file cannot be written.
    """
    with members.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = read_json(members) or {}
        boot, own = procfs.boot_id(), os.getpid()
        living = [
            (pid, start)
            for pid, start in known.get("members", ())
            if known["boot_id"] == boot and procfs.start_ticks(pid) == start
        ]
        if not any(map(_entered, [pid for pid, _ in living])):
            leave_for_a_new_one()
        write_json(members, {"boot_id": boot, "members": [*living, (own, procfs.start_ticks(own))]})


def _entered(pid: int) -> bool:
    try:
        enter_that_of(pid)
    except OSError:  # it has just ended; the next one is in the same network
        return False
    return True


def enter_that_of(pid: int) -> None:
    """Have this process be in the network of another one.

    Raises:
        OSError: that has ended, or the kernel does not let us in.
    """
    kinds = _CLONE_NEWNET
    # The kernel refuses to enter the user namespace that one is in already.
    if Path(f"/proc/{pid}/ns/user").readlink() != Path("/proc/self/ns/user").readlink():
        kinds |= _CLONE_NEWUSER
    handle = os.pidfd_open(pid)
    try:
        if _libc.setns(handle, kinds) != 0:
            raise _error("the task's network cannot be entered")
    finally:
        os.close(handle)


@functools.cache
def trouble() -> str:
    """What keeps tasks from having networks of their own here; empty when nothing does."""
    # A process of its own, as leaving cannot be undone, and the caller has several threads.
    command = [sys.executable, "-P", "-s", "-m", __name__]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it cannot be tried: {error}"
    return done.stdout.decode(errors="replace").strip()


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    try:
        leave_for_a_new_one()
    except OSError as trouble_found:
        print(trouble_found.strerror)
