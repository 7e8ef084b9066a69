"""The cells of the live cluster: which holdings are in cells that their queue is owed, which are visitors there.

The ledger tells it of every holding that is taken or given back, so trials, rollbacks and forks keep it true. By which
right one is on its cards is on the holding (``Holding.stake``). Every path that gives work a place asks ``settle``: it
finds the rights, for all tasks that come or for none, and refuses what cannot leave and would take what is owed. Rights
are found anew for all running work when machines or guarantees have changed. What has lost its right is a visitor.

Work of a higher class may have the cells of a lower one in the same queue. That stays as a visitor, and has its cells
again if the other goes away before it has them (``regain``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from millpond.model.hardware.nodes import Node
from millpond.model.tenancy.cells import CellCount
from millpond.scheduling.elastic.gang_sizes import is_enough
from millpond.scheduling.ledger.hardware import Hardware
from millpond.scheduling.ledger.holdings import Holding, HoldState
from millpond.scheduling.ledger.journal import Journal
from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.tenancy.cells.allocator import CellAllocator
from millpond.scheduling.tenancy.cells.chains import lower_first
from millpond.scheduling.tenancy.cells.domains import Domain
from millpond.scheduling.tenancy.cells.hardware import Assignment, kinds_of
from millpond.scheduling.tenancy.cells.losses import CellLosses
from millpond.scheduling.tenancy.cells.requests import CellRequest
from millpond.scheduling.tenancy.cells.rights import Place, RightSearch
from millpond.scheduling.tenancy.cells.spaced_tasks import as_bits
from millpond.scheduling.tenancy.cells.stakes import (
    ON_CARDS,
    class_in_cells,
    holdings_on_cards,
    is_beside_cells,
    part_of,
    places_on_cards,
    stake_of,
)
from millpond.scheduling.tenancy.cells.uses import STAYS, CardPart, CellUse, Stake

if TYPE_CHECKING:
    from millpond.scheduling.records import JobRecord
    from millpond.scheduling.tenancy.queues import QueueTree


class CellBook:
    """The cells of one ledger.

    Attributes:
        allocator: None while no queue is owed any.
        missing: by queue, the cells that there is no hardware for.
        demoted: who has lost cells to whom of a higher class.
        stale: machines or guarantees have changed since it was made.
        judged: jobs, by id, that may have come into cells, or out of them, or have another right to them, since the
            caller forgot them last.
        machines: of each chain, the index of each of its machines in the ledger.
    """

    def __init__(self, journal: Journal, hardware: Hardware) -> None:
        self._journal = journal
        self._hardware = hardware
        self.allocator: CellAllocator | None = None
        self.missing: dict[str, list[CellCount]] = {}
        self.demoted: dict[str, str] = {}
        self.stale = False
        self.judged: set[str] = set()
        self._unused: CellAllocator | None = None
        self._where: dict[int, tuple[str, int]] = {}
        self._lost: set[int] = set()
        self._clusters: dict[str, tuple[str, ...]] = {}
        self.machines: dict[str, list[int]] = {}

    def copy_from(self, other: CellBook) -> None:
        """Become like another book, whose holdings are copied with the tasks."""
        self.allocator = None if other.allocator is None else other.allocator.copy()
        self.missing, self.stale, self.demoted = other.missing, other.stale, dict(other.demoted)
        self.judged = set(other.judged)
        self._where, self._lost = other._where, set(other._lost)
        self._clusters, self.machines = other._clusters, other.machines

    # ---- what is owed -------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Machines or guarantees are others now."""
        self.stale = True

    def renew(self, queues: QueueTree, running: Iterable[JobRecord], *, finds_rights: bool = True) -> None:
        """Follow what has changed. Holdings keep their rights as far as these still hold.

        Args:
            running: all jobs that hold something.
            finds_rights: whether visitors get rights that are there for them now.
        """
        self.stale, self._unused = False, None
        tree = [node.queue for node in queues.by_name.values()]
        cells = [cell for queue in tree for cell in queue.cells]
        had_any, self.allocator, self.missing = self.allocator is not None, None, {}
        if not cells and not any(queue.pinned for queue in tree):
            for record in running if had_any else ():
                for holding in holdings_on_cards(record):
                    holding.is_in_cell = False
            return
        nodes = [node for node in self._hardware.nodes if node is not None]
        kinds = kinds_of(nodes, [*cells, CellCount("node", 1)])
        assignment = Assignment(kinds, tree)
        self.allocator = CellAllocator((kind.spec for kind in kinds.values()), assignment.clusters)
        self.missing = assignment.missing
        index = self._hardware.device_index
        self._where = {index[card]: where for card, where in self.allocator.where.items()}
        self.machines = {
            name: [self._hardware.node_index[node] for node, _ in kind.spec.nodes] for name, kind in kinds.items()
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
        held = [
            (record, holding, holding.is_in_cell, holding.stake)
            for record in running for holding in holdings_on_cards(record)
        ]  # fmt: skip
        for record, holding, was_in_cell, _ in sorted(held, key=lambda each: not each[2]):
            holding.is_in_cell = False
            if holding.stake is None:
                holding.stake = stake_of(record, None)
            self._enter(holding, by_right=was_in_cell)
        for record in running if finds_rights else ():
            holdings = places_on_cards(record)
            if not all(holding.is_in_cell for holding in holdings):
                self._regain_all(record, holdings)
        self.judged.update(
            record.id
            for record, holding, was_in_cell, stake in held
            if holding.is_in_cell != was_in_cell or (stake is not None and stake != holding.stake)
        )

    def _regain_all(self, record: JobRecord, holdings: Sequence[Holding]) -> None:
        """Let a job be in cells, if there is a right for all of it without anybody's loss.

        Else it is in none, but for an elastic gang of which enough tasks are.
        """
        kept = [task for task in record.tasks if task.holding and not is_beside_cells(task.holding)]
        keeps = is_enough(record.job, kept)
        for holding in holdings:
            self._leave(holding)
        uses, demoted = self._rights(record, holdings)
        for number, holding in enumerate(holdings):
            if uses and not demoted:
                holding.stake = stake_of(record, uses[number])
            elif not keeps:
                holding.stake = stake_of(record, None)
            self._enter(holding)

    def node_changed(self, node: Node) -> None:
        """A machine may be used, or some of its cards, or may no longer be."""
        if self.allocator is None:
            return
        usable = node.schedulable and node.name not in self._hardware.closed
        for device in node.devices:
            index = self._hardware.device_index.get(device.uuid, -1)
            if index not in self._where:
                continue
            chain, leaf = self._where[index]
            if usable and self._hardware.is_usable(device):
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
        was, is_on = before in ON_CARDS, after in ON_CARDS
        if was and not is_on:
            self._leave(holding)
        elif is_on and not was:
            self._enter(holding)

    def settle(self, record: JobRecord, holdings: Sequence[Holding], jobs: Mapping[str, JobRecord]) -> bool:
        """Find by what right holdings that a job has just got are on their cards; a trial undoes it.

        False, and nothing changed, if the job cannot leave and would take what is owed to others.

        Args:
            jobs: all, by id: those of a lower class in the same queue may lose their cells.
        """
        holdings = [holding for holding in holdings if holding.devices]
        if self.allocator is None or self.stale or not holdings:
            return True
        if record.job.preemptible and not self.clusters_of(record.queue):
            return True
        self.judged.add(record.id)
        if all(holding.is_in_cell for holding in holdings):
            return True
        for holding in holdings:
            if holding.hold in ON_CARDS:
                self._leave(holding)
        uses, demoted = self._rights(record, holdings)
        cards = [
            (chain, leaf)
            for holding in holdings if not uses and not record.job.preemptible
            for chain, leaves in self.cards_of(holding).items() for leaf in leaves
        ]  # fmt: skip
        is_sound = not cards or self._allocator.may_take(cards)
        for holding in holdings:
            if holding.hold in ON_CARDS:
                self._enter(holding)
        if not is_sound:
            return False
        self.judged.update(demoted)
        for owner in demoted:
            self._demote(jobs[owner], record.id)
        for number, holding in enumerate(holdings):
            found = stake_of(record, uses[number] if uses else None)
            if found != holding.stake or (found.use is not None and not holding.is_in_cell):
                self._change(holding, found)
        return True

    def forget(self, record: JobRecord, holdings: Iterable[Holding]) -> None:
        """The right of work that is off its cards is sought anew when it comes back; a trial undoes it."""
        self.judged.add(record.id)
        for holding in holdings:
            if holding.stake is not None and holding.stake.use is not None and holding.hold not in ON_CARDS:
                self._change(holding, stake_of(record, None))

    def _demote(self, record: JobRecord, for_job: str) -> None:
        """Work loses its cells for a job; a trial undoes it."""
        self._journal.record(self._note_demoted, record.id, self.demoted.get(record.id, ""))
        self._note_demoted(record.id, for_job)
        for holding in places_on_cards(record):
            if holding.stake is not None and holding.stake.use is not None:
                self._change(holding, stake_of(record, None))

    def _note_demoted(self, job: str, for_job: str) -> None:
        if for_job:
            self.demoted[job] = for_job
        else:
            self.demoted.pop(job, None)

    def regain(self, jobs: Mapping[str, JobRecord]) -> None:
        """Work has its cells again that it lost for a job which has gone, if they are still there."""
        for job, for_job in list(self.demoted.items()):
            record, other = jobs.get(job), jobs.get(for_job)
            if record is None or not holdings_on_cards(record):
                del self.demoted[job]
            elif other is None or not (other.line or holdings_on_cards(other)):
                del self.demoted[job]
                # An elastic gang may have grown into other cells meanwhile: what it has of these it keeps.
                self.settle(record, [each for each in places_on_cards(record) if not each.is_in_cell], jobs)

    def give_again(self, found: Sequence[tuple[Holding, Stake | None, bool]]) -> None:
        """Have holdings by these rights from now on, and in cells or not, as they were before."""
        for holding, _, _ in found:
            if holding.hold in ON_CARDS:
                self._leave(holding)
        for holding, stake, is_in_cell in sorted(found, key=lambda each: not each[2]):
            holding.stake = stake
            if holding.hold in ON_CARDS:
                self._enter(holding, by_right=is_in_cell)

    def _change(self, holding: Holding, stake: Stake) -> None:
        """Let a holding be on its cards by another right; a trial undoes it."""
        self._journal.record(self._put, holding, holding.stake)
        self._put(holding, stake)

    def _put(self, holding: Holding, stake: Stake | None) -> None:
        is_on = holding.hold in ON_CARDS
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
                self._allocator.release(chain, leaves, stake.owner, part_of(holding))
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
        self._journal.record(self._reserve, holding, -sign)
        self._reserve(holding, sign)

    def _reserve(self, holding: Holding, sign: int) -> None:
        stake = holding.stake
        assert stake is not None
        assert stake.use is not None
        use = replace(stake.use, owner=f"{stake.owner} claims", priority=STAYS)
        for chain, leaves in self.cards_of(holding).items():
            if sign > 0:
                self._allocator.hold(chain, leaves, use)
            else:
                self._allocator.release(chain, leaves, use.owner, use.part)

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

    def domains_of(self, queue: str) -> list[Domain]:
        """What a queue is owed of each chain, pinned machines first."""
        return [] if self.allocator is None or self.stale else self.allocator.domains_of(queue, None)

    def doomed(self, domain: Domain, level: int) -> int:
        """How many cells of a level that are owed have no hardware."""
        return self._allocator.doomed(domain, level)

    def _rights(self, record: JobRecord, holdings: Sequence[Holding]) -> tuple[list[CellUse], list[str]]:
        """The rights of holdings that are not entered, one for each or none at all, and who loses cells for them."""
        places = list[Place]()
        for holding in holdings:
            cards = self.cards_of(holding)
            ((chain, leaves),) = cards.items() if len(cards) == 1 else (("", []),)
            part = part_of(holding)
            if (part is not None and record.job.preemptible) or len(leaves) != len(holding.devices) or not leaves:
                return [], []
            places.append(Place(chain, leaves, part))
        owners = self.clusters_of(record.queue)
        return RightSearch(self._allocator, owners).find(record, places) if owners else ([], [])

    def device_of(self, chain: str, leaf: int) -> int:
        """The number in the ledger of a card of a chain."""
        return self._hardware.device_index[self._allocator.chains[chain].device_of(leaf)]

    def parts_on(self, chain: str, leaf: int) -> list[CardPart]:
        """What those have of a card that share it by right."""
        return [part for _, part in self._allocator.chains[chain].parts.get(leaf, ())]

    def has_visitors(self, holding: Holding) -> bool:
        """Whether work that may be asked to leave is on cards of a holding that is not taken."""
        return any(map(self.is_visited, holding.devices))

    def is_visited(self, device: int) -> bool:
        """Whether such work is on a card."""
        return self.visits_of(device) > 0

    def visits_of(self, device: int) -> int:
        """How many tasks of such work are on a card."""
        chain, leaf = self._where[device]
        return self._allocator.chains[chain].visitors[0][leaf]

    # ---- machines -----------------------------------------------------------------------------------------------

    def losses(self, devices: Int64Array, works: Int64Array, losses: NDArray[np.float64]) -> CellLosses:
        """What visitors would lose by cell.

        Args:
            devices, works: (cards,) the cards that work holds, and its number.
            losses: (works,) what each loses if it has to leave.
        """
        where = [self._where.get(device, ("", 0)) for device in devices.tolist()]
        chains, leaves = np.array([chain for chain, _ in where]), np.array([leaf for _, leaf in where], dtype=np.int64)
        cards = {name: (leaves[chains == name], works[chains == name]) for name in self._allocator.chains}
        return CellLosses(cards, losses)

    def places_for(
        self,
        record: JobRecord,
        request: CellRequest,
        mask: NDArray[np.uint8] | None,
        losses: CellLosses | None = None,
    ) -> list[tuple[list[int], Stake | None]] | None:
        """For each task of a request, its devices in the ledger; None if there is no place in cells.

        With them, by what right they are a job's, unless work of a lower class has to lose its cells first.

        Args:
            mask: (nodes,), 0 keeps a node out.
            losses: see ``CellAllocator.plan``.
        """
        plan = self._allocator.plan(request, self._allowed(record.job.pool, mask), losses)
        if plan is None:
            return None
        index, own, found = self._hardware.device_index, class_in_cells(record), []
        for place in plan.places:
            chain = self._allocator.chains[place.chain]
            use = place.use if place.use.priority == own else replace(place.use, priority=own)
            stake = None if plan.demoted else stake_of(record, use)
            found.append(([index[chain.device_of(leaf)] for leaf in place.leaves], stake))
        return found

    @contextmanager
    def unused(self) -> Iterator[None]:
        """For a while, all cells are as if nobody used any, and all cards were well."""
        allocator = self._allocator
        if self._unused is None:
            self._unused = CellAllocator((chain.spec for chain in allocator.chains.values()), allocator.clusters)
        self.allocator = self._unused
        try:
            yield
        finally:
            self.allocator = allocator

    def _allowed(self, pool: str, mask: NDArray[np.uint8] | None) -> dict[str, int]:
        """Of each chain, the nodes of a pool that a mask does not keep out, as bits."""
        allowed: dict[str, int] = {}
        for name, numbers in self.machines.items():
            node = self._hardware.nodes[numbers[0]]
            if node is None or node.pool != pool:
                allowed[name] = 0
            elif mask is not None:
                allowed[name] = as_bits(mask[numbers])
        return allowed

    def mask(self, record: JobRecord) -> NDArray[np.uint8] | None:
        """(nodes,), 0 where a job that cannot leave would take cards that are owed; None when it may go anywhere."""
        takes_cards = any(role.request.devices for role in record.job.roles)
        if self.allocator is None or self.stale or record.job.preemptible or not takes_cards:
            return None
        mask = np.ones(len(self._hardware.nodes), dtype=np.uint8)
        owing = {name: chain for name, chain in self.allocator.chains.items() if any(chain.demand) or chain.bound}
        for name in owing:
            mask[self.machines[name]] = 0
        for name, chain in owing.items():
            free = _as_flags(self.allocator.spare_nodes(chain), len(self.machines[name]))
            mask[np.array(self.machines[name])[free]] = 1
        return mask

    def is_in_cells(self, record: JobRecord) -> bool:
        """Whether any of a job's tasks is in a cell that its queue is owed."""
        return self.allocator is not None and bool(self.allocator.uses_of(record.id))


def _as_flags(bits: int, count: int) -> NDArray[np.bool_]:
    packed = np.frombuffer(bits.to_bytes(-(-count // 8), "little"), dtype=np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little").astype(np.bool_)
