"""Pretended cards in MIG mode: what they are divided into, kept in a file as a driver keeps it.

The profiles are those of NVIDIA's cards with eight memory slices and seven of compute, named by the card's memory. It
takes a moment to divide a card; one that is used is refused, and so is what cannot be written down.

Source: NVIDIA, Multi-Instance GPU User Guide, "Supported MIG Profiles".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.model.hardware.card_layouts import CardLayout
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.node.host.files import read_json, write_json
from millpond.node.sharing.mig import Profile, plan

FILE: Final = "fake-card-layouts.json"
TAKES_S: Final = 2.0
_NOT_DIVIDED: Final = "MIG is on, and it is divided once a job waits for that"
_EIGHTHS: Final = 8
_SLICES: Final = (
    (1, 1, (0, 1, 2, 3, 4, 5, 6)),
    (1, 2, (0, 2, 4, 6)),
    (2, 2, (0, 2, 4)),
    (3, 4, (0, 4)),
    (4, 4, (0,)),
    (7, 8, (0,)),
)
"""Compute slices, memory slices, and where an instance may begin."""


class FakeDivider:
    """Divides pretended cards (``vendor.CardDivider``).

    Args:
        cards: the whole cards, all in MIG mode, by UUID.
        file: what they are divided into is kept there.
        is_used: whether anything is on a device.

    Attributes:
        pause: waits for so many seconds.
        devices: what can be handed out of each card now, or what it is shown as.
    """

    def __init__(
        self,
        cards: Mapping[str, Device],
        file: Path,
        is_used: Callable[[str], bool],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cards = cards
        self._file = file
        self._is_used = is_used
        self.pause = pause
        kept = read_json(file) or {}
        self._now = {card: list(kept.get(card, ())) for card in cards}
        self.devices = {card: _devices_of(whole, self._now[card]) for card, whole in cards.items()}

    def layout(self, card: str, instances: Sequence[str]) -> CardLayout | None:
        """What the card would become; None for one that is not in MIG mode.

        Raises:
            InvalidInputError: it offers no such profile, or they do not fit together.
        """
        whole = self._cards.get(card)
        if whole is None:
            return None
        placed = plan(instances, _profiles(whole))
        return CardLayout(tuple(instances), tuple(each.profile.device_of(whole) for each in placed))

    def divide(self, card: str, instances: Sequence[str]) -> None:
        """Divide it otherwise.

        Raises:
            UnavailableError: it is used, or that cannot be written down; it is as it was.
            InvalidInputError: as ``layout``.
        """
        plan(instances, _profiles(self._cards[card]))
        if any(self._is_used(device.uuid) for device in self.devices[card]):
            raise UnavailableError("it is used", "wait until that has ended")
        self.pause(TAKES_S)
        fresh = {**self._now, card: list(instances)}
        try:
            write_json(self._file, fresh)
        except OSError as error:
            raise UnavailableError(f"it cannot be written down ({error.strerror})") from error
        self._now = fresh
        self.devices[card] = _devices_of(self._cards[card], instances)


def _devices_of(card: Device, instances: Sequence[str]) -> tuple[Device, ...]:
    if not instances:
        return (replace(card, health=DeviceHealth.BUSY_ELSEWHERE, health_detail=_NOT_DIVIDED),)
    return tuple(
        replace(
            each.profile.device_of(card),
            uuid=f"{card.uuid}-MIG-{each.profile.name}-{each.start}",
            instance=number,
            remaps=False,
        )
        for number, each in enumerate(plan(instances, _profiles(card)))
    )


def _profiles(card: Device) -> tuple[Profile, ...]:
    if not card.memory_mib:
        raise InvalidInputError("how much memory the card has is not known", "give its node a device_memory")
    return tuple(
        Profile(
            f"{slices}g.{int(card.memory_mib * size / _EIGHTHS / 1024 + 0.5)}gb",
            number,
            size,
            starts,
            card.memory_mib * size // _EIGHTHS,
        )
        for number, (slices, size, starts) in enumerate(_SLICES)
    )
