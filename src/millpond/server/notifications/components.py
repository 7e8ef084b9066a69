"""Everything that tells people and programs of what happens, made, started and ended together."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from millpond.server.auth.accounts import Accounts
from millpond.server.auth.vault.secrets import Vault
from millpond.server.notifications.deliveries import Deliveries
from millpond.server.notifications.delivery_worker import DeliveryWorker, MakeExecutor
from millpond.server.notifications.mail_server import MailServer
from millpond.server.notifications.messages import MessageWriter
from millpond.server.notifications.outbox import NoticeOutbox
from millpond.server.notifications.settings import NotificationContext, NotificationSettings, Senders
from millpond.server.notifications.subscriptions import Subscriptions
from millpond.server.notifications.webhook_carrier import WebhookCarrier, WebhookRules
from millpond.server.notifications.webhook_receivers import WebhookReceivers
from millpond.server.store.store import Store


@dataclass(frozen=True, slots=True)
class Notifications:
    """The parts.

    Attributes:
        receivers: the webhooks.
        deliveries: what was or is to be delivered, and test messages.
        workers: one for each way that messages travel.
    """

    settings: NotificationSettings
    receivers: WebhookReceivers
    deliveries: Deliveries
    outbox: NoticeOutbox
    workers: tuple[DeliveryWorker, ...]

    def start(self) -> None:
        """Begin to deliver."""
        for worker in self.workers:
            worker.start()

    def close(self) -> None:
        """End; what is not delivered yet waits for the next server."""
        for worker in self.workers:
            worker.close()


@dataclass(frozen=True, slots=True)
class NotificationSources:
    """What they are made of.

    Attributes:
        webhooks: the receivers of the configuration as it is now.
        make_executor: what has several receivers served at once.
    """

    store: Store
    accounts: Accounts
    vault: Vault
    writer: MessageWriter
    webhooks: WebhookRules
    make_executor: MakeExecutor = ThreadPoolExecutor


def make_notifications(sources: NotificationSources, context: NotificationContext) -> Notifications:
    """All of them, not started."""
    store, vault, clock = sources.store, sources.vault, context.clock
    subscriptions = Subscriptions(store.notification_settings, sources.accounts)
    mail = MailServer(lambda: context.rules().mail, vault, subscriptions, sources.writer, clock)
    receivers = WebhookReceivers(store.webhooks, sources.webhooks.hooks, vault, context)
    rules = replace(sources.webhooks, hooks=receivers.hooks)
    webhooks = WebhookCarrier(rules, vault, subscriptions, sources.writer, clock)
    outbox = NoticeOutbox(store.deliveries, subscriptions, rules.hooks, context.offers, clock)
    settings = NotificationSettings(subscriptions, store.deliveries, Senders(mail, webhooks, sources.writer), context)
    workers = tuple(
        DeliveryWorker(store.deliveries, outbox, carrier, clock, sources.make_executor) for carrier in (webhooks, mail)
    )
    deliveries = Deliveries(store.deliveries, rules.hooks, outbox, context)
    return Notifications(settings, receivers, deliveries, outbox, workers)
