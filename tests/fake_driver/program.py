"""A process on a card, for tests that need one: a program of the driver (``calls``) and the pipes to it."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

_START = f"import sys; sys.path[0] = {str(Path(__file__).parent)!r}; import calls; calls.main()"
"""The calls as a module, whose bytecode is kept."""


class Program:
    """The program as a child process; leaves with the block.

    Args:
        env: beside what every child inherits.
    """

    living: ClassVar[set[Program]] = set()

    def __init__(self, env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", _START],
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self.living.add(self)

    def send(self, command: str, *numbers: int) -> None:
        """Asks without waiting for the answer."""
        self.send_all((command, *numbers))

    def send_all(self, *orders: tuple[str | int, ...]) -> None:
        """Asks for several things in one writing, so that a program which is at the first has read them all."""
        assert self._process.stdin is not None
        self._process.stdin.write("".join(" ".join(map(str, order)) + "\n" for order in orders))
        self._process.stdin.flush()

    def has_unread_orders(self) -> bool:
        """Whether it has yet to read of what it was asked for; one that has ended has not."""
        assert self._process.stdin is not None
        lying = fcntl.ioctl(self._process.stdin, termios.FIONREAD, bytes(4))
        return any(lying) and self._process.poll() is None

    def answer(self) -> list[int]:
        """The next answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BrokenPipeError(f"the program ended with {self._process.wait()}")
        return [int(word) for word in line.split()]

    def has_answered(self) -> bool:
        """Whether ``answer`` returns at once; of an answer that was not read before, it does not say."""
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def __call__(self, command: str, *numbers: int) -> list[int]:
        """Asks, and waits for the answer."""
        self.send(command, *numbers)
        return self.answer()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *error: object) -> None:
        self.living.discard(self)
        self._process.kill()
        self._process.communicate()
