"""Read a supervisor's record: how a task ended, or why it could not start."""

from __future__ import annotations

import errno
import signal
from typing import Final

from millpond.engines.task_ends import NOT_EXECUTABLE, NOT_FOUND, SIGNAL_BASE, EndVerdict, Refusal, exit_text
from millpond.model.states import Outcome
from millpond.node.task.launch import LaunchSpec
from millpond.node.task.records import RunRecord, StartError

_NO_CONTAINER: Final = 125
"""Of podman and docker: they themselves failed."""
_BY_COMMAND = (
    errno.ENOENT,
    errno.EACCES,
    errno.ENOEXEC,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.E2BIG,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    None,
)

_BY_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)


NEVER_STARTED = EndVerdict(Outcome.NODE_LOST, None, "no trace of it is left on this machine")


def verdict_on(record: RunRecord) -> EndVerdict:
    """How an ended task ended; one whose place is or was kept, by the failure that this was for.

    Args:
        record: of a task whose supervisor is gone, or whose place is kept.
    """
    if record.error is not None:
        return EndVerdict(Outcome.START_FAILED, None, record.error.text)
    if record.kept_at is not None:
        return _own_end(record)
    if not record.over:
        return EndVerdict(Outcome.NODE_LOST, None, "its supervisor was killed, or the machine went down")
    code = record.exit_code
    if record.ended_for:
        return EndVerdict(Outcome(record.ended_as), code, record.ended_for)
    if record.notice_at is not None and not record.stop_requested:
        return EndVerdict(Outcome.NODE_LOST, code, "it was ended from outside, as when the machine shuts down")
    if record.notice_at is not None:
        detail = f"killed, as it was not over within the grace after {record.notice_signal}" if record.forced else ""
        return EndVerdict(Outcome.STOPPED, code, detail, _saved_s(record))
    return _own_end(record)


def _own_end(record: RunRecord) -> EndVerdict:
    """What the exit code says of a program that was not asked to end."""
    code = record.exit_code
    if code == 0:
        return EndVerdict(Outcome.SUCCESS, 0)
    if record.out_of_memory:
        return EndVerdict(Outcome.OUT_OF_MEMORY, code, _out_of_memory_text(record))
    if record.container and code == _NO_CONTAINER:
        return EndVerdict(Outcome.USER_ERROR, code, "its container could not be started; the end of its log says why")
    return EndVerdict(Outcome.USER_ERROR, code, exit_text(code))


def _out_of_memory_text(record: RunRecord) -> str:
    if not record.memory_limit_mib:
        return "the kernel killed it for want of host memory"
    return f"it wanted more than the {record.memory_limit_mib} MiB of memory that it asked for; ask for more (memory)"


def refusal_of(record: RunRecord, launch: LaunchSpec) -> Refusal | None:
    """Why this task did not start; None when it did."""
    if record.error is None:
        return None
    return _refusal(record.error, launch.argv_of(record.role)[0], str(launch.workdir), record.node)


def _refusal(error: StartError, program: str, workdir: str, node: str) -> Refusal:
    if error.preparing:
        where = f" ({error.path})" if error.path else ""
        reason = f"the job's files cannot be laid out on node {node}: {error.text}{where}"
        return Refusal(reason, device_fault=error.errno in _BY_DISK)
    if error.path == workdir:
        remedy = "create it, or submit from a directory that exists there"
        if error.errno == errno.EACCES:
            remedy = "send it with the job (`ship: true`), or let the account that the job runs as enter it"
        return Refusal(f"working directory {workdir!r} on node {node}: {error.text}; {remedy}")
    if error.errno == errno.ESPIPE:
        return Refusal(f"{error.text}; submit it again")
    if error.errno == errno.ENOENT:
        return Refusal(
            f"command {program!r} was not found on node {node}; check its spelling and PATH, or give its whole path "
            "(of a script: also the interpreter in its first line)",
            exit_code=NOT_FOUND,
        )
    if error.errno in _BY_COMMAND:
        remedy = "make it executable, or name its interpreter before it"
        if error.errno == errno.E2BIG:
            remedy = "one argument or variable may have 128 KiB: send what is longer as a file (`ship: true`)"
        cause = f"command {program!r} cannot be executed on node {node}: {error.text}"
        return Refusal(f"{cause}; {remedy}", exit_code=NOT_EXECUTABLE)
    return Refusal(f"node {node} cannot start processes: {error.text}", device_fault=True)


def _saved_s(record: RunRecord) -> float | None:
    """Seconds of work that a stopped task kept: all up to the notice when it heeded a checkpoint signal."""
    died_of_it = record.exit_code == SIGNAL_BASE + signal.Signals[record.notice_signal]
    if not record.saves or record.forced or died_of_it or record.notice_at is None or record.started_at is None:
        return None
    return max(0.0, record.notice_at - record.started_at)
