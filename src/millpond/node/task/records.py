"""The files on disk about each run of each task: their places and contents.

``STATE/jobs/JOB/attempt-N/task-I.json`` is the record that the task's supervisor writes; beside it lies the output. It
is all that a restarted server needs to find its tasks again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from millpond.model.confinement import Confinement, LimitKind, NetworkScope
from millpond.model.decisions import Grant
from millpond.model.sharing import EscapePolicy, ShareClass, SliceHold
from millpond.node.host import procfs
from millpond.node.host.files import read_json, write_json
from millpond.node.task import running_tasks

FILES = "files"
"""What the tasks of an attempt may see and write lies in this folder of it (``node.task.workspace``)."""

_LONGEST_NAME = 150
_REMEMBERED = 1_000
"""Tasks whose paths are not put together anew for each step of their start and end."""


@dataclass(frozen=True, slots=True)
class TaskId:
    """One run of one task."""

    job: str
    attempt: int
    task: int


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """The files of one run of one task.

    Attributes:
        record: what is known about it.
    """

    record: Path

    @staticmethod
    @functools.lru_cache(_REMEMBERED)
    def of(state_dir: Path, task: TaskId) -> TaskFiles:
        """Where they are, whether or not they exist."""
        return TaskFiles(attempt_dir(state_dir, task.job, task.attempt) / f"task-{task.task}.json")

    @property
    def log(self) -> Path:
        """Standard output and standard error of the task, as written."""
        return self.record.with_suffix(".log")

    @property
    def log_index(self) -> Path:
        """Which of that is which, and when it came (``output``)."""
        return self.record.with_suffix(".index")

    @property
    def input(self) -> Path:
        """What comes from a client's standard input (``input``); there is no such file of most tasks."""
        return self.record.with_suffix(".stdin")

    @property
    def stop(self) -> Path:
        """The request that it end."""
        return self.record.with_suffix(".stop")

    @property
    def home(self) -> Path:
        """Where it was moved to since it started; there is no such file of most tasks."""
        return self.record.with_suffix(".home")

    @property
    def desired_state(self) -> Path:
        """That it is not to run (``node.sharing.desired_state``); there is no such file of most tasks."""
        return self.record.with_suffix(".away")

    @property
    def escape(self) -> Path:
        """How it was seen to use a device beyond its slice; there is no such file of most tasks."""
        return self.record.with_suffix(".escape")

    @property
    def metrics(self) -> Path:
        """What the task reported of itself (``job.metrics``)."""
        return self.record.parent / FILES / f"{self.record.stem}.metrics"

    @property
    def result(self) -> Path:
        """What the function that the task runs returned (``job.call``)."""
        return self.record.parent / FILES / f"{self.record.stem}.result"

    @property
    def failure(self) -> Path:
        """Where the shell above its program reports that this has failed (``kept_place``); few tasks have one."""
        return self.record.parent / FILES / f"{self.record.stem}.failure"

    @property
    def lock(self) -> Path:
        """Held by its supervisor as long as that lives."""
        return self.record.with_suffix(".lock")

    @property
    def socket(self) -> Path:
        """Where its supervisor takes commands to be run beside it."""
        return self.record.with_suffix(".sock")


