"""Namespaces of tasks: entering those of a running sandbox, and networks for the tasks of one gang alone.

Such a network has nothing but a loopback, and is closed to all other processes of the machine.

Imported by the supervisor: standard library only. Source: unshare(2), setns(2) in the form that takes a pidfd (Linux
5.8), namespaces(7), user_namespaces(7), netdevice(7).
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
import time
from collections.abc import Iterable
from pathlib import Path

from millpond.node.host import procfs
from millpond.node.host.files import read_json, write_json
from millpond.node.host.libc import PR_SET_NO_NEW_PRIVS, last_error, libc

_KINDS = {
    "user": 0x10000000,
    "mnt": 0x00020000,
    "ipc": 0x08000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}  # linux/sched.h, CLONE_NEW*
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1  # linux/sockios.h, linux/if.h
_INTERFACE = struct.Struct("16sh22x")  # struct ifreq, as far as flags go

_PROBE_S = 10.0
_SET_UP_WITHIN_S = 5.0


def enter_sandbox(outermost: int) -> None:
    """Have this process see what a sandboxed task sees; what it starts from now on has the task's process numbers too.

    Args:
        outermost: process id of the sandbox's own program.

    Raises:
        OSError: the task has ended, or the kernel does not let us in.
    """
    inside = _process_inside(outermost)
    root = os.open(f"/proc/{inside}/root", os.O_PATH | os.O_DIRECTORY)
    _enter(inside, _KINDS, "the task's sandbox cannot be entered")
    os.fchdir(root)
    os.chroot(".")
    os.close(root)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def make_network() -> None:
    """Have this process, and what it starts, be in a new network. It must have one thread only.

    Without the right to make networks it becomes the lord of a user namespace, in which it has that right.

    Raises:
        OSError: the kernel makes none.
    """
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(_KINDS["net"]) != 0:
        if ctypes.get_errno() != errno.EPERM or libc.unshare(_KINDS["user"] | _KINDS["net"]) != 0:
            raise last_error("a network of its own cannot be made")
        own = Path("/proc/self")
        (own / "setgroups").write_text("deny")
        (own / "uid_map").write_text(f"{uid} {uid} 1")
        (own / "gid_map").write_text(f"{gid} {gid} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, _INTERFACE.pack(b"lo", 0))
        name, flags = _INTERFACE.unpack(asked)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _INTERFACE.pack(name, flags | _IFF_UP))


def share_network(members: Path) -> None:
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
            make_network()
        write_json(members, {"boot_id": boot, "members": [*living, (own, procfs.start_ticks(own))]})


def _entered(pid: int) -> bool:
    try:
        enter_network(pid)
    except OSError:  # it has just ended; the next one is in the same network
        return False
    return True


def enter_network(pid: int) -> None:
    """Have this process be in the network of another one.

    Raises:
        OSError: that has ended, or the kernel does not let us in.
    """
    _enter(pid, ("net", "user"), "the task's network cannot be entered")


@functools.cache
def network_trouble() -> str:
    """What keeps tasks from having networks of their own here; empty when nothing does."""
    # A process of its own, as leaving cannot be undone, and the caller has several threads.
    command = [sys.executable, "-P", "-s", "-m", __name__]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it cannot be tried: {error}"
    return done.stdout.decode(errors="replace").strip()


def _enter(pid: int, names: Iterable[str], refusal: str) -> None:
    """Enter these namespaces of a process, those left out that we are in already: the kernel refuses to enter one's own
    user namespace."""
    handle = os.pidfd_open(pid)
    try:
        others = (name for name in names if _namespace(pid, name) != _namespace("self", name))
        kinds = sum(_KINDS[name] for name in others)
        if kinds and libc.setns(handle, kinds) != 0:
            raise last_error(refusal)
    finally:
        os.close(handle)


def _namespace(pid: int | str, name: str) -> Path:
    return Path(f"/proc/{pid}/ns/{name}").readlink()


def _process_inside(outermost: int) -> int:
    """A process of the task: below the sandbox's program and its first child, which sets the sandbox up."""
    give_up = time.monotonic() + _SET_UP_WITHIN_S
    while time.monotonic() < give_up:
        _, *inside = procfs.descendants(outermost) or [0]
        if inside:
            return inside[0]
        time.sleep(0.01)
    raise ProcessLookupError(f"nothing runs in the sandbox of process {outermost}")


if __name__ == "__main__":
    try:
        make_network()
    except OSError as trouble_found:
        print(trouble_found.strerror)
