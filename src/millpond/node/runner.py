"""Starting, ending, freezing and finding tasks as process trees, each under its supervisor."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.model.decisions import Grant
from millpond.model.errors import UnavailableError
from millpond.model.sharing import SliceHold
from millpond.node import cgroups, memory_cgroup, procfs, running
from millpond.node.containers.container import NAME_VARIABLE, container_name
from millpond.node.containers.launching import Inmate, order_of
from millpond.node.devices.vendor import Ours
from millpond.node.door import PROGRAM_SOCKET, door_name, door_of, folder_behind
from millpond.node.files import write_json
from millpond.node.launch import LaunchSpec, Listening
from millpond.node.limiting import NO_LIMITS, Limits
from millpond.node.nurse import Nurse
from millpond.node.records import FILES, RunRecord, TaskFiles, TaskId, running_records
from millpond.node.sandbox import Mount, Sandbox
from millpond.node.workspace import WORK, make_output

LOG_VARIABLE = "MILLPOND_LOG"
"""Names the task's log to itself; no two tasks share one, so it also marks all processes of a task."""

_ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")
_SUPERVISORS_LOG = "supervisors.log"
_FREEZING_PASSES = 20
_NO_PROCESS = (errno.ESRCH, errno.ENOENT, errno.EINVAL)
"""Nobody has the number, or (by kernel) it has come round as that of a thread, which no pidfd can be had for."""


@dataclass(frozen=True, slots=True)
class TaskStart:
    """One task to be started.

    Attributes:
        decision: the decision it follows from; the same one never starts it twice.
        env: its whole environment.
        limits: what keeps it to what it asked for.
        port, access_key, grants, held_by, hold_reason: as in its record.
        mounts: what else must be found in its sandbox or container.
    """

    id: TaskId
    role: str
    node: str
    decision: int
    devices: tuple[str, ...]
    env: Mapping[str, str]
    limits: Limits = NO_LIMITS
    port: int | None = None
    access_key: str = ""
    grants: tuple[Grant, ...] = ()
    held_by: SliceHold = SliceHold.UNKNOWN
    hold_reason: str = ""
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True, slots=True)
class Spawned:
    """A supervisor on its way; both file descriptors are the caller's to close.

    Attributes:
        pid: its process.
        handle: becomes readable when it ends (a pidfd); to be let go of by ``reap``.
        settled: reaches its end once the task's record tells how the start went.
    """

    pid: int
    handle: int
    settled: int


@dataclass(frozen=True, slots=True)
class StopWish:
    """That a task end.

    Attributes:
        grace_s: from the notice to the kill.
        why: why it cannot go on, where nobody who submitted or schedules wants its end.
        outcome: as what its end then counts (``model.states.Outcome``).
    """

    grace_s: float
    why: str = ""
    outcome: str = ""


def require_pidfd() -> None:
    """Check that the kernel lets us wait for processes that are not our children.

    Raises:
        UnavailableError: it is too old.
    """
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError) as error:
        raise UnavailableError("this kernel has no pidfd_open", "run the server on Linux 5.3 or newer") from error


