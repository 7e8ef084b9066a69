"""A world whose scheduler has twins that go on from its snapshots, from forks and from its log."""

from __future__ import annotations

import json
import random
from typing import Any

from redone import essential, redo
from worlds import World

from millpond.model.decisions import Decision
from millpond.model.errors import MillpondError
from millpond.model.events import Event
from millpond.scheduling.scheduler import Scheduler

MOST_TWINS = 3


class TwinnedWorld(World):
    """All twins hear the same, and have to refuse and to decide the same for ever after.

    A follower decides nothing: it redoes the log, and has to stand where the others do.

    Attributes:
        share: after which part of all cycles there is another twin, or another follower; none at first.
    """

    share = 0.0

    def __init__(self, *nodes: Any, **fields: Any) -> None:
        self._draws = random.Random(1)
        self._twins: list[Scheduler] = []
        self._follower: Scheduler | None = None
        self._turn: list[Event] = []
        super().__init__(*nodes, **fields)

    def tell(self, event: Event) -> None:
        self._turn.append(event)
        refusal = ""
        try:
            super().tell(event)
        except MillpondError as error:
            refusal = str(error)
            raise
        finally:
            for twin in self._twins:
                assert _refusal(twin, event) == refusal

    def tick(self) -> list[Decision]:
        decisions = super().tick()
        for twin in self._twins:
            found = twin.decide(self.now)
            assert found == decisions, f"a twin decides otherwise at {self.now}: {found} instead of {decisions}"
            assert twin.next_wakeup(self.now) == self.core.next_wakeup(self.now)
        claims = self.core.changed_claims()
        if self._follower is not None:
            redo(self._follower, self._turn, self.now, decisions, claims)
            assert essential(self._follower) == essential(self.core), f"a redo of the log leads elsewhere at {self.now}"
        self._turn.clear()
        if self._draws.random() < self.share:
            self._beget()
        return decisions

    def _beget(self) -> None:
        restored = Scheduler.restore(json.loads(json.dumps(self.core.snapshot())))
        if self._follower is None or self._draws.random() < 0.1:
            self._follower = restored
            return
        self._twins.append(restored if self._draws.random() < 0.5 else self.core.fork())
        if len(self._twins) > MOST_TWINS:
            del self._twins[self._draws.randrange(MOST_TWINS)]


def _refusal(core: Scheduler, event: Event) -> str:
    """What a scheduler says against an event; empty if it takes it."""
    try:
        core.handle(event)
    except MillpondError as error:
        return str(error)
    return ""
