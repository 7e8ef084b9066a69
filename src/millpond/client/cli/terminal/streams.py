"""This terminal as the terminal of a command elsewhere: raw, with its window, put right again at the end."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from millpond.client.sdk.sessions import BLOCK, Session, TerminalSize

USUAL_WINDOW = TerminalSize(24, 80)
"""For output that is no terminal."""


def is_terminal() -> bool:
    """Whether a person types here and sees what comes."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def window() -> TerminalSize:
    """The size of this terminal."""
    size = os.get_terminal_size(sys.stdout.fileno())
    return TerminalSize(size.lines, size.columns)


def connect_streams(session: Session, interactive: bool, reads_input: bool) -> int:
    """Carry standard input, output and errors until the command has ended; returns its exit code.

    Args:
        interactive: the command has a terminal; this one becomes raw meanwhile, so that Ctrl-C goes there.
        reads_input: pass standard input on.
    """
    if not reads_input:
        session.end_input()
        return _print(session)
    with _window_changes(interactive) as changes:
        reader = threading.Thread(target=_read, args=(session, changes), name="standard-input", daemon=True)
        if not interactive:
            reader.start()
            return _print(session)
        before = termios.tcgetattr(sys.stdin)
        try:
            tty.setraw(sys.stdin)
            reader.start()
            return _print(session)
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _print(session: Session) -> int:
    for name, data in session.output():
        stream = sys.stdout if name == "output" else sys.stderr
        stream.buffer.write(data)
        stream.buffer.flush()
    assert session.exit_code is not None, "output ends with the exit code or an error"
    return session.exit_code


def _read(session: Session, changes: int) -> None:
    """Send what is typed; a byte in ``changes`` means that the window has another size."""
    typed = sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([typed, changes], [], [])
        if changes in ready:
            os.read(changes, BLOCK)
            session.resize(window())
        if typed in ready:
            data = os.read(typed, BLOCK)
            if not data:
                session.end_input()
                return
            session.write(data)


@contextmanager
def _window_changes(interactive: bool) -> Iterator[int]:
    """A descriptor that becomes readable with each change of the window: a signal handler may do no more than that."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = None
    if interactive:
        before = signal.signal(signal.SIGWINCH, lambda *_: os.write(writer, b"w"))
    try:
        yield reader
    finally:
        if interactive:
            signal.signal(signal.SIGWINCH, before)
