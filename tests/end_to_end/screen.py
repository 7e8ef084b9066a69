"""A terminal with a program in it, as a person would sit at it."""

from __future__ import annotations

import codecs
import contextlib
import os
import pty
import re
import select
import signal
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from real_pond import PATIENCE_S


class Screen:
    """A terminal of 30 x 100, or another size, with a command in it."""

    def __init__(self, argv: Sequence[str | Path], env: Mapping[str, str], size: tuple[int, int] = (30, 100)) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            termios.tcsetwinsize(0, size)  # here, as the program may look before its parent has a turn
            os.execvpe(argv[0], [str(word) for word in argv], {**env, "TERM": "dumb", "PS1": "$ "})
        self.shown = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a letter may come in two pieces

    def resize(self, rows: int, columns: int) -> None:
        """The window gets another size."""
        termios.tcsetwinsize(self.terminal, (rows, columns))

    def type(self, text: str) -> None:
        """Somebody types."""
        os.write(self.terminal, text.encode())

    def shows(self, pattern: str) -> re.Match[str]:
        """What has come since the last pattern, up to this one."""
        give_up = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self.shown)):
            assert time.monotonic() < give_up, f"{pattern!r} did not come, but {self.shown!r}"
            if select.select([self.terminal], [], [], 0.1)[0]:
                self._read()
        self.shown = self.shown[found.end() :]
        return found

    def _read(self) -> None:
        self.shown += self._decoder.decode(os.read(self.terminal, 4096))

    def shows_a_shell_of_its_own_window(self) -> None:
        """There is a shell that knows the window, hears that it changes, and whose program hears Ctrl-C."""
        self.shows(r"[$#] ")
        self.type("stty size\n")
        self.shows(r"30 100\s+[$#] ")
        self.resize(41, 133)
        window = ""
        while window != "41 133":  # what is typed may overtake the window, which travels by a signal
            self.type("stty size\n")
            window = self.shows(r"(\d+ \d+)\s+[$#] ")[1]
            assert window in ("30 100", "41 133")
        self.type("sh -c 'echo up; exec sleep 600'\n")
        self.shows(r"\nup\s")  # before, Ctrl-C might find the shell itself
        self.type("\x03")
        self.shows(r"[$#] ")

    def exit_code(self) -> int:
        """How the command ended; what it still shows is read, as it may wait for that."""
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if select.select([self.terminal], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):  # it has just ended
                    self._read()
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f"it did not end, but showed {self.shown[-500:]!r}")
