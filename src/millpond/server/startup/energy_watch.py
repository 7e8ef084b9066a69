"""Reads the files of prices and carbon intensities again when they have changed: others may write them by the hour.

One that is wrong, or gone, leaves the rates as they were, and the log says why.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Final

from millpond.model.errors import MillpondError
from millpond.node.host.periodic_worker import Periodic, PeriodicWorker
from millpond.server.startup.configuration import Current
from millpond.specs.config.cluster import load_cluster

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 60.0
_FILES: Final = ("price_file", "carbon_file")


class EnergyWatch(Periodic):
    """Looks at the files that the configuration names.

    Args:
        config: the file of the configuration.
    """

    def __init__(self, config: Path, current: Current) -> None:
        self._config = config
        self._current = current
        self._seen = self._look_of_files()
        self._said = ""
        self._worker = PeriodicWorker("energy-watch", self.look, LOOK_EVERY_S, "rates of energy stay as they are")

    def look(self) -> None:
        """Read what has changed since the last look."""
        found = self._look_of_files()
        if found == self._seen:
            return
        changed = sorted(file for file in found if found[file] != self._seen.get(file))
        if changed:
            with self._current.reading:
                try:
                    energy = load_cluster(self._config).energy
                except MillpondError as error:  # the next look reads again, as the fault may be another file's
                    if self._said != (said := str(error)):
                        log.error("the rates of energy stay as they were: %s", error)
                    self._said = said
                    return
                self._current.config = replace(self._current.config, energy=energy)
            log.info("read %s again", ", ".join(changed))
        self._seen, self._said = found, ""

    def _look_of_files(self) -> dict[str, tuple[int, ...]]:
        """What differs when a file that is named is another one than before, by its name."""
        section = self._current.config.document.get("energy") or {}
        files = (Path(section[name]).expanduser() for name in _FILES if section.get(name))
        return {str(file): _look_of(file) for file in files}


def _look_of(file: Path) -> tuple[int, ...]:
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ino, found.st_size
