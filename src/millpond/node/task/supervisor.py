"""The supervisor: a small process above each task that records its end even when no server runs.

It outlives the server. It starts the command in a session of its own, adopts whatever the command leaves behind, waits,
and writes how it ended. It is asked to end the task by SIGTERM: it then gives notice to the command's process group
and, when the grace is over, kills everything below itself. SIGHUP has it write its record again. Beside the task's
record (``task-0.json``) lie its output (``.log``) with an index of it (``.index``, see ``output``), the request to stop
it (``.stop``: ``{"grace_s": 30}``, see ``runner.StopRequest``), a lock (``.lock``) that is held while the task lives,
and a socket (``.sock``) for commands to be run beside it (``node.sessions.exec_sessions``); record and lock together
make sure that one decision never starts a task twice. Room for the request, and for the end of the record, is kept from
the start on (``.room``), so that a task can be ended on a full disk.

Forked by ``node.task.forkserver`` with a plan on standard input (``start_plan``). Standard output is closed as soon as
the record says whether the command runs. Standard library only.

While it lives, ``STATE/running`` holds a link to its record (``node.task.running_tasks``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from millpond.node.containers import supervision
from millpond.node.host import cgroups, procfs
from millpond.node.host.files import keep_room, read_all, read_json, room_for, try_lock, write_json
from millpond.node.host.libc import libc
from millpond.node.sessions.exec_sessions import ExecSessions
from millpond.node.task import running_tasks
from millpond.node.task.child_setup import become_task
from millpond.node.task.start_plan import TaskSocketPlan, TaskStartPlan
from millpond.node.task.task_start import TaskStartup

BLOCKED = frozenset(
    {signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGIO}
)
"""Signals that must not end a supervisor. Its parent blocks them from its first instant on."""

_AWAITED = (signal.SIGTERM, signal.SIGCHLD, signal.SIGIO, signal.SIGHUP)
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_LONGEST_START_S = 10.0
_SETTLED = ("pid", "error", "ended_at")
_FULL_DISK_PAUSE_S = 1.0
_LAST_WORDS_S = 0.5
_NOTICE_AGAIN_S = 0.1
_MADE_WITHIN_S = 10.0
"""What a task's place takes longer than is not waited for: a command may ignore its notice for good."""
_KILLED = 128 + signal.SIGKILL
_TERMINATED = (signal.SIGTERM, (128 + signal.SIGTERM) << 8)  # as waitpid(2) gives them
SECOND_SIGNAL_WITHIN_S = 1.0


