"""When policies were looked at last and what that came to, in a file of the state directory, so that a server that was
down at that hour looks when it is started, and one that is restarted neither looks twice nor forgets what it said.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from millpond.node.host.files import write_json

log = logging.getLogger(__name__)


FILE: Final = "adaptation.json"


@dataclass(frozen=True, slots=True)
class Night:
    """One look.

    Attributes:
        due_at: the hour for which it was.
        looked_at: when it was made; None for the hour that had passed when policies were first to be chosen.
        text: what it came to, in words.
    """

    due_at: float
    looked_at: float | None = None
    text: str = ""


class NightRecord:
    """Keeps the last night.

    Args:
        path: of the file, or where it is to be.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._latest = self._read()

    @property
    def latest(self) -> Night | None:
        """The last one; None where none was looked at yet."""
        return self._latest

    def note(self, night: Night) -> None:
        """A look has begun, or is over. On a full disk a restarted server looks once more."""
        self._latest = night
        try:
            write_json(self._path, asdict(night), durable=True)
        except OSError as error:
            log.warning("what the choice of policies came to cannot be kept: %s", error)

    def forget(self) -> None:
        """Policies are not chosen any more."""
        if self._latest is not None:
            self._latest = None
            self._path.unlink(missing_ok=True)

    def _read(self) -> Night | None:
        try:
            return Night(**json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            log.warning("%s is left out, as it cannot be read: %s", self._path, error)
            return None
