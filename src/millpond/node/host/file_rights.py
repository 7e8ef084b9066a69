"""Check files with a user's rights from a process of root with several threads.

A thread of its own takes the rights on and ends with them, so no other thread ever has them, and none has to give them
back. Source: setfsuid(2), credentials(7), capabilities(7) (a file-system user id that is not 0 has no capability that
goes round permissions), setgroups(2): the library's function changes all threads, the system call the calling one.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from millpond.node.host.identities import MachineAccount
from millpond.node.host.libc import last_error, libc

T = TypeVar("T")

SETGROUPS: Final = {"x86_64": 116, "aarch64": 159, "riscv64": 159, "loongarch64": 159, "ppc64le": 81, "s390x": 206}
"""Numbers of the system call by machine (asm/unistd.h)."""


def with_rights_of(identity: MachineAccount | None, work: Callable[[], T]) -> T:
    """What ``work`` returns, or raises, when it touches files as another user.

    Args:
        identity: whose rights; None: our own, in this thread.

    Raises:
        OSError: the kernel does not let us be them.
    """
    if identity is None:
        return work()

    def run() -> T:
        _take_rights_of(identity)
        return work()

    with ThreadPoolExecutor(1, "file-rights") as pool:
        return pool.submit(run).result()


def _take_rights_of(identity: MachineAccount) -> None:
    """Groups first, as they cannot be changed any more afterwards."""
    groups = (ctypes.c_uint32 * len(identity.groups))(*identity.groups)
    number = SETGROUPS.get(platform.machine())
    if number is None:
        raise OSError(f"the groups of a thread cannot be set on {platform.machine()}")
    if libc.syscall(number, len(identity.groups), groups) != 0:
        raise last_error(f"the groups of {identity.name} cannot be taken on")
    for change, wanted in ((libc.setfsgid, identity.gid), (libc.setfsuid, identity.uid)):
        change(wanted)
        if change(-1) != wanted:  # which changes nothing and says what it is
            raise OSError(f"files cannot be touched with the rights of {identity.name}")
