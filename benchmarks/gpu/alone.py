"""One measurement in a process of its own, so that a driver that hangs can be ended: NAME SECONDS FOLDER HOST_MIB
PARENT.

``run.py`` starts it. It writes its result, and nothing it started outlives it.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu.bench import Bench, Measurement, find_card
from benchmarks.gpu.catalogue import CATALOGUE, file_of
from benchmarks.gpu.children import ChildError
from benchmarks.gpu.orphans import end_with
from benchmarks.gpu.results import Journal, Result, Status, Verdict
from millpond.model.errors import UnavailableError

_LEAVING_S = 10.0
"""What the programs of the measurement before may take to be gone from the driver's list."""


def carry_out(measurement: Measurement, seconds: float, journal: Journal, host_mib: int) -> Result:
    """Measure, and judge."""
    began, since = datetime.now(UTC), time.monotonic()
    figures: dict[str, Any] = {}
    device, nvml = find_card(_LEAVING_S)
    with (
        tempfile.TemporaryDirectory(prefix="millpond-gpu-") as folder,
        Bench(device, nvml, seconds, Path(folder), journal, host_mib) as bench,
    ):
        try:
            figures = measurement.measure(bench)
            verdict = measurement.judge(figures)
        except UnavailableError as error:
            verdict = Verdict(Status.UNSUPPORTED, str(error))
        except ChildError as error:
            verdict = Verdict(Status.FAIL, f"a child broke off: {error.name} ({error})")
        place = bench.place()
    return Result(
        measurement.name,
        measurement.question,
        measurement.pass_line,
        verdict.status,
        verdict.reason,
        began.isoformat(timespec="seconds"),
        round(time.monotonic() - since, 1),
        place,
        figures,
    )


def main() -> None:
    """As told by the command line."""
    name, seconds, folder, host_mib, parent = sys.argv[1:]
    end_with(int(parent), signal.SIGINT)  # which lets children end, and files go
    path = file_of(name, Path(folder))
    carry_out(CATALOGUE[name], float(seconds), Journal(path, name), int(host_mib)).append(path)


if __name__ == "__main__":
    main()
