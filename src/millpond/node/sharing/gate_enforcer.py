"""Slices held by the gate, a library in the task's programs that counts memory and takes turns
(``backend.SliceEnforcer``).

The library is built once on each machine, by its own compiler. Each slice has a folder with three files: what the agent
lays down, what the task counts, and what neighbours on the card show each other (``gate.region``).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from millpond.model.decisions import Grant
from millpond.model.errors import MillpondError, UnavailableError
from millpond.model.sharing import ShareClass, SliceHold
from millpond.model.units import MIB
from millpond.node.sandbox.sandbox import Mount
from millpond.node.sharing.backend import EnforcementRequest, SliceEnforcer, SliceUsage, TaskEnv
from millpond.node.sharing.gate.building import library
from millpond.node.sharing.gate.region import CONTROL, SHARED, USAGE, GateRegion, GateSettings, GateUsage
from millpond.node.task.records import TaskId

CONTEXT_MIB = 512
"""What each CUDA context is counted as, which no call asks for: on an H200 with driver 580 it is 518."""

_IN_FLIGHT_US = 500
"""Work that a lower class may have on the card when a higher one comes for it."""
_LEAST_GUARANTEE_MILLI = 10
"""A slice by memory alone has turns too."""


class GateEnforcer(SliceEnforcer):
    """All gated tasks of one agent. A fault stays in its task: contexts are the driver's own.

    Args:
        cache: absolute; for the library.
        cards: absolute; for what the tasks on a card share.
    """

    kind = SliceHold.GATE

    def __init__(self, cache: Path, cards: Path) -> None:
        self._cache = cache
        self._cards = cards
        self._guard = threading.Lock()
        self._regions: dict[TaskId, GateRegion] = {}
        self._tampered: set[TaskId] = set()

    def why_not(self) -> str:
        """See ``SliceEnforcer``."""
        try:
            library(self._cache)
        except MillpondError as error:
            return str(error)
        return ""

    def prepare(self, request: EnforcementRequest) -> TaskEnv:
        """See ``SliceEnforcer``."""
        if len(request.grants) != 1:
            raise UnavailableError(
                f"the gate holds a slice of one card, not of {len(request.grants)}",
                "ask for one slice, or for whole cards",
            )
        [grant] = request.grants
        built, folder = library(self._cache), request.folder
        with self._guard:  # several starts at the same time would find the same place of a card free
            region = GateRegion.create(folder, self._cards / grant.device, settings_of(grant, request))
            if earlier := self._regions.get(request.task):
                earlier.detach()
            self._regions[request.task] = region
        mounts = (
            Mount(built, writable=False),
            Mount(folder / CONTROL, writable=False),
            Mount(folder / USAGE, writable=True),
            Mount(folder / SHARED, writable=True),
        )
        env = {"MILLPOND_GATE": str(folder)} | ({"MILLPOND_GATE_REQUIRED": "1"} if request.required else {})
        return TaskEnv(self.kind, "", env, str(built), mounts)

    def adopt(self, task: TaskId, folder: Path, devices: Sequence[str]) -> bool:
        """See ``SliceEnforcer``."""
        with self._guard:
            region = GateRegion.open(folder, self._cards)
            if region is None:
                return False
            if region.settings.uuid != devices[0]:  # the agent before this one was killed as it moved the task
                region.move(self._cards / devices[0], devices[0])
            self._regions[task] = region
        return True

    def hold_launches(self, task: TaskId, held: bool) -> None:
        """See ``SliceEnforcer``."""
        with self._guard:
            region = self._regions.get(task)
            if region is not None and region.settings.paused is not held:
                region.set(paused=held)

    def usage(self, task: TaskId) -> SliceUsage | None:
        """See ``SliceEnforcer``."""
        with self._guard:
            region = self._regions.get(task)
            if region is None:
                return None
            if not region.verify():
                self._tampered.add(task)
            region.reap()
            return _usage(region.usage(), task in self._tampered, not region.verify_card())

    def match_driver(self, task: TaskId, driver_mib: int, usage: SliceUsage) -> None:
        """See ``SliceEnforcer``."""
        with self._guard:
            region = self._regions.get(task)
            if region is not None and usage.used_bytes is not None:
                region.match_driver(driver_mib * MIB, usage.used_bytes)

    def move(self, task: TaskId, devices: Sequence[str]) -> None:
        """See ``SliceEnforcer``."""
        with self._guard:
            region = self._regions.get(task)
            if region is not None and region.settings.uuid != devices[0]:
                region.move(self._cards / devices[0], devices[0])

    def release(self, task: TaskId) -> None:
        """See ``SliceEnforcer``."""
        with self._guard:
            self._tampered.discard(task)
            region = self._regions.pop(task, None)
            if region is not None:
                region.close()


def settings_of(grant: Grant, request: EnforcementRequest) -> GateSettings:
    """What the gate holds a task to."""
    goes_first = request.share_class is ShareClass.ONLINE
    return GateSettings(
        cap_mib=grant.memory_mib,
        guarantee_milli=max(grant.compute_milli, _LEAST_GUARANTEE_MILLI),
        limit_milli=grant.limit_milli,
        share_class=request.share_class,
        context_mib=CONTEXT_MIB,
        in_flight_us=0 if goes_first else _IN_FLIGHT_US,
        floor_milli=0 if goes_first else request.floor_milli,
        refuse_managed=request.swappable,
        uuid=grant.device,
    )


def _usage(counted: GateUsage, tampered: bool, disturbed: bool) -> SliceUsage:
    return SliceUsage(
        frozenset(counted.processes),
        counted.used_bytes,
        counted.busy_ns,
        counted.denials,
        counted.waited_ns,
        tampered,
        disturbed,
    )
