"""Slices under NVIDIA's multi-process service, in packs of one user on one card (``backend.SliceEnforcer``).

Programs of a pack run on the card at the same time instead of in turns. The service bounds a program's part of the
processors and its memory, both for good: it takes them from the environment when a program starts. A fatal fault of one
ends all of its pack, so a pack is one user's. Such programs cannot be moved to the host.

Each pack has a daemon of its own with private directories for its sockets and logs, started with the first task and
told to quit after the last. The card's compute mode stays as it is.

Source: NVIDIA, Multi-Process Service, chapters "Architecture" and "Appendix: Tools and Interface Reference".
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millpond.model.errors import MillpondError, UnavailableError
from millpond.model.sharing import SliceHold
from millpond.node.host import procfs
from millpond.node.host.files import read_json, write_json
from millpond.node.sandbox.sandbox import Mount
from millpond.node.sharing.backend import EnforcementRequest, Owner, SliceEnforcer, TaskEnv
from millpond.node.task.records import TaskId

CONTROL_PROGRAM = "nvidia-cuda-mps-control"

_ANSWERS_WITHIN_S = 10.0
_NOTE = "pack.json"
_PIPES = "CUDA_MPS_PIPE_DIRECTORY"


@dataclass(slots=True)
class _Pack:
    """The tasks of one user on one card."""

    device: str
    owner: Owner
    folder: Path
    tasks: set[TaskId] = field(default_factory=set)

    @property
    def env(self) -> dict[str, str]:
        """Where daemon and programs meet. Sockets have short names, hence not the state directory."""
        return {
            _PIPES: str(self.folder / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(self.folder / "log"),
        }


class MpsEnforcer(SliceEnforcer):
    """All packs of one agent. To the driver all of a pack's work is the service's own: no task's use is known.

    Args:
        folder: where the directories of packs are made; short.
        program: the daemon's name or path.
    """

    kind = SliceHold.MPS

    def __init__(self, folder: Path | None = None, program: str = CONTROL_PROGRAM) -> None:
        self._folder = folder or Path(tempfile.gettempdir())
        self._program = program
        self._guard = threading.Lock()
        self._packs: dict[str, _Pack] = {}

    def why_not(self) -> str:
        """See ``SliceEnforcer``."""
        is_there = shutil.which(self._program) is not None
        return "" if is_there else f"{self._program} is not installed; it comes with the NVIDIA driver"

    def prepare(self, request: EnforcementRequest) -> TaskEnv:
        """See ``SliceEnforcer``."""
        if len(request.grants) != 1:
            raise UnavailableError(
                f"a pack shares one card, not {len(request.grants)}", "ask for one slice, or for whole cards"
            )
        (part,) = request.grants
        with self._guard:
            pack = self._pack_of(part.device, request.owner or (os.geteuid(), os.getegid()))
            if not pack.tasks:
                try:
                    self._start(pack)
                except (MillpondError, OSError):
                    del self._packs[pack.device]  # it would keep the card for its user
                    raise
            pack.tasks.add(request.task)
        request.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(request.folder / _NOTE, {"device": part.device, "owner": pack.owner})
        env = {
            **pack.env,
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(max(1, part.limit_milli // 10)),
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={part.memory_mib}M",
        }
        return TaskEnv(self.kind, env=env, mounts=(Mount(pack.folder, writable=True),))

    def adopt(self, task: TaskId, folder: Path, devices: Sequence[str]) -> bool:
        """See ``SliceEnforcer``."""
        note = read_json(folder / _NOTE)
        if note is None:
            return False
        user, group = note["owner"]
        with self._guard:
            self._pack_of(note["device"], (user, group)).tasks.add(task)
        return True

    def processes(self) -> list[int]:
        """See ``SliceEnforcer``."""
        with self._guard:
            folders = [pack.env[_PIPES] for pack in self._packs.values()]
        return [pid for folder in folders for pid in procfs.with_variable(_PIPES, folder)]

    def fault_domain(self, task: TaskId) -> frozenset[TaskId]:
        """See ``SliceEnforcer``."""
        with self._guard:
            return frozenset(
                mate for pack in self._packs.values() if task in pack.tasks for mate in pack.tasks - {task}
            )

    def move(self, task: TaskId, devices: Sequence[str]) -> None:
        """See ``SliceEnforcer``. The service is one card's, and the driver moves none of its clients."""
        raise UnavailableError(
            "it runs under the multi-process service of its card (hold: mps), which it cannot leave",
            "end it and start it anew",
        )

    def release(self, task: TaskId) -> None:
        """See ``SliceEnforcer``."""
        with self._guard:
            for pack in list(self._packs.values()):
                if task in pack.tasks:
                    pack.tasks.remove(task)
                    if not pack.tasks:
                        del self._packs[pack.device]
                        self._command(pack, "quit")

    def _pack_of(self, device: str, owner: Owner) -> _Pack:
        """The pack on a card.

        Raises:
            UnavailableError: it is another user's.
        """
        pack = self._packs.get(device)
        if pack is None:
            mark = hashlib.sha256(f"{device} {owner}".encode()).hexdigest()[:12]
            pack = self._packs[device] = _Pack(device, owner, self._folder / f"millpond-mps-{mark}")
        elif pack.owner != owner:
            raise UnavailableError(
                f"on device {device} the multi-process service serves another user", "wait, or use another card"
            )
        return pack

    def _start(self, pack: _Pack) -> None:
        """Start a pack's daemon, unless one that an earlier agent started answers.

        Raises:
            UnavailableError: it does not come up.
            OSError: its directories cannot be made.
        """
        for name in ("", "pipe", "log"):
            folder = pack.folder / name
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder.is_symlink() or folder.stat().st_uid not in (os.geteuid(), pack.owner[0]):
                raise UnavailableError(f"{folder} belongs to another user", "remove it")
            if folder.stat().st_uid != pack.owner[0]:
                os.chown(folder, *pack.owner)
        if self._command(pack, "get_server_list"):
            return
        trouble = self._run([self._program, "-d"], pack, "")
        if trouble is not None or not self._command(pack, "get_server_list"):
            raise UnavailableError(
                f"the multi-process service does not start on device {pack.device}: {trouble or 'it does not answer'}",
                f"its logs in {pack.env['CUDA_MPS_LOG_DIRECTORY']} say why",
            )

    def _command(self, pack: _Pack, command: str) -> bool:
        """Whether the daemon took a command."""
        return self._run([self._program], pack, f"{command}\n") is None

    def _run(self, argv: Sequence[str], pack: _Pack, text: str) -> str | None:
        """What went wrong; None when nothing did."""
        env = {**os.environ, **pack.env, "CUDA_VISIBLE_DEVICES": pack.device}
        as_another = pack.owner[0] != os.geteuid()
        # Not pipes: the daemon keeps what it was started with open.
        with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as given:
            given.write(text)
            given.seek(0)
            try:
                code = subprocess.run(
                    argv,
                    env=env,
                    stdin=given,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    timeout=_ANSWERS_WITHIN_S,
                    user=pack.owner[0] if as_another else None,
                    group=pack.owner[1] if as_another else None,
                    check=False,
                ).returncode
            except (OSError, subprocess.TimeoutExpired) as error:
                return str(error)
            said.seek(0)
            lines = said.read().strip().splitlines()
        return None if code == 0 else (lines[-1] if lines else f"exit code {code}")
