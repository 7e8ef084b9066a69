"""What a measurement found: figures, a verdict, and where they were seen, a JSON object on a line of its own.

Lines are appended as they come, those of a part of a measurement first: what was found is there whenever the time
ends.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Status(StrEnum):
    """What became of a measurement."""

    PASS = "pass"
    FAIL = "fail"
    UNSUPPORTED = "unsupported"
    """This machine, card or driver cannot do what is measured."""
    SKIPPED = "skipped"
    """It was not begun."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the pass line was met, and if not, why."""

    status: Status
    reason: str = ""


def held(*claims: tuple[bool, str]) -> Verdict:
    """Passed when all claims are true; the reason names each that is not."""
    broken = [text for true, text in claims if not true]
    return Verdict(Status.FAIL, "; ".join(broken)) if broken else Verdict(Status.PASS)


@dataclass(frozen=True, slots=True)
class Place:
    """Where it was measured; versions as the driver says them, empty where it does not.

    Attributes:
        workload: what computed: a version of PyTorch, or calls of the driver.
    """

    card: str = ""
    memory_mib: int = 0
    driver: str = ""
    cuda: str = ""
    bindings: str = ""
    workload: str = ""
    kernel: str = ""
    cpus: int = 0
    host_memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement's outcome.

    Attributes:
        began: date and time in UTC, ISO 8601.
        seconds: that it took.
    """

    measurement: str
    question: str
    pass_line: str
    status: Status
    reason: str
    began: str
    seconds: float
    place: Place = Place()
    figures: dict[str, Any] = field(default_factory=dict)

    def append(self, path: Path) -> None:
        """Write it behind all that a file has."""
        append(path, asdict(self))

    @staticmethod
    def read(path: Path, measurement: str, beyond: int = 0) -> Result | None:
        """The last of a measurement, as ``append`` left it; None where there is none.

        Args:
            beyond: bytes of the file that are older.
        """
        lines = path.read_bytes()[beyond:].decode().splitlines() if path.exists() else []
        told = [json.loads(line) for line in lines]
        found = [each for each in told if each["measurement"] == measurement and "status" in each]
        if not found:
            return None
        return Result(**{**found[-1], "status": Status(found[-1]["status"]), "place": Place(**found[-1]["place"])})


@dataclass(frozen=True, slots=True)
class Journal:
    """Where a measurement writes what it has found so far.

    Attributes:
        path: of the file that its result goes to, too.
    """

    path: Path
    measurement: str

    def case(self, name: str, found: Any) -> None:
        """One part of it is done."""
        append(self.path, {"measurement": self.measurement, "case": name, "found": found})


def append(path: Path, told: Any) -> None:
    """One line, on the disk when this returns."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, (json.dumps(told) + "\n").encode())
        os.fsync(file)
    finally:
        os.close(file)


def percentile(values: Sequence[float], percent: int) -> float:
    """Of measured values, between two of them in proportion; values beyond the ends are not made up."""
    if len(values) < 2:
        return float(values[0]) if values else 0.0
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def spread(values: Iterable[float]) -> dict[str, float]:
    """The figures by which many values are told."""
    known = sorted(values)
    if not known:
        return {"count": 0}
    return {
        "count": len(known),
        "p50": percentile(known, 50),
        "p99": percentile(known, 99),
        "max": known[-1],
    }
