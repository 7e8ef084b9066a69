"""What a measurement found: figures, a verdict, and where they were seen, as one JSON file."""

from __future__ import annotations

import json
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

    def write(self, folder: Path) -> Path:
        """Into ``folder``, replacing what an earlier run found."""
        path = folder / f"{self.measurement}.json"
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        return path

    @staticmethod
    def read(path: Path) -> Result:
        """As ``write`` left it."""
        told = json.loads(path.read_text(encoding="utf-8"))
        return Result(**{**told, "status": Status(told["status"]), "place": Place(**told["place"])})


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
