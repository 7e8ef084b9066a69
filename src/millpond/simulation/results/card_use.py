"""What cards were used for, hour by hour: training, sessions, both, or nothing.

Two measures, after the published case of four shared machines (AIStation). *Used hours* count a card in full while
training holds it or a session holds a slice of it, and for a fifth while one session holds it whole. *Utilisation* says
how busy it is meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from millpond.model.resources import CARD_MILLI
from millpond.model.units import DAY_S
from millpond.model.workloads import Job, Kind
from millpond.simulation.results.history import Run
from millpond.simulation.trace import TraceJob

WHOLE_SESSION_USE = 0.2
"""What an hour counts in which one session holds a card whole."""
TRAINING_BUSY, SESSION_BUSY, SESSIONS_BUSY_AT_MOST = 0.9, 0.1, 0.8
"""How busy a card is with training, with each session on it, and with any number of those that add up."""

_SATURDAY = 5


@dataclass(frozen=True, slots=True)
class CardUse:
    """Sums over all cards, for each card and day; days begin at the hour at which the figures begin.

    Attributes:
        used_hours: of all days.
        used_hours_on_working_days: of days that begin on Monday to Friday, UTC; 0 where there are none.
        utilisation_percent: over all hours.
        training_hours, session_hours, shared_hours: with training on the card, with any session, with both.
        work_hours_per_week: what training got done on all cards, in card-hours at full speed.
    """

    used_hours: float
    used_hours_on_working_days: float
    utilisation_percent: float
    training_hours: float
    session_hours: float
    shared_hours: float
    work_hours_per_week: float


@dataclass(slots=True)
class _OnCard:
    """How many of each there are, and how busy those keep the card that add up."""

    training: int = 0
    whole: int = 0
    slices: int = 0
    added: float = 0.0

    @property
    def use(self) -> float:
        if self.training or self.slices:
            return 1.0
        return WHOLE_SESSION_USE if self.whole else 0.0

    @property
    def busy(self) -> float:
        return max(TRAINING_BUSY if self.training else 0.0, min(self.added, SESSIONS_BUSY_AT_MOST))

    def change(self, entry: TraceJob, sign: int, milli: int) -> None:
        """One more of a job's tasks (``sign`` -1: one less), with so much compute of the card."""
        is_session = entry.job.kind is Kind.DEV
        if is_session or entry.busy is not None:
            self.added += sign * (SESSION_BUSY if entry.busy is None else entry.busy)
        else:
            self.training += sign
        if is_session and milli == CARD_MILLI:
            self.whole += sign
        elif is_session or entry.busy is not None:
            self.slices += sign


def card_use(runs: Iterable[Run], jobs: Sequence[TraceJob], cards: int, begin: float, end: float) -> CardUse:
    """Use of ``cards`` cards between two instants that are whole days apart (seconds since 1970).

    Args:
        jobs: by the index that runs have. Work of a stretch that only partly lies between the instants counts in part.
    """
    changes: dict[str, list[tuple[float, int, Run, int]]] = {}
    work_s = 0.0
    for run in runs:
        first, last = max(run.start_at, begin), min(run.end_at, end)
        if first < last:
            job = jobs[run.job].job
            part = (last - first) / (run.end_at - run.start_at)
            work_s += run.done_s * part * sum(role.desired * role.request.devices for role in job.roles) * _works(job)
            for placement in run.placements:
                for grant in placement.grants:
                    device = changes.setdefault(grant.device, [])
                    device.append((first, 1, run, grant.compute_milli))
                    device.append((last, -1, run, grant.compute_milli))
    sums = [0.0] * 6
    for device in changes.values():
        device.sort(key=lambda change: change[0])
        now, on_card = begin, _OnCard()
        for at, sign, run, milli in device:
            _add(sums, on_card, now, at, begin)
            now = at
            on_card.change(jobs[run.job], sign, milli)
    days = (end - begin) / DAY_S
    working = _working_s(begin, end, begin) / DAY_S
    used_s, working_s, busy_s, *held_s = (total / cards for total in sums)
    return CardUse(
        used_s / 3600 / days,
        working_s / 3600 / working if working else 0.0,
        100 * busy_s / (end - begin),
        held_s[0] / 3600 / days,
        held_s[1] / 3600 / days,
        held_s[2] / 3600 / days,
        work_s / 3600 / days * 7,
    )


def _works(job: Job) -> bool:
    return job.kind is Kind.TRAIN


def _add(sums: list[float], on_card: _OnCard, begin: float, end: float, days_begin: float) -> None:
    use = on_card.use
    if begin == end or not use:
        return
    length = end - begin
    sums[0] += use * length
    sums[1] += use * _working_s(begin, end, days_begin)
    sums[2] += on_card.busy * length
    sums[3] += length * bool(on_card.training)
    sums[4] += length * bool(on_card.whole or on_card.slices)
    sums[5] += length * bool(on_card.training and (on_card.whole or on_card.slices))


def _working_s(begin: float, end: float, days_begin: float) -> float:
    """Seconds of a stretch that lie on working days, which begin at the hour of ``days_begin``."""
    found, now = 0.0, begin
    while now < end:
        day_begin = days_begin + (now - days_begin) // DAY_S * DAY_S
        until = min(day_begin + DAY_S, end)
        if datetime.fromtimestamp(day_begin, UTC).weekday() < _SATURDAY:
            found += until - now
        now = until
    return found
