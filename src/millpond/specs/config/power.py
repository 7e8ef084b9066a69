"""The part ``power`` of a pool in the configuration; without it nothing about power is ever changed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from millpond.model.power import PowerRule, PowerSetting
from millpond.model.sharing import ShareClass
from millpond.specs.validation import Strict


class PowerSettingFile(Strict):
    """What devices are kept to; what is left out stays as the driver has it.

    Attributes:
        cap_w: the most power of each, in watts.
        clock_mhz: the most that what computes is clocked at.
    """

    cap_w: Annotated[float, Field(ge=1, le=10_000)] | None = None
    clock_mhz: Annotated[int, Field(ge=1, le=10_000)] | None = None

    def setting(self) -> PowerSetting:
        """The model's form."""
        return PowerSetting(self.cap_w, self.clock_mhz)


class PowerFile(PowerSettingFile):
    """What the devices of a pool are kept to.

    Attributes:
        classes: instead, while work of this class is on a device and none that goes before it.
    """

    classes: dict[Literal["online", "normal", "backfill"], PowerSettingFile] = Field(default={})

    def rule(self) -> PowerRule:
        """The model's form."""
        return PowerRule(self.setting(), {ShareClass(name): each.setting() for name, each in self.classes.items()})
