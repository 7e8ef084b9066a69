"""The cells of the live cluster: which holdings are in cells that their queue is owed, which are visitors there.

The ledger tells it of every holding that is taken or given back, so trials, rollbacks and forks keep it true. By which
right one is on its cards is on the holding (``Holding.stake``); it is found anew when its job starts, when a plan gives
it a place, and, for all running work, when machines or guarantees have changed. One that has lost its right is a
visitor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from millpond.model.cells import CellCount
from millpond.model.devices import DeviceHealth
from millpond.model.errors import InvalidInputError
from millpond.model.nodes import Node
from millpond.model.tenants import Queue
from millpond.scheduling.ledger.holdings import FROZEN, RUNNING, Holding, HoldState
from millpond.scheduling.tenancy.cells.allocator import CellAllocator, CellRequest
from millpond.scheduling.tenancy.cells.chains import lower_first
from millpond.scheduling.tenancy.cells.domains import CellUse, Domain
from millpond.scheduling.tenancy.cells.hardware import Assignment, kinds_of

if TYPE_CHECKING:
    from millpond.scheduling.ledger.cluster import Cluster
    from millpond.scheduling.records import JobRecord, TaskRecord
    from millpond.scheduling.tenancy.queues import QueueTree


@dataclass(frozen=True, slots=True)
class Stake:
    """How a holding stands to cells.

    Attributes:
        use: by which right it is on its cards, if that still holds; None for a visitor.
        stays: it cannot be asked to leave, and so is no visitor, whatever its right.
    """

    owner: str
    use: CellUse | None
    stays: bool


class CellBook:
    """The cells of one ledger.

    Attributes:
        allocator: None while no queue is owed any.
        missing: by queue, the cells that there is no hardware for.
        stale: machines or guarantees have changed since it was made.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.allocator: CellAllocator | None = None
        self.missing: dict[str, list[CellCount]] = {}
        self.stale = False
        self._where: dict[int, tuple[str, int]] = {}
        self._lost: set[int] = set()
        self._clusters: dict[str, tuple[str, ...]] = {}
        self._node_numbers: dict[str, list[int]] = {}

    def copy_from(self, other: CellBook) -> None:
        """Become like another book, whose holdings are copied with the tasks."""
        self.allocator = None if other.allocator is None else other.allocator.copy()
        self.missing, self.stale = other.missing, other.stale
        self._where, self._lost = other._where, set(other._lost)
        self._clusters, self._node_numbers = other._clusters, other._node_numbers

    # ---- what is owed -------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Machines or guarantees are others now."""
        self.stale = True

    def require_room(self, queues: QueueTree, queue: Queue) -> None:
        """Refuse a queue whose cells, beside those of all others, are more than the machines that are there have.

        Before any has joined, and for cells that it has already, nothing is refused.

        Raises:
            InvalidInputError: what is too much at which level.
        """
        tree = {node.queue.name: node.queue for node in queues.by_name.values()}
        old = tree.get(queue.name)
        nodes = [node for node in self._cluster.nodes if node is not None and node.devices]
        before = (old.cells, old.pinned) if old is not None else ((), ())
        if not nodes or (queue.cells, queue.pinned) == before:
            return

        def missing() -> dict[str, list[CellCount]]:
            cells = [CellCount("node", 1), *(cell for each in tree.values() for cell in each.cells)]
            return Assignment(kinds_of(nodes, cells), list(tree.values())).missing

        lacked = missing()
        tree[queue.name] = queue
        for name, cells in missing().items():
            for cell in cells:
                known = sum(each.count for each in lacked.get(name, ()) if each.level == cell.level)
                if cell.count > known:
                    raise InvalidInputError(
                        f"with these cells of queue {queue.name!r}, {cell.count} x {cell.level} of queue {name!r} "
                        "have no place beside all other cells",
                        "ask for fewer or smaller cells, or add machines",
                    )

    def renew(self, queues: QueueTree, running: Iterable[JobRecord], *, finds_rights: bool = True) -> None:
        """Follow what has changed. Holdings keep their rights as far as these still hold.

        Args:
            running: all jobs that hold something.
            finds_rights: whether visitors get rights that are there for them now.
        """
        self.stale = False
        tree = [node.queue for node in queues.by_name.values()]
        cells = [cell for queue in tree for cell in queue.cells]
        had_any, self.allocator, self.missing = self.allocator is not None, None, {}
        if not cells and not any(queue.pinned for queue in tree):
            for record in running if had_any else ():
                for holding in _holdings(record):
                    holding.is_in_cell = False
            return
        nodes = [node for node in self._cluster.nodes if node is not None]
        kinds = kinds_of(nodes, [*cells, CellCount("node", 1)])
        assignment = Assignment(kinds, tree)
        self.allocator = CellAllocator((kind.spec for kind in kinds.values()), assignment.clusters)
        self.missing = assignment.missing
        index = self._cluster.device_index
        self._where = {index[card]: where for card, where in self.allocator.where.items()}
        self._node_numbers = {
            name: [self._cluster.node_index[node] for node, _ in kind.spec.nodes] for name, kind in kinds.items()
        }
        self._lost.clear()
        for node in nodes:
            self.node_changed(node)
        owners = {cluster.name for cluster in assignment.clusters}
        self._clusters = {
            name: tuple(each.queue.name for each in node.path if each.queue.name in owners)
            for name, node in queues.by_name.items()
        }
        self._enter_all(list(running), finds_rights=finds_rights)

    def _enter_all(self, running: list[JobRecord], *, finds_rights: bool) -> None:
        held = [(record, holding, holding.is_in_cell) for record in running for holding in _holdings(record)]
        for record, holding, was_in_cell in sorted(held, key=lambda each: not each[2]):
            holding.is_in_cell = False
            if holding.stake is None:
                holding.stake = stake_of(record, None)
            self._enter(holding, by_right=was_in_cell)
        if finds_rights:
            for record, holding, _ in held:
                if not holding.is_in_cell:
                    self._leave(holding)
                    holding.stake = self._stake(record, holding)
                    self._enter(holding)

    def node_changed(self, node: Node) -> None:
        """A machine may be used, or some of its cards, or may no longer be."""
        if self.allocator is None:
            return
        usable = node.schedulable and node.name not in self._cluster.closed
        for device in node.devices:
            index = self._cluster.device_index.get(device.uuid, -1)
            if index not in self._where:
                continue
            chain, leaf = self._where[index]
            if usable and device.health is DeviceHealth.OK:
                if index in self._lost:
                    self._lost.discard(index)
                    self.allocator.chains[chain].regain(leaf)
            elif index not in self._lost:
                self._lost.add(index)
                self.allocator.chains[chain].lose(leaf)

    # ---- holdings -----------------------------------------------------------------------------------------------

    def moved(self, holding: Holding, before: HoldState, after: HoldState) -> None:
        """The ledger counts a holding otherwise."""
        if self.allocator is None or self.stale:
            return
        was, is_on = before in _ON_CARDS, after in _ON_CARDS
        if was and not is_on:
            self._leave(holding)
        elif is_on and not was:
            self._enter(holding)

    def enlist(self, record: JobRecord, holding: Holding) -> None:
        """Find by what right a holding of a job is on its cards; a trial undoes it."""
        if self.allocator is None or self.stale:
            return
        is_on = holding.hold in _ON_CARDS
        if is_on:
            self._leave(holding)
        found = self._stake(record, holding)
        if is_on:
            self._enter(holding)
        if found != holding.stake:
            self._cluster.journal.record(self._put, holding, holding.stake)
            self._put(holding, found)

    def enlist_new(self, record: JobRecord, holding: Holding) -> None:
        """The same for a holding that is not taken yet, and so needs no undoing."""
        holding.stake = self._stake(record, holding)

    def _put(self, holding: Holding, stake: Stake | None) -> None:
        is_on = holding.hold in _ON_CARDS
        if is_on:
            self._leave(holding)
        holding.stake = stake
        if is_on:
            self._enter(holding)

    def _enter(self, holding: Holding, *, by_right: bool = True) -> None:
        stake = holding.stake
        use = stake.use if stake is not None and by_right else None
        for chain, leaves in self.cards_of(holding).items():
            if use is not None and self._allocator.hold(chain, leaves, use):
                holding.is_in_cell = True
            elif stake is not None and stake.stays:
                for leaf in leaves:
                    self._allocator.chains[chain].lose(leaf)
            else:
                self._allocator.chains[chain].visit(leaves, 1)

    def _leave(self, holding: Holding) -> None:
        stake = holding.stake
        for chain, leaves in self.cards_of(holding).items():
            if holding.is_in_cell and stake is not None:
                self._allocator.release(chain, leaves, stake.owner)
            elif stake is not None and stake.stays:
                for leaf in leaves:
                    self._allocator.chains[chain].regain(leaf)
            else:
                self._allocator.chains[chain].visit(leaves, -1)
        holding.is_in_cell = False

    def reserve(self, holding: Holding, sign: int) -> None:
        """Count the cells of a place that is claimed as used (``sign`` -1: no longer); a trial undoes it."""
        stake = holding.stake
        if self.allocator is None or self.stale or stake is None or stake.use is None:
            return
        self._cluster.journal.record(self._reserve, holding, -sign)
        self._reserve(holding, sign)

    def _reserve(self, holding: Holding, sign: int) -> None:
        stake = holding.stake
        assert stake is not None
        assert stake.use is not None
        use = replace(stake.use, owner=f"{stake.owner} claims")
        for chain, leaves in self.cards_of(holding).items():
            if sign > 0:
                self._allocator.hold(chain, leaves, use)
            else:
                self._allocator.release(chain, leaves, use.owner)

    def cards_of(self, holding: Holding) -> dict[str, list[int]]:
        """The cards of a holding that are in chains."""
        cards: dict[str, list[int]] = {}
        for device in holding.devices:
            if device in self._where:
                chain, leaf = self._where[device]
                cards.setdefault(chain, []).append(leaf)
        return {chain: sorted(leaves) for chain, leaves in cards.items()}

    @property
    def _allocator(self) -> CellAllocator:
        assert self.allocator is not None
        return self.allocator

    # ---- rights -------------------------------------------------------------------------------------------------

    def clusters_of(self, queue: str) -> tuple[str, ...]:
        """Whose cells jobs of a queue may use: its own, then those of the queues above."""
        return self._clusters.get(queue, ()) if self.allocator is not None and not self.stale else ()

    def lacking(self, queue: str) -> list[CellCount]:
        """Cells that a queue is owed, and is not using, for which there is no hardware now."""
        lacking: dict[str, int] = {}
        for cell in self.missing.get(queue, ()):
            lacking[cell.level] = lacking.get(cell.level, 0) + cell.count
        for domain in () if self.allocator is None else self.allocator.domains_of(queue, ""):
            for level in lower_first(domain.unbound):
                name, doomed = domain.chain.spec.levels[level], self._allocator.doomed(domain, level)
                if doomed:
                    lacking[name] = lacking.get(name, 0) + doomed
        return [CellCount(level, count) for level, count in lacking.items()]

    def _stake(self, record: JobRecord, holding: Holding) -> Stake:
        """The right that a holding which is not entered has to its cards now."""
        use = None
        cards = self.cards_of(holding)
        if holding.shape.whole_cards and len(cards) == 1:
            ((chain, leaves),) = cards.items()
            if len(leaves) == len(holding.devices):
                use = self._right(record, chain, leaves)
        return stake_of(record, use)

    def _right(self, record: JobRecord, chain: str, leaves: Sequence[int]) -> CellUse | None:
        for cluster in self.clusters_of(record.queue):
            for domain in self._allocator.domains_of(cluster, None):
                if domain.chain.spec.name == chain:
                    level = self._level_in(domain, leaves)
                    if level is not None:
                        name = domain.chain.spec.levels[level]
                        return CellUse(record.id, cluster, name, domain.pin, record.job.priority)
        return None

    def _level_in(self, domain: Domain, leaves: Sequence[int]) -> int | None:
        """The level of the cell of a domain in which these cards are, or could be, used."""
        chain = domain.chain
        bound = chain.bound_cell(leaves[0])
        if bound is not None:
            is_ours = chain.bound[bound] is domain and chain.number(bound[0], leaves[-1]) == bound[1]
            return bound[0] if is_ours and all(map(domain.is_free, leaves)) else None
        for level in lower_first(domain.unbound) if domain.pinned is None else ():
            number = chain.number(level, leaves[0])
            is_in_one = number == chain.number(level, leaves[-1]) and chain.is_clean(level, number)
            if is_in_one and domain.unbound[level] > self._allocator.doomed(domain, level):
                return level
        return None

    def shields(self, record: JobRecord, holder: JobRecord) -> bool:
        """Whether work is in cells that its queue is owed, and a job is of other queues."""
        if self.allocator is None:
            return False
        uses = [
            task.holding.stake.use
            for task in holder.tasks
            if task.holding is not None and task.holding.is_in_cell and task.holding.stake is not None
        ]
        clusters = self.clusters_of(record.queue)
        return any(use is not None and use.cluster not in clusters for use in uses)

    def breaks(self, record: JobRecord, placed: Sequence[tuple[TaskRecord, Holding]]) -> bool:
        """Whether a place that is taken would leave less than queues are owed if its job could not leave it again."""
        cards: list[tuple[str, int]] = []
        for _, holding in placed:
            if holding.is_in_cell:
                continue
            self._leave(holding)
            stake = self._stake(record, holding)
            self._enter(holding)
            if stake.use is None:
                cards += [(chain, leaf) for chain, leaves in self.cards_of(holding).items() for leaf in leaves]
        return bool(cards) and not self._allocator.may_take(cards)

    def has_visitors(self, holding: Holding) -> bool:
        """Whether work that may be asked to leave is on cards of a holding that is not taken."""
        return any(map(self.is_visited, holding.devices))

    def is_visited(self, device: int) -> bool:
        """Whether such work is on a card."""
        chain, leaf = self._where[device]
        return self._allocator.chains[chain].visitors[0][leaf] > 0

    # ---- machines -----------------------------------------------------------------------------------------------

    def nodes_of(self, chain: str) -> list[int]:
        """The machines of a chain, by their index in the ledger."""
        return self._node_numbers[chain]

    def place_of(
        self, request: CellRequest, pool: str, mask: NDArray[np.uint8] | None
    ) -> list[tuple[int, list[int]]] | None:
        """For each task of a request, its node and devices in the ledger; None if there is no place in cells.

        Args:
            mask: (nodes,), 0 keeps a node out.
        """
        plan = self._allocator.plan(request, self._allowed(pool, mask))
        if plan is None:
            return None
        cluster, found = self._cluster, []
        for place in plan.places:
            chain = self._allocator.chains[place.chain]
            devices = [cluster.device_index[chain.device_of(leaf)] for leaf in place.leaves]
            found.append((cluster.node_of(devices[0]), devices))
        return found

    def _allowed(self, pool: str, mask: NDArray[np.uint8] | None) -> dict[str, int]:
        """Of each chain, the nodes of a pool that a mask does not keep out, as bits."""
        allowed: dict[str, int] = {}
        for name, numbers in self._node_numbers.items():
            node = self._cluster.nodes[numbers[0]]
            if node is None or node.pool != pool:
                allowed[name] = 0
            elif mask is not None:
                allowed[name] = _as_bits(mask[numbers])
        return allowed

    def mask(self, record: JobRecord) -> NDArray[np.uint8] | None:
        """(nodes,), 0 where a job that cannot leave would take cards that are owed; None when it may go anywhere."""
        takes_cards = any(role.request.devices for role in record.job.roles)
        if self.allocator is None or self.stale or record.job.preemptible or not takes_cards:
            return None
        mask = np.ones(self._cluster.arrays.node_count, dtype=np.uint8)
        owing = {name: chain for name, chain in self.allocator.chains.items() if any(chain.demand) or chain.bound}
        for name in owing:
            mask[self._node_numbers[name]] = 0
        for name, chain in owing.items():
            free = _as_flags(self.allocator.spare_nodes(chain), len(self._node_numbers[name]))
            mask[np.array(self._node_numbers[name])[free]] = 1
        return mask

    def is_in_cells(self, record: JobRecord) -> bool:
        """Whether any of a job's tasks is in a cell that its queue is owed."""
        return self.allocator is not None and any(
            task.holding is not None and task.holding.is_in_cell for task in record.tasks
        )


_ON_CARDS = (RUNNING, FROZEN)


def _as_bits(flags: NDArray[np.uint8]) -> int:
    return int.from_bytes(np.packbits(flags != 0, bitorder="little").tobytes(), "little")


def _as_flags(bits: int, count: int) -> NDArray[np.bool_]:
    packed = np.frombuffer(bits.to_bytes(-(-count // 8), "little"), dtype=np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little").astype(np.bool_)


def stake_of(record: JobRecord, use: CellUse | None) -> Stake:
    """How a holding of a job stands to cells, with a right or without."""
    return Stake(record.id, use, not record.job.preemptible)


def _holdings(record: JobRecord) -> list[Holding]:
    found = [task.holding for task in record.tasks] + [task.vacating for task in record.tasks]
    return [holding for holding in found if holding is not None and holding.hold in _ON_CARDS]
