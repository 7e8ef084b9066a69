"""Diagnose this machine: what works, what does not, and the remedy. Tries what has to be tried, and leaves nothing."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import platform
import resource
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from millpond.client.sdk.transport.discovery import read_server_file
from millpond.client.sdk.transport.health import ask_health
from millpond.compilation.finder import find_compiled
from millpond.model.errors import UnavailableError
from millpond.node.containers.detection import RuntimeChoice, find_containers, trouble_with_start
from millpond.node.devices.discovery import find_vendors
from millpond.node.devices.nvidia import NvidiaVendor
from millpond.node.host import controllers
from millpond.node.host.controllers import GroupMode, find_controllers
from millpond.node.sandbox import namespaces
from millpond.node.sandbox.detection import (
    INSTALL,
    INSTALL_IDENTITIES,
    SandboxMode,
    find_sandbox,
    trouble_with_identities,
)
from millpond.node.task import runner
from millpond.node.task.limits import REMEDY
from millpond.node.task.runner import running_under
from millpond.server.auth.isolation import closed_above, opening
from millpond.server.auth.vault.ciphers import Cipher, require_ciphers
from millpond.server.operations.devices import device_findings, failed_devices, sharing
from millpond.server.operations.findings import Finding, Grade
from millpond.server.state_dir import DATABASE_FILE
from millpond.server.storage.disk_use import KEPT_FILES, free_files, fullness
from millpond.server.store.connection.database import require_readable_postgresql
from millpond.server.store.connection.reserve import kept_within
from millpond.server.store.connection.upgrades import require_readable
from millpond.server.store.tables import RESTORE
from millpond.specs.api.server import ServerFile
from millpond.specs.quantities import size_text

_GIB: Final = 1024**3
_LEAST_FREE_GIB: Final = 2
_LEAST_OPEN_FILES: Final = 4096
_ANSWERS_WITHIN_S: Final = 10.0
"""A server whose store hangs takes five of them to say so."""
_STORED: Final = "stored state"
_FOR_SSH: Final = "pip install 'millpond[ssh]' to use the section ssh of the configuration"
_NETWORK_FILESYSTEMS: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "glusterfs", "lustre")


def diagnose(state_dir: Path, store_of: Callable[[], str] = str) -> list[Finding]:
    """Everything a server needs or could use here, the necessary first.

    Args:
        state_dir: where it would keep its state; need not exist. Where it is closed to us, that is the last finding.
        store_of: finds the URL of its database in a directory that is open to us; empty: SQLite in there.
    """
    if _is_closed(state_dir):
        remedy = "ask as its owner, or choose another with --state-dir"
        return [
            _python(),
            _kernel(),
            Finding("state directory", Grade.BROKEN, f"{state_dir} is another account's", remedy),
        ]
    left = _server_of(state_dir)
    server = 0 if left is None else left.pid
    return [
        _python(),
        _kernel(),
        *([] if left is None else [_server(left)]),
        _state_directory(state_dir),
        *_stored_state(state_dir, store_of()),
        _disk(state_dir),
        _limits(server),
        _sandbox(state_dir),
        _identities(state_dir),
        _private_networks(),
        _limits_of_tasks(server),
        _containers(state_dir),
        *device_findings(find_vendors(), running_under(state_dir), bounds_memory=_bounds_device_memory(server)),
        *failed_devices(state_dir),
        sharing(state_dir),
        _memory(server),
        _extra("numba", "compiled kernels", "", "pip install 'millpond[sim]'; matters from about 64 nodes on"),
        _scheduler(),
        _extra("psycopg", "PostgreSQL driver", "; SQLite works", "pip install 'millpond[postgres]' to use --store"),
        _extra("asyncssh", "SSH gateway", "; pond exec works", _FOR_SSH),
        _encryption(),
    ]


def _python() -> Finding:
    return Finding("python", Grade.OK, f"{platform.python_version()} in {sys.prefix}")


def _kernel() -> Finding:
    name = f"{platform.system()} {platform.release()}"
    try:
        runner.require_pidfd()
    except UnavailableError as error:
        return Finding("kernel", Grade.BROKEN, f"{name}: {error.cause}", error.remedy)
    return Finding("kernel", Grade.OK, name)


def _is_closed(path: Path) -> bool:
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return path.is_dir() and not os.access(path, os.X_OK)


def _state_directory(path: Path) -> Finding:
    what = "state directory"
    existing = _nearest_existing(path)
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        if error.errno != errno.ENOSPC:  # that of the disk is a finding of its own
            found = f"{path} cannot be written ({error.strerror})"
            return Finding(what, Grade.BROKEN, found, "choose another with --state-dir")
    filesystem = _filesystem_of(existing)
    if filesystem in _NETWORK_FILESYSTEMS:
        remedy = "keep the state on a local disk, or use --store with PostgreSQL"
        return Finding(what, Grade.LIMITED, f"{path} lies on {filesystem}, where SQLite may be damaged", remedy)
    if path.is_dir() and path.stat().st_mode & 0o077:
        return Finding(what, Grade.LIMITED, f"others may look into {path}", f"chmod 700 {path}")
    return Finding(what, Grade.OK, str(path))


def _stored_state(path: Path, store: str) -> list[Finding]:
    """Whether a server of this version could go on from its state; nothing where there is none in the directory."""
    if not store.startswith("postgresql"):
        database = Path(store.removeprefix("sqlite:///")) if store else path.absolute() / DATABASE_FILE
        return _stored_file(database.absolute()) if database.is_file() else []
    try:
        require_readable_postgresql(store)
    except UnavailableError as error:
        return [Finding(_STORED, Grade.BROKEN, error.cause, error.remedy)]
    return [Finding(_STORED, Grade.OK, "in PostgreSQL; this version goes on from it")]


def _stored_file(database: Path) -> list[Finding]:
    engine = sa.create_engine("sqlite://", creator=lambda: _read_only(database))
    try:
        with engine.connect() as connection:
            require_readable(connection)
    except UnavailableError as error:
        return [Finding(_STORED, Grade.BROKEN, error.cause, error.remedy)]
    except sa.exc.DBAPIError as error:
        return [Finding(_STORED, Grade.BROKEN, f"{database} cannot be read ({error.orig})", RESTORE)]
    finally:
        engine.dispose()
    return [Finding(_STORED, Grade.OK, "this version goes on from it")]


def _read_only(database: Path) -> sqlite3.Connection:
    """To an SQLite file. Where no log lies beside it, none is made, as SQLite would, and leave it there."""
    has_log = database.with_name(f"{database.name}-wal").exists()
    return sqlite3.connect(f"{database.as_uri()}?{'mode=ro' if has_log else 'immutable=1'}", uri=True)


def _disk(path: Path) -> Finding:
    existing = _nearest_existing(path)
    free, files = shutil.disk_usage(existing).free, free_files(existing)
    found = f"{free / _GIB:.1f} GiB free beside the state"
    if files is not None and files < KEPT_FILES:
        found = f"{found}, with room for {files} more files"
    with contextlib.suppress(sqlite3.Error, OSError):  # it may not be read, or is damaged: its server says so
        if (kept := kept_within(path.absolute() / DATABASE_FILE)) is not None:
            found = f"{found}, {size_text(kept)} within the database, kept for stops and ends"
    if fullness(free, files):
        return Finding("disk", Grade.BROKEN, found, "make room: the server takes nothing on, what runs can be stopped")
    if free < _LEAST_FREE_GIB * _GIB:
        return Finding("disk", Grade.LIMITED, found, "make room: a full disk stops submissions and cuts logs")
    return Finding("disk", Grade.OK, found)


def _server_of(state_dir: Path) -> ServerFile | None:
    """The server of the directory; None: none that we may look at, so what one would find here counts."""
    with contextlib.suppress(UnavailableError, OSError):
        left = read_server_file(state_dir)
        if left is not None and b"millpond" in Path(f"/proc/{left.pid}/cmdline").read_bytes():
            resource.prlimit(left.pid, resource.RLIMIT_NOFILE)
            return left
    return None


def _server(left: ServerFile) -> Finding:
    health = ask_health(left, _ANSWERS_WITHIN_S)
    if health is None:
        found = f"process {left.pid} does not answer at {left.url}"
        return Finding("server", Grade.BROKEN, found, "see its log; `pond down` ends it, and jobs go on")
    if health.status != "ready":
        grade = Grade.LIMITED if health.degraded else Grade.BROKEN
        return Finding("server", grade, health.degraded or health.status, "see its log")
    return Finding("server", Grade.OK, f"takes requests at {left.url}")


def _limits(server: int) -> Finding:
    files, most = resource.prlimit(server, resource.RLIMIT_NOFILE)
    if not server:
        files = most  # a server raises its limit when it starts
    if files != resource.RLIM_INFINITY and files < _LEAST_OPEN_FILES:
        remedy = f"ulimit -Hn {_LEAST_OPEN_FILES}, or LimitNOFILE in its unit; a running task takes two"
        return Finding("open files", Grade.LIMITED, f"{files} (at most {most})", remedy)
    return Finding("open files", Grade.OK, "no limit" if files == resource.RLIM_INFINITY else str(files))


def _sandbox(state_dir: Path) -> Finding:
    sandbox, trouble = find_sandbox(SandboxMode.PREFERRED, (state_dir,))
    if sandbox is None:
        return Finding("sandbox", Grade.LIMITED, f"jobs are not kept apart: {trouble}", INSTALL)
    if not sandbox.bounds_size:
        found = f"bubblewrap at {sandbox.program} is too old to bound what a job keeps in /tmp"
        return Finding("sandbox", Grade.LIMITED, found, "install bubblewrap 0.7 or newer")
    return Finding("sandbox", Grade.OK, f"bubblewrap at {sandbox.program}")


def _identities(state_dir: Path) -> Finding:
    what = "whom jobs run as"
    sandbox, _ = find_sandbox(SandboxMode.PREFERRED, ())
    if os.geteuid() != 0:
        return _one_account(what, sandbox is not None)
    trouble = "there is no sandbox" if sandbox is None else trouble_with_identities(sandbox)
    if trouble:
        remedy = INSTALL if sandbox is None else INSTALL_IDENTITIES
        return Finding(what, Grade.LIMITED, f"root, all of them: {trouble}", remedy)
    closed = closed_above(state_dir)
    if closed is not None:
        found = f"accounts of their own, which may not enter {closed}, above the state directory: their jobs fail"
        return Finding(what, Grade.LIMITED, found, opening(closed))
    return Finding(what, Grade.OK, "each user as a number or an account of their own")


def _one_account(what: str, sandboxed: bool) -> Finding:
    """All jobs run as an account that is not root."""
    if not sandboxed:
        found = "this account, all of them: once a second person has an account here, nothing new starts"
        return Finding(what, Grade.LIMITED, found, INSTALL)
    found = "this account; jobs of others than its owner see nothing of its home and write to a home of their own"
    return Finding(what, Grade.OK, found)


def _private_networks() -> Finding:
    what = "private networks"
    found = namespaces.network_trouble()
    if not found:
        return Finding(what, Grade.OK, "from the second person on, jobs have a network of their own")
    cause = f"jobs of all people share the machine's network ({found})"
    return Finding(what, Grade.LIMITED, cause, "run the server as root, or let the kernel have user namespaces")


def _limits_of_tasks(server: int) -> Finding:
    controllers, trouble = find_controllers(GroupMode.AUTO, membership=_membership(server))
    if controllers is None:
        found = f"each process of a job is limited by itself, not all together: {trouble}"
        return Finding("limits of jobs", Grade.LIMITED, found, REMEDY)
    off_cards = controllers.trouble_with_devices
    devices = f"; they cannot keep jobs off the cards of others: {off_cards}" if off_cards else ", cards"
    return Finding("limits of jobs", Grade.OK, f"control groups for {', '.join(controllers.folders)}{devices}")


def _bounds_device_memory(server: int) -> bool:
    controllers, _ = find_controllers(GroupMode.AUTO, membership=_membership(server))
    return controllers is not None and "dmem" in controllers.folders


def _membership(server: int) -> Path:
    """The file that lists its control groups."""
    return Path("/proc", str(server or "self"), "cgroup")


def _containers(state_dir: Path) -> Finding:
    try:
        found = find_containers(RuntimeChoice.AUTO, state_dir)
    except UnavailableError as error:
        return Finding("containers", Grade.LIMITED, f"jobs cannot have images: {error.cause}", error.remedy)
    if trouble := trouble_with_start(found):
        cause = f"jobs cannot have images: {found.version} starts no container ({trouble})"
        return Finding("containers", Grade.LIMITED, cause, f"mend {found.runtime.name} until it runs one by hand")
    if found.card_trouble and NvidiaVendor().available().usable:
        remedy = "nvidia-ctk cdi generate --device-name-strategy uuid --output /etc/cdi/nvidia.yaml"
        return Finding("containers", Grade.LIMITED, f"{found.version}, without cards: {found.card_trouble}", remedy)
    return Finding("containers", Grade.OK, found.version)


def _memory(server: int) -> Finding:
    limit = controllers.memory_limit_bytes(membership=_membership(server))
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if limit is not None and limit < physical:
        found = f"{limit / _GIB:.1f} GiB by the control group of {physical / _GIB:.1f} GiB in the machine"
        return Finding("memory", Grade.OK, found)
    return Finding("memory", Grade.OK, f"{physical / _GIB:.1f} GiB")


def _extra(module: str, what: str, without: str, remedy: str) -> Finding:
    """Whether the package of an extra is installed.

    Args:
        without: what a server does without it, behind a semicolon; may be empty.
    """
    if importlib.util.find_spec(module) is None:
        return Finding(what, Grade.LIMITED, f"{module} is not installed{without}", remedy)
    return Finding(what, Grade.OK, f"{module} is installed")


def _scheduler() -> Finding:
    what, compiled = "compiled scheduler", find_compiled()
    if compiled is None:
        remedy = "`pond compile` makes it twice as fast; matters from about 1,000 nodes on, and for replays"
        return Finding(what, Grade.LIMITED, "it runs from its sources", remedy)
    return Finding(what, Grade.OK, f"in {compiled}")


def _encryption() -> Finding:
    what = "encryption"
    missing = {}
    for cipher in Cipher:
        try:
            require_ciphers(cipher)
        except UnavailableError as error:
            missing[cipher.value] = error
    if len(missing) == len(Cipher):
        trouble = next(iter(missing.values()))
        return Finding(what, Grade.LIMITED, f"no secrets, no encrypted backups: {trouble.cause}", trouble.remedy)
    found = ", ".join(cipher.value for cipher in Cipher if cipher.value not in missing)
    return Finding(what, Grade.OK, found)


def _nearest_existing(path: Path) -> Path:
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def _filesystem_of(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """The type of the file system that a path lies on, by the longest mount point above it."""
    best, kind = Path("/"), ""
    resolved = path.resolve()
    for line in mounts.read_text().splitlines():
        _, point, filesystem, *_ = line.split()
        place = Path(point.replace("\\040", " "))
        if resolved.is_relative_to(place) and len(place.parts) >= len(best.parts):
            best, kind = place, filesystem
    return kind
