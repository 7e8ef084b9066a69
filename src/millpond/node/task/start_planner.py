"""Make the plan of a start (``start_plan``) from a job's launch and a task's grants."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.model.decisions import Placement
from millpond.model.sharing import SliceHold
from millpond.node.containers.container import (
    JOB_LABEL,
    NAME_VARIABLE,
    STATE_LABEL,
    Container,
    container_name,
    state_mark,
    variables_text,
)
from millpond.node.containers.container_launch import outer_first
from millpond.node.host import controllers
from millpond.node.host.controllers import Amounts
from millpond.node.host.file_rights import with_rights_of
from millpond.node.host.installation import own_installation
from millpond.node.sandbox.sandbox import Mount, Sandbox, SandboxRequest
from millpond.node.sessions.task_socket import PROGRAM_SOCKET, program_folder, task_socket_name, task_socket_path
from millpond.node.sharing.backend import UNSLICED, TaskEnv
from millpond.node.task.environment import LOG_VARIABLE
from millpond.node.task.identity import Identity
from millpond.node.task.kept_place import held
from millpond.node.task.launch import SHELL_LINE, LaunchSpec, ListenMode, heeding, with_grace_below
from millpond.node.task.limits import NO_LIMITS, TaskLimits
from millpond.node.task.records import FILES, TaskFiles, TaskId
from millpond.node.task.start_plan import ContainerPlan, KeptPlacePlan, TaskSocketPlan, TaskStartPlan
from millpond.node.task.workspace import WORK, make_output

NETWORK = "network.json"
"""Beside the records of a run's tasks: who is in their private network."""

_NEVER_A_CARD = "FAKE-"
_BEGINS_A_LINE = re.compile(r"\s*(?:exec\s+)?(/[^\s;&|<>()'\"$`\\]+)")
_ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")


@dataclass(frozen=True, slots=True)
class TaskStart:
    """One task to be started.

    Attributes:
        decision: the decision it follows from; the same one never starts it twice.
        placed: its role, its node and its grants.
        env: its whole environment.
        slices: what keeps it to its slices.
        limits: what keeps it to what it asked for.
        port, access_key, server: as in its record.
        private_network: it shares a network with its gang alone, not with the machine.
    """

    id: TaskId
    decision: int
    placed: Placement
    env: Mapping[str, str]
    slices: TaskEnv = UNSLICED
    limits: TaskLimits = NO_LIMITS
    port: int | None = None
    access_key: str = ""
    server: str = ""
    private_network: bool = False


@dataclass(frozen=True, slots=True)
class _TaskPlace:
    """What a task finds around itself.

    Attributes:
        mounts: what must be found in its sandbox or container.
        owned: folders that are to belong to whom it runs as.
        at_home: it runs in the home that the server made for its user, which it finds as a whole.
    """

    workdir: Path
    mounts: tuple[Mount, ...]
    env: dict[str, str]
    owned: tuple[Path, ...]
    at_home: bool = False


