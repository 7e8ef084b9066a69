"""What users choose: their address, a webhook of theirs, and of what they are told.

Everything here may block: it is not for the thread of requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from millpond.model.errors import ConflictError, InvalidInputError, MillpondError, NotAllowedError, NotFoundError
from millpond.node.host.clocks import WallClock
from millpond.server.auth.roles import Caller
from millpond.server.catalogues import ENGLISH, LANGUAGES
from millpond.server.notifications.address_codes import GOOD_FOR_S, AddressCodes
from millpond.server.notifications.mail_server import MailServer
from millpond.server.notifications.messages import MessageWriter
from millpond.server.notifications.notices import stored_text
from millpond.server.notifications.subscriptions import Subscription, Subscriptions
from millpond.server.notifications.webhook_carrier import WebhookCarrier
from millpond.server.store.deliveries import CHAT, MAIL, Delivery, DeliveryStore
from millpond.specs.api.events import DeliveryInfo
from millpond.specs.api.notifications import (
    SPANS_S,
    ChatRequest,
    NotificationRule,
    NotificationsInfo,
    NotificationTrial,
    RuleRequest,
    RulesRequest,
)
from millpond.specs.config.notifications import NotificationRules, is_mail_address, origin_of

DELIVERIES_SHOWN: Final = 20
TRIAL_PAUSE_S: Final = 60.0
"""Between two test messages of a user."""


@dataclass(frozen=True, slots=True)
class Senders:
    """How messages travel."""

    mail: MailServer
    webhooks: WebhookCarrier
    writer: MessageWriter


@dataclass(frozen=True, slots=True)
class NotificationContext:
    """What counts at this moment.

    Attributes:
        rules: gives the configuration.
        read_only: gives why nothing may be changed; None: it may.
    """

    rules: Callable[[], NotificationRules]
    clock: WallClock
    read_only: Callable[[], MillpondError | None]

    def offers(self, channel: str) -> bool:
        """Whether this server has a channel."""
        rules = self.rules()
        return rules.mail is not None if channel == MAIL else bool(rules.chat)

    def require_changeable(self) -> None:
        """Go on where something may be changed.

        Raises:
            MillpondError: nothing may be, now.
        """
        if (why := self.read_only()) is not None:
            raise why


class NotificationSettings:
    """Answers the requests of users about what they are told of."""

    def __init__(
        self, subscriptions: Subscriptions, deliveries: DeliveryStore, senders: Senders, context: NotificationContext
    ) -> None:
        self.subscriptions = subscriptions
        self._deliveries = deliveries
        self._senders = senders
        self._context = context
        self._codes = AddressCodes(context.clock)
        self._trials: dict[str, float] = {}
        self._lock = threading.Lock()

    def info(self, caller: Caller, language: str = ENGLISH) -> NotificationsInfo:
        """All that a user has chosen, and may choose from."""
        known = self.subscriptions.of(caller.user)
        return NotificationsInfo(
            user=caller.user,
            offers=[channel for channel in (MAIL, CHAT) if self._context.offers(channel)],
            address=known.address,
            address_by=known.address_by,
            pending=self._codes.pending(caller.user),
            chat=known.chat,
            chat_origins=list(self._context.rules().chat),
            language=known.language,
            rules=list(known.rules),
            queues=self.subscriptions.led_by(caller),
            deliveries=[
                delivery_info(each, language) for each in self._deliveries.latest(DELIVERIES_SHOWN, caller.user)
            ],
        )

    def choose(self, request: RulesRequest, caller: Caller) -> NotificationsInfo:
        """Be told of these from now on.

        Raises:
            NotFoundError: one is for a queue that is not there, or that no group has.
            NotAllowedError: one is for a queue whose group the user does not lead.
            InvalidInputError: there are two for the same, or there is no such language.
        """
        self._context.require_changeable()
        led = set(self.subscriptions.led_by(caller))
        for rule in request.rules:
            if rule.queue and rule.queue not in led:
                hint = f"you may choose events of: {', '.join(sorted(led))}" if led else "ask a lead of its group"
                if not self.subscriptions.has_group(rule.queue):
                    raise NotFoundError(f"no group has a queue {rule.queue!r}", hint)
                raise NotAllowedError(f"you do not lead the group of queue {rule.queue!r}", hint)
        rules = _rules(request.rules)
        language = _language(request.language)

        def chosen(known: Subscription) -> Subscription:
            return replace(known, rules=rules, language=language or known.language, since=self._context.clock())

        self.subscriptions.change(caller.user, chosen)
        return self.info(caller)

    def follow_language(self, user: str, language: str) -> None:
        """The user reads the portal in another language from now on."""
        if self.subscriptions.of(user).language != language and self._context.read_only() is None:
            self.subscriptions.change(user, lambda known: replace(known, language=language))

    # ---- mail -------------------------------------------------------------------------------------------------------

    def ask_code(self, address: str, caller: Caller) -> NotificationsInfo:
        """Send a code to an address.

        Raises:
            InvalidInputError: it is none, or one to which no mail may go.
            TooManyTriesError: too many were sent.
            NotFoundError, UnavailableError: no mail can be sent.
        """
        self._context.require_changeable()
        self._require_address(address)
        code = self._codes.begin(caller.user, address)
        message = self._senders.writer.code(self.subscriptions.of(caller.user), code, int(GOOD_FOR_S // 60))
        try:
            self._senders.mail.send(address, message)
        except InvalidInputError:
            self._codes.forget(caller.user)
            raise
        except MillpondError:
            self._codes.not_sent(caller.user)
            raise
        return self.info(caller)

    def confirm(self, code: str, caller: Caller) -> NotificationsInfo:
        """Mail goes to the address that was sent this code.

        Raises:
            NotFoundError, InvalidInputError: it is no code that is waited for.
        """
        self._context.require_changeable()
        self._codes.redeem(caller.user, code, lambda address: self._set_address(caller.user, address, "code"))
        return self.info(caller)

    def drop_address(self, caller: Caller) -> NotificationsInfo:
        """No mail goes to the user any more."""
        self._context.require_changeable()
        self._codes.forget(caller.user)
        self._set_address(caller.user, "", "")
        return self.info(caller)

    def take_verified(self, user: str, address: str) -> None:
        """A provider of logins vouches for a user's address: it is theirs, unless they have confirmed another."""
        known, mail = self.subscriptions.of(user), self._context.rules().mail
        if (
            known.address_by == "code"
            or known.address == address
            or mail is None
            or self._context.read_only() is not None
        ):
            return
        if is_mail_address(address) and mail.takes(address) and address.lower() != mail.sender_address.lower():

            def vouched(now: Subscription) -> Subscription:
                confirmed = now.address_by == "code"  # perhaps meanwhile
                return now if confirmed else replace(now, address=address, address_by="sign-on")

            self.subscriptions.change(user, vouched)

    def _set_address(self, user: str, address: str, by: str) -> None:
        self.subscriptions.change(user, lambda known: replace(known, address=address, address_by=by))

    def _require_address(self, address: str) -> None:
        mail = self._context.rules().mail
        if mail is None:
            raise NotFoundError("this server sends no mail", "an admin sets notifications.mail in its configuration")
        if not is_mail_address(address):
            raise InvalidInputError(f"{address!r} is no mail address", "write it as ada@example.org")
        if not mail.takes(address):
            domains = ", ".join(sorted(mail.domains))
            raise InvalidInputError(f"mail goes to addresses of {domains} alone", "give one of these")
        if address.lower() == mail.sender_address.lower():
            raise InvalidInputError("that is the address from which this server sends", "give your own")

    # ---- chat -------------------------------------------------------------------------------------------------------

    def put_chat(self, request: ChatRequest, caller: Caller) -> NotificationsInfo:
        """Messages go to this webhook, too.

        Raises:
            NotFoundError: this server allows no webhooks of users.
            InvalidInputError: it leads to where none may lead.
            UnavailableError: its address cannot be kept as a secret.
        """
        self._context.require_changeable()
        allowed = self._context.rules().chat
        if not allowed:
            hint = "an admin sets notifications.chat in its configuration"
            raise NotFoundError("this server allows no webhooks of users", hint)
        if origin_of(request.url) not in allowed:
            raise InvalidInputError("webhooks of users may not lead there", f"use one at {', '.join(allowed)}")
        self._senders.webhooks.keep_chat(caller.user, request.url)
        self.subscriptions.change(caller.user, lambda known: replace(known, chat=request.format))
        return self.info(caller)

    def drop_chat(self, caller: Caller) -> NotificationsInfo:
        """No messages go to the user's webhook any more."""
        self._context.require_changeable()
        self._senders.webhooks.forget_chat(caller.user)
        self.subscriptions.change(caller.user, lambda known: replace(known, chat=""))
        return self.info(caller)

    # ---- trying it --------------------------------------------------------------------------------------------------

    def send_trial(self, caller: Caller) -> NotificationTrial:
        """Send a test message to wherever the user is told.

        Raises:
            NotFoundError: they are told nowhere.
            ConflictError: they did so a moment ago.
        """
        self._context.require_changeable()
        known = self.subscriptions.of(caller.user)
        channels = [channel for channel in (MAIL, CHAT) if known.has(channel) and self._context.offers(channel)]
        if not channels:
            raise NotFoundError("there is no place to send to", "confirm a mail address, or set a webhook")
        with self._lock:
            if 0.0 <= self._context.clock() - self._trials.get(caller.user, 0.0) < TRIAL_PAUSE_S:
                raise ConflictError("a trial was sent a moment ago", "wait a minute")
            self._trials[caller.user] = self._context.clock()
        troubles = {}
        for channel in channels:
            try:
                if channel == MAIL:
                    self._senders.mail.send(known.address, self._senders.writer.trial(known))
                else:
                    self._senders.webhooks.try_chat(caller.user)
            except MillpondError as error:
                troubles[channel] = str(error)
        return NotificationTrial(sent=[channel for channel in channels if channel not in troubles], troubles=troubles)


