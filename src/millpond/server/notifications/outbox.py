"""Who gets a notice: the deliveries to webhooks of the configuration, and to users by mail and chat.

What is for a user waits a little, so that what happens together comes together; and once something was sent, the next
waits for the pause of its channel. So a user whose thousand jobs end gets a few messages, not a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millpond.node.host.clocks import WallClock
from millpond.server.notifications.notices import Notice, notices_of
from millpond.server.notifications.subscriptions import Subscriptions
from millpond.server.runtime.loop_dependencies import TurnResult
from millpond.server.store.deliveries import CHAT, MAIL, WEBHOOK, DeliveryStore, NewDelivery, Target
from millpond.specs.config.webhooks import Webhook

GATHER_S: Final = 10.0
"""What happens within that time goes into one message."""
PAUSES_S: Final[Mapping[str, float]] = {MAIL: 300.0, CHAT: 60.0}
"""Between two messages to the same user, by channel."""


@dataclass(frozen=True, slots=True)
class KeyedNotice:
    """A notice that a watch may come upon again, and by what it is known then."""

    notice: Notice
    key: str


class NoticeOutbox:
    """Addresses notices, and keeps when each user may be sent something again.

    Args:
        hooks: gives the webhooks that count now, by name.
        offers: says whether the server has a channel at this moment.
    """

    def __init__(
        self,
        store: DeliveryStore,
        subscriptions: Subscriptions,
        hooks: Callable[[], Mapping[str, Webhook]],
        offers: Callable[[str], bool],
        clock: WallClock,
    ) -> None:
        self._store = store
        self._subscriptions = subscriptions
        self._hooks = hooks
        self._offers = offers
        self._clock = clock
        self._not_before = {
            target: at + PAUSES_S[target.channel]
            for target, at in store.delivered_since(clock() - max(PAUSES_S.values())).items()
        }
        self.woken: list[Callable[[], None]] = []
        """Called when there is something to deliver."""

    def address(self, turn: TurnResult) -> list[NewDelivery]:
        """The deliveries that a turn leads to; to be stored with it."""
        found = []
        for notice in notices_of(turn):
            found += [
                self._to_webhook(notice, Target(WEBHOOK, hook.name))
                for hook in self._hooks().values()
                if notice.topic in hook.on and (not hook.queues or notice.queue in hook.queues)
            ]
            found += self._to_users(notice, self._targets(notice))
        return found

    def wake(self) -> None:
        """There is something to deliver. Any thread."""
        for wake in self.woken:
            wake()

    def post(self, notices: Iterable[tuple[KeyedNotice, Sequence[Target]]]) -> None:
        """Store what is for users and was not stored before. Not for the scheduler's thread."""
        fresh = [each for keyed, targets in notices for each in self._to_users(keyed.notice, targets, keyed.key)]
        if fresh and self._store.add(fresh):
            self.wake()

    def sent(self, target: Target, at: float) -> None:
        """A user was sent something, and waits for the next."""
        self.hold(target, at + PAUSES_S[target.channel])

    def hold(self, target: Target, until: float) -> None:
        """Nothing is sent to a user, or a webhook, before an instant."""
        self._not_before[target] = until

    def targets_of(self, wanted: Iterable[tuple[str, Sequence[str]]]) -> list[Target]:
        """Where users are told, each place once.

        Args:
            wanted: users, each with the channels of a rule of theirs.
        """
        places = (Target(channel, user) for user, channels in wanted for channel in channels)
        return [
            place
            for place in dict.fromkeys(places)
            if self._offers(place.channel) and self._subscriptions.of(place.name).has(place.channel)
        ]

    def _targets(self, notice: Notice) -> list[Target]:
        return self.targets_of((each.user, rule.channels) for each, rule in self._subscriptions.wanting(notice))

    def _to_webhook(self, notice: Notice, target: Target) -> NewDelivery:
        due_at = max(notice.at, self._not_before.get(target, 0.0))
        return NewDelivery(target, notice.at, notice.plain(), notice.sentence, due_at)

    def _to_users(self, notice: Notice, targets: Sequence[Target], key: str = "") -> list[NewDelivery]:
        if not targets:
            return []
        soon, plain, text = self._clock() + GATHER_S, notice.plain(), notice.sentence
        return [
            NewDelivery(target, notice.at, plain, text, max(soon, self._not_before.get(target, 0.0)), key)
            for target in targets
        ]
