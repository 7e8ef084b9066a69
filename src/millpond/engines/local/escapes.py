"""Look regularly for tasks of this engine that use a device beyond their slices."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from millpond.engines.local.background import Background
from millpond.engines.local.live_tasks import LiveTasks
from millpond.engines.local.slices import Slices
from millpond.node.host.machine import Machine
from millpond.node.sharing.escapes import LOOK_EVERY_S, Escape, EscapeHistory, WatchedSlice, driver_mib
from millpond.node.sharing.trees import TaskTrees


class EscapeWatcher:
    """Looks regularly while there are slices. Lives on the engine's loop.

    Args:
        on_escape: called on the loop with each escape, once.
    """

    def __init__(
        self,
        machine: Machine,
        live: LiveTasks,
        slices: Slices,
        trees: TaskTrees,
        background: Background,
        on_escape: Callable[[Escape], None],
    ) -> None:
        self._machine = machine
        self._live = live
        self._slices = slices
        self._trees = trees
        self._background = background
        self._on_escape = on_escape
        self._history = EscapeHistory()
        self._is_watching = False

    def watch(self) -> None:
        """Look regularly from now on, as long as there are slices."""
        if self._slices.held and not self._is_watching:
            self._is_watching = True
            self._background.loop.call_later(LOOK_EVERY_S, lambda: self._background.run(self._look, self._looked))

    def _look(self) -> list[Escape]:
        with self._trees.surveyed():
            held = self._watched()
        vendors = {self._slices.vendor_of(each.grant.device) for each in held}
        vendors &= self._machine.vendors.keys()  # without those whose cards are all lost
        samples = [sample for vendor in vendors for sample in self._machine.vendors[vendor].sample()]
        for each, mib in driver_mib(samples, held):
            self._slices.match_driver(each.task, mib, each.usage)
        return self._history.look(samples, held, time.monotonic())

    def _looked(self, escapes: Sequence[Escape]) -> None:
        self._is_watching = False
        for escape in escapes:
            self._on_escape(escape)
        self.watch()

    def _watched(self) -> list[WatchedSlice]:
        found = []
        for task in self._slices.held:
            record, usage = self._live.record(task), self._slices.usage(task)
            if record is not None and usage is not None:
                pids = frozenset(self._trees.pids(task))
                found += [WatchedSlice(task, grant, pids, usage, record.share_class) for grant in record.grants]
        return found
