"""What the gateway can still do once it takes people in: speak on the sockets that it has, and little else.

It reads what clients send, so it gives its rights up before it reads anything. Its code is loaded by then, as the
installation may be closed to its account. Sources: capabilities(7), prctl(2), capset(2), seccomp(2), seccomp_init(3).
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import logging
import os
import resource
from typing import Final

from millpond.node.host.libc import PR_SET_NO_NEW_PRIVS, last_error, libc

log = logging.getLogger(__name__)

_PR_SET_DUMPABLE: Final = 4  # linux/prctl.h
_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3: Final = 0x20080522  # linux/capability.h
_MOST_CAPABILITIES: Final = 64
_LIBSECCOMP: Final = "libseccomp.so.2"
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM  # seccomp.h: SCMP_ACT_ALLOW, SCMP_ACT_ERRNO
_LOADED_LATE: Final = ("concurrent.futures.thread", "encodings.idna", "linecache", "queue", "traceback")
"""What Python loads only when it is used: as this account it may not find it."""
_REFUSED: Final = (
    *("execve", "execveat", "fork", "vfork", "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd"),
    *("mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsmount", "mount_setattr"),
    *("setns", "unshare", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "keyctl", "add_key"),
    *("request_key", "init_module", "finit_module", "delete_module", "kexec_load", "reboot", "swapon", "acct"),
    *("open_by_handle_at", "unlink", "unlinkat", "rename", "renameat", "renameat2", "mknod", "mknodat", "chmod"),
    *("fchmodat", "chown", "fchownat", "lchown", "symlink", "symlinkat", "link", "linkat", "mkdir", "mkdirat"),
)
"""System calls that a program which only speaks on sockets has no use for."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def give_up_rights(uid: int | None) -> None:
    """Have this process lose every right that it does not need, for good.

    Args:
        uid: the account that it becomes, of which nothing else runs; None: it cannot become another.

    Raises:
        OSError: the kernel does not let it.
    """
    for name in _LOADED_LATE:
        importlib.import_module(name)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    if uid is not None:
        for capability in range(_MOST_CAPABILITIES):
            if libc.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) == 1:
                _prctl(_PR_CAPBSET_DROP, capability)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if libc.capset(ctypes.byref(_Header(_CAPABILITY_VERSION_3, 0)), ctypes.byref((ctypes.c_uint32 * 6)())) != 0:
        raise last_error("the capabilities of the SSH gateway cannot be dropped")
    _prctl(_PR_SET_DUMPABLE, 0)  # no process of the same account looks into it
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    _refuse_system_calls()


def _refuse_system_calls() -> None:
    """Refuse what it has no use for, where the library that can say so is installed."""
    try:
        library = ctypes.CDLL(_LIBSECCOMP)
    except OSError:
        log.info("the SSH gateway runs without a filter of system calls: libseccomp is not installed")
        return
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(_ALLOW))
    for name in _REFUSED:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # else this machine has none of that name
            library.seccomp_rule_add(context, ctypes.c_uint32(_REFUSE), number, 0)
    failed = library.seccomp_load(context)
    library.seccomp_release(context)
    if failed:
        log.warning("the SSH gateway runs without a filter of system calls: %s", os.strerror(-failed))


def _prctl(option: int, value: int) -> None:
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise last_error(f"the SSH gateway cannot give up its rights (prctl {option})")
