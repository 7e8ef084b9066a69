"""Trace formats: each reader turns the rows of one into jobs, and complains by file, line and column."""

from __future__ import annotations

from pathlib import Path

from millpond.simulation.readers import chronus, muri, native, philly
from millpond.simulation.readers.rows import Table
from millpond.simulation.trace import Workload

QUEUEING_FORMATS = {"muri": muri.read, "philly": philly.read, "chronus": chronus.read, "native": native.read}


def read_workload(trace_format: str, path: Path, cards_per_node: int, *, skip_bad_rows: bool = False) -> Workload:
    """Jobs of a trace of arrivals and durations.

    Args:
        trace_format: a key of ``QUEUEING_FORMATS``.
        cards_per_node: cards of a node, by which larger jobs are cut into tasks.

    Raises:
        InvalidInputError: the file cannot be read, or rows are wrong and not to be skipped.
    """
    return QUEUEING_FORMATS[trace_format](Table(path), cards_per_node, skip_bad_rows=skip_bad_rows)
