"""The section ``nodes`` of the configuration: pretended machines that stand in for this one."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from millpond.model.devices import SWAP_SHARE, Device
from millpond.model.nodes import DEFAULT_POOL, Node
from millpond.model.topology import LINK_MAPS
from millpond.specs.errors import BadValueError, suggest
from millpond.specs.job.fields import Cpus, Extras, Memory, Name
from millpond.specs.validation import Strict


def _link_map(value: Any) -> Any:
    if isinstance(value, str) and value not in LINK_MAPS:
        raise BadValueError(f"unknown link map {value!r}", suggest(value, LINK_MAPS))
    return value


class NodeFile(Strict):
    """A pretended machine with ``devices`` pretended cards of one model.

    Attributes:
        name: of the machine.
        devices: cards.
        model: of all of them.
        cpus: CPU cores.
        memory: host memory.
        pool: that it belongs to.
        rack: where it stands; nodes of one rack are near each other.
        zone: where the rack stands.
        link_map: how its cards hang together, by the name of a known machine.
        extras: named extra resources.
        device_memory: of each card; left out: unknown.
        swap_memory: host memory for work that was swapped off the cards; left out: a part of ``memory``.
    """

    name: Name
    devices: Annotated[int, Field(ge=0, le=62)] = 0
    model: Annotated[str, Field(min_length=1, max_length=60)] = "V100"
    device_memory: Memory = 0
    cpus: Cpus = 64_000
    memory: Memory = 512 * 1024
    pool: Name = DEFAULT_POOL
    rack: str = ""
    zone: str = ""
    link_map: Annotated[str, BeforeValidator(_link_map)] = ""
    swap_memory: Memory | None = None
    extras: Extras = Field(default={})

    def node(self) -> Node:
        """The model's form, every device marked as pretended."""
        cards = tuple(
            Device(f"FAKE-{self.name}-{index}", index, "fake", self.model, self.device_memory, fake=True)
            for index in range(self.devices)
        )
        return Node(
            self.name,
            self.cpus,
            self.memory,
            cards,
            pool=self.pool,
            rack_name=self.rack,
            zone_name=self.zone,
            link_map=self.link_map,
            swap_mib=self.memory // SWAP_SHARE if self.swap_memory is None else self.swap_memory,
            extras=tuple(sorted(self.extras.items())),
        )
