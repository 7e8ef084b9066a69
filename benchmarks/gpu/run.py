"""Measures sharing on the card of this machine: what teaches most first, and all that was found by then is written.

    python benchmarks/gpu/run.py
    python benchmarks/gpu/run.py --only m03,m05 --limit-s 240 --host-mib 65536 --out results

Exit code 0: all that was measured met its line, 1: something did not, 2: bad input, 69: no card that can be
measured, 130: interrupted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil

from benchmarks.gpu.bench import Measurement, find_card
from benchmarks.gpu.catalogue import CATALOGUE, ON_REQUEST, file_of
from benchmarks.gpu.results import Result, Status
from benchmarks.reporting import Table, command_line, emit, note, program
from millpond.model.errors import InvalidInputError, UnavailableError

_ROOMS = [str(Path(__file__).resolve().parents[2] / name) for name in ("", "src")]
"""Where the measurements and what they measure lie: a machine that is lent for minutes need not have it installed."""

NO_CARD = os.EX_UNAVAILABLE
INTERRUPTED = 128 + signal.SIGINT

_RESULTS = Path(__file__).resolve().parent / "results"
_PLANNED = 0.8
"""Of the limit: what is planned never takes exactly as long."""
_MOST_STRETCH = 3.0
"""Of its usual time, where few measurements share many minutes."""
_GRACE_S = 15.0
_MIB = 1024 * 1024


@program
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and tell."""
    parser = command_line(__doc__)
    parser.add_argument("--only", default="", metavar="NAMES", help="such as m03,m05; by default what teaches most")
    parser.add_argument("--limit-s", type=float, default=600.0, metavar="S", help="for all together; 600 by default")
    parser.add_argument(
        "--host-mib", type=int, default=0, metavar="MIB", help="host memory to fill; by default what is free"
    )
    parser.add_argument("--out", type=Path, default=_RESULTS, metavar="DIR", help="where the files of results go")
    parser.add_argument("--list", action="store_true", help="say what there is and how long it is planned to take")
    options = parser.parse_args(arguments)
    chosen = choose(options.only)
    if not options.limit_s > 0:
        raise InvalidInputError(f"--limit-s {options.limit_s:g}: no time at all", "give it seconds above 0")
    if options.list:
        planned = planned_s(chosen, options.limit_s)
        emit({"measurements": list(planned), "planned_s": planned}, options.json, [_listed(chosen, planned)])
        return 0
    try:
        find_card()
    except UnavailableError as error:
        sys.stderr.write(f"{error}\n")
        return NO_CARD
    _make(options.out)
    try:
        host_mib = options.host_mib or psutil.virtual_memory().available // _MIB
        results = measure_all(chosen, options.limit_s, options.out, host_mib)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; what was started has been ended, results written so far are kept\n")
        return INTERRUPTED
    emit({"results": [asdict(result) for result in results]}, options.json, [_told(results)])
    return int(any(result.status is Status.FAIL for result in results))


def choose(names: str) -> list[Measurement]:
    """The measurements whose names begin as given, in the catalogue's order; what teaches most for an empty text.

    Raises:
        InvalidInputError: one is not known.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if not any(known.startswith(name) for known in CATALOGUE):
            raise InvalidInputError(f"--only {name}: there is no such measurement", "--list says what there is")
    if not wanted:
        return [each for name, each in CATALOGUE.items() if name not in ON_REQUEST]
    return [each for name, each in CATALOGUE.items() if name.startswith(tuple(wanted))]


def planned_s(chosen: Sequence[Measurement], limit_s: float) -> dict[str, float]:
    """What each may take, by its name; together four fifths of the limit at the most."""
    stretch = min(_PLANNED * limit_s / sum(each.seconds for each in chosen), _MOST_STRETCH)
    return {each.name: each.seconds * stretch for each in chosen}


def measure_all(chosen: Sequence[Measurement], limit_s: float, folder: Path, host_mib: int) -> list[Result]:
    """One after the other, each in its part of the time that is left; those for which there is none are skipped."""
    until, planned, results = time.monotonic() + limit_s, planned_s(chosen, limit_s), []
    for number, each in enumerate(chosen):
        left = until - time.monotonic()
        if planned[each.name] / 2 > left:
            result = _without(each, Status.SKIPPED, "the time was used up before it", time.monotonic())
            result.append(file_of(each.name, folder))
        else:
            seconds = planned_s(chosen[number:], left)[each.name]
            note(f"{each.name}: {each.question}, about {seconds:.0f} s")
            others = sum(planned[other.name] for other in chosen[number + 1 :]) / 2  # which is the least they need
            result = measure_alone(each, seconds, max(seconds, left - others), folder, host_mib)
        # Said at once, whoever listens: a machine that is lent may be taken back before the table is printed.
        why = f": {result.reason}" if result.reason else ""
        sys.stderr.write(f"{each.name} {result.status} in {result.seconds:.0f} s{why}\n")
        results.append(result)
    return results


def measure_alone(measurement: Measurement, seconds: float, left_s: float, folder: Path, host_mib: int) -> Result:
    """In a process of its own, which is ended when it takes far longer than it should, or no time is left."""
    path = file_of(measurement.name, folder)
    before, began = path.stat().st_size if path.exists() else 0, time.monotonic()
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    arguments = (measurement.name, str(seconds), str(folder), str(host_mib), str(os.getpid()))
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gpu.alone", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (*_ROOMS, *inherited)))},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=min(2 * seconds + 2 * _GRACE_S, left_s))
    except BaseException as error:
        _end(process)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        said = f"it did not end within {error.timeout:.0f} s"
    result = Result.read(path, measurement.name, before)
    if result is not None:
        return result
    last = said.strip().splitlines()[-1:] or ["it said nothing"]
    result = _without(measurement, Status.FAIL, f"it broke off: {last[0]}", began)
    result.append(path)
    return result


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupted, it ends its children itself; killed, they notice."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def _without(measurement: Measurement, status: Status, reason: str, began: float) -> Result:
    seconds = round(time.monotonic() - began, 1)
    when = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="seconds")
    return Result(measurement.name, measurement.question, measurement.pass_line, status, reason, when, seconds)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"--out {folder}: {error.strerror}", "name a folder that can be made") from error


def _listed(chosen: Sequence[Measurement], planned: Mapping[str, float]) -> Table:
    table = Table("measurement", "what it asks", "pass line", "seconds", texts=3)
    for each in chosen:
        table.add(each.name, each.question, each.pass_line, f"{planned[each.name]:.0f}")
    return table


def _told(results: Sequence[Result]) -> Table:
    table = Table("measurement", "status", "why", "seconds", texts=3)
    for result in results:
        table.add(result.measurement, result.status, result.reason, f"{result.seconds:.0f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
