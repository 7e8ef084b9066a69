"""Detect the sandbox that this machine offers by trying it, or say why there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from millpond.model.errors import UnavailableError
from millpond.node.host.identities import MachineAccount
from millpond.node.sandbox.sandbox import SETPRIV, Sandbox, SandboxRequest
from millpond.node.task.environment import open_script, outer_environment, script_path

INSTALL = "install bubblewrap (Debian: apt install bubblewrap), or start the server with --sandbox off"
INSTALL_IDENTITIES = "install util-linux with setpriv (Debian: apt install util-linux)"

_PROBE_S = 10.0
_NOBODY = 65_534
_PROBED_MIB = 1


MOUNTINFO = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class _MountPoint:
    """Attributes: ``root``: the folder of the file system ``device`` that is found at ``place``."""

    device: str
    root: Path
    place: Path


def other_places(path: Path, mountinfo: Path = MOUNTINFO) -> list[Path]:
    """Where a directory, or a part of it, is found besides its own path, as one file system can be mounted at several.

    Source: proc(5), ``/proc/pid/mountinfo``.

    Args:
        path: absolute, free of links.
    """
    mounted = [_read(line) for line in mountinfo.read_text().splitlines()]
    above = [mount for mount in mounted if path.is_relative_to(mount.place)]
    if not above:
        return []
    # The last line counts of two with the same place: it was mounted over the other.
    own = max(enumerate(above), key=lambda item: (len(item[1].place.parts), item[0]))[1]
    inside = own.root / path.relative_to(own.place)
    found = set()
    for mount in mounted:
        if mount.device != own.device:
            continue
        if inside.is_relative_to(mount.root):
            found.add(mount.place / inside.relative_to(mount.root))
        elif mount.root.is_relative_to(inside):
            found.add(mount.place)
    return sorted(place for place in found if not place.is_relative_to(path))


def _read(line: str) -> _MountPoint:
    _, _, device, root, place, *_ = line.split(" ")
    return _MountPoint(device, _unescaped(root), _unescaped(place))


def _unescaped(text: str) -> Path:
    return Path(_OCTAL.sub(lambda found: chr(int(found[1], 8)), text))


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


def find_sandbox(mode: SandboxMode, hidden: Sequence[Path]) -> tuple[Sandbox | None, str]:
    """The sandbox that this machine offers, or none and why.

    Raises:
        UnavailableError: it is required and does not work here.
    """
    if mode is SandboxMode.OFF:
        return None, "switched off"
    program = shutil.which("bwrap")
    sandbox, trouble = None, "bubblewrap is not installed"
    if program is not None:
        sandbox = Sandbox(program, _everywhere(hidden))
        trouble = _trouble_with(sandbox)
        if trouble and not _trouble_with(replace(sandbox, bounds_size=False)):
            sandbox, trouble = replace(sandbox, bounds_size=False), ""
    if sandbox is not None and not trouble:
        return replace(sandbox, takes_open=_takes_open(sandbox.program)), ""
    if mode is SandboxMode.REQUIRED:
        raise UnavailableError(f"tasks cannot be kept apart: {trouble}", INSTALL)
    return None, trouble


def trouble_with_identities(sandbox: Sandbox) -> str:
    """What keeps sandboxed tasks from running as others than root; empty when nothing does."""
    if shutil.which(SETPRIV) is None:
        return "setpriv (of util-linux) is not installed"
    return _trouble_with(sandbox, MachineAccount(_NOBODY, _NOBODY, (_NOBODY,), "nobody", "/"))


def _takes_open(program: str) -> bool:
    """Whether this version of bwrap mounts what is open."""
    try:
        output = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=_PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "--ro-bind-fd" in output.stdout


def _everywhere(hidden: Iterable[Path]) -> tuple[Path, ...]:
    """Directories, with the other places at which their file system is mounted."""
    own = [directory.resolve() for directory in hidden]
    others = [place for directory in own for place in other_places(directory) if place.is_dir()]
    return tuple(dict.fromkeys([*own, *others]))


def _trouble_with(sandbox: Sandbox, identity: MachineAccount | None = None) -> str:
    """What keeps bwrap from working here; empty when nothing does."""
    request = SandboxRequest(identity=identity, memory_mib=_PROBED_MIB)
    command = replace(sandbox, hidden=()).around(["true"], request)
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
        return f"{sandbox.program} does not run: {error}"
    finally:
        os.close(script)
    if done.returncode == 0:
        return ""
    output = done.stderr.decode(errors="replace").strip().splitlines()
    return f"{sandbox.program} does not work on this kernel: {output[-1] if output else f'exit code {done.returncode}'}"
