"""Measures sharing on the card of this machine: all measurements or some, within ten minutes, one JSON file each.

    python benchmarks/gpu/run.py
    python benchmarks/gpu/run.py --only m03,m05 --minutes 4 --out results

Exit code 0: all that was measured met its line, 1: something did not, 2: bad input, 69: no card that can be
measured, 130: interrupted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpu.bench import Measurement, find_card
from gpu.catalogue import CATALOGUE
from gpu.results import Result, Status
from millpond.model.errors import InvalidInputError, UnavailableError
from reporting import Table, command_line, emit, note, program

_ROOMS = [str(Path(__file__).resolve().parents[up] / name) for up, name in ((1, ""), (2, "src"))]
"""Where the measurements and what they measure lie: a machine that is lent for minutes need not have it installed."""

NO_CARD = os.EX_UNAVAILABLE
INTERRUPTED = 128 + signal.SIGINT

_RESULTS = Path(__file__).resolve().parent / "results"
_MOST_STRETCH = 3.0
"""Of its usual time, where few measurements share many minutes."""
_GRACE_S = 15.0


@program
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and tell."""
    parser = command_line(__doc__)
    parser.add_argument("--only", default="", metavar="NAMES", help="such as m03,m05; all by default")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all together; 10 by default")
    parser.add_argument("--out", type=Path, default=_RESULTS, metavar="DIR", help="where the JSON files go")
    parser.add_argument("--list", action="store_true", help="say what there is, and measure nothing")
    options = parser.parse_args(arguments)
    chosen = choose(options.only)
    if options.list:
        emit({"measurements": [each.name for each in chosen]}, options.json, [_listed(chosen)])
        return 0
    if not options.minutes > 0:
        raise InvalidInputError(f"--minutes {options.minutes:g}: no time at all", "give it minutes above 0")
    try:
        find_card()
    except UnavailableError as error:
        sys.stderr.write(f"{error}\n")
        return NO_CARD
    _make(options.out)
    try:
        results = measure_all(chosen, options.minutes * 60, options.out)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; what was started has been ended, results written so far are kept\n")
        return INTERRUPTED
    emit({"results": [asdict(result) for result in results]}, options.json, [_told(results)])
    return int(any(result.status is Status.FAIL for result in results))


def choose(names: str) -> list[Measurement]:
    """The measurements whose names begin as given, in their own order; all for an empty text.

    Raises:
        InvalidInputError: one is not known.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if not any(known.startswith(name) for known in CATALOGUE):
            raise InvalidInputError(f"--only {name}: there is no such measurement", "--list says what there is")
    return [each for name, each in CATALOGUE.items() if not wanted or name.startswith(tuple(wanted))]


def measure_all(chosen: Sequence[Measurement], seconds: float, folder: Path) -> list[Result]:
    """One after the other; those for which no time is left are skipped."""
    until = time.monotonic() + seconds
    stretch = min(seconds / sum(each.seconds for each in chosen), _MOST_STRETCH)
    results = []
    for each in chosen:
        planned = each.seconds * stretch
        if time.monotonic() + planned / 2 > until:
            result = _without(each, Status.SKIPPED, "the time was used up before it")
            result.write(folder)
        else:
            note(f"{each.name}: {each.question}, about {planned:.0f} s")
            result = measure_alone(each, planned, folder)
        # Said at once, whoever listens: a machine that is lent may be taken back before the table is printed.
        why = f": {result.reason}" if result.reason else ""
        sys.stderr.write(f"{each.name} {result.status} in {result.seconds:.0f} s{why}\n")
        results.append(result)
    return results


def measure_alone(measurement: Measurement, seconds: float, folder: Path) -> Result:
    """In a process of its own, which is ended when it takes far longer than it should."""
    path = folder / f"{measurement.name}.json"
    path.unlink(missing_ok=True)
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    process = subprocess.Popen(
        [sys.executable, "-m", "gpu.alone", measurement.name, str(seconds), str(folder), str(os.getpid())],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (*_ROOMS, *inherited)))},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=2 * seconds + 2 * _GRACE_S)
    except BaseException as error:
        _end(process)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        said = f"it did not end within {error.timeout:.0f} s"
    if path.exists():
        return Result.read(path)
    last = said.strip().splitlines()[-1:] or ["it said nothing"]
    result = _without(measurement, Status.FAIL, f"it broke off: {last[0]}")
    result.write(folder)
    return result


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupted, it ends its children itself; killed, they notice."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def _without(measurement: Measurement, status: Status, reason: str) -> Result:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Result(measurement.name, measurement.question, measurement.pass_line, status, reason, now, 0.0)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"--out {folder}: {error.strerror}", "name a folder that can be made") from error


def _listed(chosen: Sequence[Measurement]) -> Table:
    table = Table("measurement", "what it asks", "pass line", "seconds", texts=3)
    for each in chosen:
        table.add(each.name, each.question, each.pass_line, f"{each.seconds:g}")
    return table


def _told(results: Sequence[Result]) -> Table:
    table = Table("measurement", "status", "why", "seconds", texts=3)
    for result in results:
        table.add(result.measurement, result.status, result.reason, f"{result.seconds:.0f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
