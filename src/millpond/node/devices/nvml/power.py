"""Power caps and clocks of NVIDIA cards: read, set and put back through NVML. Setting wants root."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.model.errors import UnavailableError
from millpond.model.hardware.power import PowerLimits
from millpond.node.devices.nvml.library import Nvml

_MILLI = 1000
_CLOCK_OF_SM = 1
_NO_LEAST_CLOCK = 0


class NvidiaPower:
    """The cards' knobs.

    Args:
        cards: handles by UUID; MIG instances have no power of their own.
    """

    def __init__(self, nvml: Nvml, cards: Mapping[str, Any]) -> None:
        self._nvml = nvml
        self._cards = cards

    def limits(self, device: str) -> PowerLimits | None:
        """What can be set on a card; None when it is not one of these."""
        card = self._cards.get(device)
        if card is None:
            return None
        bounds = self._nvml.ask("nvmlDeviceGetPowerManagementLimitConstraints", card)
        least_mw, most_mw = (None, None) if bounds is None else bounds
        return PowerLimits(
            _watts(self._nvml.ask("nvmlDeviceGetPowerManagementLimit", card)),
            _watts(least_mw),
            _watts(most_mw),
            self._nvml.ask("nvmlDeviceGetMaxClockInfo", card, _CLOCK_OF_SM),
        )

    def cap(self, device: str, watts: float) -> None:
        """Let a card draw so much at the most.

        Raises:
            UnavailableError: the driver refuses.
        """
        self._set("nvmlDeviceSetPowerManagementLimit", device, round(watts * _MILLI))

    def clock(self, device: str, megahertz: int | None) -> None:
        """Let a card be clocked so high at the most; None: as the driver likes.

        Raises:
            UnavailableError: the driver refuses.
        """
        if megahertz is None:
            self._set("nvmlDeviceResetGpuLockedClocks", device)
        else:
            self._set("nvmlDeviceSetGpuLockedClocks", device, _NO_LEAST_CLOCK, megahertz)

    def _set(self, function: str, device: str, *values: int) -> None:
        try:
            getattr(self._nvml.module, function)(self._cards[device], *values)
        except self._nvml.error as error:
            remedy = "run the server as root, or leave `power` out of the configuration"
            raise UnavailableError(f"the driver does not let {device} be set ({error})", remedy) from error


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / _MILLI
