"""Measure how much jobs use the cards that they hold and what the cards draw, and add it up in the store.

A card that a job holds counts as idle for as long as it computes for at most ``IDLE_MILLI`` of the time between two
looks. Where nothing says whether it computes (no samples, a card that several tasks share and whose driver does not
tell them apart, a server that did not run) the time is not measured, and counts neither as idle nor as used.

The energy of a card is shared by those that hold it, in proportion to what they hold. It is what the driver reports,
else what the configuration declares for the model, else unknown; it is priced at once, by the rates of that time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from sqlalchemy.exc import DBAPIError

from millpond.model.energy import NO_ENERGY, DeclaredPower, EnergyRates
from millpond.model.resources import CARD_MILLI
from millpond.model.states import TaskState
from millpond.node.devices.decayed_averages import LONGEST_SPAN_S
from millpond.node.devices.vendor import STALE_AFTER_S
from millpond.node.host.clocks import WallClock
from millpond.node.host.periodic_worker import EXPECTED, Periodic, PeriodicWorker
from millpond.server.monitoring.idle_cards import IdleCards
from millpond.server.monitoring.telemetry.sampling import COST_SHARE, IDLE_MILLI, Sampled, Samples
from millpond.server.monitoring.telemetry.slices import SliceKey, SliceUse
from millpond.server.store.statistics.card_use import CardUseStore, JobCardUse
from millpond.specs.api.jobs.jobs import DeviceGrant, JobInfo
from millpond.specs.calendar_spans import day_begin, day_of

LOOK_EVERY_S: Final = 5.0
STORE_EVERY_S: Final = 20.0
_ON_CARDS: Final = (TaskState.RUNNING, TaskState.FROZEN)

_Key = tuple[str, str, float]
_Held = tuple[JobInfo, int, DeviceGrant]
"""What is on cards: a job, the number of a task, and what it holds of one card."""


@dataclass(frozen=True, slots=True)
class CardUseSources:
    """Whom to ask.

    Attributes:
        jobs: those that have not ended.
        samples: what is remembered of a device.
        slices: what each task made of its part of a device last.
        rates: what energy costs and emits, as it is now.
    """

    jobs: Callable[[], Iterable[JobInfo]]
    samples: Samples
    slices: Callable[[], Mapping[SliceKey, SliceUse]]
    rates: Callable[[], EnergyRates] = EnergyRates


class CardUseRecorder(Periodic):
    """Looks at all running jobs every few seconds, and stores the sums a few times a minute.

    Args:
        idle_cards: is kept up to date.
    """

    def __init__(self, store: CardUseStore, sources: CardUseSources, idle_cards: IdleCards, clock: WallClock) -> None:
        self._store = store
        self._sources = sources
        self._idle_cards = idle_cards
        self._clock = clock
        self._looked_at: float | None = None
        self._stored_at = clock()
        self._fresh: dict[_Key, JobCardUse] = {}
        self._worker = PeriodicWorker(
            "card-use", self._pass, LOOK_EVERY_S, "the use of cards cannot be stored", (*EXPECTED, DBAPIError)
        )

    def close(self) -> None:
        """End, and store what is known."""
        self._worker.close()
        self.store()

    def look(self) -> None:
        """Measure the time since the last look."""
        now, before = self._clock(), self._looked_at
        self._looked_at = now
        if before is None or not 0 < now - before <= LONGEST_SPAN_S:
            self._idle_cards.forget()
            return
        held = list(_held(self._sources.jobs()))
        self._idle_cards.look({grant.uuid for _, _, grant in held}, self._sources.samples, before, now)
        for use in self._measured(held, before, now):
            key = use.job, use.model, use.day
            known = self._fresh.get(key)
            self._fresh[key] = use if known is None else _added(known, use)

    def store(self) -> None:
        """Store what was measured since this was done last."""
        fresh, self._fresh = self._fresh, {}
        self._stored_at = self._clock()
        try:
            self._store.add(list(fresh.values()))
        except DBAPIError:
            self._fresh = fresh  # for the next time
            raise

    def _pass(self) -> float:
        begun_s = time.thread_time()
        self.look()
        if not 0 <= self._clock() - self._stored_at < STORE_EVERY_S:
            self.store()
        return max(LOOK_EVERY_S, (time.thread_time() - begun_s) * COST_SHARE)

    def _measured(self, held: Sequence[_Held], since: float, until: float) -> Iterator[JobCardUse]:
        holders = Counter(grant.uuid for _, _, grant in held)
        granted_milli: Counter[str] = Counter()
        for _, _, grant in held:
            granted_milli[grant.uuid] += grant.compute_milli
        rates = self._sources.rates()
        slices, day = self._sources.slices(), day_begin(day_of(since))
        for job, task, grant in held:
            begin = max(since, job.started_at or until)
            if begin >= until:
                continue
            recent = self._sources.samples(grant.uuid)
            samples = [each for each in recent if begin < each.at <= until]
            own = slices.get(SliceKey(job.id, job.attempt, task, grant.uuid))
            busy = busy_part(grant, samples, own, is_alone=holders[grant.uuid] == 1)
            gpu_s = (until - begin) * grant.compute_milli / CARD_MILLI
            power = drawn_power(samples or recent[-1:], until, rates.cards.get(grant.model))
            energy = NO_ENERGY
            if power is not None:
                part_s = (until - begin) * grant.compute_milli / max(granted_milli[grant.uuid], 1)
                energy = rates.charge((begin, until), gpu_s, power.measured_w * part_s, power.declared_w * part_s)
            if busy is None and energy is NO_ENERGY:
                continue
            use = (0.0, 0.0, 0.0)
            if busy is not None:
                use = (gpu_s, busy * gpu_s, gpu_s if busy * CARD_MILLI <= IDLE_MILLI else 0.0)
            whose = (job.id, grant.model, day, job.user, job.queue, job.group, job.kind)
            yield JobCardUse(*whose, begin, until, *use, energy)


def busy_part(grant: DeviceGrant, samples: Sequence[Sampled], own: SliceUse | None, *, is_alone: bool) -> float | None:
    """Which part of the time a task computed on what it holds of a card, from 0 to 1; None where that is not known.

    Args:
        samples: of the whole card.
        own: what is known of the task's part.
        is_alone: no other task has a part of the card.
    """
    uses = [each.sample.use_milli for each in samples]
    known = [use for use in uses if use is not None]
    if not known or len(known) < len(uses):
        return None
    of_card = sum(known) / len(known)
    if of_card <= IDLE_MILLI:
        return of_card / CARD_MILLI
    if is_alone:
        return min(of_card / max(grant.limit_milli, 1), 1.0)
    if own is None or own.use_milli is None:
        return None
    return min(own.use_milli / max(grant.limit_milli, 1), 1.0)


class DrawnPower(NamedTuple):
    """What a card drew on average, in watts: measured, or declared; the other is 0."""

    measured_w: float = 0.0
    declared_w: float = 0.0


def drawn_power(samples: Sequence[Sampled], until: float, declared: DeclaredPower | None) -> DrawnPower | None:
    """What a card with work on it drew; None where nothing says.

    Args:
        samples: of the span, or the last one before it where the driver is sampled seldom.
        declared: for a card that does not report its power. Where it does not report its use either, it counts as
            computing all the time.
    """
    fresh = [each.sample for each in samples if until - each.at <= STALE_AFTER_S]
    reported = [each.power_w for each in fresh if each.power_w is not None]
    if reported:
        return DrawnPower(measured_w=sum(reported) / len(reported))
    if declared is None:
        return None
    uses = [each.use_milli for each in fresh if each.use_milli is not None]
    return DrawnPower(declared_w=declared.drawn_w(sum(uses) / len(uses) / CARD_MILLI if uses else 1.0))


def _held(jobs: Iterable[JobInfo]) -> Iterator[_Held]:
    for job in jobs:
        for task in job.tasks:
            if task.state in _ON_CARDS:
                yield from ((job, task.task, grant) for grant in task.devices)


def _added(one: JobCardUse, other: JobCardUse) -> JobCardUse:
    return replace(
        one,
        since=min(one.since, other.since),
        until=max(one.until, other.until),
        measured_gpu_s=one.measured_gpu_s + other.measured_gpu_s,
        busy_gpu_s=one.busy_gpu_s + other.busy_gpu_s,
        idle_gpu_s=one.idle_gpu_s + other.idle_gpu_s,
        energy=one.energy + other.energy,
    )
