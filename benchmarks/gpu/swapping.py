"""Moving a program's device memory to the host and back with the node's own helper, step by step, each step timed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.gpu.bench import Bench
from millpond.model.errors import UnavailableError
from millpond.node.sharing.helper import CheckpointHelper, DriverError, DriverHungError, ProcessState

OUT = ("lock", "checkpoint")
BACK = ("restore", "unlock")
STEP_S = 90.0
_LOOK_S = 0.02


@contextlib.contextmanager
def helper(bench: Bench) -> Iterator[CheckpointHelper]:
    """The node's helper.

    Raises:
        UnavailableError: the driver cannot move processes.
    """
    found = CheckpointHelper(bench.env)
    try:
        if reason := found.why_not():
            raise UnavailableError(f"nothing can be moved to the host ({reason})")
        yield found
    finally:
        found.close()


def move(driver: CheckpointHelper, pid: int, *steps: str, timeout_s: float = STEP_S) -> dict[str, float]:
    """Carry out steps; the seconds of each.

    Raises:
        DriverError: the driver refused one.
        DriverHungError: it did not answer.
    """
    took = {}
    for step in steps:
        since = time.monotonic()
        getattr(driver, step)(pid, timeout_s)
        took[f"{step}_s"] = round(time.monotonic() - since, 4)
    return took


def cycle(bench: Bench, driver: CheckpointHelper, pid: int) -> dict[str, Any]:
    """Out and back once: seconds of each step, what became free on the card, and what the process still had there.

    The latter is None where the driver does not name the process, as from within some containers.
    """
    used_mib, own_mib = bench.used_mib(), bench.mib_of(pid)
    out = move(driver, pid, *OUT)
    freed_mib, left_mib = used_mib - bench.used_mib(), bench.mib_of(pid)
    return {**out, **move(driver, pid, *BACK), "freed_mib": freed_mib, "left_mib": left_mib if own_mib else None}


def attempt(driver: CheckpointHelper, pid: int, lock_timeout_s: float = 2.0) -> dict[str, Any]:
    """Out and back as far as the driver goes along: what it said to each step, and the state it left.

    What stopped in the middle is taken back as far as that can be done.
    """
    said: dict[str, Any] = {}
    for step in (*OUT, *BACK):
        said[step] = _said(driver, step, pid, lock_timeout_s if step == "lock" else STEP_S / 3)
        if said[step] != "ok":
            break
    said["state"] = state(driver, pid)
    return said | {f"undone by {step}": answer for step, answer in undone(driver, pid).items()}


def undone(driver: CheckpointHelper, pid: int) -> dict[str, str]:
    """Bring a program back from wherever it is, as far as that goes: what the driver said to each step."""
    said = {}
    for step, fits in (("restore", ProcessState.CHECKPOINTED), ("unlock", ProcessState.LOCKED)):
        if _settled(driver, pid) == fits:
            said[step] = _said(driver, step, pid, STEP_S / 3)
    return said


def state(driver: CheckpointHelper, pid: int) -> str:
    """As the driver says it; ``no device`` for a process that uses none."""
    try:
        return driver.state(pid, 5.0) or "no device"
    except DriverError as error:
        return error.name
    except DriverHungError:
        return "hung"


def _settled(driver: CheckpointHelper, pid: int) -> str:
    """The state when a move that is under way has ended, if it does in time."""
    until = time.monotonic() + STEP_S / 3
    while (found := state(driver, pid)) == ProcessState.MOVING and time.monotonic() < until:
        time.sleep(_LOOK_S)
    return found


def gigabytes_per_s(mib: int, *seconds: float) -> float:
    """Decimal gigabytes, as links are sold."""
    return round(mib * 1024 * 1024 / 1e9 / max(sum(seconds), 1e-9), 2)


def _said(driver: CheckpointHelper, step: str, pid: int, timeout_s: float) -> str:
    try:
        getattr(driver, step)(pid, timeout_s)
    except DriverError as error:
        return error.name
    except DriverHungError:
        return "hung"
    return "ok"
