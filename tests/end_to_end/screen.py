"""A terminal with a program in it, as a person would sit at it."""

from __future__ import annotations

import os
import pty
import re
import select
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


class Screen:
    """A terminal of 30 x 100 with a command in it."""

    def __init__(self, argv: Sequence[str | Path], env: Mapping[str, str]) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], [str(word) for word in argv], {**env, "TERM": "dumb", "PS1": "$ "})
        self.resize(30, 100)
        self.shown = ""

    def resize(self, rows: int, columns: int) -> None:
        """The window gets another size."""
        termios.tcsetwinsize(self.terminal, (rows, columns))

    def type(self, text: str) -> None:
        """Somebody types."""
        os.write(self.terminal, text.encode())

    def shows(self, pattern: str) -> re.Match[str]:
        """What has come since the last pattern, up to this one."""
        give_up = time.monotonic() + 20
        while not (found := re.search(pattern, self.shown)):
            assert time.monotonic() < give_up, f"{pattern!r} did not come, but {self.shown!r}"
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.shown += os.read(self.terminal, 4096).decode()
        self.shown = self.shown[found.end() :]
        return found

    def exit_code(self) -> int:
        """How the command ended."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
