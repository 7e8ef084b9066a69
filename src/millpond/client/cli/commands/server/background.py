"""A server in the background: apart from this terminal, ready before we say so, its complaint ours if it fails."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from millpond.client.cli.error_output import say
from millpond.client.cli.terminal.interrupts import held_back, with_termination
from millpond.client.sdk.transport.discovery import read_server_file
from millpond.client.sdk.transport.health import ask_health
from millpond.model.errors import MillpondError, UnavailableError
from millpond.specs.api.server import STANDBY_FILE, HealthInfo, ServerFile

LOG_NAME = "server.log"
READY_WITHIN_S = 180.0
RECOVERS_WITHIN_S = 10.0
"""A database that only stumbles answers again by then; one that is damaged never does."""
SILENT_S = 10.0
"""A start that takes longer says what it does, and then what else it does."""
ENDS_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.05
_ROOM_TO_COMPLAIN = 2**16
"""Bytes; of a disk with less the last may have been taken while the server wrote."""
_COMPLAINT = "pond: "
"""How the line begins with which a server ends that cannot start."""


@dataclass(frozen=True, slots=True)
class Started:
    """A server that has come up, and how it is."""

    left: ServerFile
    health: HealthInfo


def start(arguments: Sequence[str], state_dir: Path) -> Started:
    """Start ``python -m millpond.server`` with these arguments; returns when it takes requests, or stands by.

    Raises:
        UnavailableError: it could not start (port in use, a second server, a directory it may not write), or answers
            that it takes no requests (its database is damaged).
        MillpondError: it ended in another way, or was not ready in time.
        KeyboardInterrupt: Ctrl-C, SIGTERM or SIGHUP came before it was ready; it was told to end, and what became of it
            was said.
    """
    log = state_dir / LOG_NAME
    process: subprocess.Popen[bytes] | None = None
    try:
        with with_termination():
            with held_back():
                process, begin = _begin(arguments, state_dir, log)
            return _await_ready(process, state_dir, log, begin)
    except MillpondError:  # it has ended, or was told to
        raise
    except BaseException:  # whatever it is, no server stays behind of which nobody was told
        if process is not None:
            _end_interrupted(process)
        raise


def _begin(arguments: Sequence[str], state_dir: Path, log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """The process of the server, and where what it writes begins in its log."""
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with log.open("ab") as stream:
            begin = stream.tell()
            # -P: a folder called millpond in the present directory is not the server.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "millpond.server", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
    except OSError as error:
        raise UnavailableError(
            f"the state directory {state_dir} cannot be used ({error.strerror})", "name another with --state-dir"
        ) from error
    return process, begin


def _end_interrupted(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(ENDS_WITHIN_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        remedy = f"`kill -9 {process.pid}` ends it at once"
        say(f"the server (process {process.pid}) was told to end and has not yet\n{remedy}")
    else:
        say("the server was ended before it was ready")


def _await_ready(process: subprocess.Popen[bytes], state_dir: Path, log: Path, begin: int) -> Started:
    now = time.monotonic()
    speak_at, give_up_at, ready_at = now + SILENT_S, now + READY_WITHIN_S, now
    unready, said = "", ""
    while now < give_up_at and not (unready and now > ready_at + RECOVERS_WITHIN_S):
        code = process.poll()
        if code is not None:
            raise _failure(code, log, begin)
        if not unready:
            ready_at = now
        unready = ""
        for left in (read_server_file(state_dir), read_server_file(state_dir, STANDBY_FILE)):
            health = ask_health(left) if left is not None and left.pid == process.pid else None
            if left is not None and health is not None:
                if _serves(health):
                    return Started(left, health)
                unready = health.status
        if now > speak_at and not any(line.startswith(_COMPLAINT) for line in _lines(log, begin)):  # told at its end
            doing = unready or _last_line(log, begin)
            if doing != said:
                say(f"the server is still starting: {doing}")
            said = doing
        time.sleep(_LOOK_EVERY_S)
        now = time.monotonic()
    process.terminate()
    if unready:
        raise UnavailableError(f"the server took no requests and was ended: {unready}", f"{log} says more")
    raise MillpondError(
        f"the server was not ready within {READY_WITHIN_S:.0f} s: {_last_line(log, begin)}", f"{log} says what it did"
    )


def health_of(left: ServerFile) -> HealthInfo | None:
    """How a server is that takes requests, or stands by; None when it does neither."""
    health = ask_health(left)
    return health if health is not None and _serves(health) else None


def _serves(health: HealthInfo) -> bool:
    return health.standby or health.status in ("ready", "degraded")


def _lines(log: Path, begin: int) -> list[str]:
    with log.open("rb") as stream:
        stream.seek(begin)
        return stream.read().decode(errors="replace").strip().splitlines()


def _last_line(log: Path, begin: int) -> str:
    """What a server that is not ready wrote last."""
    return next(reversed(_lines(log, begin)), "it has written nothing yet").strip()


def _failure(code: int, log: Path, begin: int) -> MillpondError:
    """What the ended server wrote last, as our own error."""
    lines = _lines(log, begin)
    last_said = max(
        (number for number, line in enumerate(lines) if line.startswith(_COMPLAINT)), default=len(lines) - 1
    )
    last = "\n".join(line.removeprefix(_COMPLAINT).strip() for line in lines[last_said:])
    if not last and shutil.disk_usage(log.parent).free < _ROOM_TO_COMPLAIN:
        return UnavailableError(
            f"the server could not start, nor write why into {log}: the disk is full",
            "make room there, then start again",
        )
    last = last or f"the server ended at once with exit code {code}"
    if code == UnavailableError.exit_code:
        return UnavailableError(last)
    return MillpondError(f"the server ended while starting: {last}", f"{log} says more")
