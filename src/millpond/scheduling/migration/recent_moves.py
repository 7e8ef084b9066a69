"""Which jobs were moved of late so that nodes come free, and what that costs, learnt from those that have arrived."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from millpond.model.units import DAY_S
from millpond.scheduling.records import JobRecord
from millpond.scheduling.settings import PreemptionCost

COOL_DOWN_S: Final = 1_800.0
"""So long after it was asked to move a job is not asked again."""
LOOK_EVERY_S: Final = 60.0
"""So long after a look in vain for a node to empty it is not looked again."""
LEARNT_PART: Final = 0.25
"""How much the latest move counts in what is learnt."""


@dataclass(frozen=True, slots=True)
class RecentMove:
    """One move of a job.

    Attributes:
        attempt: the run that ended for it.
        at: when that was decided.
        is_over: it runs elsewhere, or something else has become of it.
    """

    attempt: int
    at: float
    is_over: bool = False


class RecentMoves:
    """The latest move of each job that has moved of late.

    Attributes:
        by_job: those asked first come first.
        away_s: how long a job does not run for a move, as learnt; 0 before the first.
        looked_at: when it was last looked in vain for a node to empty.
        relieved: the instant of each move off a busy card of the last day, with the UUID of that card.
    """

    def __init__(self) -> None:
        self.by_job: dict[str, RecentMove] = {}
        self.away_s = 0.0
        self.looked_at = -LOOK_EVERY_S
        self.relieved: list[tuple[float, str]] = []

    def note_relief(self, card: str, now: float) -> None:
        """A job was moved off a busy card, by its UUID."""
        self.relieved = [*((at, other) for at, other in self.relieved if now < at + DAY_S), (now, card)]

    def relieved_of(self, card: str, since: float) -> int:
        """How many jobs were moved off a card since an instant of the last day."""
        return sum(card == other and at > since for at, other in self.relieved)

    def note(self, record: JobRecord, now: float) -> None:
        """A running job is asked to move."""
        self.by_job.pop(record.id, None)
        self.by_job[record.id] = RecentMove(record.attempt, now)

    def rest(self, record: JobRecord, now: float) -> None:
        """A running job was asked to leave its cards otherwise: it rests as one that has moved."""
        self.by_job.pop(record.id, None)
        self.by_job[record.id] = RecentMove(record.attempt, now, is_over=True)

    def arrived(self, record: JobRecord, now: float) -> None:
        """A run of a job has begun: of one that moved, the first elsewhere tells what a move takes."""
        move = self.by_job.get(record.id)
        if move is None or move.is_over:
            return
        self.by_job[record.id] = replace(move, is_over=True)
        self.looked_at = -LOOK_EVERY_S  # others may move now
        if record.attempt == move.attempt + 1 and record.migration is not None:
            away_s = now - move.at
            self.away_s = away_s if not self.away_s else self.away_s + LEARNT_PART * (away_s - self.away_s)

    def under_way(self) -> Iterator[str]:
        """Jobs that were asked and do not run elsewhere yet; some may have ended, or wait for any place, by now."""
        return (job for job, move in self.by_job.items() if not move.is_over)

    def prune(self, jobs: Mapping[str, JobRecord], now: float) -> None:
        """Forget what may be asked again, and what has ended."""
        if self.by_job:
            self.by_job = {
                job: move
                for job, move in self.by_job.items()
                if job in jobs and not jobs[job].state.ended and (not move.is_over or now < move.at + COOL_DOWN_S)
            }

    def may_look(self, now: float) -> bool:
        """Whether it is time to look for a node to empty."""
        return now >= self.looked_at + LOOK_EVERY_S

    def next_due(self, decided_at: float) -> list[float]:
        """Instants behind the latest cycle at which more may move: jobs have rested, or it is time to look again."""
        rested = [at for move in self.by_job.values() if (at := move.at + COOL_DOWN_S) > decided_at]
        return [*rested[:1], *([self.looked_at + LOOK_EVERY_S] if decided_at > self.looked_at else [])]

    def cost_s(self, gpu_milli: int, expected: PreemptionCost) -> float:
        """What a move costs each card of a job of this size, in seconds: not running, and what it does again."""
        return self.away_s + expected.of(gpu_milli)

    def copy_from(self, other: RecentMoves) -> None:
        """Know the same."""
        self.by_job, self.away_s, self.looked_at = dict(other.by_job), other.away_s, other.looked_at
        self.relieved = list(other.relieved)

    def snapshot(self) -> dict[str, Any]:
        """As plain data."""
        moves = [[job, move.attempt, move.at, move.is_over] for job, move in self.by_job.items()]
        relieved = [list(each) for each in self.relieved]
        return {"moves": moves, "away_s": self.away_s, "relieved": relieved}

    def restore(self, plain: Mapping[str, Any]) -> None:
        """What ``snapshot`` wrote."""
        self.by_job = {job: RecentMove(attempt, at, is_over) for job, attempt, at, is_over in plain["moves"]}
        self.away_s = plain["away_s"]
        self.relieved = [(at, card) for at, card in plain["relieved"]]
