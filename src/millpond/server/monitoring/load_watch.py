"""Measure how busy cards are, and tell the core where load decides placement.

Each measurement is an event in the log, so little is told: means over some minutes (``node.devices.decayed_averages``),
of nodes of which one card has changed by ``STEP_MILLI`` since it was told, with all cards that have changed by half as
much; and in one look of at most ``MOST_NODES``, those that have changed most. What is held of a card counts as it is
used on average, as the core estimates. Where load decides nothing (``Scheduler.counts_load``), nothing is told at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millpond.model.events import CardLoad, LoadSampled
from millpond.node.devices.decayed_averages import DecayedAverages
from millpond.node.host.clocks import WallClock
from millpond.node.host.periodic_worker import Periodic, PeriodicWorker
from millpond.server.monitoring.telemetry.sampling import Telemetry

LOOK_EVERY_S: Final = 10.0
STEP_MILLI: Final = 100
MOST_NODES: Final = 200

HeldCards = Mapping[str, Mapping[str, int]]
"""By node and UUID: what is held of the compute of each card, in milli."""


@dataclass(frozen=True, slots=True)
class LoadSources:
    """Whom to ask.

    Attributes:
        held: what is held of all cards; None where load decides nothing.
        telemetry: of the cards of this machine.
        reported: the mean use of cards of other machines, by UUID, as their agents have measured it.
    """

    held: Callable[[], HeldCards | None]
    telemetry: Telemetry
    reported: Callable[[], Mapping[str, int]]


class LoadWatch(Periodic):
    """Looks at all cards, on a thread of its own.

    Args:
        notify: tells the core.
    """

    _first_after_s = LOOK_EVERY_S

    def __init__(self, sources: LoadSources, notify: Callable[[Sequence[LoadSampled]], None], clock: WallClock) -> None:
        self._sources = sources
        self._notify = notify
        self._clock = clock
        self._meter = LoadMeter()
        self._worker = PeriodicWorker("load", self.look, LOOK_EVERY_S, "the load of cards is not measured now")

    def look(self) -> None:
        """Look at each card once."""
        held = self._sources.held()
        if held is None:
            self._meter = LoadMeter()
            return
        now, uses = self._clock(), dict[str, float]()
        for uuid in (uuid for cards in held.values() for uuid in cards):
            recent = [
                each.sample.use_milli for each in self._sources.telemetry.recent(uuid) if now - each.at <= LOOK_EVERY_S
            ]
            known = [use for use in recent if use is not None]
            if known:
                uses[uuid] = sum(known) / len(known)
        told = self._meter.look(held, uses, self._sources.reported(), now)
        if told:
            self._notify(told)


class LoadMeter:
    """Turns looks at cards into what is worth telling."""

    def __init__(self) -> None:
        self._uses, self._helds = DecayedAverages(), DecayedAverages()
        self._told: dict[str, CardLoad] = {}
        self._used_part = 1.0
        """How much of what is held is used on average."""

    def look(
        self, held: HeldCards, uses: Mapping[str, float], reported: Mapping[str, int], now: float
    ) -> list[LoadSampled]:
        """Count a look.

        Args:
            held: all cards that there are.
            uses: of the time since the last look, in milli, by UUID; unknown of cards that are not in it.
            reported: means of uses; for cards that are not in ``uses``.
        """
        means = {**reported, **self._uses.look(uses, now)}
        helds = self._helds.look({uuid: milli for cards in held.values() for uuid, milli in cards.items()}, now)
        self._told = {uuid: load for uuid, load in self._told.items() if uuid in helds}
        held_milli = sum(helds[uuid] for uuid in means if uuid in helds)
        if held_milli:
            self._used_part = sum(means[uuid] for uuid in means if uuid in helds) / held_milli
        found: list[tuple[float, LoadSampled]] = []
        for node, cards in held.items():
            loads = [CardLoad(uuid, means[uuid], helds[uuid]) for uuid in cards if uuid in means and uuid in helds]
            changes = {load.device: self._change(load) for load in loads}
            if max(changes.values(), default=0) >= STEP_MILLI:
                due = tuple(load for load in loads if changes[load.device] >= STEP_MILLI / 2)
                mean = round(sum(load.load_milli for load in loads) / len(loads))
                found.append((max(changes.values()), LoadSampled(now, node, mean, due)))
        found.sort(key=lambda each: -each[0])
        told = [event for _, event in found[:MOST_NODES]]
        self._told |= {load.device: load for event in told for load in event.cards}
        return told

    def _change(self, load: CardLoad) -> float:
        """By how much a card has changed since it was told, in milli of its use."""
        told = self._told.get(load.device)
        if told is None:
            return 1_000.0
        return max(abs(load.load_milli - told.load_milli), abs(load.held_milli - told.held_milli) * self._used_part)
