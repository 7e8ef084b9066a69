"""Files that tasks write to while we read them: each byte once, and anew when a file was replaced or cut."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from millpond.server.storage.files.outputs import OpenedFile, open_below

PIECE: Final = 2**20


class GrowingFile:
    """One file below a folder that a task can write to; links are never followed.

    Attributes:
        offset: of the first byte that was not consumed.
        restarts: how often it began anew.
    """

    def __init__(self, folder: Path, path: str) -> None:
        self._folder = folder
        self._path = path
        self._identity = ""
        self.offset = 0
        self.restarts = 0

    def opened(self) -> OpenedFile | None:
        """The file as it is now; None where there is none, or nothing behind the offset. To be closed by the caller."""
        found = open_below(self._folder, self._path)
        if found is None:
            return None
        identity = found.version.partition("-")[0]
        if identity != self._identity or found.size < self.offset:
            self.restarts += bool(self._identity)
            self._identity, self.offset = identity, 0
        if found.size == self.offset:
            found.file.close()
            return None
        found.file.seek(self.offset)
        return found
