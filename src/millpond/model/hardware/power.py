"""How much devices may draw, and how fast they may run: what is configured, and what a device allows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from millpond.model.sharing import ShareClass


@dataclass(frozen=True, slots=True)
class PowerSetting:
    """What a device is kept to; None leaves that as the driver has it.

    Attributes:
        cap_w: the most power that it draws.
        clock_mhz: the most that what computes is clocked at.
    """

    cap_w: float | None = None
    clock_mhz: int | None = None


UNTOUCHED = PowerSetting()


@dataclass(frozen=True, slots=True)
class PowerRule:
    """What the devices of a pool are kept to.

    Attributes:
        always: where no class says otherwise.
        classes: while work of this class is on the device, and none that goes before it.
    """

    always: PowerSetting = UNTOUCHED
    classes: Mapping[ShareClass, PowerSetting] = field(default_factory=dict)

    def setting(self, present: Collection[ShareClass]) -> PowerSetting:
        """What a device is kept to while work of these classes is on it: what suits the first of them."""
        first = min(present, key=lambda each: each.rank, default=None)
        return self.always if first is None else self.classes.get(first, self.always)


@dataclass(frozen=True, slots=True)
class PowerLimits:
    """What a device's driver takes as limits; None is unknown.

    Attributes:
        cap_w: what it is kept to now.
        least_w, most_w: what a cap may be.
        most_mhz: what a clock may be at the most.
    """

    cap_w: float | None = None
    least_w: float | None = None
    most_w: float | None = None
    most_mhz: int | None = None