def spawn(
    nurse: Nurse, state_dir: Path, start: TaskStart, launch: LaunchSpec, sandbox: Sandbox | None = None
) -> Spawned:
    """Start a task's supervisor, which starts the task, in a sandbox if one is given. Returns in a few milliseconds.

    Raises:
        OSError: the machine lacks room for it: processes, files, disk.
    """
    files = TaskFiles.of(state_dir, start.id)
    files.record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    running.make_room(state_dir)
    if launch.workspace is not None and launch.workspace.empty:
        make_output(files.record.parent)  # here, where it costs less than the import that the supervisor would need
    with contextlib.ExitStack() as always, contextlib.ExitStack() as on_failure:
        settled, told = os.pipe()
        always.callback(os.close, told)
        on_failure.callback(os.close, settled)
        order = os.memfd_create("order")  # holds the job's variables, which are nobody else's business
        always.callback(os.close, order)
        os.write(order, json.dumps(_order(state_dir, start, launch, files, sandbox)).encode())
        os.lseek(order, 0, os.SEEK_SET)
        log = os.open(state_dir / _SUPERVISORS_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        always.callback(os.close, log)
        pid, handle = nurse.bear(files.record, (order, told, log))
        on_failure.pop_all()
        return Spawned(pid, handle, settled)


def attach(record: RunRecord) -> int | None:
    """A file descriptor that becomes readable when the task's supervisor ends; None when it has."""
    try:
        handle = os.pidfd_open(record.supervisor_pid)
    except OSError as error:
        if error.errno in _NO_PROCESS:
            return None
        raise
    if record.alive:  # asked only now, as the handle cannot come to mean another process
        return handle
    reap(handle)
    return None


def reap(handle: int) -> None:
    """Let go of an ended supervisor; it is the nursery's child, or that of an earlier one, not ours to collect."""
    os.close(handle)


def request_stop(files: TaskFiles, handle: int, wish: StopWish) -> None:
    """Have the supervisor give notice now, and kill when the grace is over. Asked again, it can only get shorter."""
    with contextlib.suppress(OSError):  # a full disk must not keep it alive: the supervisor has a grace of its own
        write_json(files.stop, dataclasses.asdict(wish), in_room=True)
    with contextlib.suppress(ProcessLookupError):  # it ended first
        signal.pidfd_send_signal(handle, signal.SIGTERM)


def freeze(record: RunRecord) -> None:
    """Halt all processes of a task, those it starts meanwhile too; device memory stays where it is."""
    halted: set[int] = set()
    for _ in range(_FREEZING_PASSES):
        fresh = [pid for pid in processes_of(record) if pid not in halted]
        if not fresh:
            return
        _send(fresh, signal.SIGSTOP)
        halted.update(fresh)


def thaw(record: RunRecord) -> None:
    """Let a frozen task go on."""
    _send(processes_of(record), signal.SIGCONT)


def processes_of(*records: RunRecord) -> list[int]:
    """All living processes of running tasks."""
    below = procfs.descendants(*(record.supervisor_pid for record in records))
    return [*below, *(pid for record in records for pid in detached_processes(record))]


def detached_processes(record: RunRecord) -> list[int]:
    """Those of a running task that are not below its supervisor."""
    return procfs.with_variable(NAME_VARIABLE, record.container) if record.detached else []


def kill_remains(files: TaskFiles, groups: Sequence[str]) -> None:
    """End whatever is left of a task whose supervisor was killed.

    Args:
        groups: folders of its control groups.
    """
    cgroups.remove(groups)
    for _ in range(_FREEZING_PASSES):
        remains = procfs.with_variable(LOG_VARIABLE, str(files.log))
        if not remains:
            return
        _send(remains, signal.SIGKILL)


def running_now(records: Iterable[RunRecord]) -> Ours:
    """What these tasks hold of the machine."""
    alive = [record for record in records if record.alive]
    return Ours(frozenset(processes_of(*alive)), frozenset(uuid for record in alive for uuid in record.devices))


def running_under(state_dir: Path) -> Ours:
    """What tasks started earlier with this state directory hold still."""
    return running_now(running_records(state_dir))


def _order(
    state_dir: Path, start: TaskStart, launch: LaunchSpec, files: TaskFiles, sandbox: Sandbox | None
) -> dict[str, object]:
    """What the supervisor is told; see there."""
    argv = launch.argv_of(start.role)
    attempt_dir, workspace = files.record.parent, launch.workspace
    workdir, mounts, env = launch.workdir, list[Mount](), dict[str, str]()
    if workspace is not None:
        workdir = attempt_dir / WORK if workspace.snapshot else launch.workdir
        mounts = workspace.mounts(attempt_dir)
        env = {
            **workspace.environment(attempt_dir),
            "MILLPOND_METRICS": str(files.metrics),
            "MILLPOND_RESULT": str(files.result),
        }
    mounts = [*mounts, *start.mounts]
    identity, owned = launch.identity, [attempt_dir / FILES]
    if identity is not None and workdir.is_relative_to(state_dir):
        owned.append(workdir)
    if identity is not None and Path(identity.home).is_dir():
        mounts = [*mounts, Mount(Path(identity.home), writable=True)]
    door = _door(state_dir, start, launch)
    if door is not None and door["program"] is not None:
        behind = Path(door["program"]).parent
        mounts, owned = [*mounts, Mount(behind, writable=True)], [*owned, behind]
        env["MILLPOND_SOCKET"] = door["program"]
    env = {
        **start.env,
        **env,
        LOG_VARIABLE: str(files.log),
        "MILLPOND_NOTICE_SIGNAL": launch.notice_signal,
    }
    wrapped, container = None, None
    if launch.container is not None:
        name = container_name(files.record, start.decision)
        inmate = Inmate(name, start.id.job, start.role, files.record, argv, workdir, mounts, env, start.devices)
        wrapped, container = order_of(launch.container, inmate)
    elif sandbox is not None:
        wrapped = sandbox.around(argv, workdir, _installed(argv[0], start.env), mounts, identity)
    return {
        "record": {
            "job": start.id.job,
            "attempt": start.id.attempt,
            "task": start.id.task,
            "role": start.role,
            "node": start.node,
            "decision": start.decision,
            "devices": start.devices,
            "notice_signal": launch.notice_signal,
            "saves": bool(launch.checkpoint_signal),
            "sandboxed": wrapped is not None,
            "container": "" if container is None else container["name"],
            "detached": container is not None and not container["leads"],
            "limited_by": start.limits.kind.value,
            "memory_limit_mib": start.limits.memory_mib,
            "groups": [group["folder"] for group in start.limits.groups],
            "cpus": list(start.limits.cpus),
            "port": start.port,
            "access_key": start.access_key,
            "door": "" if door is None else Path(door["door"]).stem,
            "private": door is not None and door["program"] is None,
            "grants": [dataclasses.astuple(grant) for grant in start.grants],
            "share_class": launch.share_class.value,
            "escapes": launch.slice_rules.escapes.value,
            "held_by": start.held_by.value,
            "hold_reason": start.hold_reason,
        },
        "command": argv,
        "wrapped": wrapped,
        "container": container,
        "workdir": str(workdir),
        "workspace": None if workspace is None or workspace.empty else workspace.plain(),
        "env": env,
        "kill_counter": str(memory_cgroup.kill_counter() if container is None else memory_cgroup.WHOLE_MACHINE),
        "limits": start.limits.plain(),
        "identity": None if identity is None else identity.plain(),
        "owned": [str(folder) for folder in owned if identity is not None],
        "door": door,
    }


def _door(state_dir: Path, start: TaskStart, launch: LaunchSpec) -> dict[str, Any] | None:
    """How people get to the task's program, where not by a port of the machine; makes the folder of its socket."""
    if start.port is None or launch.listening is Listening.PORT:
        return None
    name = door_name(start.id.job, start.id.attempt, start.id.task)
    program = None
    if launch.listening is Listening.SOCKET:
        program = folder_behind(state_dir, name) / PROGRAM_SOCKET
        program.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {
        "door": str(door_of(state_dir, name)),
        "port": start.port,
        "program": None if program is None else str(program),
    }


def _installed(program: str, env: Mapping[str, str]) -> list[Path]:
    """Where what a task executes is installed: its virtual environment, its modules, the trees of its ``PATH`` and its
    program."""
    programs = [Path(entry) for entry in env.get("PATH", "").split(os.pathsep) if entry.startswith("/")]
    if program.startswith("/"):
        programs.append(Path(program).parent)
    trees = [directory.parent if directory.name == "bin" else directory for directory in programs]
    environments = [Path(env[name]) for name in _ENVIRONMENTS if env.get(name, "").startswith("/")]
    modules = [Path(entry) for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry.startswith("/")]
    return [*dict.fromkeys(environments + modules + trees)]


def _send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # ended first, or became another user's
            os.kill(pid, number)
