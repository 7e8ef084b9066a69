"""Set a process up before it runs a task's command, or a command beside the task. Standard library only.

Called by the supervisor's children, between fork and exec, and by the supervisor where no fork is needed.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millpond.node.host import cgroups
from millpond.node.host.libc import PR_SET_PDEATHSIG, libc
from millpond.node.sandbox.namespaces import enter_network
from millpond.node.task.start_plan import ProcessLimits

_FIRST_VICTIM = 500
"""The least that a task's ``oom_score_adj`` is (proc(5)): when memory runs out, tasks go before all else."""

_SCORE = "/proc/self/oom_score_adj"
_SCORE_BYTES = 16
_ANSWERED = tuple(map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}))
"""Put together once, as a process that was just forked pays for each page that it touches."""

Streams = tuple[int | None, int, int]
"""Open files that a process reads from (None: nothing), writes to, and writes errors to."""


def become_task(limits: ProcessLimits, network: int | None = None, answer: signal.Handlers = signal.SIG_DFL) -> None:
    """In the child, before the command: die with the supervisor, be the kernel's first choice, hear all signals.

    Also those that the parent of the server had ignored: a shell does that to what it runs in the background.

    Args:
        network: a process in the network that it is to be in.
        answer: to all signals from now on.
    """
    cgroups.join(limits.groups)
    if limits.cpus:
        os.sched_setaffinity(0, limits.cpus)
    if limits.data_bytes is not None:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        data = limits.data_bytes if most == resource.RLIM_INFINITY else min(limits.data_bytes, most)
        resource.setrlimit(resource.RLIMIT_DATA, (data, most))
    if limits.processes is not None:
        _, most = resource.getrlimit(resource.RLIMIT_NPROC)
        processes = limits.processes if most == resource.RLIM_INFINITY else min(limits.processes, most)
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    with contextlib.suppress(OSError):  # a read-only /proc in a container: the kernel chooses as it likes
        score = os.open(_SCORE, os.O_RDWR)
        _raise_score(score)
        os.close(score)
    if network is not None:
        enter_network(network)
    for number in _ANSWERED:
        signal.signal(number, answer)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def become_sandbox(limits: ProcessLimits, network: int | None = None) -> None:
    """As ``become_task``, deaf to what only the task within is to hear. The number of processes is bounded there."""
    become_task(replace(limits, processes=None), network, signal.SIG_IGN)


def takes_no_fork(limits: ProcessLimits, network: int | None) -> bool:
    """Whether ``spawn_sandbox`` does all that ``become_sandbox`` would for such a task."""
    return not limits.groups and not limits.cpus and limits.data_bytes is None and network is None


def spawn_sandbox(command: list[str], env: Mapping[str, str], handles: Sequence[int], streams: Streams) -> int:
    """Start what makes a sandbox, as ``become_sandbox`` would have it; returns its process.

    Forked, this interpreter and the child would each copy hundreds of pages, a quarter of all that a short task costs.
    bwrap sees to it that it dies with us; it is deaf because all signals are blocked, which ``env`` undoes as well.

    Args:
        handles: open files that it gets.
        streams: the standard ones; None as the first: nothing to read.

    Raises:
        OSError: the program is missing, or there is no room for a process.
    """
    for handle in handles:
        os.set_inheritable(handle, True)
    given, *ends = streams
    files: list[Any] = [(os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(ends, 1)]
    if given is None:
        files.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
    else:
        files.append((os.POSIX_SPAWN_DUP2, given, 0))
    with _first_victim():
        return os.posix_spawn(command[0], command, env, file_actions=files, setsid=True, setsigmask=_ANSWERED)


@contextlib.contextmanager
def _first_victim() -> Iterator[None]:
    """What is started meanwhile is the kernel's first choice when memory runs out."""
    with contextlib.ExitStack() as afterwards:
        with contextlib.suppress(OSError):
            score = os.open(_SCORE, os.O_RDWR)
            afterwards.callback(os.close, score)
            afterwards.callback(_set_score, score, _raise_score(score))
        yield


def _raise_score(score: int) -> bytes:
    """Have the kernel end this process first; returns how it stood before."""
    before = os.read(score, _SCORE_BYTES)
    _set_score(score, b"%d" % max(_FIRST_VICTIM, int(before)))
    return before


def _set_score(score: int, text: bytes) -> None:
    with contextlib.suppress(OSError):
        os.pwrite(score, text, 0)
