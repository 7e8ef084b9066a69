"""How wide a terminal shows a text: Chinese letters, for one, take the room of two."""

from __future__ import annotations


def cells_of(text: str) -> int:
    """How many cells of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def beginning(text: str, cells: int) -> str:
    """As much of a text as goes into so many cells."""
    if text.isascii() or cells_of(text) <= cells:
        return text[:cells]
    from rich.cells import set_cell_size

    return set_cell_size(text, cells)


def shortened(text: str, cells: int) -> str:
    """A text in at most so many cells, which shows where something of it is left out."""
    return text if cells_of(text) <= cells else f"{beginning(text, cells - 1)}…"
