"""Tasks behind gates on a pretended card."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fake_driver.driver import FakeDriver
from fake_driver.program import Program
from millpond.node.sharing.gate import layout
from millpond.node.sharing.gate.region import USAGE, GateRegion, GateSettings

PATIENCE_S = 180
KERNEL_NS = 2_000_000
FOR_EVER_MS = 10**9


@dataclass
class Task:
    """A slice, and the program in it."""

    region: GateRegion
    env: dict[str, str]
    program: Program | None = None

    def start(self) -> Program:
        """A process with a context on the card."""
        self.program = Program(self.env)
        assert self.program("start") == [0]
        return self.program


class GatedCard:
    """The card of a test, its gate, and the slices made on it.

    Args:
        timed: in time that only ``pass_time`` lets pass, whatever else the machine does. An answer that takes a program
            some of it is to be waited for by ``until``.
    """

    def __init__(self, driver: FakeDriver, library: Path, folder: Path, *, timed: bool = False) -> None:
        self.driver = driver
        self.timed = timed
        if timed:
            driver.take_time()
        self.gate_library = library
        self.folder = folder
        self.card_folder = folder / "card-0"
        self.tasks: list[Task] = []

    def slice(self, cap_mib: int = 1024, **settings: object) -> Task:
        """A slice, without a process yet."""
        folder = self.folder / f"slice-{len(self.tasks)}"
        region = GateRegion.create(folder, self.card_folder, GateSettings(cap_mib, **settings))  # type: ignore[arg-type]
        preloaded = [self.gate_library, self.driver.clock] if self.timed else [self.gate_library]
        env = {"LD_PRELOAD": os.pathsep.join(map(str, preloaded)), "MILLPOND_GATE": str(folder)}
        task = Task(region, self.driver.env() | env)
        self.tasks.append(task)
        return task

    def programs(self, *settings: dict[str, object]) -> list[Task]:
        """Slices with a started process each."""
        tasks = [self.slice(**each) for each in settings]  # type: ignore[arg-type]
        for task in tasks:
            task.start()
        return tasks

    def python(self, task: Task, source: str, **env: str) -> str:
        """What a Python program prints in a slice."""
        done = subprocess.run(
            [sys.executable, "-c", source],
            env={**os.environ, **task.env, **env},
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def python_until(self, task: Task, source: str, holds: Callable[[], bool]) -> None:
        """Run a Python program in a slice, whose standard input ends as soon as a condition holds."""
        pipe, env = subprocess.PIPE, {**os.environ, **task.env}
        with subprocess.Popen([sys.executable, "-c", source], env=env, stdin=pipe, stderr=pipe) as program:
            try:
                until(lambda: program.poll() is not None or holds())
                _, said = program.communicate(timeout=PATIENCE_S)
            finally:
                program.kill()
        assert program.returncode == 0, said

    def busy_shares(self, tasks: Sequence[Task], window_s: float) -> list[float]:
        """What each got of the card's busy time over a window, in points of 100, by the card's own count."""
        before = self.busy_ns(tasks)
        self.pass_time(window_s)
        spent = [now - earlier for now, earlier in zip(self.busy_ns(tasks), before, strict=True)]
        return [100 * each / sum(spent) for each in spent]

    def busy_points(self, tasks: Sequence[Task], window_s: float) -> list[float]:
        """The same in points of the window itself, whose rest the card was idle."""
        before = self.busy_ns(tasks)
        self.pass_time(window_s)
        return [(now - then) / window_s / 1e7 for now, then in zip(self.busy_ns(tasks), before, strict=True)]

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass for all who use the card, and no more."""
        assert self.timed
        self.driver.pass_time(seconds)

    def until(self, holds: Callable[[], bool]) -> None:
        """Let time pass until a condition holds."""
        until(holds, lambda: self.pass_time(0.001))

    def close(self) -> None:
        """Ends all processes, and lets go of the files."""
        for task in self.tasks:
            if task.program is not None:
                task.program.__exit__()
            task.region.detach()

    def busy_ns(self, tasks: Sequence[Task]) -> list[int]:
        """For how long the card was busy with each task's program so far, by its own count."""
        pids = [task.program.pid for task in tasks if task.program is not None]
        return [self.driver.busy_ns_of(pid, self.driver.cards[0]) for pid in pids]


def until(holds: Callable[[], bool], meanwhile: Callable[[], None] = os.sched_yield) -> None:
    """Waits for a condition of real processes; each look lets them have the processor, or time pass."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        meanwhile()


def keep_busy(task: Task, graph: bool = False) -> None:
    """Work without end, whose amount the device alone bounds."""
    assert task.program is not None
    if graph:
        _, number, _ = task.program("graph", KERNEL_NS // 4, 4)
        task.program.send("busy", 0, FOR_EVER_MS, number)
    else:
        task.program.send("busy", KERNEL_NS, FOR_EVER_MS)


def begin_at_once(task: Task, command: str, *numbers: int) -> None:
    """Returns when the program is at it, before any time of the test's own has passed."""
    assert task.program is not None
    before = last_launch_ns(task)
    task.program.send(command, *numbers)
    until(lambda: last_launch_ns(task) != before)


def write_slot(task: Task, index: int, **words: int) -> None:
    """Words as a process leaves them in a place of the slice."""
    slot = layout.TaskUsage.slot.offset + index * ctypes.sizeof(layout.Slot)
    with (task.region.folder / USAGE).open("r+b") as file:
        for name, value in {"pid": 1, **words}.items():
            file.seek(slot + getattr(layout.Slot, name).offset)
            file.write(value.to_bytes(8, "little"))


def shared_by(card: GatedCard) -> layout.Card:
    """What the slices of the card share, as it is."""
    return layout.Card.from_buffer_copy((card.card_folder / "card").read_bytes())


def write_member(card: GatedCard, member: int, **words: int) -> None:
    """What any slice of the card may write of one, a word at a time."""
    with (card.card_folder / "card").open("r+b") as file:
        for name, value in words.items():
            word = getattr(layout.CardMember, name)
            at = layout.Card.member.offset + member * ctypes.sizeof(layout.CardMember) + word.offset
            os.pwrite(file.fileno(), value.to_bytes(word.size, "little"), at)


def last_launch_ns(task: Task) -> int:
    """When the task launched last, by its gate."""
    return sum(process.last_launch_ns for process in task.region.usage().processes.values())
