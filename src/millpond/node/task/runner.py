"""End, freeze and find tasks as process trees, each under its supervisor."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from millpond.model.errors import UnavailableError
from millpond.node.containers.container import NAME_VARIABLE
from millpond.node.devices.vendor import OwnProcesses
from millpond.node.host import cgroups, file_locks, procfs
from millpond.node.host.files import write_json
from millpond.node.task.environment import LOG_VARIABLE
from millpond.node.task.records import RunRecord, TaskFiles, read_record, running_records

_FREEZING_PASSES = 20
_NO_PROCESS = (errno.ESRCH, errno.ENOENT, errno.EINVAL)
"""No process has the number, or (on some kernels) a thread has it now, for which there is no pidfd."""
_WRITES_AGAIN_WITHIN_S = 5.0
_LOOKS_EVERY_S = 0.01


@dataclass(frozen=True, slots=True)
class StopRequest:
    """That a task end.

    Attributes:
        grace_s: from the notice to the kill.
        why: why it cannot go on, where neither its user nor the scheduler asked for the end.
        outcome: as what its end then counts (``model.states.Outcome``).
    """

    grace_s: float
    why: str = ""
    outcome: str = ""


def require_pidfd() -> None:
    """Check that the kernel lets us wait for processes that are not our children.

    Raises:
        UnavailableError: it is too old.
    """
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError) as error:
        raise UnavailableError("this kernel has no pidfd_open", "run the server on Linux 5.3 or newer") from error


def attach(record: RunRecord) -> int | None:
    """A file descriptor that becomes readable when the task's supervisor ends; None when it has."""
    try:
        handle = os.pidfd_open(record.supervisor_pid)
    except OSError as error:
        if error.errno in _NO_PROCESS:
            return None
        raise
    if record.alive:  # asked only now, as the handle cannot come to mean another process
        return handle
    os.close(handle)
    return None


def lost_record(files: TaskFiles) -> RunRecord | None:
    """The record of a task whose file was emptied or lost, from its supervisor, which writes it again; blocks until
    then, some milliseconds. None when that does not come about: nothing of the task is left then.

    A supervisor that does not write (on a full disk) is ended with its task, as a task that cannot be watched
    would run beside its next attempt.
    """
    if not files.lock.exists():
        return None  # it never started
    supervisor = file_locks.holder_of(files.lock)
    if supervisor is not None:
        procfs.send([supervisor], signal.SIGHUP)
        give_up_at = time.monotonic() + _WRITES_AGAIN_WITHIN_S
        while time.monotonic() < give_up_at:
            if (record := read_record(files)) is not None:
                return record
            time.sleep(_LOOKS_EVERY_S)
        procfs.send([supervisor], signal.SIGKILL)
    kill_remains(files, ())
    return None


def wake(record: RunRecord) -> None:
    """Have the supervisor of a task read its input ring and accept sessions."""
    handle = attach(record)
    if handle is not None:
        with contextlib.suppress(ProcessLookupError):  # it ended first
            signal.pidfd_send_signal(handle, signal.SIGIO)
        os.close(handle)


def request_stop(files: TaskFiles, handle: int, request: StopRequest) -> None:
    """Have the supervisor give notice now, and kill when the grace is over. Asked again, it can only get shorter."""
    with contextlib.suppress(OSError):  # a full disk must not keep it alive: the supervisor has a grace of its own
        write_json(files.stop, dataclasses.asdict(request), in_room=True)
    with contextlib.suppress(ProcessLookupError):  # it ended first
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        signal.pidfd_send_signal(handle, signal.SIGCONT)  # a task without a sandbox can halt its supervisor


def freeze(list_pids: Callable[[], list[int]]) -> None:
    """Halt all processes of a task, those it starts meanwhile too; device memory stays where it is.

    Args:
        list_pids: finds those that live.
    """
    halted: set[int] = set()
    for _ in range(_FREEZING_PASSES):
        fresh = [pid for pid in list_pids() if pid not in halted]
        if not fresh:
            return
        procfs.send(fresh, signal.SIGSTOP)
        halted.update(fresh)


def thaw(pids: Iterable[int]) -> None:
    """Let a frozen task go on."""
    procfs.send(pids, signal.SIGCONT)


def processes_of(*records: RunRecord) -> list[int]:
    """All living processes of running tasks."""
    below = procfs.descendants(*(record.supervisor_pid for record in records))
    return [*below, *(pid for record in records for pid in detached_processes(record))]


def detached_processes(record: RunRecord) -> list[int]:
    """Those of a running task that are not below its supervisor."""
    return procfs.with_variable(NAME_VARIABLE, record.container) if record.detached else []


def kill_remains(files: TaskFiles, groups: Sequence[str]) -> None:
    """End whatever is left of a task whose supervisor was killed.

    Args:
        groups: folders of its control groups.
    """
    cgroups.remove(groups)
    for _ in range(_FREEZING_PASSES):
        remains = procfs.with_variable(LOG_VARIABLE, str(files.log.resolve()))
        if not remains:
            return
        procfs.send(remains, signal.SIGKILL)


def running_now(records: Iterable[RunRecord]) -> OwnProcesses:
    """What these tasks hold of the machine."""
    alive = [record for record in records if record.alive]
    return OwnProcesses(frozenset(processes_of(*alive)), frozenset(uuid for record in alive for uuid in record.devices))


def running_under(state_dir: Path) -> OwnProcesses:
    """What tasks started earlier with this state directory hold still."""
    return running_now(running_records(state_dir))
