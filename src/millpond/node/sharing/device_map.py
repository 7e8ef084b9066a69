"""Maps of cards for the CUDA driver: on which card each comes back what was taken off it.

A map has to name every card that the driver has, once on each side, and not only those that a process used (cuda-python
pull request 1983; cuda-checkpoint issue 35). Cards whose place is taken go where there is room left.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Collection, Mapping
from typing import Any


def whole_map(cards: Collection[uuid.UUID], moves: Mapping[uuid.UUID, uuid.UUID]) -> dict[uuid.UUID, uuid.UUID]:
    """Every card onto one card, with these moves among them.

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