@dataclass(frozen=True, slots=True)
class StartError:
    """Why a command could not be started, in the operating system's words.

    Attributes:
        path: the file or directory it stumbled over.
        preparing: it was still laying out the task's files.
    """

    text: str
    errno: int | None
    path: str | None
    preparing: bool = False


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A supervisor's record of its task.

    Attributes:
        decision: the decision that started it.
        server: identity of the server that started it.
        devices: UUIDs of what it was given, or was moved to since.
        grants: how much of each.
        left: while it is to come back on other devices than it was taken off: the latter, in the same order.
        share_class: who goes first where it shares a device.
        held_by: what keeps it to its slices.
        hold_reason: why nothing does.
        memory_by_kernel: its control group bounds its device memory.
        escapes: what becomes of it when it uses a device beyond its slice.
        ended_for: why it had to end without a request; empty: that was not so.
        ended_as: as what its end then counts (``model.states.Outcome``).
        notice_signal: what asks it to end.
        saves: the notice makes it save its work.
        sandboxed: it runs apart from everybody else's (``node.sandbox.sandbox``).
        pid: the command's process, also its process group; None before it runs.
        notice_at: when it was asked to end; None when it was not.
        stop_requested: the engine asked for the end, not a signal from outside.
        exit_code: as a shell shows it; None while it runs and when it never ran.
        kept_at, kept_until: since when, and up to when, its place is kept although its program has failed.
        forced: it had to be killed when the grace was over.
        limited_by: what keeps it to its amounts (``model.confinement.LimitKind``).
        memory_limit_mib: the most memory that all its processes together may have; 0: no bound.
        groups: folders of its control groups.
        cpus: numbers of the CPUs that it is pinned to; empty: to none.
        port: where on this machine it serves; None when it was given none.
        access_key: what it may ask of those who connect there.
        task_socket: name of the only socket by which it is reached (``node.sessions.task_socket``); empty: it is
            reached at its port.
        private: it shares a network with its gang alone, not with the machine.
        container: name of the container that it runs in; empty: in none.
        detached: its processes are not below its supervisor, but a daemon's.
    """

    id: TaskId
    role: str
    node: str
    decision: int
    devices: tuple[str, ...]
    notice_signal: str
    saves: bool
    boot_id: str
    supervisor_pid: int
    supervisor_start: int
    pid: int | None = None
    started_at: float | None = None
    notice_at: float | None = None
    stop_requested: bool = False
    ended_at: float | None = None
    exit_code: int | None = None
    kept_at: float | None = None
    kept_until: float | None = None
    forced: bool = False
    out_of_memory: bool = False
    error: StartError | None = None
    sandboxed: bool = False
    limited_by: str = ""
    memory_limit_mib: int = 0
    groups: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    port: int | None = None
    access_key: str = ""
    task_socket: str = ""
    private: bool = False
    container: str = ""
    detached: bool = False
    grants: tuple[Grant, ...] = ()
    share_class: ShareClass = ShareClass.NORMAL
    held_by: SliceHold = SliceHold.UNKNOWN
    hold_reason: str = ""
    memory_by_kernel: bool = False
    escapes: EscapePolicy = EscapePolicy.REPORT
    ended_for: str = ""
    ended_as: str = ""
    left: tuple[str, ...] = ()
    server: str = ""

    @property
    def confinement(self) -> Confinement:
        """How well it is kept apart, and kept to its amounts."""
        network = NetworkScope.PRIVATE if self.private else NetworkScope.HOST
        limits = LimitKind(self.limited_by)
        return Confinement(
            self.sandboxed, limits, self.held_by, self.hold_reason, network, memory_by_kernel=self.memory_by_kernel
        )

    @property
    def over(self) -> bool:
        """Whether the record has the end."""
        return self.ended_at is not None

    @property
    def alive(self) -> bool:
        """Whether its supervisor runs, by process id, start time and boot."""
        return (
            not self.over
            and self.boot_id == procfs.boot_id()
            and procfs.start_ticks(self.supervisor_pid) == self.supervisor_start
        )


def job_dir(state_dir: Path, job: str) -> Path:
    """Where everything about a job lies."""
    return state_dir / "jobs" / _directory_name(job)


def note_of_removal(state_dir: Path, job: str) -> Path:
    """A file that stands for a job's output when that was removed to make room."""
    return job_dir(state_dir, job) / "removed"


def attempt_dir(state_dir: Path, job: str, attempt: int) -> Path:
    """Where everything about one run of a job lies."""
    return job_dir(state_dir, job) / f"attempt-{attempt}"


def read_record(files: TaskFiles) -> RunRecord | None:
    """What is known about a task; None when it was never started, or its record is none."""
    plain = read_json(files.record)
    if plain is None:
        return None
    try:
        return _record(plain | (read_json(files.home) or {}))
    except (KeyError, TypeError, ValueError):  # no supervisor wrote it
        return None


def write_assignment(files: TaskFiles, grants: Sequence[Grant], left: Sequence[str], env: Mapping[str, str]) -> None:
    """Note where a task belongs from now on; its record, which its supervisor writes, has it too then.

    Args:
        env: by which programs find these devices; what is run beside the task later has it
            (``node.sessions.exec_sessions``).

    Raises:
        OSError: the disk is full.
    """
    devices = [grant.device for grant in grants]
    amounts = [dataclasses.astuple(grant) for grant in grants]
    write_json(files.home, {"devices": devices, "grants": amounts, "left": list(left), "env": dict(env)})


def moved(record: RunRecord, grants: Sequence[Grant], left: Sequence[str]) -> RunRecord:
    """The same task on other devices."""
    devices = tuple(grant.device for grant in grants)
    return dataclasses.replace(record, devices=devices, grants=tuple(grants), left=tuple(left))


def running_records(state_dir: Path) -> Iterator[RunRecord]:
    """Every task whose supervisor has not noted its end, in a fixed order; one that was killed is among them."""
    for path in running_tasks.entered(state_dir):
        record = read_record(TaskFiles(path))
        if record is not None:
            yield record


def _record(plain: dict[str, Any]) -> RunRecord:
    known = {name: plain[name] for name in RunRecord.__slots__ if name in plain}
    error = plain.get("error")
    return RunRecord(
        **{
            **known,
            "id": TaskId(plain["job"], plain["attempt"], plain["task"]),
            "devices": tuple(plain["devices"]),
            "left": tuple(plain.get("left", ())),
            "groups": tuple(plain["groups"]),
            "cpus": tuple(plain["cpus"]),
            "grants": tuple(Grant(*grant) for grant in plain["grants"]),
            "share_class": ShareClass(plain["share_class"]),
            "held_by": SliceHold(plain["held_by"]),
            "escapes": EscapePolicy(plain["escapes"]),
            "error": None if error is None else StartError(**error),
        }
    )


def _directory_name(job: str) -> str:
    """A job id as one file name: readable where it can be, never outside its directory, never too long."""
    name = quote(job, safe="")
    if name.strip(".") and len(name) <= _LONGEST_NAME:
        return name
    return f"{name.strip('.')[:40]}%{hashlib.sha256(job.encode()).hexdigest()[:16]}"
