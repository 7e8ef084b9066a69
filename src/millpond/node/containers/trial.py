"""Try whether a container runtime starts containers, with a program of the machine's own: no image and no registry is
needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from millpond.node.containers.container import ask
from millpond.node.containers.detection import Containers

_WITHIN_S: Final = 60.0
_SYSTEM: Final = ("usr", "bin", "lib", "lib32", "lib64", "nix")
"""Where a program and its libraries lie; on most machines the others are links into the first."""
_LIKE_JOBS: Final = ("--init", "--network", "host", "--ipc", "host", "--uts", "host", "--log-driver", "none")


def trouble_with_start(found: Containers) -> str:
    """What keeps containers from starting, in the runtime's own words; empty when one has run. Leaves nothing."""
    try:
        with tempfile.TemporaryDirectory(prefix="millpond-") as folder, _command(found, Path(folder)) as command:
            return _run(found, command)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


@contextmanager
def _command(found: Containers, root: Path) -> Iterator[list[str]]:
    """What runs ``true`` in a container."""
    runtime, program = found.runtime, shutil.which("true") or "/bin/true"
    folders = list(_lay_out(root))
    volumes = [word for folder in folders for word in ("--volume", f"{folder}:{folder}:ro")]
    match runtime.name:
        case "podman":
            yield [runtime.program, "run", "--rm", *_LIKE_JOBS, *volumes, "--rootfs", str(root), program]
        case "docker":
            image = f"millpond-trial-{uuid.uuid4().hex[:12]}"
            archive = shutil.make_archive(str(root.with_suffix(".trial")), "tar", root)
            try:
                _run(found, [runtime.program, "import", archive, image])
                yield [runtime.program, "run", "--rm", *_LIKE_JOBS, *volumes, image, program]
            finally:
                Path(archive).unlink()
                _run(found, [runtime.program, "rmi", "--force", image])
        case _:
            binds = [word for folder in folders for word in ("--bind", f"{folder}:{folder}:ro")]
            yield [runtime.program, "exec", "--containall", "--no-home", *binds, str(root), program]


def _lay_out(root: Path) -> Iterator[Path]:
    """Make a root directory like the machine's; gives the folders that it is to have of it."""
    for name in _SYSTEM:
        folder = Path("/", name)
        if folder.is_symlink():
            (root / name).symlink_to(folder.readlink())
        elif folder.is_dir():
            (root / name).mkdir()
            yield folder
    for name in ("dev", "proc", "sys", "tmp", "etc"):
        (root / name).mkdir()


def _run(found: Containers, command: Sequence[str]) -> str:
    done = ask(command, {**found.env, "PATH": found.env.get("PATH", os.defpath)}, _WITHIN_S)
    if done.returncode == 0:
        return ""
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return said[-1]
