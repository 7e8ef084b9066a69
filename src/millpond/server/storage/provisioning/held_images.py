"""The images that this server has put into its catalogue, until they are gone from the machine.

Other servers of the account may have the same runtime: what they hold, and their catalogues alone name, is left alone.
"""

from __future__ import annotations

import threading
from pathlib import Path

from millpond.node.host.files import read_json, write_json


class HeldImages:
    """Their digests, in a file of the state directory. Any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def all(self) -> frozenset[str]:
        """Those that may still be there."""
        return frozenset((read_json(self._path) or {}).get("digests", ()))

    def note(self, *digests: str) -> None:
        """They are put into the catalogue."""
        self._write(frozenset(digests), frozenset())

    def forget(self, digest: str) -> None:
        """It is gone."""
        self._write(frozenset(), frozenset({digest}))

    def _write(self, added: frozenset[str], removed: frozenset[str]) -> None:
        with self._lock:
            before = self.all()
            after = (before | added) - removed
            if after != before:
                write_json(self._path, {"digests": sorted(after)})
