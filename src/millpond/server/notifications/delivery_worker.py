"""Delivers what is due in the store, and stores the result: one worker for each way that messages travel.

A receiver that fails is tried again after a pause that doubles, for about a day; then the delivery is given up and
stays in the list. One that asks for a longer pause gets it, and nothing else until then. A receiver may get a delivery
twice (the server was killed before it stored the result), and never loses one; the delivery's number identifies it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Protocol

from sqlalchemy.exc import DBAPIError

from millpond.node.host.periodic_worker import EXPECTED, Periodic, PeriodicWorker
from millpond.server.notifications.notices import TRIAL
from millpond.server.notifications.outbox import NoticeOutbox
from millpond.server.store.deliveries import DELIVERED, GIVEN_UP, WAITING, WEBHOOK, Delivery, DeliveryStore, Target

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 3600.0
MOST_TRIES: Final = 30
"""With the pauses above: about a day."""
CLOSES_WITHIN_S: Final = 10.0
MOST_GATHERED: Final = 5_000
"""Deliveries in one message."""

_AT_ONCE: Final = 500
_LONGEST_SLEEP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Carried:
    """What came of a message.

    Attributes:
        trouble: what went wrong; empty: it was taken.
        is_final: trying again is of no use.
        is_silent: nobody answered, so that other messages to the same target would not be answered either.
        is_slow: it took so long that messages to others should not wait for further ones to the same target.
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

    def opened(self) -> AbstractContextManager[Carry]:
        """What sends messages, for one pass; connections that it needs are made at its first message."""

    def close(self) -> None:
        """Let go of what it keeps open."""


class DeliveryWorker(Periodic):
    """Delivers by one carrier what the outbox has left in the store, on a thread of its own.

    Args:
        clock: seconds since 1970.
    """

    def __init__(
        self, store: DeliveryStore, outbox: NoticeOutbox, carrier: Carrier, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._outbox = outbox
        self._carrier = carrier
        self._clock = clock
        self._is_first = True
        self._slow: dict[Target, None] = {}
        trouble = f"{carrier.name} wait for the store"
        self._worker = PeriodicWorker(carrier.name, self.deliver_due, FIRST_PAUSE_S, trouble, (*EXPECTED, DBAPIError))
        outbox.woken.append(self._worker.wake)

    def close(self) -> None:
        """End the thread; what is not delivered yet waits for the next server."""
        self._worker.close(CLOSES_WITHIN_S)
        self._carrier.close()

    def deliver_due(self) -> float:
        """Try what is due once; returns after how many seconds something is due again.

        Of the targets that did not answer last time, or late, one gets one message, each in turn, behind all others:
        it may take as long as a request may last, and the others should never wait for more than one of these.
        """
        if self._is_first:  # who set it up learns of it before the first message
            self._is_first = False
            if trouble := self._carrier.why_not():
                log.warning("%s cannot be sent now: %s", self._carrier.name, trouble)
        channels = self._carrier.channels
        slow = list(self._slow)
        with self._carrier.opened() as carry:
            self._deliver_each(self._store.due(channels, self._clock(), _AT_ONCE, besides=slow), carry)
            for target in slow:
                if due := self._store.due_for(target, self._clock(), _AT_ONCE):
                    del self._slow[target]
                    self._deliver_each(due, carry)
                    if target in self._slow:
                        break
        due_at = self._store.next_due(channels)
        return _LONGEST_SLEEP_S if due_at is None else min(max(due_at - self._clock(), 0.0), _LONGEST_SLEEP_S)

    def _deliver_each(self, due: Sequence[Delivery], carry: Carry) -> None:
        """Try each once; what is for a target that turns out to be slow waits for its turn."""
        settled: set[int] = set()
        for delivery in due:
            if self._worker.closing:
                return
            if delivery.id not in settled and delivery.target not in self._slow:
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
        if carried.is_silent or carried.is_slow:
            self._slow[target] = None
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