def plan_start(state_dir: Path, start: TaskStart, launch: LaunchSpec, sandbox: Sandbox | None) -> TaskStartPlan:
    """The plan of one start; makes the folders that have to exist before it.

    Args:
        sandbox: what keeps the task apart; None: nothing.

    Raises:
        InvalidInputError: it has a variable that no container can be given.
        OSError: a folder cannot be made.
    """
    files = TaskFiles.of(state_dir, start.id)
    files.record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if launch.workspace is not None and launch.workspace.empty:
        make_output(files.record.parent)  # here, where it costs less than the import that the supervisor would need
    argv, identity, workspace = launch.argv_of(start.placed.role), launch.identity, launch.workspace
    program = _program(argv)
    if launch.checkpoint_signal:
        argv = heeding(argv, launch.checkpoint_signal)
    apart = sandbox is not None or launch.container is not None
    inside = with_grace_below(argv, launch.notice_signal) if apart else argv
    if launch.keep_s:
        inside = held(inside, files.failure, launch.notice_signal)
    socket = _socket(state_dir, start, launch, files)
    place = _place(state_dir, start, launch, files, socket)
    wrapped, container = None, None
    if launch.container is not None:
        wrapped, container = _contained(start, launch, files, place, inside)
    elif sandbox is not None:
        installed = [*own_installation(), *_installed(program, start.env)]
        wrapped = sandbox.around(inside, _sandbox_request(start, launch, place, installed))
    record = _record(start, launch) | {
        "sandboxed": wrapped is not None,
        "container": "" if container is None else container.name,
        "detached": container is not None and not container.leads,
        "task_socket": "" if socket is None else Path(socket.path).stem,
        "private": socket is not None and socket.network is not None,
    }
    return TaskStartPlan(
        record=record,
        command=argv,
        workdir=str(place.workdir),
        env=place.env,
        wrapped=wrapped,
        kill_counter=str(controllers.own_kill_counter() if container is None else controllers.WHOLE_MACHINE),
        shutdown_grace_s=launch.shutdown_grace_s,
        # Only an account other than root needs a user namespace to make a sandbox.
        limits=start.limits.in_force(apart=container is None and wrapped is not None and os.geteuid() != 0),
        input=str(files.input) if launch.reads_input else None,
        workspace=None if workspace is None or workspace.empty else workspace,
        identity=None if identity is None else Identity(identity.uid, identity.gid, identity.groups),
        owned=[str(folder) for folder in place.owned if identity is not None],
        own_folder=place.workdir.is_relative_to(state_dir),
        home=str(launch.home) if place.at_home else None,
        named=_named(state_dir, launch),
        takes_open=sandbox is not None and sandbox.takes_open,
        container=container,
        socket=socket,
        keep=KeptPlacePlan(str(files.failure), launch.keep_s, inside) if launch.keep_s else None,
    )


def _sandbox_request(
    start: TaskStart, launch: LaunchSpec, place: _TaskPlace, installed: Sequence[Path]
) -> SandboxRequest:
    """What a task is given in its sandbox."""
    identity = launch.identity
    return SandboxRequest(
        mounts=place.mounts,
        installed=with_rights_of(identity, lambda: _reachable(installed)) if identity else installed,
        identity=identity,
        account=launch.account,
        memory_mib=launch.amounts_of(start.placed.role).memory_mib,
        # Who computes through NVIDIA's multi-process service meets it in the machine's.
        own_shared_memory=launch.own_shared_memory and start.slices.hold is not SliceHold.MPS,
    )


def _contained(
    start: TaskStart, launch: LaunchSpec, files: TaskFiles, place: _TaskPlace, argv: list[str]
) -> tuple[list[str], ContainerPlan]:
    """The command that runs a task's container, and its supervisor's plan.

    Raises:
        InvalidInputError: it has a variable that no container can be given.
    """
    how, role, record = launch.container, start.placed.role, files.record
    assert how is not None
    runtime = how.containers.runtime
    name, bounds = container_name(record, start.decision), how.amounts.get(role, Amounts(0, 0))
    variables = {**how.home, **place.env, NAME_VARIABLE: name}
    mounts = outer_first(place.mounts)
    hidden = (how.state_dir, *(() if launch.account is None else launch.account.hidden))
    container = Container(
        name=name,
        image=how.image.place,
        argv=argv,
        workdir=place.workdir,
        variables=record.with_suffix(".env"),
        scratch=record.with_suffix(".scratch"),
        labels={STATE_LABEL: state_mark(how.state_dir), JOB_LABEL: start.id.job},
        mounts=mounts,
        hidden=[folder for folder in hidden if any(folder.is_relative_to(mount.path) for mount in mounts)],
        cards=[grant.device for grant in start.placed.grants if not grant.device.startswith(_NEVER_A_CARD)],
        memory_mib=bounds.memory_mib,
        cpu_milli=bounds.cpu_milli,
        processes=launch.amounts_of(role).processes,
        owner=how.owner,
        reads_input=launch.reads_input,
    )
    return runtime.run(container), ContainerPlan(
        name=name,
        leads=runtime.leads,
        enters=runtime.enters,
        variables=str(container.variables),
        text=variables_text(variables),
        scratch=str(container.scratch),
        env={**how.containers.env, **runtime.environment(variables)},
        execute=runtime.execute(name, container.variables, place.workdir),
        kill=runtime.kill(name),
        out_of_memory=runtime.was_out_of_memory(name),
    )


