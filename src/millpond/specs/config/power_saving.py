"""The section ``save_energy`` of a pool: when its nodes are switched off, and what switches them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, model_validator

from millpond.model.hardware.node_power import PowerSavingRule
from millpond.specs.errors import BadValueError, as_written
from millpond.specs.job.fields import Duration, Name
from millpond.specs.job.mounts import HostPath
from millpond.specs.validation import Strict

_SWITCH_ON: Final = "On"
_SHUT_DOWN: Final = "GracefulShutdown"
_LEADS_TO: Final = {_SWITCH_ON: ("On", "PoweringOn"), _SHUT_DOWN: ("Off", "PoweringOff")}
_NODE: Final = "$NODE"
_MAC: Final = re.compile(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}")


def _mac(value: Any) -> Any:
    if not isinstance(value, str) or _MAC.fullmatch(value) is None:
        raise BadValueError(f"{as_written(value)} is no MAC address", "write 52:54:00:12:34:56")
    return value


def _ipv4(value: Any) -> Any:
    try:
        return str(IPv4Address(value if isinstance(value, str) else ""))
    except ValueError:
        raise BadValueError(f"{as_written(value)} is no IPv4 address", "write 10.0.0.255") from None


def _system(value: Any) -> Any:
    parts = urlsplit(value) if isinstance(value, str) and value.isprintable() and " " not in value else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.netloc or _NODE not in value:
        example = "https://$NODE-bmc.example.org/redfish/v1/Systems/1"
        raise BadValueError(f"{as_written(value)} is no address of a machine of each node", f"write {example}")
    if "@" in parts.netloc:
        raise BadValueError("an address with a user", "name the user in `user`, and the password in `password_file`")
    return value


Command = Annotated[str, Field(min_length=1, max_length=4_000)]
MacAddress = Annotated[str, BeforeValidator(_mac)]
SystemAddress = Annotated[str, BeforeValidator(_system), Field(max_length=2_000)]


@dataclass(frozen=True, slots=True)
class RedfishReset:
    """What the management controllers of machines are asked for.

    Attributes:
        system: the address of a node's machine, with ``$NODE`` for the node's name.
        kind: of the reset, as Redfish calls it.
        password_file: read anew each time.
        verify: the certificates of controllers have to be trusted here.
    """

    system: str
    kind: str
    user: str
    password_file: str
    verify: bool = True

    def system_of(self, node: str) -> str:
        """The address of a node's machine."""
        return self.system.replace(_NODE, node).rstrip("/")

    @property
    def leads_to(self) -> tuple[str, ...]:
        """The states of a machine that has been reset so, as Redfish calls them."""
        return _LEADS_TO[self.kind]


@dataclass(frozen=True, slots=True)
class PowerHook:
    """How nodes of a pool are switched in one direction.

    Attributes:
        command: a line of sh, with the node's name as ``NODE``; empty: by Redfish, else by Wake-on-LAN.
        mac_addresses: by node.
        broadcast: where Wake-on-LAN packets go.
        within_s: a command that takes longer is ended, and has failed.
    """

    command: str = ""
    mac_addresses: Mapping[str, str] = field(default_factory=dict)
    broadcast: str = "255.255.255.255"
    within_s: float = 120.0
    redfish: RedfishReset | None = None

    def reaches(self, node: str) -> bool:
        """Whether it can switch a node: Wake-on-LAN only those whose address is known."""
        return bool(self.command or self.redfish or node in self.mac_addresses)


@dataclass(frozen=True, slots=True)
class PowerSaving:
    """How a pool saves energy: its rule, and its hooks."""

    rule: PowerSavingRule
    off: PowerHook
    on: PowerHook


class RedfishFile(Strict):
    """The management controllers of nodes, where they speak Redfish.

    Attributes:
        system: the address of a node's machine, with ``$NODE`` in place of the node's name.
        user: by whom it is switched.
        password_file: holds the user's password, the same on all controllers.
        verify: the server has to trust the controllers' certificates; many have signed theirs themselves.
    """

    system: SystemAddress
    user: Annotated[str, Field(min_length=1, max_length=256)]
    password_file: HostPath
    verify: bool = True

    def reset(self, kind: str) -> RedfishReset:
        """The checked form, for one direction."""
        return RedfishReset(self.system, kind, self.user, self.password_file, self.verify)


class PowerSavingFile(Strict):
    """When nodes of a pool are switched off, and what switches them.

    Attributes:
        off: a command that switches a node off, a line of sh that gets the node's name as ``NODE``; with ``redfish``
            it can be left out, and a node is told to shut down.
        on: the same for switching it on.
        redfish: instead of ``on``, the management controllers of the nodes.
        wake_on_lan: instead of ``on``, by node, the MAC address that a Wake-on-LAN packet is sent to; others are not
            switched off.
        broadcast: where these packets go.
        within: a command that takes longer is ended, and has failed; a request to a controller, 20 s at the most.
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

    off: Command | None = None
    on: Command | None = None
    redfish: RedfishFile | None = None
    wake_on_lan: Annotated[dict[Name, MacAddress], Field(min_length=1)] | None = None
    broadcast: Annotated[str, BeforeValidator(_ipv4)] = "255.255.255.255"
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
        if sum(way is not None for way in (self.on, self.redfish, self.wake_on_lan)) != 1:
            cause = "none of on, redfish and wake_on_lan, or several"
            raise BadValueError(cause, "say in one of them how a node is switched on")
        if self.off is None and self.redfish is None:
            raise BadValueError("no off", "say how a node is switched off")
        if self.longest_boot < self.boot:
            raise BadValueError("longest_boot is shorter than boot", "exchange them")
        return self

    def saving(self) -> PowerSaving:
        """The checked form."""
        rule = PowerSavingRule(
            self.idle, self.spare, self.least_on, self.least_off, self.boot, self.longest_boot, self.cover
        )
        up, down = (None if self.redfish is None else self.redfish.reset(kind) for kind in (_SWITCH_ON, _SHUT_DOWN))
        on = PowerHook(self.on or "", self.wake_on_lan or {}, self.broadcast, self.within, up)
        return PowerSaving(rule, PowerHook(self.off or "", within_s=self.within, redfish=down), on)
