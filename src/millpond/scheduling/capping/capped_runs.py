"""The runs whose cards may be kept at a power cap, and what is known of caps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from millpond.scheduling.capping.known_caps import STEPS, CapKind, CapTable, kind_of_plain
from millpond.scheduling.records import JobRecord


@dataclass(frozen=True, slots=True)
class CappedRun:
    """A run whose cards may be kept at a cap.

    Attributes:
        attempt: of its job.
        range_w: the least and the greatest cap of its cards.
        began_at: since when it has its cards.
        step: at which they are kept, 0 for none.
        since: since when, or when that was measured last.
        lost_s: by how long it is behind a run without caps, until then.
        is_over: it has no cap until its end.
    """

    attempt: int
    kind: CapKind
    range_w: tuple[float, float]
    began_at: float
    since: float
    step: int = 0
    lost_s: float = 0.0
    is_over: bool = False

    @property
    def cap_w(self) -> float:
        """The cap of its step; 0 for none."""
        least, most = self.range_w
        return most - self.step * (most - least) / STEPS if self.step else 0.0


class PowerCaps:
    """The runs that may have a cap, by job, and what is known of caps."""

    def __init__(self) -> None:
        self.known = CapTable()
        self.runs: dict[str, CappedRun] = {}

    def prune(self, jobs: Mapping[str, JobRecord]) -> None:
        """Forget runs that are over."""
        for job in [job for job in self.runs if job not in jobs or jobs[job].state.ended]:
            del self.runs[job]

    def skip(self, seconds: float) -> None:
        """The last ``seconds`` have not passed."""
        for job, run in self.runs.items():
            self.runs[job] = replace(run, began_at=run.began_at + seconds, since=run.since + seconds)

    def copy_from(self, other: PowerCaps) -> None:
        """Know the same."""
        self.known.copy_from(other.known)
        self.runs = dict(other.runs)

    def snapshot(self) -> dict[str, Any]:
        """All of it as plain data."""
        runs = [
            [
                [job, run.attempt, list(run.kind), list(run.range_w)],
                [run.began_at, run.since, run.step, run.lost_s, run.is_over],
            ]
            for job, run in self.runs.items()
        ]
        return {"known": self.known.snapshot(), "runs": runs}

    def restore(self, plain: dict[str, Any]) -> None:
        """Take over what ``snapshot`` returned."""
        self.known.restore(plain["known"])
        self.runs = {
            job: CappedRun(attempt, kind_of_plain(kind), (least_w, most_w), *state)
            for (job, attempt, kind, (least_w, most_w)), state in plain["runs"]
        }
