"""Change how idle cards are divided (MIG): ask the core which, report the begin, and have the engine do it.

The engine reports how it went, and before that what there is of the card. A change that an earlier server began is done
again: what the card shows decides, not what was meant.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from sqlalchemy.exc import DBAPIError

from millpond.model.errors import MillpondError
from millpond.model.events import CardLayoutChanged
from millpond.model.hardware.card_layouts import LayoutChange, LayoutChangeState, layout_text
from millpond.node.host.clocks import WallClock
from millpond.node.host.periodic_worker import EXPECTED, Periodic, PeriodicWorker
from millpond.scheduling.nodes.layout_planner import LayoutStep
from millpond.server.runtime.core import Core
from millpond.server.runtime.loop import Loop

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 5.0
_MOST_OF_CORE: Final = 0.05
"""Looks take this part of the core's time at the most: to try layouts takes long where very many wait."""

Divide = Callable[[str, LayoutChange], None]
"""Divides a card, by its UUID, and reports it; returns when that is over."""


class CardLayoutWorker(Periodic):
    """Looks after the layouts of all cards that may be divided, on a thread of its own; one changes at a time.

    Args:
        divide: the engine's.
    """

    def __init__(self, loop: Loop, divide: Divide, clock: WallClock = time.time) -> None:
        self._loop = loop
        self._divide = divide
        self._clock = clock
        self._worker = PeriodicWorker(
            "card-layouts", self.look, LOOK_EVERY_S, "cards keep their layouts", (*EXPECTED, DBAPIError)
        )

    def look(self) -> float:
        """Finish what is under way, or begin what is to be done now; returns the seconds until the next look."""
        now, asked_at = self._clock(), time.monotonic()
        begun, step = self._loop.look_up(lambda core: _planned(core, now), is_long=True)
        pause_s = max(LOOK_EVERY_S, (time.monotonic() - asked_at) / _MOST_OF_CORE)
        if step is not None:
            begun = self._begin(step)
        for card, change in begun.items():
            log.info("card %s is divided into %s for %s", card, layout_text(change.layout), change.for_job)
            self._divide(card, change)
        return pause_s

    def _begin(self, step: LayoutStep) -> dict[str, LayoutChange]:
        """Have the core close the card; empty if it refuses, as when work has come to a card that was idle."""
        layout = step.layout.instances
        changed = self._loop.change_setting(
            lambda now: CardLayoutChanged(now, step.node, step.card, LayoutChangeState.CHANGING, layout, step.for_job)
        )
        try:
            self._loop.wait_for(changed)
        except MillpondError as error:
            log.info("card %s stays as it is: %s", step.card, error)
            return {}
        return {step.card: LayoutChange(LayoutChangeState.CHANGING, self._clock(), step.node, layout, step.for_job)}


def is_under_way(loop: Loop) -> bool:
    """Whether a card is being divided, as an earlier server began that."""
    return loop.look_up(lambda core: bool(_under_way(core)))


def _planned(core: Core, now: float) -> tuple[dict[str, LayoutChange], LayoutStep | None]:
    """What is under way, and else what to begin."""
    begun = _under_way(core)
    return begun, None if begun else core.scheduler.layout_step(now)


def _under_way(core: Core) -> dict[str, LayoutChange]:
    changes = core.scheduler.layout_changes()
    return {card: change for card, change in changes.items() if change.state is LayoutChangeState.CHANGING}
