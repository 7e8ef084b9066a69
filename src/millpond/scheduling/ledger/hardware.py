"""What machines there are: one object that the ledger has in common with what hangs on it.

Those parts hold on to this and not to the ledger. So no two objects hold each other, and a fork that nobody uses any
longer is gone at once, without the garbage collector.
"""

from __future__ import annotations

from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.nodes import DEFAULT_POOL, Node, Pool


class Hardware:
    """Nodes, devices and pools by name and by index, and what of them people have closed.

    Attributes:
        nodes: by index; None for a node that is gone. Indices are never reused.
        device_ids, device_node: by index of a device, its UUID and the index of its node.
        closed: names of nodes that people have closed (``scheduling.nodes.cordon``), gone ones included.
        closed_cards: UUIDs of single cards that are closed (``scheduling.nodes.card_cordons``), gone ones included.
    """

    def __init__(self) -> None:
        self.nodes: list[Node | None] = []
        self.pools: dict[str, Pool] = {DEFAULT_POOL: Pool()}
        self.node_index: dict[str, int] = {}
        self.device_index: dict[str, int] = {}
        self.device_ids: list[str] = []
        self.device_node: list[int] = []
        self.closed: set[str] = set()
        self.closed_cards: set[str] = set()
        self.version = 0
        """Rises with every change of what is there and may be handed out: what was read of it is then read anew."""

    def copy_from(self, other: Hardware) -> None:
        """Become like another, before anything is entered; the tables stay the same objects."""
        self.nodes += other.nodes
        self.pools.update(other.pools)
        self.node_index.update(other.node_index)
        self.device_index.update(other.device_index)
        self.device_ids += other.device_ids
        self.device_node += other.device_node
        self.closed |= other.closed
        self.closed_cards |= other.closed_cards
        self.version = other.version

    def is_usable(self, device: Device) -> bool:
        """Whether a device may be handed out, its node aside: it is well, and its card is open."""
        return device.health is DeviceHealth.OK and device.card not in self.closed_cards

    def memory_factor_of(self, device: int) -> int:
        """The factor of the pool of a device in milli; 0: no bound."""
        node = self.nodes[self.device_node[device]]
        return 0 if node is None else self.pools[node.pool].memory_factor_milli
