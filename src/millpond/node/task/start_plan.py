"""What a supervisor does to start its task, from the server (``start_planner``) to the supervisor. Standard library
only."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millpond.node.host.cgroups import ControlGroup
from millpond.node.task.identity import Identity

if TYPE_CHECKING:
    from millpond.node.task.workspace import Workspace


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """The limits of a task's processes (``node.task.limits``).

    Attributes:
        groups: control groups, which the supervisor makes.
        cpus: numbers of the CPUs that the task is pinned to; empty: to none.
        data_bytes: the most data of one process; None: no bound.
        processes: the most processes, threads included, where no control group counts them; None: no bound.
    """

    groups: tuple[ControlGroup, ...] = ()
    cpus: tuple[int, ...] = ()
    data_bytes: int | None = None
    processes: int | None = None

    @property
    def folders(self) -> list[str]:
        """Of the control groups."""
        return [group.folder for group in self.groups]


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """A task's container, as its supervisor sees it (``node.containers.supervision``).

    Attributes:
        leads: its processes are below the supervisor.
        enters: a command beside the task enters its namespaces, without the runtime.
        variables: file with the task's variables, which the runtime reads.
        text: content of that file.
        scratch: folder in which the runtime is started.
        env: variables of the runtime.
        execute, kill, out_of_memory: commands that run a command inside, end the container, and print whether it ended
            for want of memory; empty where the runtime needs none.
    """

    name: str
    leads: bool
    enters: bool
    variables: str
    text: str
    scratch: str
    env: dict[str, str]
    execute: list[str]
    kill: list[str]
    out_of_memory: list[str]


@dataclass(frozen=True, slots=True)
class TaskSocketPlan:
    """The one socket by which a task's program is reached (``node.sessions.task_socket``).

    Attributes:
        path: of the socket.
        port: where the program is to serve; None: nowhere.
        program: path of the program's own socket; None: it listens on the port.
        network: path of the file by which a gang finds its private network; None: it has none.
    """

    path: str
    port: int | None
    program: str | None
    network: str | None


@dataclass(frozen=True, slots=True)
class KeptPlacePlan:
    """The place of a task whose command fails is kept (``node.task.kept_place``).

    Attributes:
        report: the named pipe of the report.
        keep_s: for so long.
        command: what reports the failure, and runs the task's command.
    """

    report: str
    keep_s: float
    command: list[str]


@dataclass(frozen=True, slots=True)
class TaskStartPlan:
    """How a supervisor starts its task.

    Attributes:
        record: first content of the task's record; it names the task and the decision.
        command: program and arguments.
        workdir: where the command runs.
        env: all its variables.
        wrapped: the command that runs it in a sandbox or a container; None: it runs in neither.
        kill_counter: the file that counts kills for want of memory where the task has no control group.
        shutdown_grace_s: grace of a task that is asked to end without a request of an engine.
        input: path of the ring of its standard input (``node.task.input``); None: it reads none.
        workspace: files to be laid out first; None: none.
        identity: whom the command runs as; None: as the supervisor does.
        owned: folders that are to belong to this identity.
        own_folder: the server made ``workdir``.
        home: the user's home that the server made, if ``workdir`` lies in it.
        named: sources of the sandbox's mounts that the user named.
        takes_open: the sandbox mounts open files (``node.sandbox.named_mounts``).
        container, socket, keep: None: it has none.
    """

    record: dict[str, Any]
    command: list[str]
    workdir: str
    env: dict[str, str]
    wrapped: list[str] | None
    kill_counter: str
    shutdown_grace_s: float
    limits: ProcessLimits
    input: str | None
    workspace: Workspace | None
    identity: Identity | None
    owned: list[str]
    own_folder: bool
    home: str | None
    named: list[str]
    takes_open: bool
    container: ContainerPlan | None
    socket: TaskSocketPlan | None
    keep: KeptPlacePlan | None

    def encode(self) -> bytes:
        """For the supervisor's standard input."""
        return pickle.dumps(self)

    @staticmethod
    def decode(data: bytes) -> TaskStartPlan:
        """What ``encode`` gave; only for data of this server."""
        plan: TaskStartPlan = pickle.loads(data)
        return plan