def main(argv: list[str]) -> int:
    """Supervise one task from its start to its end."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    path = Path(argv[1])
    plan = TaskStartPlan.decode(read_all(0))
    lock = os.open(path.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT, 0o600)  # until this process ends
    decision = plan.record["decision"]
    if not try_lock(lock):  # another looks after this task
        _await_settled(path, decision)
    elif not _carried_out(path, decision):
        _Supervisor(path, plan).run()
    return 0


class _Supervisor:
    """One task's life."""

    def __init__(self, path: Path, plan: TaskStartPlan) -> None:
        self._path = path
        self._plan = plan
        self._groups = plan.limits.groups
        self._kills_before = self._kills()
        self._status: int | None = None
        self._deadline: float | None = None
        self._kept_until: float | None = None
        self._notice_again: float | None = None
        self._main = 0
        self._made_by = 0.0
        self._startup = TaskStartup(path, plan)
        self._sessions: ExecSessions | None = None
        self._output_waits = True  # what was written before the kernel announces it
        self._container = plan.container
        own = os.getpid()
        self._record: dict[str, Any] = {
            **plan.record,
            "boot_id": procfs.boot_id(),
            "supervisor_pid": own,
            "supervisor_start": procfs.start_ticks(own),
        }

    def run(self) -> None:
        """Start, wait, end, write it all down."""
        self._path.with_suffix(".stop").unlink(missing_ok=True)
        running_tasks.enter(self._path)
        for file in (self._path, self._path.with_suffix(".stop")):
            keep_room(file)
        write_json(self._path, self._record)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        started = self._start()
        if started:
            self._accept_sessions()
        _close_standard_output()  # which says that the start is settled: from now on it accepts sessions
        if started:
            self._wait()
            self._record["forced"] = self._status is None and self._kept_until is None
            self._end_everything()
            self._write_end()
        if self._startup.failure is not None:
            self._startup.failure.close()
        if self._container is not None:
            supervision.tidy_up(self._container)
        if self._plan.socket is not None:
            _remove_socket(self._plan.socket)

    def _kills(self) -> int:
        """Kills for want of memory so far: the task's own, where it has a control group, else all that we know of."""
        if self._groups:
            return cgroups.kills(self._groups)
        return cgroups.kill_count(Path(self._plan.kill_counter))

    def _start(self) -> bool:
        """Start the command; when it cannot be started the record says why."""
        try:
            self._main = self._startup.start()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._record.update(error=self._startup.account(error), ended_at=time.time())
            cgroups.remove(self._plan.limits.folders)
            self._write_for_good()
            return False
        self._made_by = time.monotonic() + _MADE_WITHIN_S
        self._record.update(pid=self._main, started_at=time.time())
        write_json(self._path, self._record)
        return True

    def _write_again(self) -> None:
        """A server found the record emptied or gone."""
        with contextlib.suppress(OSError):  # who asked sees that it is not there
            write_json(self._path, self._record)

    def _accept_sessions(self) -> None:
        """From now on commands may be run beside the task; where no socket can be made, none can."""
        container = self._container
        entered = self._plan.wrapped is not None if container is None else container.enters
        identity = self._plan.identity
        place = {
            "env": self._plan.env,
            "workdir": self._plan.workdir,
            "sandbox": self._main if entered else None,
            "network": self._startup.network,
            "container": None if entered or container is None else asdict(container),
            # A container's runtime speaks with the server's rights; whom the command runs as it knows itself.
            "identity": asdict(identity) if container is None and identity is not None else None,
        }
        try:
            become = partial(become_task, self._plan.limits)
            self._sessions = ExecSessions(self._path.with_suffix(".sock"), place, become)
        except OSError as error:
            print(f"{self._path}: nobody can run commands beside it ({error})", file=sys.stderr, flush=True)

    def _wait(self) -> None:
        """Until the task is over, or its grace is.

        What a task leaves behind when it ends by itself is over with it; while it is being ended, the rest of its
        processes has the grace as well.
        """
        while True:
            got = self._await_signal()
            stopped = got == signal.SIGTERM
            if got == signal.SIGIO and self._sessions is not None:
                self._sessions.take()
            if got == signal.SIGHUP:
                self._write_again()
            self._take_output()
            self._pass_input_on()
            childless = self._reap()
            if self._kept_until is not None:
                if stopped or self._status is not None or time.monotonic() >= self._kept_until:
                    return
                continue
            if self._counts(stopped):
                self._give_notice()
            elif (code := self._failure()) is not None:
                self._keep(code)
            if self._notice_again is not None and time.monotonic() >= self._notice_again:
                self._pass_notice_on()
            if self._status is not None and (childless or self._deadline is None):
                return
            if self._deadline is not None and time.monotonic() >= self._deadline:
                return

    def _counts(self, stopped: bool) -> bool:
        """Whether the end of the task is not its own doing.

        What ends all processes of a machine ends the command as well, and may be quicker than the supervisor.
        """
        if self._status is None or self._deadline is not None:
            return stopped
        if self._status not in _TERMINATED:
            return False
        return stopped or signal.sigtimedwait((signal.SIGTERM,), SECOND_SIGNAL_WITHIN_S) is not None

    def _await_signal(self) -> int:
        until = self._deadline if self._kept_until is None else self._kept_until
        if until is None and not self._output_waits:
            return signal.sigwaitinfo(_AWAITED).si_signo
        if until is not None and self._notice_again is not None:
            until = min(until, self._notice_again)
        within_s = 0.0 if until is None or self._output_waits else until - time.monotonic()
        got = signal.sigtimedwait(_AWAITED, max(0.0, within_s))
        return 0 if got is None else got.si_signo

    def _pass_input_on(self) -> None:
        if self._startup.input is not None:
            self._startup.input.pass_on()

    def _take_output(self) -> None:
        if self._startup.output is not None:
            self._output_waits = self._startup.output.drain()

    def _failure(self) -> int | None:
        """The exit code with which the command has failed, if its place can be kept for that; else None."""
        if self._startup.failure is None or self._deadline is not None or self._status is not None:
            return None
        return self._startup.failure.take()

    def _keep(self, code: int) -> None:
        """The command has failed: its place stays for a while, or until we are asked to end."""
        from millpond.node.task.kept_place import announce  # its failure is the only one to pay for it

        assert self._plan.keep is not None
        keep_s = self._plan.keep.keep_s
        now = time.time()
        self._take_output()  # all of what it wrote: a pipe holds less than one round takes
        if self._startup.input is not None:
            self._startup.input.close()
        self._kept_until = time.monotonic() + keep_s
        self._record.update(self._end_by(code), kept_at=now, kept_until=now + keep_s)
        try:
            write_json(self._path, self._record)
        except OSError:  # a full disk: the end would not be recorded
            self._kept_until = time.monotonic()
        else:
            announce(self._path, self._record)

    def _give_notice(self) -> None:
        """Ask the task to end; when asked again, only shorten the grace."""
        request = read_json(self._path.with_suffix(".stop"))
        deadline = time.monotonic() + float(self._plan.shutdown_grace_s if request is None else request["grace_s"])
        if self._deadline is not None:
            self._deadline = min(self._deadline, deadline)
            return
        self._deadline = deadline
        if self._sessions is not None:
            self._sessions.end()
        self._record.update(notice_at=time.time(), stop_requested=request is not None)
        if request is not None and request.get("why"):
            self._record.update(ended_for=request["why"], ended_as=request["outcome"])
        self._pass_notice_on()

    def _pass_notice_on(self) -> None:
        """Have the command hear the notice: again, while its sandbox or container is being made around it."""
        notice = getattr(signal, self._record["notice_signal"])
        below = procfs.descendants(os.getpid())
        leads = self._container is not None and self._container.leads
        is_made = self._plan.wrapped is not None and (leads or self._container is None)
        is_heard = not is_made or supervision.hears(below, notice)  # looked for before: it may be there a moment later
        if leads:
            procfs.send(supervision.of_command(below), notice)
        else:
            procfs.send([-self._main], notice)
        cgroups.thaw(self._plan.limits.folders)
        procfs.send(below, signal.SIGCONT)  # a frozen task cannot heed the notice
        waits = not is_heard and time.monotonic() < self._made_by
        self._notice_again = time.monotonic() + _NOTICE_AGAIN_S if waits else None

    def _reap(self) -> bool:
        """Collect what has ended. Returns whether nothing is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._main:
                self._status = status
                if self._startup.socket_pid is not None:
                    procfs.send([self._startup.socket_pid], signal.SIGKILL)
            elif self._sessions is not None:
                self._sessions.over(pid)

    def _end_everything(self) -> None:
        """Kill all that is left below; new ones may appear while we look, hence again and again.

        Of a container, what is inside goes first: what its runtime has around it then puts things in order and ends.
        Clients beside the task get what was printed until now: a session whose command is gone says so and ends.
        """
        if self._sessions is not None:
            self._sessions.end()
        container = self._container
        if container is not None and self._status is None:
            supervision.kill(container)
        all_of_it_at = time.monotonic() + (supervision.TIDYING_S if container is not None else 0.0)
        sessions_end_at = time.monotonic() + _LAST_WORDS_S
        while not self._reap():
            below = procfs.descendants(os.getpid())
            now = time.monotonic()
            spared = self._sessions.sessions if self._sessions is not None and now < sessions_end_at else ()
            found = below if now >= all_of_it_at else supervision.inside(below)
            procfs.send((pid for pid in found if pid not in spared), signal.SIGKILL)
            self._take_output()
            signal.sigtimedwait((signal.SIGCHLD,), 0.05)

    def _write_end(self) -> None:
        assert self._status is not None
        if self._startup.output is not None:
            self._startup.output.close()
        if self._startup.input is not None:
            self._startup.input.close()
        if self._kept_until is None:
            code = os.waitstatus_to_exitcode(self._status)
            self._record.update(self._end_by(code if code >= 0 else 128 - code))
        self._record["ended_at"] = time.time()
        cgroups.remove(self._plan.limits.folders)
        self._write_for_good()

    def _end_by(self, code: int) -> dict[str, Any]:
        """How the command ended, for the record."""
        # In a control group of its own every kill is one of its own, whatever its main process made of it.
        by_kernel = (code == _KILLED or (code != 0 and bool(self._groups))) and self._deadline is None
        return {"exit_code": code, "out_of_memory": by_kernel and self._was_out_of_memory()}

    def _was_out_of_memory(self) -> bool:
        if self._container is not None and supervision.was_out_of_memory(self._container):
            return True
        return self._kills() > self._kills_before

    def _write_for_good(self) -> None:
        """Write the end down; where even the room kept for it does not do on a full disk, wait."""
        while True:
            try:
                write_json(self._path, self._record, durable=True, in_room=True)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                time.sleep(_FULL_DISK_PAUSE_S)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(room_for(self._path.with_suffix(".stop")))  # noqa: PTH108
                running_tasks.leave(self._path)
                return


def _carried_out(path: Path, decision: int) -> bool:
    """Whether this decision, or one after it, has been carried out before."""
    record = read_json(path)
    return record is not None and record["decision"] >= decision


def _await_settled(path: Path, decision: int) -> None:
    """Wait for the supervisor that was first to say how its start went; it takes milliseconds."""
    give_up = time.monotonic() + _LONGEST_START_S
    while time.monotonic() < give_up:
        if _carried_out(path, decision) and any(key in (read_json(path) or {}) for key in _SETTLED):
            return
        time.sleep(0.005)


def _remove_socket(plan: TaskSocketPlan) -> None:
    Path(plan.path).unlink(missing_ok=True)
    if plan.program is not None:
        shutil.rmtree(Path(plan.program).parent, ignore_errors=True)


def _close_standard_output() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
