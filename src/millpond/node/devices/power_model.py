"""What a card draws, as a model, for cards that are pretended.

``P = bare + context + (limit - bare - context) * use``: a card with a context on it draws more than a bare one even
when nothing computes, by 26 to 50 W whatever the memory held ("arXiv 2605.23918"). Limits are the vendor's for the
usual board; the bare figures are what such boards are commonly seen to draw, and meant for trying things out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millpond.model.power import PowerLimits


@dataclass(frozen=True, slots=True)
class CardPower:
    """One model of card, in watts."""

    bare_w: float
    context_w: float
    limit_w: float

    def draw_w(self, use_milli: int, occupied: bool) -> float:
        """What it draws at a use of 0 to 1000; ``occupied``: a process has a context on it."""
        idle = self.bare_w + (self.context_w if occupied else 0.0)
        return idle + (self.limit_w - idle) * use_milli / 1000


class FakePowerControl:
    """Caps and clocks of pretended cards (``vendor.PowerControl``).

    Args:
        models: of the cards, by UUID.

    Attributes:
        caps_w, clocks_mhz: what was set; a clock only while one is.
    """

    def __init__(self, models: Mapping[str, str]) -> None:
        self._models = models
        self.caps_w = {uuid: power_of(model).limit_w for uuid, model in models.items()}
        self.clocks_mhz: dict[str, int] = {}

    def limits(self, device: str) -> PowerLimits | None:
        """Half of the usual board's limit at the least."""
        most_w = power_of(self._models[device]).limit_w
        return PowerLimits(self.caps_w[device], most_w / 2, most_w, _MOST_MHZ)

    def cap(self, device: str, watts: float) -> None:
        """Let a card draw so much at the most."""
        self.caps_w[device] = watts

    def clock(self, device: str, megahertz: int | None) -> None:
        """Pretend that a card is clocked so high at the most."""
        if megahertz is None:
            self.clocks_mhz.pop(device, None)
        else:
            self.clocks_mhz[device] = megahertz


_MOST_MHZ: Final = 1980
_MODELS: Final = {
    "V100": CardPower(33.0, 26.0, 300.0),
    "A100": CardPower(52.0, 30.0, 400.0),
    "H100": CardPower(68.0, 40.0, 700.0),
    "H200": CardPower(74.0, 40.0, 700.0),
}
_OTHERS: Final = CardPower(20.0, 26.0, 250.0)


def power_of(model: str) -> CardPower:
    """The figures of a model; of one that is not known, those of a middling card."""
    return _MODELS.get(model, _OTHERS)
