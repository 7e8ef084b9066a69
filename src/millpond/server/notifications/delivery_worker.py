"""Delivers what is due in the store, and stores the result: one worker for each way that messages travel.

Receivers that do not depend on each other are served side by side, each by one thread at a time. Those that did not
answer last time, or late, share a few threads of their own, so that the others wait for none of them.

A receiver that fails is tried again after a pause that doubles, for about a day; then the delivery is given up and
stays in the list. One that asks for a longer pause gets it, and nothing else until then. A receiver may get a delivery
twice (the server was killed before it stored the result), and never loses one; the delivery's number identifies it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Protocol

from sqlalchemy.exc import DBAPIError

from millpond.node.host.clocks import WallClock
from millpond.node.host.periodic_worker import EXPECTED, Periodic, PeriodicWorker, for_each
from millpond.server.notifications.notices import TRIAL
from millpond.server.notifications.outbox import NoticeOutbox
from millpond.server.store.deliveries import DELIVERED, GIVEN_UP, WAITING, WEBHOOK, Delivery, DeliveryStore, Target

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 3600.0
MOST_TRIES: Final = 30
"""With the pauses above: about a day."""
GRACE_S: Final = 1.0
"""So long a server that ends waits for answers of receivers: it does not last as long as one may be silent."""
CLOSES_WITHIN_S: Final = 10.0
MOST_GATHERED: Final = 5_000
"""Deliveries in one message."""

_LANES: Final = 64
"""So many receivers may fall silent at once and keep no other waiting. A thread is made where all others are busy."""
_SLOW_LANES: Final = 4
_AT_ONCE: Final = 500
_LONGEST_SLEEP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Carried:
    """What came of a message.

    Attributes:
        trouble: what went wrong; empty: it was taken.
        is_final: trying again is of no use.
        is_silent: nobody answered, so that other messages to the same target would not be answered either.
        is_slow: it took so long that further messages to the same target should take turns with other slow ones.
        pause_s: for how long nothing should be sent to the target, as it said; 0: as long as seems right; None: it said
            nothing of the kind.
    """

    trouble: str = ""
    is_final: bool = False
    is_silent: bool = False
    is_slow: bool = False
    pause_s: float | None = None


Carry = Callable[[Sequence[Delivery]], Carried]
"""Sends one message about some deliveries, all of the same target."""

MakeExecutor = Callable[[int, str], Executor]
"""Makes what runs so many calls at once, on threads whose names begin so."""


class Carrier(Protocol):
    """A way that messages travel.

    Attributes:
        name: of the worker's thread.
        channels: that it serves.
    """

    name: str
    channels: tuple[str, ...]

    def why_not(self) -> str:
        """Why nothing can be sent at this moment, as far as a look can say; empty: it can."""

    def lane_of(self, target: Target) -> Hashable:
        """The same for targets that one connection serves, one after the other."""

    def opened(self) -> AbstractContextManager[Carry]:
        """What sends messages in one lane; connections that it needs are made at its first message."""

    def cut(self) -> None:
        """End all connections, whatever is waited for on them. Any thread."""

    def close(self) -> None:
        """Let go of what it keeps open."""


class DeliveryWorker(Periodic):
    """Delivers by one carrier what the outbox has left in the store, on threads of its own."""

    def __init__(
        self,
        store: DeliveryStore,
        outbox: NoticeOutbox,
        carrier: Carrier,
        clock: WallClock,
        make_executor: MakeExecutor,
    ) -> None:
        self._store = store
        self._outbox = outbox
        self._carrier = carrier
        self._clock = clock
        self._is_first = True
        self._slow: set[Target] = set()
        self._served: dict[Hashable, Future[None]] = {}
        self._lanes = make_executor(_LANES, carrier.name)
        self._slow_lanes = make_executor(_SLOW_LANES, f"slow-{carrier.name}")
        trouble = f"{carrier.name} wait for the store"
        self._worker = PeriodicWorker(carrier.name, self.deliver_due, FIRST_PAUSE_S, trouble, (*EXPECTED, DBAPIError))
        outbox.woken.append(self._worker.wake)

    def close(self) -> None:
        """End the threads; what is not delivered within a moment waits for the next server."""
        self._worker.close(GRACE_S)
        wait([work for work in list(self._served.values()) if not work.done()], GRACE_S)
        self._carrier.cut()
        self._worker.close(CLOSES_WITHIN_S)
        for lanes in (self._lanes, self._slow_lanes):
            lanes.shutdown(cancel_futures=True)
        self._carrier.close()

    def deliver_due(self) -> float:
        """Have lanes try what is due; returns after how many seconds more comes due.

        The end of a lane wakes the worker.

        Raises:
            DBAPIError: a lane could not store what it did.
        """
        if self._is_first:  # who set it up learns of it before the first message
            self._is_first = False
            if trouble := self._carrier.why_not():
                log.warning("%s cannot be sent now: %s", self._carrier.name, trouble)
        for_each(
            [lane for lane, work in self._served.items() if work.done()], lambda lane: self._served.pop(lane).result()
        )
        now, due = self._clock(), dict[Hashable, list[Target]]()
        for target in self._store.due_targets(self._carrier.channels, now):
            due.setdefault(self._carrier.lane_of(target), []).append(target)
        for lane, targets in due.items():
            if lane not in self._served:
                lanes = self._lanes if self._slow.isdisjoint(targets) else self._slow_lanes
                self._served[lane] = lanes.submit(self._deliver_each, targets)
                self._served[lane].add_done_callback(lambda _: self._worker.wake())
        due_at = self._store.next_due(self._carrier.channels, now)
        return _LONGEST_SLEEP_S if due_at is None else min(max(due_at - self._clock(), 0.0), _LONGEST_SLEEP_S)

    def _deliver_each(self, targets: Sequence[Target]) -> None:
        with self._carrier.opened() as carry:
            for target in targets:
                self._slow.discard(target)
                self._deliver_all(target, carry)

    def _deliver_all(self, target: Target, carry: Carry) -> None:
        """Try each delivery that is due for a target once; if it turns out to be slow, the rest waits for its turn."""
        settled: set[int] = set()
        for delivery in self._store.due_for(target, self._clock(), _AT_ONCE):
            if self._worker.closing or target in self._slow:
                return
            if delivery.id not in settled:
                settled |= self._deliver(self._together(delivery), carry)

    def _together(self, delivery: Delivery) -> Sequence[Delivery]:
        """What goes into one message: all that waits for a user, and one delivery for a webhook."""
        if delivery.target.channel == WEBHOOK:
            return [delivery]
        return self._store.waiting_for(delivery.target, MOST_GATHERED)

    def _deliver(self, together: Sequence[Delivery], carry: Carry) -> set[int]:
        """Try one message; returns the deliveries whose result is stored."""
        target = together[0].target
        carried, now = self._carried(together, carry), self._clock()
        if carried.trouble and self._worker.closing:  # it may have been cut off: that is no try
            return set()
        if carried.is_silent or carried.is_slow:
            self._slow.add(target)
        if not carried.trouble:
            self._store.tried([each.id for each in together], DELIVERED, now, "")
            if target.channel != WEBHOOK:
                self._outbox.sent(target, now)
            return {each.id for each in together}
        if target.channel != WEBHOOK:
            self._failed(together, carried, now)
            return {each.id for each in together}
        holds_all = carried.is_silent or carried.pause_s is not None
        alike = self._store.due_for(target, now, MOST_GATHERED) if holds_all else together
        # Where it is silent, each would hold up all other receivers for as long as this one did.
        for _, these in groupby(sorted(alike if carried.is_silent else together, key=_so_far), _so_far):
            self._failed(list(these), carried, now)
        return {each.id for each in alike}

    def _failed(self, together: Sequence[Delivery], carried: Carried, now: float) -> None:
        target, tries = together[0].target, max(each.tries for each in together) + 1
        numbers = [each.id for each in together]
        is_over = carried.is_final or tries >= MOST_TRIES or _is_trial(together[0])
        pause_s = max(FIRST_PAUSE_S * 2.0 ** (tries - 1), carried.pause_s or 0.0)
        again_at = now + min(pause_s, LONGEST_PAUSE_S)
        self._store.tried(numbers, GIVEN_UP if is_over else WAITING, now if is_over else again_at, carried.trouble)
        if carried.pause_s is not None:
            self._store.put_off(target, again_at)
        if carried.pause_s is not None or (not is_over and target.channel != WEBHOOK):
            self._outbox.hold(target, again_at)
        log.warning(
            "%s to %s, delivery %d, try %d: %s", target.channel, target.name, numbers[0], tries, carried.trouble
        )

    def _carried(self, together: Sequence[Delivery], carry: Carry) -> Carried:
        try:
            return carry(together)
        except Exception as error:  # a message that cannot be made must not hold up all others
            log.exception("delivery %d cannot be sent", together[0].id)
            return Carried(f"a defect: {type(error).__name__}")


def _so_far(delivery: Delivery) -> tuple[int, bool]:
    return delivery.tries, _is_trial(delivery)


def _is_trial(delivery: Delivery) -> bool:
    return bool(delivery.notice.get("topic") == TRIAL)
