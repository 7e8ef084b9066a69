"""The process that talks to the CUDA driver about other processes; run by ``helper`` as a module.

It reads orders from standard input, one JSON object a line (``number``, ``call``, ``pid``, ``timeout_ms``, and for a
restore on other cards ``moves``), and answers on standard output with the same ``number``: ``{"number": 3, "value":
...}`` or ``{"number": 3, "error": "CUDA_ERROR_NOT_READY"}``. Number 0 is its own: said once, when the driver is
initialised or cannot be. Each order has a thread of its own, as the driver may take seconds for one and others must not
wait. When its input ends, so does it.

A restore on other cards takes a map that names every card that the driver has, once on each side, and not only those
that a process used (cuda-python pull request 1983; cuda-checkpoint issue 35).
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
import threading
import uuid
from collections.abc import Collection, Mapping
from typing import Any

_CALLS = {
    "state": "cuCheckpointProcessGetState",
    "lock": "cuCheckpointProcessLock",
    "checkpoint": "cuCheckpointProcessCheckpoint",
    "restore": "cuCheckpointProcessRestore",
    "unlock": "cuCheckpointProcessUnlock",
}
_ARGUMENTS = {
    "lock": "CUcheckpointLockArgs",
    "checkpoint": "CUcheckpointCheckpointArgs",
    "restore": "CUcheckpointRestoreArgs",
    "unlock": "CUcheckpointUnlockArgs",
}


def main() -> int:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the driver prints is no answer
    guard = threading.Lock()

    def say(answer: dict[str, Any]) -> None:
        with guard:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()

    def carry_out(driver: Any, order: dict[str, Any]) -> None:
        say({"number": order["number"], **_answer(driver, order)})

    try:
        driver = _open_driver()
    except RuntimeError as error:
        say({"number": 0, "error": str(error)})
        return 1
    say({"number": 0})
    for line in sys.stdin:
        threading.Thread(target=carry_out, args=(driver, json.loads(line)), daemon=True).start()
    os._exit(0)  # a thread that hangs in the driver is not waited for


def _open_driver() -> Any:
    """The driver's binding, initialised.

    Raises:
        RuntimeError: there is none, or it cannot move processes; the text says what to do.
    """
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError:
        raise RuntimeError("the Python package cuda-bindings is not installed (pip install 'millpond[gpu]')") from None
    missing = [name for name in _CALLS.values() if not hasattr(driver, name)]
    if missing:
        raise RuntimeError("the installed cuda-bindings know no checkpoints; install 13.0.2 or newer")
    (error,) = driver.cuInit(0)  # which raises a RuntimeError itself where there is no driver
    if error.value:
        raise RuntimeError(f"the CUDA driver cannot be initialised ({error.name})")
    return driver


def _answer(driver: Any, order: dict[str, Any]) -> dict[str, Any]:
    call = order["call"]
    arguments = [order["pid"]]
    try:
        if call in _ARGUMENTS:
            arguments.append(_filled(driver, order))
        error, *values = getattr(driver, _CALLS[call])(*arguments)
    except RuntimeError as failure:  # the binding found no such function in the driver
        return {"error": f"CUDA_ERROR_NOT_SUPPORTED: {failure}"}
    except (AttributeError, KeyError) as failure:  # a binding without maps; a card that is not the driver's
        return {"error": f"CUDA_ERROR_INVALID_VALUE: {failure}"}
    if error.value:
        return {"error": error.name}
    return {"value": values[0].name if values else None}


def _filled(driver: Any, order: dict[str, Any]) -> Any:
    """The arguments of a call that takes some."""
    if order.get("moves"):
        return restore_arguments(driver, whole_map(cards_of(driver), _cards(order["moves"])))
    filled = getattr(driver, _ARGUMENTS[order["call"]])()
    if order["call"] == "lock":
        filled.timeoutMs = order["timeout_ms"]
    return filled


def _cards(moves: Mapping[str, str]) -> dict[uuid.UUID, uuid.UUID]:
    """Cards as NVML spells them."""
    return {uuid.UUID(old.removeprefix("GPU-")): uuid.UUID(new.removeprefix("GPU-")) for old, new in moves.items()}


def whole_map(cards: Collection[uuid.UUID], moves: Mapping[uuid.UUID, uuid.UUID]) -> dict[uuid.UUID, uuid.UUID]:
    """Every card onto one card, with these moves among them; whose place is taken goes where there is room left.

    Raises:
        KeyError: a move from or to a card that the driver does not have.
    """
    for card in (*moves, *moves.values()):
        if card not in cards:
            raise KeyError(f"GPU-{card}")
    taken = set(moves.values())
    left = iter([card for card in moves if card not in taken])
    return {card: moves[card] if card in moves else next(left) if card in taken else card for card in cards}


def cards_of(driver: Any) -> list[uuid.UUID]:
    """Every card that an initialised driver shows to this process.

    Raises:
        RuntimeError: it refuses to say.
    """
    error, count = driver.cuDeviceGetCount()
    found = []
    for ordinal in range(0 if error.value else count):
        error, card = driver.cuDeviceGetUuid(ordinal)
        if error.value:
            break
        found.append(uuid.UUID(bytes=bytes(card.bytes)))
    if error.value:
        raise RuntimeError(error.name)
    return found


def restore_arguments(driver: Any, onto: Mapping[uuid.UUID, uuid.UUID]) -> Any:
    """The binding's arguments of a restore by a map."""
    arguments = driver.CUcheckpointRestoreArgs()
    arguments.gpuPairs = [_pair(driver, old, new) for old, new in onto.items()]
    arguments.gpuPairsCount = len(onto)
    return arguments


def _pair(driver: Any, old: uuid.UUID, new: uuid.UUID) -> Any:
    pair = driver.CUcheckpointGpuPair()
    # The binding lets no UUID be written, but takes over one that lies in memory; the pair keeps a copy.
    rooms = [ctypes.create_string_buffer(card.bytes, len(card.bytes)) for card in (old, new)]
    pair.oldUuid, pair.newUuid = (driver.CUuuid(_ptr=ctypes.addressof(room)) for room in rooms)
    return pair


if __name__ == "__main__":
    sys.exit(main())
