"""What advance reservations may have of the machines that cells lie on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from millpond.scheduling.ledger.hardware import Hardware
from millpond.scheduling.tenancy.cells.allocator import CellAllocator
from millpond.scheduling.tenancy.cells.book import CellBook
from millpond.scheduling.tenancy.cells.chains import Chain


def spare_of(book: CellBook, hardware: Hardware, nodes: Sequence[int], queue: str, kept: Mapping[int, int]) -> set[int]:
    """Of these machines, the first ones first, those that others can do without for all cells that they are owed.

    What a queue keeps on machines that no cell is bound to, it may keep from its own cells.

    Args:
        kept: by machine, how many of its cards cannot be in these cells anyway.
    """
    allocator = book.allocator
    if allocator is None or book.stale:
        return set(nodes)
    own = [domain for owner in book.clusters_of(queue) for domain in allocator.domains_of(owner, "")]
    for domain in own:
        domain.count_unbound(-1)
    taken: list[tuple[Chain, int]] = []
    for node, count in kept.items():
        held_first = sorted(_cards_on(allocator, hardware, node), key=lambda card: not card[0].gone[0][card[1]])
        for chain, leaf in held_first[:count]:
            chain.lose(leaf)
            taken.append((chain, leaf))
    before = {name: chain.shortage() for name, chain in allocator.chains.items()}
    spare: set[int] = set()
    for node in nodes:
        cards = list(_cards_on(allocator, hardware, node))
        for chain, leaf in cards:
            chain.lose(leaf)
        touched = {chain.spec.name: chain for chain, _ in cards}
        if all(
            now <= then
            for name, chain in touched.items()
            for now, then in zip(chain.shortage(), before[name], strict=True)
        ):
            spare.add(node)
            taken += cards
        else:
            for chain, leaf in reversed(cards):
                chain.regain(leaf)
    for chain, leaf in reversed(taken):
        chain.regain(leaf)
    for domain in own:
        domain.count_unbound(1)
    return spare


def nodes_of_cells(book: CellBook, hardware: Hardware, queue: str) -> set[int]:
    """The machines on which cells are bound that jobs of a queue may use."""
    owners, allocator = book.clusters_of(queue), book.allocator
    if allocator is None or not owners:
        return set()
    return {
        hardware.node_index[chain.spec.nodes[node][0]]
        for chain in allocator.chains.values()
        for cell, domain in chain.bound.items()
        if domain.cluster in owners
        for node in chain.nodes_in(*cell)
    }


def cards_owed(
    book: CellBook, hardware: Hardware, queue: str, users: Collection[str], left: Mapping[str, int]
) -> set[int]:
    """The cards of cells that jobs of a queue may not use: those that any of these uses, and those beside them.

    Args:
        users: jobs, by id.
        left: by queue, how many cards at most it may ask for beside those in use.
    """
    owners, allocator, found = book.clusters_of(queue), book.allocator, set[int]()
    asks_for = dict(left)
    for chain in () if allocator is None or book.stale else allocator.chains.values():
        for (level, cell), domain in chain.bound.items():
            leaves = [leaf for leaf in chain.leaves(level, cell) if not chain.gone[0][leaf]]
            used = [leaf for leaf in leaves if any(owner in users for owner in chain.owners_on(leaf))]
            if domain.cluster in owners or not (used or domain.pinned):
                continue
            more = [leaf for leaf in leaves if leaf not in used][: max(asks_for[domain.cluster], 0)]
            asks_for[domain.cluster] -= len(more)
            found.update(hardware.device_index[chain.device_of(leaf)] for leaf in (*used, *more))
    return found


def _cards_on(allocator: CellAllocator, hardware: Hardware, node: int) -> Iterator[tuple[Chain, int]]:
    """The cards of a machine that are in no cell in use."""
    there = hardware.nodes[node]
    for device in () if there is None else there.devices:
        if device.uuid in allocator.where:
            name, leaf = allocator.where[device.uuid]
            if allocator.chains[name].bound_cell(leaf) is None:
                yield allocator.chains[name], leaf
