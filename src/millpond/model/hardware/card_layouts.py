"""Cards that their own hardware divides (MIG) while the server runs: their possible layouts, and the last change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from millpond.model.hardware.devices import Device


@dataclass(frozen=True, slots=True)
class CardLayout:
    """One way to divide a card.

    Attributes:
        instances: names of profiles, such as ``3g.71gb``.
        devices: what it makes of the card; their UUIDs are not those that the driver will give.
    """

    instances: tuple[str, ...]
    devices: tuple[Device, ...]

    @property
    def text(self) -> str:
        """In words: ``2 x 3g.71gb``."""
        return layout_text(self.instances)

    def is_on(self, devices: Sequence[Device]) -> bool:
        """Whether these, all that there is of the card, are what this layout makes of it."""
        return Counter(device.model for device in devices) == Counter(device.model for device in self.devices)


@dataclass(frozen=True, slots=True)
class DivisibleCard:
    """A card whose layout may change while the server runs.

    Attributes:
        card: its UUID.
        layouts: those that the configuration allows and that the card can have.
        stay_s: after a change, done or failed, it stays as it is for so long.
    """

    card: str
    layouts: tuple[CardLayout, ...]
    stay_s: float = 600.0


@dataclass(frozen=True, slots=True)
class LayoutRule:
    """How the cards of a pool may be divided while the server runs.

    Attributes:
        layouts: names of profiles, each layout a tuple of them.
        cards: numbers of cards on each node; None: all in MIG mode.
        stay_s: as of ``DivisibleCard``.
    """

    layouts: tuple[tuple[str, ...], ...]
    cards: tuple[int, ...] | None
    stay_s: float


class LayoutChangeState(StrEnum):
    """How far a change of a card's layout has come."""

    CHANGING = "changing"
    """Nothing starts on the card until its node has said what there is of it."""
    DONE = "done"
    FAILED = "failed"
    """It is as its node describes it, the former layout where that could be restored."""


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """The last change of a card's layout.

    Attributes:
        since: when it came into this state, in seconds.
        layout: names of profiles that it was to be divided into.
        for_job: whose wait was the cause.
        detail: what went wrong.
    """

    state: LayoutChangeState
    since: float
    node: str
    layout: tuple[str, ...]
    for_job: str
    detail: str = ""


def layout_text(instances: Sequence[str]) -> str:
    """Instances in words: ``2 x 3g.71gb and 1 x 1g.18gb``."""
    return " and ".join(f"{count} x {name}" for name, count in Counter(instances).items())