def delivery_info(one: Delivery, language: str = ENGLISH) -> DeliveryInfo:
    """A delivery as the API shows it, or as a page in another language does."""
    return DeliveryInfo(
        id=one.id,
        hook=one.target.name,
        channel=one.target.channel,
        at=one.at,
        text=stored_text(one.notice, one.text, language),
        state=one.state,
        tries=one.tries,
        due_at=one.due_at,
        trouble=one.trouble,
    )


def _rules(wanted: Sequence[RuleRequest]) -> tuple[NotificationRule, ...]:
    kept = [each for each in wanted if each.channels]
    for each in kept:
        if sum((other.topic, other.queue) == (each.topic, each.queue) for other in kept) > 1:
            raise InvalidInputError(f"two choices for {each.topic.value}", "leave one of them out")
        if each.span_s is not None and each.topic not in SPANS_S:
            raise InvalidInputError(f"{each.topic.value} has no span", "leave it out")
    return tuple(
        NotificationRule(
            topic=each.topic, channels=list(dict.fromkeys(each.channels)), span_s=each.span_s, queue=each.queue
        )
        for each in kept
    )


def _language(tag: str | None) -> str | None:
    if tag is not None and tag not in LANGUAGES:
        raise InvalidInputError(f"no language {tag[:20]!r}", f"there are {', '.join(LANGUAGES)}")
    return tag
