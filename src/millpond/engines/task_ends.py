"""How tasks end, and why starts fail, in the words that engines report."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final

from millpond.model.amounts import seconds_text
from millpond.model.states import Outcome

SIGNAL_BASE: Final = 128
"""Exit codes above it name a signal, as in shells."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
_SIGNAL_NAMES: Final = {each.value: each.name for each in signal.Signals}


@dataclass(frozen=True, slots=True)
class EndVerdict:
    """How a task ended, in the words of ``model.events.Ended``."""

    outcome: Outcome
    exit_code: int | None = None
    detail: str = ""
    service_s: float | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a start failed.

    Attributes:
        device_fault: the machine is to blame, not the job.
        exit_code: what a shell has for it; None: nothing.
    """

    reason: str
    device_fault: bool = False
    exit_code: int | None = None


def ends_swapped(task: int, grace_s: float) -> str:
    """A note on a task that is asked to end while its device memory is on the host."""
    return (
        f"task {task} is asked to end while its device memory is in host memory: what it asks of its device waits, and "
        f"it is killed after {seconds_text(grace_s)}; resume a job first that has to save its work"
    )


def exit_text(code: int | None) -> str:
    """An exit code in words."""
    if code is None:
        return "it left no exit code"
    if code == NOT_FOUND:
        return "exit code 127: a command was not found"
    if code == NOT_EXECUTABLE:
        return "exit code 126: a command could not be executed"
    number = code - SIGNAL_BASE
    if number in signal.valid_signals():  # not all of them have names: those between the real-time ones have none
        known = f"exit code {code}: ended by {_SIGNAL_NAMES.get(number, f'signal {number}')}"
        # What writes to a mapped file for which there is no room ends so, and loaders of data map files there.
        return f"{known}, as where /dev/shm is full" if number == signal.SIGBUS else known
    return f"exit code {code}"
