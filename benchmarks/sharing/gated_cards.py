"""Pretended cards with gated tasks on them, for benchmarks: the driver of the tests, and slices on its first card."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from fake_driver.building import build, compile_program, what_is_missing
from fake_driver.driver import FakeDriver
from fake_driver.program import Program
from millpond.model.errors import InvalidInputError
from millpond.node.sharing.gate.building import library
from millpond.node.sharing.gate.region import GateRegion, GateSettings


@dataclass(frozen=True)
class Slice:
    """A slice, and what a program needs to be in it."""

    region: GateRegion
    env: dict[str, str]


class Cards:
    """One pretended card, and the slices made on it.

    Args:
        timed: in time that only ``driver.pass_time`` lets pass, whatever else the machine does.
    """

    def __init__(self, folder: Path, *, timed: bool = False) -> None:
        if missing := what_is_missing():
            raise InvalidInputError(missing, "install gcc")
        self.driver = FakeDriver(folder)
        self._folder = folder
        self._preloaded = [library(build().parent)]
        if timed:
            self.driver.take_time()
            self._preloaded.append(self.driver.clock)
        self._count = 0

    def slice(self, settings: GateSettings) -> Slice:
        """A place for one task."""
        self._count += 1
        folder = self._folder / f"slice-{self._count}"
        region = GateRegion.create(folder, self._folder / "card", settings)
        env = {"LD_PRELOAD": os.pathsep.join(map(str, self._preloaded)), "MILLPOND_GATE": str(folder)}
        return Slice(region, self.driver.env() | env)

    def compile(self, source: str) -> Path:
        """A C program linked against the pretended driver."""
        return compile_program(source, self.driver.libraries, self._folder / "program")

    def shared_library(self, source: str, name: str) -> Path:
        """A library of C in a folder of its own."""
        target = self._folder / "libraries" / name
        target.parent.mkdir(exist_ok=True)
        command = ["gcc", "-O2", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-x", "c", "-", "-o", target]
        subprocess.run(command, input=source, text=True, check=True)
        return target

    def run(self, program: Path, env: dict[str, str], *arguments: str) -> str:
        """What the program prints."""
        command = [str(program), *arguments]
        return subprocess.run(command, env=os.environ | env, capture_output=True, text=True, check=True).stdout

    @contextmanager
    def programs(self, slices: Sequence[Slice]) -> Iterator[list[Program]]:
        """A process with a context in each slice."""
        programs = [Program(each.env) for each in slices]
        try:
            for each in programs:
                each("start")
            yield programs
        finally:
            for each in programs:
                each.__exit__()


@contextmanager
def pretended_cards(*, timed: bool = False) -> Iterator[Cards]:
    """In a folder that goes with the block."""
    with tempfile.TemporaryDirectory(prefix="millpond-gate-") as folder:
        yield Cards(Path(folder), timed=timed)