def _record(start: TaskStart, launch: LaunchSpec) -> dict[str, Any]:
    """What identifies the task, and what was decided about it."""
    return {
        "job": start.id.job,
        "attempt": start.id.attempt,
        "task": start.id.task,
        "role": start.placed.role,
        "node": start.placed.node,
        "decision": start.decision,
        "server": start.server,
        "devices": [grant.device for grant in start.placed.grants],
        "notice_signal": launch.notice_signal,
        "saves": bool(launch.checkpoint_signal),
        "limited_by": start.limits.kind.value,
        "memory_limit_mib": start.limits.memory_mib,
        "groups": start.limits.process.folders,
        "cpus": list(start.limits.process.cpus),
        "port": start.port,
        "access_key": start.access_key,
        "grants": [list(dataclasses.astuple(grant)) for grant in start.placed.grants],
        "share_class": launch.share_class.value,
        "escapes": launch.slice_rules.escapes.value,
        "held_by": start.slices.hold.value,
        "hold_reason": start.slices.reason,
        "memory_by_kernel": bool(start.slices.device_memory_mib),
    }


def _place(
    state_dir: Path, start: TaskStart, launch: LaunchSpec, files: TaskFiles, socket: TaskSocketPlan | None
) -> _TaskPlace:
    attempt_dir, workspace, identity = files.record.parent, launch.workspace, launch.identity
    workdir, mounts, env, owned = launch.workdir, list[Mount](), dict(start.env), [attempt_dir / FILES]
    if workspace is not None:
        if workspace.snapshot:
            workdir = attempt_dir / WORK
        mounts += workspace.mounts(attempt_dir)
        env |= workspace.environment(attempt_dir)
        env |= {"MILLPOND_METRICS": str(files.metrics), "MILLPOND_RESULT": str(files.result)}
    at_home = launch.home is not None and launch.home.is_relative_to(state_dir) and workdir.is_relative_to(launch.home)
    if not at_home:  # where its user may have laid links; it finds its home as a whole
        # What lies in the account may be its owner's: another user's task reads there at the most.
        mounts.insert(0, Mount(workdir, writable=launch.account is None or workdir.is_relative_to(state_dir)))
    mounts += start.slices.mounts
    if identity is not None and workdir.is_relative_to(state_dir) and not at_home:
        owned.append(workdir)
    if launch.home is not None and launch.home.is_dir():
        mounts.append(Mount(launch.home, writable=True))
    if socket is not None and socket.program is not None:
        behind = Path(socket.program).parent
        mounts.append(Mount(behind, writable=True))
        owned.append(behind)
        env["MILLPOND_SOCKET"] = socket.program
    env |= {LOG_VARIABLE: str(files.log), "MILLPOND_NOTICE_SIGNAL": launch.notice_signal}
    return _TaskPlace(workdir, tuple(mounts), env, tuple(owned), at_home)


def _socket(state_dir: Path, start: TaskStart, launch: LaunchSpec, files: TaskFiles) -> TaskSocketPlan | None:
    """How the task's program is reached, if not at a port of the machine; makes the folder of its socket."""
    on_socket = start.port is not None and launch.listening is ListenMode.SOCKET
    if not on_socket and not start.private_network:
        return None
    name = task_socket_name(start.id.job, start.id.attempt, start.id.task)
    program = None
    if on_socket:
        program = program_folder(state_dir, name) / PROGRAM_SOCKET
        program.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return TaskSocketPlan(
        path=str(task_socket_path(state_dir, name)),
        port=start.port,
        program=None if program is None else str(program),
        network=str(files.record.with_name(NETWORK)) if start.private_network else None,
    )


def _named(state_dir: Path, launch: LaunchSpec) -> list[str]:
    """What of all that a job names for its sandbox lies elsewhere on the machine."""
    workspace = launch.workspace
    paths = [str(launch.workdir)]
    if workspace is not None:
        paths += [mount.path for mount in workspace.data if mount.path and not mount.copied]
        paths += [workspace.output] if workspace.output else []
    return [path for path in paths if not Path(path).is_relative_to(state_dir)]


def _reachable(paths: Sequence[Path]) -> list[Path]:
    return [path for path in paths if os.path.exists(path)]  # noqa: PTH110 - Path's fails without rights


def _program(argv: Sequence[str]) -> str:
    """What a task executes; of a line for the shell, the absolute path that begins it, if one does."""
    begins = _BEGINS_A_LINE.match(argv[2]) if list(argv[:2]) == SHELL_LINE else None
    return argv[0] if begins is None else begins[1]


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
