"""An engine with pretended cards, real processes, and waits that are bounded and end as soon as they can."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from millpond.engines.local.engine import LocalEngine
from millpond.engines.local.options import EngineOptions
from millpond.model.confinement import Confinement, NetworkScope
from millpond.model.decisions import Decision, Grant, Placement, Start, Stop
from millpond.model.errors import NotFoundError
from millpond.model.events import Event
from millpond.model.reasons import Cause
from millpond.node.host import procfs
from millpond.node.host.machine import Machine, describe_machine
from millpond.node.sandbox.sandbox import Sandbox
from millpond.node.sharing.agent_lock import AgentLock
from millpond.node.sharing.backend import SliceEnforcer
from millpond.node.task.launch import Command, LaunchSpec
from millpond.node.task.limits import Limiter
from millpond.node.task.records import TaskFiles, TaskId, running_records

LONGEST_WAIT_S = 180.0
UNSANDBOXED = Confinement(sandboxed=False, network=NetworkScope.HOST)


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether a condition about real processes comes true within the bounds of patience."""
    give_up = time.monotonic() + LONGEST_WAIT_S
    while time.monotonic() < give_up:
        if condition():
            return True
        time.sleep(0.01)
    return False


def state_letter(pid: int) -> str:
    """As ``/proc/pid/stat`` has it; empty for a process that is over."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _command_lines() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_text(errors="replace")


class Bench:
    """One state directory, its jobs, and the engine that looks after them at the moment."""

    def __init__(self, directory: Path, sandbox: Sandbox | None = None) -> None:
        self._sandbox = sandbox
        self.limiter = Limiter()
        self.holds: dict[str, Sequence[SliceEnforcer]] = {}
        self.servers = ("own",)
        self.state_dir = directory / "state"
        self.workdir = directory / "work"
        self.workdir.mkdir()
        self.own_sleep = f"4000.{secrets.randbelow(10**9):09}"  # by which its sleepers are known on the whole machine
        self.machine: Machine = describe_machine("2x8:V100-32GB")
        self.launches: dict[str, LaunchSpec] = {}
        self.engine = self.new_engine()
        self._seen: list[Event] = []
        self._decisions = 0

    def new_engine(self) -> LocalEngine:
        self._woken = threading.Event()
        lock = AgentLock(self.state_dir.parent / "devices.lock")
        options = EngineOptions(
            self._woken.set,
            sandbox=self._sandbox,
            limiter=self.limiter,
            holds=self.holds,
            agent_lock=lock,
            servers=self.servers,
        )
        self.engine = LocalEngine(self.machine, self.state_dir, self._launch_of, options)
        return self.engine

    def restart(self) -> LocalEngine:
        """The engine goes away as with a killed server: nobody asks for its events any more."""
        self.engine.close()
        return self.new_engine()

    def define(self, job: str, command: Command, **settings: object) -> None:
        self.launches[job] = LaunchSpec(command, **{"workdir": self.workdir, **settings})  # type: ignore[arg-type]

    def start(self, job: str, command: Command | None = None, tasks: Sequence[int] = (0,), attempt: int = 1) -> Start:
        """Decide that tasks of a job start, one card each, on the two nodes by turns."""
        if command is not None:
            self.define(job, command)
        decision = self.undelivered_start(job, tasks, attempt)
        self.engine.apply([decision])
        return decision

    def undelivered_start(self, job: str, tasks: Sequence[int] = (0,), attempt: int = 1) -> Start:
        """The same, decided only."""
        placements = tuple(
            Placement(
                task, "worker", f"fake-{1 + task % 2}", (Grant(f"FAKE-fake-{1 + task % 2}-{task // 2}", 1000, 1000, 0),)
            )
            for task in tasks
        )
        return Start(self.next_id(), job, attempt, Cause.FITS, placements)

    def stop(self, job: str, grace_s: float = 10.0, tasks: Sequence[int] = ()) -> Stop:
        decision = self.undelivered_stop(job, grace_s, tasks)
        self.engine.apply([decision])
        return decision

    def undelivered_stop(self, job: str, grace_s: float = 10.0, tasks: Sequence[int] = ()) -> Stop:
        """A stop, decided only."""
        return Stop(self.next_id(), job, 1, Cause.STOP_REQUESTED, tuple(tasks), grace_s)

    def apply(self, decision: Decision) -> None:
        self.engine.apply([decision])

    def next_id(self) -> int:
        self._decisions += 1
        return self._decisions

    def events(self, count: int) -> list[Event]:
        """The next so many events."""
        give_up = time.monotonic() + LONGEST_WAIT_S
        while len(self._seen) < count:
            self._woken.clear()
            self._seen += self.engine.events()
            if len(self._seen) < count and not self._woken.wait(max(0.0, give_up - time.monotonic())):
                raise AssertionError(f"{len(self._seen)} of {count} events came: {self._seen}")
        events, self._seen = self._seen[:count], self._seen[count:]
        return events

    def quiet(self) -> bool:
        """Whether nothing more has happened, once the engine has done all it was told to."""
        done = threading.Event()
        self.engine._loop.call_soon_threadsafe(done.set)
        assert done.wait(LONGEST_WAIT_S)
        return not self._seen and not self.engine.events()

    def log(self, job: str, task: int = 0) -> bytes:
        return TaskFiles.of(self.state_dir, TaskId(job, 1, task)).log.read_bytes()

    def pid_in(self, name: str) -> int:
        """A process id that a task wrote to a file in its working directory."""
        path = self.workdir / name
        assert eventually(lambda: path.exists() and path.read_text().endswith("\n"))
        return int(path.read_text())

    def appears(self, name: str) -> bool:
        """Whether a task makes this file in its working directory."""
        return eventually((self.workdir / name).exists)

    def nothing_runs_like(self, words: str) -> bool:
        """Whether no process of the machine has (any more) these words in its command line; they must be its own."""
        return eventually(lambda: not any(words in line for line in _command_lines()))

    def gone(self, pid: int) -> bool:
        return eventually(lambda: procfs.start_ticks(pid) is None)

    def alive(self) -> int:
        """How many tasks run, by their records."""
        return sum(record.alive for record in running_records(self.state_dir))

    def _launch_of(self, job: str) -> LaunchSpec:
        try:
            return self.launches[job]
        except KeyError:
            raise NotFoundError(f"no job {job!r}", "submit it again") from None

    def end_all(self) -> None:
        self.engine.close()
        if not self.alive():
            return
        engine = self.new_engine()
        engine.adopt([], [])
        assert eventually(lambda: not self.alive())
        engine.close()
