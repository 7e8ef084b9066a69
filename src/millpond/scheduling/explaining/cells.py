"""What cells have to do with a wait: those of its queue that have no hardware, or those of others that keep it off."""

from __future__ import annotations

from dataclasses import replace

from millpond.model.reasons import Reason
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State


def with_cells(state: State, record: JobRecord, reason: Reason) -> Reason:
    """A reason, and in its text what is known of cells."""
    notes = [text for text in (_without_hardware(state, record), _kept_off(state, record)) if text]
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


def _kept_off(state: State, record: JobRecord) -> str:
    mask = state.cluster.cells.mask(record)
    closed = 0 if mask is None else int((mask == 0).sum())
    if not closed:
        return ""
    nodes = "1 node" if closed == 1 else f"{closed} nodes"
    return f"as it is not preemptible, it stays off {nodes} whose cards are owed as cells"
