"""Keeping tasks apart: each in namespaces of its own, made by bubblewrap (``bwrap``), where that is installed.

A sandboxed task sees only its own processes, has a ``/tmp`` of its own, which ends with it, and finds nothing where the
server keeps its state: not the database, not the API token, not the output of other jobs. Everything else is where it
was: the user's own directory, virtual environment and devices.

The network is that of whoever makes the sandbox (``private_network``), and ``/dev/shm`` is shared: the tasks of a gang
speak over both.

Source of the options: bwrap(1).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from millpond.model.errors import UnavailableError
from millpond.node.identities import Identity
from millpond.node.task_environment import open_script, outer_environment, script_path, with_own_environment

INSTALL = "install bubblewrap (Debian: apt install bubblewrap), or start the server with --sandbox off"
INSTALL_IDENTITIES = "install util-linux with setpriv (Debian: apt install util-linux)"

_THERE_ALREADY = (Path("/"), Path("/dev"))
"""Mounted again, these would hide what was put into them, and devices would be none."""
_PRIVATE = (Path("/tmp"), Path("/var/tmp"))
_PROBE_S = 10.0
_NOBODY = 65_534


class SandboxMode(Enum):
    """What the operator wants."""

    AUTO = "auto"
    """As ``PREFERRED`` while one person uses the server, as ``REQUIRED`` from the second on."""
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


_MADE, _EMPTIED, _READABLE, _READ_ONLY, _WRITABLE = range(-1, 4)


@dataclass(frozen=True, slots=True, order=True)
class _Layer:
    """Options of bwrap about one path.

    In their order: the outer before the inner, as what is mounted later hides what lies below it. Of one path twice:
    what is private first, the writable last.
    """

    depth: int
    rank: int
    options: tuple[str, ...]
    path: Path = field(compare=False)

    @classmethod
    def of(cls, path: Path, rank: int, *options: str) -> _Layer:
        """That a path be mounted so.

        Args:
            rank: ``_MADE`` to ``_WRITABLE``.
        """
        return cls(len(path.parts), rank, options, path)


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
        self,
        argv: Sequence[str],
        workdir: Path,
        readable: Sequence[Path] = (),
        mounts: Sequence[Mount] = (),
        identity: Identity | None = None,
    ) -> list[str]:
        """The command that runs ``argv`` in a sandbox; its exit code is that of ``argv``.

        Args:
            workdir: absolute; stays visible and writable wherever it lies.
            readable: absolute; stay visible where they lie in a directory that is otherwise private.
            mounts: what else the task is to have. Of two, one within the other, the inner one counts there.
            identity: whom ``argv`` runs as; None: as whoever makes the sandbox. Only root can make it for others.
        """
        private = [directory for directory in _PRIVATE if directory.is_dir()]
        layers = self._emptied(private, identity)
        layers += self._readable(readable, private)
        layers += [_bound(mount) for mount in (Mount(workdir, True), *mounts)]
        if identity is not None:
            layers += _on_the_way(layers, {*self.hidden, *private})
        options = ["--die-with-parent", "--unshare-pid", "--dev-bind", "/", "/"]
        for layer in sorted(layers):
            if layer.path not in _THERE_ALREADY:
                options += layer.options
        # Last, as no folder of a job's may bring the machine's processes back. The task enters its working directory
        # itself, with its own rights.
        options += ["--proc", "/proc", "--chdir", "/"]
        # bwrap stays above the task and must not die of the signals that the task is to hear: the supervisor starts it
        # with them ignored, and the script has them heard again.
        return [self.program, *options, "--", *_becoming(identity), *with_own_environment(argv)]

    def _emptied(self, private: Sequence[Path], identity: Identity | None) -> list[_Layer]:
        """The directories in which a task finds nothing, or only what is its own."""
        # Older versions know no --perms, and need none where the task is whoever makes the sandbox.
        open_to_all = () if identity is None else ("--perms", "1777")
        return [_Layer.of(path, _EMPTIED, "--tmpfs", str(path)) for path in self.hidden] + [
            _Layer.of(path, _EMPTIED, *open_to_all, "--tmpfs", str(path)) for path in private
        ]

    def _readable(self, readable: Sequence[Path], private: Sequence[Path]) -> list[_Layer]:
        """What stays visible in private directories; what lies elsewhere is visible anyhow."""
        within_private = tuple(f"{directory}/" for directory in private)
        covered = [(path, path.resolve()) for path in readable if str(path).startswith(within_private)]
        return [
            _Layer.of(path, _READABLE, "--ro-bind-try", str(source), str(path))
            for path, source in covered
            # A job chooses these: none, and no link, leads to what is hidden from it.
            if not any(source.is_relative_to(hidden) for hidden in self.hidden)
        ]


def _bound(mount: Mount) -> _Layer:
    path = str(mount.path)
    if mount.writable:
        return _Layer.of(mount.path, _WRITABLE, "--bind", path, path)
    return _Layer.of(mount.path, _READ_ONLY, "--ro-bind", path, path)


def _on_the_way(layers: Sequence[_Layer], empty: Set[Path]) -> list[_Layer]:
    """The folders between an emptied directory and a mount below it: bwrap would make them for itself alone."""
    above = {folder for layer in layers for folder in layer.path.parents if not empty.isdisjoint(folder.parents)}
    return [_Layer.of(folder, _MADE, "--perms", "0755", "--dir", str(folder)) for folder in above]


def _becoming(identity: Identity | None) -> list[str]:
    """What turns root into somebody else, for good: no program can give it any right back."""
    if identity is None:
        return []
    groups = ",".join(map(str, identity.groups))
    rights = ["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    return ["setpriv", f"--reuid={identity.uid}", f"--regid={identity.gid}", f"--groups={groups}", *rights, "--"]


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


def trouble_with_identities(sandbox: Sandbox) -> str:
    """What keeps sandboxed tasks from running as others than root; empty when nothing does."""
    if shutil.which("setpriv") is None:
        return "setpriv (of util-linux) is not installed"
    return _trouble_with(sandbox.program, Identity(_NOBODY, _NOBODY, (_NOBODY,), "nobody", "/"))


def _trouble_with(program: str, identity: Identity | None = None) -> str:
    """What keeps bwrap from working here; empty when nothing does."""
    command = Sandbox(program, ()).around(["true"], Path("/"), identity=identity)
    script = open_script({}, "/")
    try:
        done = subprocess.run(
            command,
            env=outer_environment(script_path(script), {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_S,
            check=False,
            pass_fds=(script,),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} does not run: {error}"
    finally:
        os.close(script)
    if done.returncode == 0:
        return ""
    told = done.stderr.decode(errors="replace").strip().splitlines()
    return f"{program} does not work on this kernel: {told[-1] if told else f'exit code {done.returncode}'}"
