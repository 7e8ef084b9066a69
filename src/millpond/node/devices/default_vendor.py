"""What a vendor answers of which nothing is known but its devices and their figures."""

from __future__ import annotations

from millpond.model.telemetry import DeviceLink
from millpond.node.devices.vendor import Fact, HealthStream, PowerControl


class DefaultVendor:
    """The part of ``vendor.DeviceVendor`` that may be left out; a vendor that knows more overrides it."""

    def links(self) -> tuple[DeviceLink, ...]:
        """Nothing is known of how devices are joined."""
        return ()

    def facts(self) -> tuple[Fact, ...]:
        """No facts for the administrator."""
        return ()

    def watch(self) -> HealthStream | None:
        """Nothing is reported."""
        return None

    def swaps(self) -> bool:
        """No way is known."""
        return False

    def remaps(self) -> bool:
        """No way is known."""
        return False

    def power(self) -> PowerControl | None:
        """No knobs are known."""
        return None
