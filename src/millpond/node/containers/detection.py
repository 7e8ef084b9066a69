"""Detect the container runtime of this machine, and whether it works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from millpond.model.errors import UnavailableError
from millpond.node.containers.apptainer import Apptainer
from millpond.node.containers.container import Runtime, ask
from millpond.node.containers.images import OciImages, PodmanImages, RuntimeImages
from millpond.node.containers.oci import Docker, Podman
from millpond.node.containers.sif_images import SifImages

INSTALL: Final = (
    "install podman (Debian: apt install podman catatonit uidmap), docker or apptainer on the server's machine"
)

_ANSWER_WITHIN_S: Final = 20.0
_INITS: Final = ("/usr/libexec/podman/catatonit", "/usr/lib/podman/catatonit", "/usr/libexec/catatonit/catatonit")
_CARD_SPECS: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
_INHERITED: Final = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REGISTRY_AUTH_FILE",
    "DBUS_SESSION_BUS_ADDRESS",
    *(f"{way}_proxy" for way in ("http", "https", "no")),
    *(f"{way}_PROXY" for way in ("HTTP", "HTTPS", "NO")),
)
_INHERITED_FAMILIES: Final = ("XDG_", "CONTAINERS_", "CONTAINER_", "STORAGE_", "DOCKER_", "APPTAINER_", "SINGULARITY_")
_WITHIN_S: Final = 60.0
_SYSTEM: Final = ("usr", "bin", "lib", "lib32", "lib64", "nix")
"""Where a program and its libraries lie; on most machines the others are links into the first."""
_LIKE_JOBS: Final = ("--init", "--network", "host", "--ipc", "host", "--uts", "host", "--log-driver", "none")


class RuntimeChoice(Enum):
    """Which runtime the operator wants."""

    AUTO = "auto"
    """The first of the others that works."""
    PODMAN = "podman"
    DOCKER = "docker"
    APPTAINER = "apptainer"
    NONE = "none"
    """Jobs have no images."""


@dataclass(frozen=True, slots=True)
class Containers:
    """What a machine runs containers with.

    Attributes:
        version: what the runtime says it is.
        env: what the runtime finds in its environment; nothing of any job's.
        card_trouble: why containers cannot be given cards; empty when they can.
    """

    runtime: Runtime
    version: str
    images: RuntimeImages
    env: Mapping[str, str]
    card_trouble: str = ""


def find_containers(choice: RuntimeChoice, state_dir: Path) -> Containers:
    """What this machine runs containers with; asks programs, which takes some tenths of a second.

    Args:
        state_dir: where images are kept that a runtime does not keep itself, and what is for a moment.

    Raises:
        UnavailableError: nothing, with what was looked for and what came of it.
    """
    if choice is RuntimeChoice.NONE:
        raise UnavailableError("containers are switched off here", "leave `image` out, or ask an admin")
    wanted = [choice] if choice is not RuntimeChoice.AUTO else [*_LOOKS]
    troubles = []
    for each in wanted:
        try:
            return _LOOKS[each](state_dir)
        except _AbsentError as error:
            troubles.append(f"{each.value} {error}")
    raise UnavailableError(f"no container runtime works here: {', '.join(troubles)}", INSTALL)


def runtime_environment() -> dict[str, str]:
    """What a runtime inherits of the server: where things lie and how to reach registries."""
    return {
        name: value for name, value in os.environ.items() if name in _INHERITED or name.startswith(_INHERITED_FAMILIES)
    }


class _AbsentError(Exception):
    """Why one runtime is of no use; ends a sentence that begins with its name."""


def _podman(state_dir: Path) -> Containers:
    program, env = _installed("podman"), runtime_environment()
    info = json.loads(_answer([program, "info", "--format", "json"], env))
    if not any(map(os.access, _INITS, (os.X_OK,) * len(_INITS))) and shutil.which("catatonit") is None:
        raise _AbsentError("lacks catatonit (Debian: apt install catatonit)")
    rootless = bool(_within(info, "host", "security", "rootless"))
    controllers = _within(info, "host", "cgroupControllers") or []
    limits = "memory" in controllers or (not rootless and _within(info, "host", "cgroupVersion") == "v1")
    version = f"podman {_within(info, 'version', 'Version') or ''}".rstrip()
    layers = _within(info, "store", "imageCopyTmpDir")
    root, driver = _within(info, "store", "graphRoot"), _within(info, "store", "graphDriverName")
    configs = Path(root, f"{driver}-images") if root and driver else None
    images = PodmanImages(program, env, state_dir, Path(layers) if layers and Path(layers).is_dir() else None, configs)
    return Containers(Podman(program, limits, rootless), version, images, env, _card_trouble())


def _docker(state_dir: Path) -> Containers:
    program, env = _installed("docker"), runtime_environment()
    version = _answer([program, "version", "--format", "{{.Server.Version}}"], env).strip()
    return Containers(Docker(program), f"docker {version}", OciImages(program, env, state_dir), env)


def _apptainer(state_dir: Path) -> Containers:
    program = shutil.which("apptainer") or _installed("singularity")
    env = runtime_environment()
    version = _answer([program, "--version"], env).strip()
    folder = state_dir / "images"
    return Containers(Apptainer(program, folder), version, SifImages(program, env, folder), env)


_LOOKS: Final = {
    RuntimeChoice.PODMAN: _podman,
    RuntimeChoice.DOCKER: _docker,
    RuntimeChoice.APPTAINER: _apptainer,
}


def _installed(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise _AbsentError("is not installed")
    return found


def _answer(command: list[str], env: Mapping[str, str]) -> str:
    """What a program prints.

    Raises:
        _AbsentError: it fails, or does not answer.
    """
    try:
        done = ask(command, env, _ANSWER_WITHIN_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _AbsentError(f"does not run ({error})") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise _AbsentError(f"does not work ({said[-1]})")
    return done.stdout


def _within(info: Any, *path: str) -> Any:
    """A value in a program's answer; None where this version of it lacks it."""
    for name in path:
        info = info.get(name) if isinstance(info, dict) else None
    return info


def _card_trouble() -> str:
    """Why podman cannot give cards to containers; empty when something describes them."""
    if any(file.suffix in (".yaml", ".json") for folder in _CARD_SPECS if folder.is_dir() for file in folder.iterdir()):
        return ""
    return "no description of the cards for containers (CDI) is on the machine"


def trouble_with_start(found: Containers) -> str:
    """What keeps containers from starting, in the runtime's own words; empty when one has run. Leaves nothing.

    It is tried with a program of the machine's own: no image and no registry is needed.
    """
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
