"""Keeping tasks apart: each in namespaces of its own, made by bubblewrap (``bwrap``), where that is installed.

A sandboxed task sees only its own processes, has a ``/tmp`` of its own, which ends with it, and finds nothing where the
server keeps its state: not the database, not the API token, not the output of other jobs. Everything else is where it
was: the user's own directory, virtual environment and devices.

The network is shared, as the tasks of a gang speak over it, and so is ``/dev/shm``.

Source of the options: bwrap(1).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from millpond.model.errors import UnavailableError

INSTALL = "install bubblewrap (Debian: apt install bubblewrap), or start the server with --sandbox off"

_PRIVATE = (Path("/tmp"), Path("/var/tmp"))
_PROBE_S = 10.0


class SandboxMode(Enum):
    """What the operator wants."""

    OFF = "off"
    """Tasks see what the server's account sees."""
    PREFERRED = "preferred"
    """Sandboxed where that works on this machine."""
    REQUIRED = "required"
    """The server does not start where it does not."""


@dataclass(frozen=True, slots=True)
class Mount:
    """An absolute path, free of links, that a task finds where it lies, wherever that is."""

    path: Path
    writable: bool


@dataclass(frozen=True, slots=True)
class Sandbox:
    """How to put tasks into sandboxes.

    Attributes:
        program: path of ``bwrap``.
        hidden: absolute directories in which tasks find nothing.
    """

    program: str
    hidden: tuple[Path, ...]

    def around(
        self, argv: Sequence[str], workdir: Path, readable: Sequence[Path] = (), mounts: Sequence[Mount] = ()
    ) -> list[str]:
        """The command that runs ``argv`` in a sandbox; its exit code is that of ``argv``.

        Args:
            workdir: absolute; stays visible and writable wherever it lies.
            readable: absolute; stay visible where they lie in a directory that is otherwise private.
            mounts: what else the task is to have. Of two, one within the other, the inner one counts there.
        """
        options = ["--die-with-parent", "--unshare-pid", "--dev-bind", "/", "/", "--proc", "/proc"]
        for directory in _PRIVATE:
            if directory.is_dir():
                options += ["--tmpfs", str(directory)]
        for directory in readable:
            if any(private in directory.parents for private in _PRIVATE):
                options += ["--ro-bind-try", str(directory), str(directory)]
        own = [Mount(workdir, True), *mounts]
        # The outer before the inner; of one path twice, the writable last.
        own.sort(key=lambda mount: (len(mount.path.parts), mount.writable))
        for mount in own:
            options += _bound(mount)
        for directory in self.hidden:
            options += ["--tmpfs", str(directory)]
        for mount in own:
            if any(mount.path.is_relative_to(directory) for directory in self.hidden):
                options += _bound(mount)
        options += ["--chdir", str(workdir)]
        # bwrap stays above the task and must not die of the signals that the task is to hear: the supervisor starts it
        # with them ignored, and env has them heard again.
        return [self.program, *options, "--", "env", "--default-signal", *argv]


def _bound(mount: Mount) -> list[str]:
    return ["--bind" if mount.writable else "--ro-bind", str(mount.path), str(mount.path)]


def find_sandbox(mode: SandboxMode, hidden: Sequence[Path]) -> tuple[Sandbox | None, str]:
    """The sandbox that this machine offers, or none and why.

    Raises:
        UnavailableError: it is required and does not work here.
    """
    if mode is SandboxMode.OFF:
        return None, "switched off"
    program = shutil.which("bwrap")
    trouble = "bubblewrap is not installed" if program is None else _trouble_with(program)
    if program is not None and not trouble:
        return Sandbox(program, tuple(directory.resolve() for directory in hidden)), ""
    if mode is SandboxMode.REQUIRED:
        raise UnavailableError(f"tasks cannot be kept apart: {trouble}", INSTALL)
    return None, trouble


def _trouble_with(program: str) -> str:
    """What keeps bwrap from working here; empty when nothing does."""
    command = Sandbox(program, ()).around(["true"], Path("/"))
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} does not run: {error}"
    if done.returncode == 0:
        return ""
    told = done.stderr.decode(errors="replace").strip().splitlines()
    return f"{program} does not work on this kernel: {told[-1] if told else f'exit code {done.returncode}'}"
