"""Formats of the stored scheduler state that this version can read."""

from __future__ import annotations

from millpond.model.errors import UnavailableError
from millpond.scheduling.copies.snapshots import FORMAT


def check_format(found: object, writer: str) -> None:
    """Refuse a snapshot of another format than this version's.

    Args:
        writer: the version that wrote it; empty when unknown.

    Raises:
        UnavailableError: it has another one.
    """
    if found != FORMAT:
        raise UnavailableError(
            f"the scheduler's state is of format {found}, by Millpond {writer or 'of another version'}; this one "
            f"reads format {FORMAT} alone",
            "let its jobs end under the version that wrote it, then start this one in an empty state directory",
        )
