"""What one is told of by mail and by chat. ``Client().notifications.info()``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from millpond.client.sdk.transport.connection import Requests
from millpond.specs.api.notifications import NotificationRule, NotificationsInfo, NotificationTrial


class NotificationsClient(Requests):
    """One's own settings at the server that a client talks to."""

    def info(self) -> NotificationsInfo:
        """What one is told of, where, and what was sent last."""
        return self._ask(NotificationsInfo, "GET", "/notifications")

    def choose(self, rules: Sequence[NotificationRule], language: str | None = None) -> NotificationsInfo:
        """Be told of these from now on, in place of what was chosen before.

        Args:
            language: of what is sent: ``en``, ``zh-CN``; None: as it was.

        Raises:
            NotAllowedError: a rule is for a queue whose group one does not lead.
            InvalidInputError: two rules are for the same, or one is wrong.
        """
        body: dict[str, Any] = {"rules": [asdict(rule) for rule in rules], "language": language}
        return self._ask(NotificationsInfo, "PUT", "/notifications/rules", json=body)

    def ask_code(self, address: str) -> NotificationsInfo:
        """Have a code sent to a mail address, which confirms it.

        Raises:
            NotFoundError: the server sends no mail.
            InvalidInputError: it is no address, or one to which no mail goes.
            TooManyTriesError: too many codes were sent.
            UnavailableError: the mail server does not take it now.
        """
        return self._ask(NotificationsInfo, "POST", "/notifications/address", json={"address": address})

    def confirm(self, code: str) -> NotificationsInfo:
        """Have mail sent to the address that this code was sent to.

        Raises:
            NotFoundError, InvalidInputError: it is another code, or too old.
        """
        return self._ask(NotificationsInfo, "POST", "/notifications/address/confirm", json={"code": code})

    def forget_address(self) -> NotificationsInfo:
        """Have no mail sent any more."""
        return self._ask(NotificationsInfo, "DELETE", "/notifications/address")

    def set_chat(self, url: str, format: str = "millpond") -> NotificationsInfo:  # noqa: A002 - the API's word
        """Have messages sent to a webhook; the server keeps its address as a secret.

        Args:
            format: ``slack``, ``feishu``, ``wecom``, or Millpond's own.

        Raises:
            NotFoundError: the server allows no webhooks of users.
            InvalidInputError: it leads to where none may lead.
        """
        return self._ask(NotificationsInfo, "PUT", "/notifications/chat", json={"url": url, "format": format})

    def forget_chat(self) -> NotificationsInfo:
        """Have no messages sent to one's webhook any more."""
        return self._ask(NotificationsInfo, "DELETE", "/notifications/chat")

    def send_trial(self) -> NotificationTrial:
        """Send a test message to wherever one is told.

        Raises:
            NotFoundError: one is told nowhere.
            ConflictError: one was sent a moment ago.
        """
        return self._ask(NotificationTrial, "POST", "/notifications/trial")
