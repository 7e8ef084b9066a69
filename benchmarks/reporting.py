"""How benchmarks report: JSON for programs, a plain table for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Table:
    """Rows of text under headings, aligned for a terminal."""

    def __init__(self, *headings: str) -> None:
        self._rows = [headings]

    def add(self, *cells: str) -> None:
        """One more row."""
        self._rows.append(cells)

    def __str__(self) -> str:
        widths = [max(len(row[column]) for row in self._rows) for column in range(len(self._rows[0]))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in self._rows]
        return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def emit(result: dict[str, Any], target: str | None, lines: Sequence[Table | str]) -> None:
    """Write the result as JSON to ``target`` (``-`` is standard output), and the lines to the terminal."""
    text = json.dumps(result, indent=2)
    if target == "-":
        sys.stdout.write(text + "\n")
        return
    if target:
        Path(target).write_text(text + "\n", encoding="utf-8")
    for line in lines:
        sys.stdout.write(f"{line}\n")
