"""What was or is to be delivered, and test messages to webhooks, which go the way of all others.

These are stored as any delivery and sent by the same worker, signed alike: so their result says of the receiver, of its
secret and of the way to it what an event would find out later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millpond.model.errors import NotFoundError
from millpond.server.auth.roles import Caller
from millpond.server.catalogues import ENGLISH
from millpond.server.notifications.notices import TRIAL
from millpond.server.notifications.outbox import NoticeOutbox
from millpond.server.notifications.settings import NotificationContext, delivery_info
from millpond.server.notifications.webhook_receivers import absent_webhook
from millpond.server.store.deliveries import WEBHOOK, DeliveryStore, NewDelivery, Target
from millpond.specs.api.events import DeliveryInfo
from millpond.specs.config.webhooks import Webhook


class Deliveries:
    """Blocks: not for the thread of requests.

    Args:
        hooks: gives the receivers that count now, by name.
        outbox: is told that there is something to deliver.
    """

    def __init__(
        self,
        store: DeliveryStore,
        hooks: Callable[[], Mapping[str, Webhook]],
        outbox: NoticeOutbox,
        context: NotificationContext,
    ) -> None:
        self._store = store
        self._hooks = hooks
        self._outbox = outbox
        self._context = context

    def latest(self, limit: int, language: str = ENGLISH) -> list[DeliveryInfo]:
        """Those to webhooks and users, newest first."""
        return [delivery_info(each, language) for each in self._store.latest(limit)]

    def try_webhook(self, name: str, caller: Caller) -> DeliveryInfo:
        """Have a message sent to a receiver; it is on its way.

        Raises:
            NotFoundError: there is no such receiver.
            UnavailableError: nothing may be changed now.
        """
        self._context.require_changeable()
        hooks = self._hooks()
        if name not in hooks:
            raise absent_webhook(name, hooks)
        now = self._context.clock()
        notice: dict[str, Any] = {"topic": TRIAL, "at": now, "user": caller.user}
        text = f"a test message, sent by {caller.user}: nothing has happened"
        found = self._store.add_one(NewDelivery(Target(WEBHOOK, name), now, notice, text))
        self._outbox.wake()
        return delivery_info(found)

    def find(self, number: int) -> DeliveryInfo:
        """A delivery and what became of it.

        Raises:
            NotFoundError: there is none of that number any more.
        """
        found = self._store.find(number)
        if found is None:
            raise NotFoundError(f"no delivery {number}", "`pond webhooks` lists those of the last 30 days")
        return delivery_info(found)
