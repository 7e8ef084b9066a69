"""The section ``save_energy`` of a pool: when its nodes are switched off, and what switches them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, model_validator

from millpond.model.hardware.node_power import PowerSavingRule
from millpond.specs.errors import BadValueError
from millpond.specs.job.fields import Duration, Name
from millpond.specs.validation import Strict

_MAC: Final = re.compile(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}")


def _mac(value: Any) -> Any:
    if not isinstance(value, str) or _MAC.fullmatch(value) is None:
        raise BadValueError(f"{value!r} is no MAC address", "write 52:54:00:12:34:56")
    return value


Command = Annotated[str, Field(min_length=1, max_length=4_000)]
MacAddress = Annotated[str, BeforeValidator(_mac)]


@dataclass(frozen=True, slots=True)
class PowerHook:
    """How nodes of a pool are switched in one direction.

    Attributes:
        command: a line of sh, with the node's name as ``NODE``; empty: by Wake-on-LAN.
        mac_addresses: by node.
        broadcast: where Wake-on-LAN packets go.
        within_s: a command that takes longer is ended, and has failed.
    """

    command: str = ""
    mac_addresses: Mapping[str, str] = field(default_factory=dict)
    broadcast: str = "255.255.255.255"
    within_s: float = 120.0


@dataclass(frozen=True, slots=True)
class PowerSaving:
    """How a pool saves energy: its rule, and its hooks."""

    rule: PowerSavingRule
    off: PowerHook
    on: PowerHook


class PowerSavingFile(Strict):
    """When nodes of a pool are switched off, and what switches them.

    Attributes:
        off: a command that switches a node off, a line of sh that gets the node's name as ``NODE``.
        on: the same for switching it on.
        wake_on_lan: instead of ``on``, by node, the MAC address that a Wake-on-LAN packet is sent to.
        broadcast: where these packets go.
        within: a command that takes longer is ended, and has failed.
        idle: a node that was empty for so long is switched off, beyond what was needed at any time in it.
        spare: so many empty nodes stay on.
        cover: this part of the rises of demand within ``boot`` is met by more spare nodes, by a forecast; left out:
            ``spare`` alone. `pond nodes` says how good it is; without one, ``spare`` holds.
        least_on: a node stays on for at least so long.
        least_off: a node stays off for at least so long, unless a job waits for it.
        boot: how long a node usually takes until it joins.
        longest_boot: one that has not joined by then has failed; one that is to go down and is still there by then
            stays on.
    """

    off: Command
    on: Command | None = None
    wake_on_lan: dict[Name, MacAddress] | None = None
    broadcast: Annotated[str, Field(pattern=r"^\d{1,3}(\.\d{1,3}){3}$")] = "255.255.255.255"
    within: Annotated[Duration, Field(ge=1, le=3_600)] = 120.0
    idle: Annotated[Duration, Field(ge=60)] = 1_800.0
    spare: Annotated[int, Field(ge=0, le=100_000)] = 1
    cover: Annotated[float, Field(ge=0.5, le=0.9999)] | None = None
    least_on: Duration = 3_600.0
    least_off: Duration = 900.0
    boot: Annotated[Duration, Field(ge=1)] = 300.0
    longest_boot: Annotated[Duration, Field(ge=1)] = 900.0

    @model_validator(mode="after")
    def _one_way_up(self) -> PowerSavingFile:
        if (self.on is None) == (self.wake_on_lan is None):
            raise BadValueError("neither on nor wake_on_lan, or both", "say in one of them how a node is switched on")
        if self.longest_boot < self.boot:
            raise BadValueError("longest_boot is shorter than boot", "exchange them")
        return self

    def saving(self) -> PowerSaving:
        """The checked form."""
        rule = PowerSavingRule(
            self.idle, self.spare, self.least_on, self.least_off, self.boot, self.longest_boot, self.cover
        )
        on = PowerHook(self.on or "", self.wake_on_lan or {}, self.broadcast, self.within)
        return PowerSaving(rule, PowerHook(self.off, within_s=self.within), on)
