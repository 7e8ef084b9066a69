"""The carrier's order: whose files it carries, from where to where, and where they lie in the pod."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

WORK, PAYLOAD, DATA, OUTPUT = "work", "payload", "data", "output"
METRICS, RESULT = "task.metrics", "task.result"
ALIVE, BEGAN = ".alive", ".began"


@dataclass(frozen=True)
class CarryOrder:
    """One run's order, the same for all of its tasks.

    Attributes:
        server: its address, as pods reach it.
        token: opens nothing but this run's files.
        authority: certificates that may vouch for the server, beside those that the image knows; PEM.
        snapshot: of the working directory; empty: there is none.
        payload: one content that was sent along; empty: none.
        data: snapshots of datasets, by name.
    """

    server: str
    token: str
    job: str
    attempt: int
    authority: str = ""
    snapshot: str = ""
    payload: str = ""
    data: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """For ``read_order``."""
        return json.dumps(asdict(self))

    @property
    def brings(self) -> bool:
        """Whether anything is to be in the pod before its program starts."""
        return bool(self.snapshot or self.payload or self.data)


def read_order(path: Path) -> CarryOrder:
    """An order from its file."""
    return CarryOrder(**json.loads(path.read_text()))
