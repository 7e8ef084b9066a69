"""What cells have to do with a wait: those of its queue that have no hardware, or those of others that keep it off."""

from __future__ import annotations

from dataclasses import replace

from millpond.model.reasons import Reason
from millpond.scheduling.cycle.places_in_cells import cells_would_do, place_in_cells
from millpond.scheduling.elastic.gang_sizes import least_tasks
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.admission import uses_cells


def with_cells(state: State, record: JobRecord, reason: Reason) -> Reason:
    """A reason, and in its text what is known of cells."""
    found = (_without_hardware(state, record), _waits_for_cell(state, record), _kept_off(state, record))
    notes = [text for text in found if text]
    return replace(reason, summary="; ".join((reason.summary, *notes))) if notes else reason


def _without_hardware(state: State, record: JobRecord) -> str:
    lacking = {
        name: cells
        for node in state.queues.by_name[record.queue].path
        if (cells := state.cluster.cells.lacking(name := node.queue.name))
    }
    return "; ".join(
        f"of the cells of queue {name} no healthy hardware is there for "
        + " and ".join(f"{cell.count} x {cell.level}" for cell in cells)
        for name, cells in lacking.items()
    )


def _waits_for_cell(state: State, record: JobRecord) -> str:
    """Which cell a job waits for, and what keeps it from that."""
    if state.cluster.cells.stale or not uses_cells(state, record):
        return ""
    tasks, owner = least_tasks(record.job, record.queued()), state.cluster.cells.clusters_of(record.queue)[0]
    placed = place_in_cells(state, record, tasks, None) if tasks else None
    if placed is None:
        return _no_cell_left(state, record, owner)
    stakes = [holding.stake for _, holding in placed if holding.stake is not None and holding.stake.use is not None]
    level = stakes[0].use.level if stakes and stakes[0].use is not None else "cell"
    nodes = dict.fromkeys(state.cluster.node_name(holding.node) for _, holding in placed)
    visited = sum(state.cluster.cells.is_visited(device) for _, holding in placed for device in holding.devices)
    where = f"node {next(iter(nodes))}" if len(nodes) == 1 else f"{len(nodes)} nodes"
    cards = "1 card of it is" if visited == 1 else f"{visited} cards of it are"
    keeps = f"{cards} held by work that has not left or may not be asked to" if visited else "it is kept"
    return f"it waits for a cell that queue {owner} is owed ({level}, on {where}): {keeps}"


def _no_cell_left(state: State, record: JobRecord, owner: str) -> str:
    most = max(shape.devices for shape in state.cluster.words.shapes_of(record.demand))
    fitting, largest = dict[str, list[int]](), 0
    for domain in state.cluster.cells.domains_of(owner):
        for level, count in enumerate(domain.cells):
            cards = domain.chain.size[level] if count else 0
            largest = max(largest, min(cards, domain.chain.size[domain.chain.node_level]))
            if cards >= most:
                counts = fitting.setdefault(domain.chain.spec.levels[level], [0, 0])
                counts[0] += domain.cells[level] - domain.unbound[level]
                counts[1] += count
    if not fitting:
        return f"a task of {most} cards fits in no cell of queue {owner}" if largest else ""
    if not cells_would_do(state, record):
        return f"the cells of queue {owner} have no room for it, even if all of them are free"
    uses = " and ".join(f"{used} of {count} x {level}" for level, (used, count) in fitting.items())
    return f"its cells have no room for it: queue {owner} uses {uses}"


def _kept_off(state: State, record: JobRecord) -> str:
    mask = state.cluster.cells.mask(record)
    closed = 0 if mask is None else int((mask == 0).sum())
    if not closed:
        return ""
    nodes = "1 node" if closed == 1 else f"{closed} nodes"
    return f"as it is not preemptible, it stays off {nodes} whose cards are owed as cells"
