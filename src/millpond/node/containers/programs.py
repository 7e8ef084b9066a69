"""The programs of container runtimes, followed line by line, and ended where nobody wants the rest."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from millpond.model.errors import MillpondError
from millpond.node.host import procfs
from millpond.node.host.files import read_file

Notify = Callable[[str], None]
"""Takes a line of what a program says, an empty one while it says nothing; whatever it raises ends the program."""
End = Callable[[int], None]
"""Ends a program, given its process id, before it is done."""

_PIECE: Final = 2**12
_SILENCE_S: Final = 1.0
_TIDIES_WITHIN_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.1


def end_program(pid: int) -> None:
    """As a user would."""
    procfs.send([pid], signal.SIGTERM)


def follow_program(
    order: Sequence[str],
    env: Mapping[str, str],
    notify: Notify,
    error: Callable[[str], MillpondError],
    end: End = end_program,
) -> None:
    """Run a program to its end, line by line.

    Args:
        error: what is raised when it fails, made of the last that it said.
        end: ends it where ``notify`` raises.
    """
    said = ""
    with subprocess.Popen(
        order,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as program:
        assert program.stdout is not None
        try:
            for line in _lines(program.stdout.fileno()):
                said = line or said
                notify(line)
        except BaseException:  # of whatever kind: leaving the block waits for the program's end
            ending = threading.Thread(target=end, args=(program.pid,))
            ending.start()
            for _ in _lines(program.stdout.fileno()):  # it could not say its last words where nobody takes them
                if program.poll() is not None:
                    break
            ending.join()
            raise
    if program.returncode != 0:
        raise error(said.removeprefix("Error: ") or f"exit code {program.returncode}")


def _lines(output: int) -> Iterator[str]:
    """The lines of a program's output up to its end, very long ones in pieces; an empty one whenever it says nothing
    for a while."""
    readable, rest = select.poll(), b""
    readable.register(output, select.POLLIN)
    while True:
        if not readable.poll(_SILENCE_S * 1_000):
            yield ""
        elif piece := os.read(output, _PIECE):
            *lines, rest = (rest + piece).split(b"\n")
            yield from (line.decode(errors="replace").rstrip() for line in lines)
            if len(rest) > _PIECE:
                yield rest.decode(errors="replace")
                rest = b""
        else:
            if rest:
                yield rest.decode(errors="replace").rstrip()
            return


def end_build(pid: int) -> None:
    """End a build; of one that does not come to its end by that, the program itself after ten seconds.

    Podman that gets a signal leaves the container that a build works in, and the files of the moment, which nobody
    removes later. It removes both where a step fails. So what a step runs is killed, and podman ends by itself.

    Args:
        pid: of the program that builds.
    """
    began, until = procfs.start_ticks(pid), time.monotonic() + _TIDIES_WITHIN_S
    while began is not None and procfs.start_ticks(pid) == began:
        if time.monotonic() >= until:
            procfs.send([pid], signal.SIGTERM)
            return
        procfs.send(_inside(pid), signal.SIGKILL)
        time.sleep(_LOOK_AGAIN_S)


def end_builds_from(folder: Path) -> None:
    """End what a server that was killed began to build from a folder."""
    begins = f"{folder}{os.sep}".encode()
    for pid in procfs.pids():
        with suppress(OSError):  # it is over
            words = read_file(f"/proc/{pid}/cmdline").split(b"\0")
            if b"build" in words and any(word.startswith(begins) for word in words):
                end_build(pid)


def _inside(pid: int) -> list[int]:
    """The processes below a program that have another root directory than it: those in its containers."""
    outer = _root(pid)
    return [each for each in procfs.descendants(pid) if _root(each) not in (outer, None)]


def _root(pid: int) -> tuple[int, int] | None:
    """None: it is over, or not ours to see."""
    try:
        found = Path(f"/proc/{pid}/root/").stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
