"""What users are told of, and where: in memory and in the store, as accounts are (``auth.accounts``).

The scheduler's thread asks at each notice who wants it, so looking costs no I/O.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from millpond.server.auth.accounts import Accounts
from millpond.server.auth.records import Group
from millpond.server.auth.roles import Caller, UserRole
from millpond.server.catalogues import ENGLISH
from millpond.server.notifications.notices import Notice
from millpond.server.store.settings import NotificationSettingsStore
from millpond.specs.api.notifications import NotificationRule, Topic


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one user is told of.

    Attributes:
        address: where mail goes; empty: nowhere.
        address_by: how it was confirmed: ``code`` or ``sign-on``.
        chat: the format of the user's webhook, whose address is a secret of theirs; empty: there is none.
        language: of what they get.
        since: nothing that happened to queues before is told.
    """

    user: str
    address: str = ""
    address_by: str = ""
    chat: str = ""
    language: str = ENGLISH
    rules: tuple[NotificationRule, ...] = ()
    since: float = 0.0

    def has(self, channel: str) -> bool:
        """Whether anything can go there."""
        return bool(self.address if channel == "mail" else self.chat)


Wanted = tuple[Subscription, NotificationRule]
EVERYONES: Final = (Topic.RESERVATION_BEGAN, Topic.QUEUE_CHANGED)
"""Topics about a queue, of which its group's members are told."""


class Subscriptions:
    """Those of all users."""

    def __init__(self, store: NotificationSettingsStore, accounts: Accounts) -> None:
        self._store = store
        self._accounts = accounts
        self._lock = threading.Lock()
        self._known = {user: _subscription(user, document) for user, document in store.all().items()}
        self._by_queue = _by_queue(self._known.values())

    def of(self, user: str) -> Subscription:
        """What a user is told of; without rules where they chose none."""
        return self._known.get(user) or Subscription(user)

    def change(self, user: str, change: Callable[[Subscription], Subscription]) -> Subscription:
        """Replace what a user is told of."""
        with self._lock:
            changed = change(self.of(user))
            document = asdict(changed)
            del document["user"]
            self._store.save(user, document)
            self._known = {**self._known, user: changed}
            self._by_queue = _by_queue(self._known.values())
        return changed

    def wanting(self, notice: Notice) -> Iterator[Wanted]:
        """Who wants to be told of a notice, each with the rule by which they do.

        A rule for a queue counts while its user leads the group that owns the queue.
        """
        for subscription in self._concerned(notice):
            caller = self._accounts.caller_named(subscription.user)
            if caller is None:
                continue
            for rule in subscription.rules:
                if rule.topic is notice.topic and self._is_about(rule, notice, caller):
                    yield subscription, rule

    def concerned(self, topic: Topic) -> tuple[set[str], set[str]]:
        """The users who are told of a topic about what is their own, and the queues of which any user is told of it."""
        rules = [
            (known.user, rule.queue) for known in self._known.values() for rule in known.rules if rule.topic is topic
        ]
        return {user for user, queue in rules if not queue}, {queue for _, queue in rules if queue}

    def led_by(self, caller: Caller) -> list[str]:
        """The queues of which a user may choose events: those of groups that they lead; of an admin all groups'."""
        return sorted(group.queue for group in self._accounts.groups() if _leads(caller, group))

    def has_group(self, queue: str) -> bool:
        """Whether a queue is there and belongs to a group; of others nobody may choose events."""
        return self._accounts.group_of_queue(queue) is not None

    def _concerned(self, notice: Notice) -> list[Subscription]:
        known = self._known
        if notice.topic in EVERYONES:
            return list(known.values())
        own = known.get(notice.user)
        others = self._by_queue.get(notice.queue, [])
        return [*([own] if own is not None else []), *(each for each in others if each is not own)]

    def _is_about(self, rule: NotificationRule, notice: Notice, caller: Caller) -> bool:
        if rule.queue:
            owner = self._accounts.group_of_queue(rule.queue) if rule.queue == notice.queue else None
            return owner is not None and _leads(caller, owner)
        if notice.topic not in EVERYONES or notice.user == caller.user:
            return notice.user == caller.user
        owner = self._accounts.group_of_queue(notice.queue)
        return owner is not None and owner.name in caller.groups


def _leads(caller: Caller, group: Group) -> bool:
    return caller.admin or (group.name, UserRole.LEAD) in caller.roles


def _by_queue(subscriptions: Iterable[Subscription]) -> dict[str, list[Subscription]]:
    """Those that have rules for a queue, by queue."""
    found: dict[str, list[Subscription]] = {}
    for each in subscriptions:
        for queue in {rule.queue for rule in each.rules} - {""}:
            found.setdefault(queue, []).append(each)
    return found


def _subscription(user: str, document: dict[str, Any]) -> Subscription:
    rules = tuple(NotificationRule(**{**rule, "topic": Topic(rule["topic"])}) for rule in document["rules"])
    return Subscription(user, **{**document, "rules": rules})
