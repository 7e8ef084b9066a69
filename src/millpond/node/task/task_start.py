"""Start a task's command in its supervisor: first all that it needs, then the process. Standard library only."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.node.containers import supervision
from millpond.node.host import cgroups
from millpond.node.host.folder_trees import entries_below
from millpond.node.host.programs import require_program
from millpond.node.sandbox.named_mounts import NamedMounts
from millpond.node.sessions.task_socket import start_task_socket
from millpond.node.task.child_setup import (
    Streams,
    become_sandbox,
    become_task,
    spawn_sandbox,
    takes_no_fork,
)
from millpond.node.task.environment import open_script, outer_environment, script_path
from millpond.node.task.identity import Identity, acting_as
from millpond.node.task.input import TaskInput
from millpond.node.task.output import OutputCapture, Stream
from millpond.node.task.start_plan import TaskStartPlan

if TYPE_CHECKING:
    from millpond.node.task.kept_place import FailureReport


class TaskStartup:
    """The start of one task.

    Args:
        path: of the task's record.
        plan: of the start.

    Attributes:
        socket_pid: the process of the task socket; None if it has none.
        output: takes what the command writes; None until it runs.
        input: gives it what it reads; None if it reads nothing, and until it runs.
        failure: reports that the command has failed; None if its place is not kept then, and until it runs.
    """

    def __init__(self, path: Path, plan: TaskStartPlan) -> None:
        self._path = path
        self._plan = plan
        self._prepared = False
        self.socket_pid: int | None = None
        self.output: OutputCapture | None = None
        self.input: TaskInput | None = None
        self.failure: FailureReport | None = None

    def start(self) -> int:
        """Start the command, in a session of its own; returns its process, a child of ours.

        Raises:
            OSError, ValueError, subprocess.SubprocessError: it cannot be started; ``account`` notes in the record why.
        """
        plan = self._plan
        wrapped, container, keep = plan.wrapped, plan.container, plan.keep
        self._prepare()
        cgroups.make(plan.limits.groups)
        if container is None:
            self._require_place()
        if plan.socket is not None:
            self.socket_pid = start_task_socket(plan.socket, plan.identity)
        if wrapped is None:
            command = plan.command if keep is None else keep.command
            return self._launch(partial(self._fork, command, plan.workdir, plan.env))
        if container is not None:
            return self._launch(partial(self._fork, wrapped, container.scratch, container.env))
        with ExitStack() as opened:
            mounts = NamedMounts(wrapped, plan.named, plan.identity, plan.takes_open)
            opened.enter_context(mounts)
            script = open_script(plan.env, plan.workdir, plan.limits.processes)
            opened.callback(os.close, script)
            env, handles = outer_environment(script_path(script), plan.env), (script, *mounts.handles)
            if takes_no_fork(plan.limits, self.network):
                return self._launch(partial(spawn_sandbox, mounts.command, env, handles))
            return self._launch(partial(self._fork, mounts.command, "/", env, handles=handles))

    def account(self, error: Exception) -> dict[str, Any]:
        """Why it could not be started, for the record."""
        return {
            "text": getattr(error, "strerror", None) or str(error),
            "errno": getattr(error, "errno", None),
            "path": getattr(error, "filename", None),
            "preparing": not self._prepared,
        }

    def _launch(self, start: Callable[[Streams], int]) -> int:
        """Start a process with these standard streams, and take what it writes."""
        identity, ring = self._plan.identity, self._plan.input
        given = None if ring is None else TaskInput(Path(ring), identity)
        output = OutputCapture(self._path.with_suffix(".log"), self._path.with_suffix(".index"), identity)
        ends = output.ends
        try:
            pid = start((None if given is None else given.end, ends[Stream.STDOUT], ends[Stream.STDERR]))
        except (OSError, ValueError, subprocess.SubprocessError):
            output.close()
            raise
        output.begin()
        if given is not None:
            given.begin()
        self.output, self.input = output, given
        return pid

    def _fork(
        self, command: list[str], folder: str, env: dict[str, str], streams: Streams, handles: tuple[int, ...] = ()
    ) -> int:
        """Start a command; with ``handles`` it makes a sandbox and gets those files."""
        given, output, errors = streams
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL if given is None else given,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            preexec_fn=partial(become_sandbox if handles else become_task, self._plan.limits, self.network),
            pass_fds=handles,
        )
        child.returncode = 0  # else it would collect the exit code itself when it is dropped
        return child.pid

    def _require_place(self) -> None:
        """Check with the task's own rights what would fail too late when the command is started.

        What the server made for the task is reached in the sandbox alone.

        Raises:
            OSError: the working directory cannot be entered, or the program is not there or cannot be executed.
        """
        plan = self._plan
        if plan.own_folder:
            os.chdir(plan.home or plan.workdir)
        try:
            with acting_as(plan.identity):
                if plan.home is not None:
                    os.chdir(os.path.relpath(plan.workdir, plan.home))
                elif not plan.own_folder:
                    os.chdir(plan.workdir)
                require_program(plan.command[0], plan.env)
        finally:
            os.chdir("/")

    @property
    def network(self) -> int | None:
        """A process in the network that the command is to be in; None: that of the machine."""
        socket = self._plan.socket
        return self.socket_pid if socket is not None and socket.network is not None else None

    def _prepare(self) -> None:
        """Lay out the files that its attempt needs, if any."""
        plan = self._plan
        if plan.workspace is not None:
            # Here, as most tasks need no files and would pay for the import.
            from millpond.node.task.workspace import prepare

            prepare(plan.workspace, self._path.parent, plan.identity)
        if plan.identity is not None:
            for folder in filter(os.path.isdir, plan.owned):
                _give_to(plan.identity, folder)
        if plan.container is not None:
            supervision.lay_out(plan.container)
        if plan.keep is not None:
            # Here, as most tasks keep nothing and would pay for the import.
            from millpond.node.task.kept_place import FailureReport

            self.failure = FailureReport(Path(plan.keep.report), plan.identity)
        self._prepared = True


def _give_to(identity: Identity, folder: str) -> None:
    """Give a folder and all in it to a user, without following a link.

    A file with several names stays whose it is: the job's own program may have given another's file a name in here.
    """
    os.chown(folder, identity.uid, identity.gid, follow_symlinks=False)
    for entry in entries_below(Path(folder)):
        try:
            found = os.open(entry.name, os.O_PATH | os.O_NOFOLLOW, dir_fd=entry.above)
        except FileNotFoundError:
            continue  # another task of the gang, which runs already, has removed it
        try:
            status = os.fstat(found)
            if stat.S_ISDIR(status.st_mode) or status.st_nlink == 1:
                os.chown(f"/proc/self/fd/{found}", identity.uid, identity.gid)
        finally:
            os.close(found)
