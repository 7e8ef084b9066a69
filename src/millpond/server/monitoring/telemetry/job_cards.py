"""The use of each job's cards over its life: one sample a minute, kept beside the records of the attempt.

A file has ``MOST_LINES`` at the most: then each two become one, and a line stands for twice the time from then on. So
the life of a job of weeks takes no more room than that of an afternoon, and goes when the job's folder goes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from millpond.model.hardware.telemetry import DeviceSample
from millpond.model.states import JobState
from millpond.node.host.clocks import WallClock
from millpond.node.host.periodic_worker import Periodic, PeriodicWorker
from millpond.node.task.records import attempt_dir
from millpond.server.monitoring.telemetry.sampling import Telemetry
from millpond.server.monitoring.telemetry.slices import SliceKey, SliceUse
from millpond.server.monitoring.time_series.figures import Figures, Look, merged
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.reports.time_series import NamedSeries, TimeSeriesInfo

FIGURES: Final = ("engine", "own", "memory_mib", "power_w", "temperature_c", "sm", "tensor")
"""Parts of the time from 0 to 1 in which anything ran on a card, and in which work of the job did; the job's memory on
it; power and temperature of the whole card; parts of the time in which its multiprocessors and tensor cores worked."""
MOST_CARDS: Final = 64
"""Of one job."""
MOST_LINES: Final = 480
MOST_ATTEMPTS: Final = 50
_MINUTE_S: Final = 60
_FILE: Final = "cards.jsonl"
_UNKNOWN: Final = (None,) * len(FIGURES)


@dataclass(slots=True)
class _CardsFile:
    """The file of one attempt; looks that do not fill a line yet are in memory."""

    path: Path
    lines: int = 0
    looks_a_line: int = 1
    pending: list[tuple[int, Look]] = field(default_factory=list)

    @staticmethod
    def of(path: Path) -> _CardsFile:
        """One as an earlier server may have left it."""
        rows = list(_rows(path))
        return _CardsFile(path, len(rows), rows[-1][1] if rows else 1)

    def add(self, at: int, look: Look) -> None:
        """Keep a look.

        Raises:
            OSError: it cannot be written.
        """
        self.pending.append((at, look))
        if len(self.pending) < self.looks_a_line:
            return
        _, together = merged(FIGURES, [(1, each) for _, each in self.pending])
        row = _line(self.pending[0][0], len(self.pending), together)
        self.pending = []
        with self.path.open("a") as file:
            file.write(row)
        self.lines += 1
        if self.lines >= MOST_LINES:
            self._halve()

    def _halve(self) -> None:
        rows = list(_rows(self.path))
        pairs = [rows[index : index + 2] for index in range(0, len(rows), 2)]
        fresh = self.path.with_suffix(".new")
        with fresh.open("w") as file:
            for pair in pairs:
                _, look = merged(FIGURES, [(looks, each) for _, looks, each in pair])
                file.write(_line(pair[0][0], sum(looks for _, looks, _ in pair), look))
        fresh.replace(self.path)
        self.lines, self.looks_a_line = len(pairs), 2 * self.looks_a_line


class JobCardsRecorder(Periodic):
    """Looks at the cards of all running jobs, on a thread of its own.

    Args:
        jobs: gives those that have not ended.
        uses: gives what tasks make of their parts of devices.
    """

    _first_after_s = _MINUTE_S

    def __init__(
        self,
        state_dir: Path,
        jobs: Callable[[], Iterable[JobInfo]],
        telemetry: Telemetry,
        uses: Callable[[], Mapping[SliceKey, SliceUse]],
        clock: WallClock,
    ) -> None:
        self._state_dir = state_dir
        self._jobs = jobs
        self._telemetry = telemetry
        self._uses = uses
        self._clock = clock
        self._files: dict[tuple[str, int], _CardsFile] = {}
        self._worker = PeriodicWorker("job-cards", self.look, _MINUTE_S, "what the cards of jobs do is not kept now")

    def look(self) -> None:
        """Look at all of them once.

        Raises:
            OSError: something could not be written; all others were.
        """
        now, uses = self._clock(), self._uses()
        files: dict[tuple[str, int], _CardsFile] = {}
        trouble: OSError | None = None
        for job in self._jobs():
            if job.state != JobState.RUNNING or not job.gpu_milli:
                continue
            look = {name: figures for name, figures in self._figures(job, uses, now) if figures != _UNKNOWN}
            folder = attempt_dir(self._state_dir, job.id, job.attempt)
            if not look or not folder.is_dir():  # nothing is measured, or it runs elsewhere
                continue
            key = job.id, job.attempt
            try:
                files[key] = self._files.get(key) or _CardsFile.of(folder / _FILE)
                files[key].add(int(now), look)
            except OSError as error:
                trouble = error
        self._files = files
        if trouble is not None:
            raise trouble

    def _figures(self, job: JobInfo, uses: Mapping[SliceKey, SliceUse], now: float) -> Iterator[tuple[str, Figures]]:
        held = [(task, grant) for task in job.tasks for grant in task.devices]
        for task, grant in held[:MOST_CARDS]:
            samples = [sample for at, sample in self._telemetry.recent(grant.uuid) if now - at <= _MINUTE_S]
            use = uses.get(SliceKey(job.id, job.attempt, task.task, grant.uuid), SliceUse())
            yield f"{task.node or ''} #{grant.index} {grant.model}".strip(), _of_card(samples, use)


def cards_of(state_dir: Path, job: JobInfo) -> TimeSeriesInfo:
    """What was kept of the cards of a job, in all its attempts."""
    attempts = range(max(1, job.attempt - MOST_ATTEMPTS + 1), job.attempt + 1)
    kept = [row for attempt in attempts for row in _rows(attempt_dir(state_dir, job.id, attempt) / _FILE)]
    # A clock that was set wrong for a while dated some before there was a job.
    rows = sorted((row for row in kept if row[0] >= job.submitted_at - _MINUTE_S), key=lambda row: row[0])
    names = dict.fromkeys(name for _, _, look in rows for name in look)
    series = []
    for name in names:
        columns = zip(*(look.get(name, _UNKNOWN) for _, _, look in rows), strict=True)
        series.append(
            NamedSeries(
                name=name, figures={figure: list(values) for figure, values in zip(FIGURES, columns, strict=True)}
            )
        )
    return TimeSeriesInfo(
        subject="cards",
        begin=float(rows[0][0]) if rows else job.submitted_at,
        end=float(rows[-1][0] + rows[-1][1] * _MINUTE_S) if rows else job.submitted_at,
        step_s=max((looks for _, looks, _ in rows), default=1) * _MINUTE_S,
        at=[float(at) for at, _, _ in rows],
        series=series,
    )


def _of_card(samples: Sequence[DeviceSample], use: SliceUse) -> Figures:
    power = [each.power_w for each in samples if each.power_w is not None]
    heat = [each.temperature_c for each in samples if each.temperature_c is not None]
    return (
        _mean_part(each.use_milli for each in samples),
        None if use.use_milli is None else use.use_milli / 1000,
        use.memory_used_mib,
        round(sum(power) / len(power), 1) if power else None,
        max(heat) if heat else None,
        _mean_part(each.sm_milli for each in samples),
        _mean_part(each.tensor_milli for each in samples),
    )


def _mean_part(milli: Iterable[int | None]) -> float | None:
    known = [each for each in milli if each is not None]
    return round(sum(known) / len(known) / 1000, 3) if known else None


def _line(at: int, looks: int, look: Look) -> str:
    return json.dumps([at, looks, look], separators=(",", ":")) + "\n"


def _rows(path: Path) -> Iterator[tuple[int, int, Look]]:
    """Begin, looks and figures of each line; one that a killed server did not finish, or that is none, is left out."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            at, looks, look = json.loads(line)
            row = int(at), int(looks), {name: _figures(figures) for name, figures in look.items()}
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            continue
        yield row


def _figures(plain: Sequence[float | None]) -> Figures:
    """Those of a card.

    Raises:
        ValueError, TypeError: these are none.
    """
    figures = tuple(plain)
    if len(figures) != len(FIGURES) or not all(figure is None or math.isfinite(figure) for figure in figures):
        raise ValueError("no figures of a card")
    return figures
