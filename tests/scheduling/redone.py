"""Schedulers that follow a log instead of deciding, and what they have in common with the one that wrote it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from millpond.model.codec import from_plain, to_plain
from millpond.model.decisions import Decision
from millpond.model.errors import InconsistentStateError, MillpondError
from millpond.model.events import Event
from millpond.scheduling.scheduler import Scheduler

FOUND_ANEW = {
    "deadlines",
    "next_change",
    "ordering",
    "reservations",
    "looked_for_moves_at",
    "rounds",
    "tables_stale",
    "mix",
    "displaced_at",
    "affinities",
    "roster_width",
    "fetch_waits",
}
"""Parts of a snapshot that only a cycle brings up to date, and that bear on later cycles alone."""
ALSO_OF_JOBS = {
    "key", "turn", "displaces_above", "rekey_at", "bins_outlived", "work", "promised_at", "look_at", "overdue",
    "idled_before",
}  # fmt: skip


def stored(plain: Any) -> Any:
    """What comes back of what was written down."""
    return json.loads(json.dumps(plain))


def essential(core: Scheduler) -> dict[str, Any]:
    """A snapshot without what the next cycle finds anew, and without what depends on the policies."""
    plain = {name: part for name, part in core.snapshot().items() if name not in FOUND_ANEW | {"settings"}}
    alive = [job for job in plain["jobs"] if job["ended_at"] is None]
    jobs = [{name: part for name, part in job.items() if name not in ALSO_OF_JOBS} for job in alive]
    return stored({**plain, "jobs": jobs})


def redo(core: Scheduler, turn: Sequence[Event], now: float, decided: Sequence[Decision], claims: Any) -> None:
    """One turn of the log, as it was stored."""
    decisions = [from_plain(stored(to_plain(decision))) for decision in decided]
    core.expect(decisions, stored(claims))
    for event in turn:
        try:
            core.handle(from_plain(stored(to_plain(event))))
        except InconsistentStateError:
            raise
        except MillpondError:  # as it was turned down then
            continue
    core.redo(now, decisions, stored(claims))
