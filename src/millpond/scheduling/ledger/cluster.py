"""The cluster's ledger: who holds how much of which node and device.

A struct of arrays (``placement.arrays``) with names on top. It changes by holdings alone - taken, suspended, resumed,
given back - recorded in the journal, and every change is logged for the caches that read it.

What a task holds follows its state (``HoldState``): running work holds everything; frozen work keeps its device memory
and its host memory but no compute and no CPU; swapped work keeps host memory only, and its device memory moves to the
node's swap space.
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.model.errors import InconsistentStateError
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node, Pool, SharingPolicy
from millpond.model.hardware.topology import LINK_MAPS
from millpond.model.resources import CARD_MILLI
from millpond.scheduling.feasibility.name_index import EXTRA_LIMIT, NameIndex
from millpond.scheduling.ledger.capacity import Capacity
from millpond.scheduling.ledger.card_loads import CardLoads
from millpond.scheduling.ledger.content_index import ContentIndex
from millpond.scheduling.ledger.hardware import Hardware
from millpond.scheduling.ledger.hardware_index import HardwareIndex
from millpond.scheduling.ledger.holdings import FROZEN, NOTHING, RUNNING, SWAPPED, Holding, HoldState
from millpond.scheduling.ledger.journal import Journal
from millpond.scheduling.ledger.shared_cards import SharedCards
from millpond.scheduling.placement.arrays import ClusterArrays
from millpond.scheduling.placement.filters import device_fits
from millpond.scheduling.placement.links import LinkTables
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.suspension.swapped_memory import SwappedOff
from millpond.scheduling.tenancy.cells.book import CellBook


class Cluster:
    """Nodes, devices, pools and what is held of them."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.arrays = ClusterArrays(extras=EXTRA_LIMIT)
        self.links = LinkTables()
        self.hardware = hardware = Hardware()
        self.nodes, self.pools, self.node_index = hardware.nodes, hardware.pools, hardware.node_index
        self.device_index, self.device_ids = hardware.device_index, hardware.device_ids
        self.lends_by_hours = self.consolidates = self.balances = self.packs = False
        """Whether any pool has hours of lending, or moves work together, off busy cards, or onto shared ones."""
        self.free_gpu_milli = 0
        """Free guaranteed compute of all devices that may be handed out now: a quick first look."""
        self.closed, self.closed_cards = hardware.closed, hardware.closed_cards
        """Changed by ``set_closed`` and ``set_card_closed``."""
        self.swapped = SwappedOff(self.arrays, hardware)
        self.loads = CardLoads(self.arrays, hardware)
        self.contents = ContentIndex(hardware)
        self._shared_cards = SharedCards()
        self._free_milli_of: dict[str, int] = {}
        """``free_gpu_milli`` by pool."""
        self.releases = 0
        """Rises whenever room appears: what did not fit need not be tried again before it does."""
        self.words = NameIndex()
        self.capacity = Capacity(self.arrays, hardware)
        self.hardware_index = HardwareIndex(hardware)
        self.cells = CellBook(journal, hardware)

    def copy_from(self, other: Cluster) -> None:
        """Become like another ledger, as a fork of the scheduler does; its holdings are copied with the tasks."""
        self.arrays.copy_from(other.arrays)
        self.links.copy_from(other.links)
        self.swapped.copy_from(other.swapped)
        self.loads.copy_from(other.loads)
        self.contents.copy_from(other.contents)
        self._shared_cards.copy_from(other._shared_cards)
        self.words.copy_from(other.words)
        self.hardware.copy_from(other.hardware)
        self.lends_by_hours, self.consolidates = other.lends_by_hours, other.consolidates
        self.balances, self.packs = other.balances, other.packs
        self.free_gpu_milli = other.free_gpu_milli
        self._free_milli_of = dict(other._free_milli_of)
        self.capacity.copy_from(other.capacity)
        self.releases = other.releases
        self.cells.copy_from(other.cells)

    def idle_milli(self) -> dict[str, int]:
        """By pool: free compute of the devices that may be handed out now."""
        return dict(self._free_milli_of)

    def node_name(self, index: int) -> str:
        """Name of the node at ``index``; empty when it is gone."""
        node = self.nodes[index]
        return "" if node is None else node.name

    # ---- nodes come, change and go -------------------------------------------------------------------------------

    def set_pool(self, pool: Pool) -> None:
        """Define or redefine a pool; the room for compute limits on its devices, and for CPUs, follows."""
        self.journal.require_no_trial()
        before = self.pools.get(pool.name, Pool(pool.name))
        self.pools[pool.name] = pool
        pools = self.pools.values()
        self.lends_by_hours = any(each.lending for each in pools)
        self.consolidates = any(each.consolidates for each in pools)
        self.balances, self.packs = any(each.balances for each in pools), any(each.packs for each in pools)
        self.words.give_whole_cards(pool.name, alone=pool.sharing is SharingPolicy.EXCLUSIVE)
        number = self.words.pools.number(pool.name)
        difference = pool.limit_capacity_milli - before.limit_capacity_milli
        for index, node in enumerate(self.nodes):
            if node is not None and self.arrays.pool[index] == number:
                self.arrays.cpu_free_milli[index] += pool.cpu_capacity_milli(node) - before.cpu_capacity_milli(node)
                first = int(self.arrays.first_device[index])
                self.arrays.limit_free_milli[first : first + len(node.devices)] += difference
                self.swapped.settle(range(first, first + len(node.devices)))
                self._changed(index)

    def add_node(self, node: Node) -> int:
        """Enter a node that is not there; return its index."""
        self.journal.require_no_trial()
        self.words.enter_extras(name for name, _ in node.extras)
        amounts = dict(node.extras)
        pool = self.pools.get(node.pool) or self.pools.setdefault(node.pool, Pool(node.pool))
        index = self.arrays.append_node(
            cpu_milli=pool.cpu_capacity_milli(node),
            memory_mib=node.memory_mib,
            models=[self.words.model(device.model) for device in node.devices],
            device_memory_mib=[device.memory_mib for device in node.devices],
            limit_milli=pool.limit_capacity_milli,
            sockets=[device.socket for device in node.devices],
            switches=[device.switch for device in node.devices],
            rack=self.words.racks.number(f"{node.zone_name}/{node.rack_name}"),
            zone=self.words.zones.number(node.zone_name),
            pool=self.words.pools.number(node.pool),
            swap_mib=node.swap_mib,
            extras=[amounts.get(name, 0) for name in self.words.extras.names],
        )
        first = int(self.arrays.first_device[index])
        self.nodes.append(node)
        self.node_index[node.name] = index
        for offset, device in enumerate(node.devices):
            self.device_index[device.uuid] = first + offset
            self.device_ids.append(device.uuid)
            self.hardware.device_node.append(index)
        self._free(node.pool, CARD_MILLI * len(node.devices))
        self._set_links(index, node)
        self._set_usable(index, node)
        self.cells.changed()
        return index

    def update_node(self, node: Node) -> None:
        """Take over a changed description of a node with the same devices."""
        self.journal.require_no_trial()
        index = self.node_index[node.name]
        old = self.nodes[index]
        if old is None or [d.uuid for d in old.devices] != [d.uuid for d in node.devices]:
            raise InconsistentStateError(f"node {node.name!r} was updated with other devices")
        arrays = self.arrays
        self.words.enter_extras(name for name, _ in node.extras)
        pool = self.pools.setdefault(node.pool, Pool(node.pool))
        old_pool = self.pools[old.pool]
        arrays.cpu_free_milli[index] += pool.cpu_capacity_milli(node) - old_pool.cpu_capacity_milli(old)
        arrays.memory_free_mib[index] += node.memory_mib - old.memory_mib
        arrays.swap_free_mib[index] += node.swap_mib - old.swap_mib
        before, after = dict(old.extras), dict(node.extras)
        for column, name in enumerate(self.words.extras.names):
            arrays.extra_free[index, column] += after.get(name, 0) - before.get(name, 0)
        arrays.rack[index] = self.words.racks.number(f"{node.zone_name}/{node.rack_name}")
        arrays.zone[index] = self.words.zones.number(node.zone_name)
        self._set_links(index, node)
        if node.pool != old.pool:
            first = int(arrays.first_device[index])
            arrays.limit_free_milli[first : first + len(node.devices)] += (
                pool.limit_capacity_milli - old_pool.limit_capacity_milli
            )
            arrays.pool[index] = self.words.pools.number(node.pool)
            free_milli = self._free_milli_on(index)
            self._free(old.pool, -free_milli)
            self._free(node.pool, free_milli)
        self.nodes[index] = node
        first = int(arrays.first_device[index])
        self.swapped.settle(range(first, first + len(node.devices)))
        self._set_usable(index, node)
        if _built(old) != _built(node):
            self.cells.changed()

    def remove_node(self, name: str) -> None:
        """A node is gone. Its row stays, unusable, until the last holding on it is released."""
        self.journal.require_no_trial()
        index = self.node_index.pop(name)
        node = self.nodes[index]
        self.nodes[index] = None
        if node is not None:
            first = int(self.arrays.first_device[index])
            self._free(node.pool, -self._free_milli_on(index))
            self.arrays.device_usable[first : first + len(node.devices)] = 0
            for device in node.devices:
                del self.device_index[device.uuid]
        self.arrays.node_usable[index] = 0
        self._changed(index)
        self.cells.changed()

    def is_of_pool(self, index: int, pool: str) -> bool:
        """Whether the node at ``index`` is there and belongs to the pool."""
        node = self.nodes[index]
        return node is not None and node.pool == pool

    def node_named(self, name: str) -> Node | None:
        """The node's description; None when there is none of that name."""
        index = self.node_index.get(name)
        return None if index is None else self.nodes[index]

    def card_fits(self, device: int, shape: Shape) -> bool:
        """Whether a device can hold one device's part of a shape now, its node aside."""
        return device_fits(self.arrays.device_table, device, shape.vector(self.arrays.extras))

    def rebase(self, holding: Holding, node: int, devices: Sequence[int]) -> None:
        """The same devices, and so the holding, are now known under other indices (the node came back changed)."""
        self.journal.require_no_trial()
        hold = holding.hold
        self.change(holding, NOTHING)
        holding.node, holding.devices = node, tuple(devices)
        self.change(holding, hold)

    def set_closed(self, name: str, closed: bool) -> None:
        """Let nothing new start on a node, or again; a trial undoes it."""
        self.journal.record(self._undo_closed, name, name in self.closed, self.releases)
        self._put_closed(name, closed)

    def set_card_closed(self, node: str, card: str, closed: bool) -> None:
        """Let nothing new start on a card, or again; a trial undoes it."""
        self.journal.record(self._undo_card_closed, node, card, card in self.closed_cards, self.releases)
        self._put_card_closed(node, card, closed)

    def _undo_card_closed(self, node: str, card: str, closed: bool, releases: int) -> None:
        self._put_card_closed(node, card, closed)
        self.releases = releases

    def _put_card_closed(self, name: str, card: str, closed: bool) -> None:
        if closed:
            self.closed_cards.add(card)
        else:
            self.closed_cards.discard(card)
        self._look_at_closures(name)

    def _undo_closed(self, name: str, closed: bool, releases: int) -> None:
        self._put_closed(name, closed)
        self.releases = releases

    def _put_closed(self, name: str, closed: bool) -> None:
        if closed:
            self.closed.add(name)
        else:
            self.closed.discard(name)
        self._look_at_closures(name)

    def _look_at_closures(self, name: str) -> None:
        index = self.node_index.get(name)
        node = None if index is None else self.nodes[index]
        if index is not None and node is not None:
            self._set_usable(index, node)

    def _set_links(self, index: int, node: Node) -> None:
        if node.link_map:
            self.arrays.link_type[index] = self.links.register(LINK_MAPS[node.link_map])
        elif node.devices:
            self.links.adopt(self.arrays, index)

    def _set_usable(self, index: int, node: Node) -> None:
        first, free_before = int(self.arrays.first_device[index]), self._free_milli_on(index)
        self.arrays.node_usable[index] = 1 if node.schedulable and node.name not in self.closed else 0
        for offset, device in enumerate(node.devices):
            self.arrays.device_usable[first + offset] = 1 if self.hardware.is_usable(device) else 0
        self._free(node.pool, self._free_milli_on(index) - free_before)
        self.cells.node_changed(node)
        self._changed(index)

    def _changed(self, index: int) -> None:
        self.hardware.version += 1
        self.arrays.touch(index)
        self.releases += 1

    def model_of(self, device: int) -> str:
        """The name of the model of a device by index, also after its node has gone."""
        return self.words.models.names[int(self.arrays.device_model[device])]

    def node_of(self, device: int) -> int:
        """The node of a device, both by index."""
        return self.hardware.device_node[device]

    def device(self, index: int) -> tuple[Node, Device] | None:
        """Node and description of the device at ``index``; None when its node is gone."""
        number = self.hardware.device_node[index]
        node = self.nodes[number]
        return None if node is None else (node, node.devices[index - int(self.arrays.first_device[number])])

    # ---- holdings ------------------------------------------------------------------------------------------------

    def holding(self, node: int, shape: Shape, devices: Sequence[int]) -> Holding:
        """A holding of ``shape`` on ``node`` and ``devices``, not yet taken."""
        capacity = self.arrays.device_memory_cells
        memory_mib = [capacity[device] for device in devices]
        if not shape.whole_cards:
            memory_mib = [shape.memory_on(mib) for mib in memory_mib]
        made, there = Holding(node, shape, tuple(devices), tuple(memory_mib)), self.nodes[node]
        made.keeps_cpu = there is not None and there.keeps_cpu
        return made

    def change(self, holding: Holding, hold: HoldState) -> None:
        """Take, suspend, resume or give back (``HoldState.NOTHING``) a holding; a trial undoes it."""
        self.journal.record(self._undo, holding, holding.hold, self.releases)
        self._move(holding, hold)

    def share(self, holding: Holding) -> None:
        """From now on others that share may have the cards of a holding too; whoever has them last gives them back.

        Nothing is taken or given back by that. It is for whole cards.
        """
        self.journal.require_no_trial()
        hold = holding.hold
        if not holding.is_shared:
            self.change(holding, NOTHING)
            holding.is_shared = True
            self.change(holding, hold)

    def _undo(self, holding: Holding, hold: HoldState, releases: int) -> None:
        self._move(holding, hold)
        self.releases = releases  # what was tried and undone has freed nothing

    def _move(self, holding: Holding, hold: HoldState) -> None:
        before = holding.hold
        if before is hold:
            return
        if before is not NOTHING:
            self._count(holding, before, 1)
        if hold is not NOTHING:
            self._count(holding, hold, -1)
        holding.hold = hold
        if self.cells.allocator is not None:
            self.cells.moved(holding, before, hold)
        self.arrays.touch(holding.node)
        if hold is not RUNNING:
            self.releases += 1

    def _count(self, holding: Holding, hold: HoldState, sign: int) -> None:
        """Add ``sign`` times what ``holding`` takes in state ``hold`` to what is free."""
        arrays, node, shape = self.arrays, holding.node, holding.shape
        if shape.memory_mib:
            arrays.memory_free_cells[node] += sign * shape.memory_mib
        if shape.cpu_milli and (hold is RUNNING or holding.keeps_cpu):
            arrays.cpu_free_cells[node] += sign * shape.cpu_milli
        if hold is SWAPPED:
            memory_mib = holding.memory_mib
            arrays.swap_free_cells[node] += sign * sum(memory_mib)
            for position, device in enumerate(holding.devices):
                self.swapped.add(device, -sign * memory_mib[position])
            return
        devices = holding.devices
        if self._shared_cards.moves_memory(holding, sign) and holding.takes_memory:
            memory_free, memory_mib = arrays.device_memory_free_cells, holding.memory_mib
            for position, device in enumerate(devices):
                memory_free[device] += sign * memory_mib[position]
        if hold is FROZEN:
            self.swapped.settle(devices)
            return
        if shape.extras:
            for column, amount in enumerate(shape.extras):
                arrays.extra_free[node, column] += sign * amount
        if not self._shared_cards.moves_compute(holding, sign):
            return
        compute, limit = sign * shape.compute_milli, sign * shape.limit_milli
        compute_free, limit_free, usable = (
            arrays.compute_free_cells,
            arrays.limit_free_cells,
            arrays.device_usable_cells,
        )
        open_devices = 0
        for device in devices:
            compute_free[device] += compute
            limit_free[device] += limit
            open_devices += usable[device]
        there = self.nodes[node]
        if there is not None and arrays.node_usable_cells[node]:
            self._free(there.pool, compute * open_devices)
        if self.swapped.mib:
            self.swapped.settle(devices)

    def _free(self, pool: str, milli: int) -> None:
        """So much compute that may be handed out is free, or with an amount below 0 no longer."""
        self.free_gpu_milli += milli
        self._free_milli_of[pool] = self._free_milli_of.get(pool, 0) + milli

    def _free_milli_on(self, index: int) -> int:
        """Free compute of the devices of one node that may be handed out now."""
        arrays, first = self.arrays, int(self.arrays.first_device[index])
        own = slice(first, first + int(arrays.device_total[index]))
        free_milli = arrays.compute_free_milli[own] * arrays.device_usable[own]
        return int(arrays.node_usable[index] * free_milli.sum())

    def lacks_compute(self, holding: Holding) -> bool:
        """Whether a device of a holding that is not taken has too little compute free: a quick first look."""
        free, compute = self.arrays.compute_free_cells, holding.shape.compute_milli
        return any(free[device] < compute for device in holding.devices)

    def is_overdrawn(self, holding: Holding) -> bool:
        """Whether anything this holding draws on has fallen below zero, or may not be used now (node, device)."""
        arrays, node = self.arrays, holding.node
        if arrays.node_usable_cells[node] == 0 or arrays.cpu_free_cells[node] < 0 or arrays.memory_free_cells[node] < 0:
            return True
        if arrays.swap_free_cells[node] < 0 or (holding.shape.extras and bool((arrays.extra_free[node] < 0).any())):
            return True
        usable = arrays.device_usable_cells
        return not all(usable[device] and self.has_room_left(device) for device in holding.devices)

    def has_room_left(self, device: int) -> bool:
        """Whether no more is taken of a card than it has."""
        arrays = self.arrays
        return (
            arrays.compute_free_cells[device] >= 0
            and arrays.limit_free_cells[device] >= 0
            and arrays.device_memory_free_cells[device] >= 0
        )

    def has_room_beside_cards(self, node: int, shape: Shape) -> bool:
        """Whether work may start on a node that has all that a task asks for but the cards."""
        arrays = self.arrays
        if arrays.node_usable_cells[node] == 0 or arrays.cpu_free_cells[node] < shape.cpu_milli:
            return False
        missing = (amount > arrays.extra_free[node, column] for column, amount in enumerate(shape.extras))
        return arrays.memory_free_cells[node] >= shape.memory_mib and not any(missing)

    def are_usable(self, devices: Sequence[int]) -> bool:
        """Whether these devices may all be handed out now."""
        return all(self.arrays.device_usable_cells[device] for device in devices)

    def has_device_memory(self, holding: Holding) -> bool:
        """Whether as much device memory as a holding takes is free on its devices, or kept free for others."""
        free, kept, memory_mib = self.arrays.device_memory_free_cells, self.swapped.kept_mib, holding.memory_mib
        for position, device in enumerate(holding.devices):
            if free[device] + kept.get(device, 0) < memory_mib[position]:
                return False
        return True

    def has_swap_space(self, holdings: Sequence[Holding]) -> bool:
        """Whether the host memory set aside on their nodes takes the device memory of all these holdings."""
        needed: dict[int, int] = {}
        for holding in holdings:
            needed[holding.node] = needed.get(holding.node, 0) + sum(holding.memory_mib)
        free = self.arrays.swap_free_cells
        return all(free[node] >= mib for node, mib in needed.items())

    def held_on(self, node: int) -> int:
        """Guaranteed compute that is held on the node."""
        first, total = int(self.arrays.first_device[node]), int(self.arrays.device_total[node])
        return CARD_MILLI * total - int(self.arrays.compute_free_milli[first : first + total].sum())


def _built(node: Node) -> object:
    """What the cells of a machine follow from."""
    places = [(device.model, device.socket, device.switch) for device in node.devices]
    return node.pool, node.zone_name, node.rack_name, places
