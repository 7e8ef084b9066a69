"""Sends to webhooks: those of the server, signed, and those of users, whose addresses are their secrets."""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import cached_property
from http.client import TOO_MANY_REQUESTS
from typing import TYPE_CHECKING, Any, Final

from millpond.model.errors import MillpondError, NotFoundError, UnavailableError
from millpond.node.host.clocks import WallClock
from millpond.node.host.late_calls import LateCalls
from millpond.server.auth.vault.secrets import SERVER, USER, WEBHOOK_ADDRESS, Vault
from millpond.server.http.outgoing import bounded
from millpond.server.notifications.delivery_worker import Carried, Carry
from millpond.server.notifications.messages import MessageWriter
from millpond.server.notifications.notices import TRIAL
from millpond.server.notifications.subscriptions import Subscriptions
from millpond.server.store.deliveries import CHAT, WEBHOOK, Delivery, Target
from millpond.specs.config.notifications import origin_of
from millpond.specs.config.webhooks import Webhook

if TYPE_CHECKING:
    import httpx2

ANSWER_WITHIN_S: Final = 10.0
SLOW_S: Final = 2.0
"""A receiver that takes so long gets one message, then all others get theirs."""
NUMBER_HEADER: Final = "Millpond-Delivery"
SIGNATURE_HEADER = "Millpond-Signature"
"""``t=SECONDS,v1=HEX``: HMAC-SHA256 with the secret over ``SECONDS.BODY``. A receiver refuses what is too old."""
CHAT_WEBHOOK: Final = "CHAT_WEBHOOK"
"""The secret of a user that has the address of their webhook."""

_MOST_BYTES: Final = {"wecom": 2_048, "feishu": 18_000}
"""By format, of a text. Sources: WeCom developer centre, group robots; Feishu open platform, custom bots (20 kB with
what is around the text)."""
_LONGEST_NUMBER: Final = 9
_MOST_READ: Final = 4_096
"""Bytes of an answer."""
_REFUSALS: Final = {"wecom": "errcode", "feishu": "code"}
"""By format, the field of an answer with the status 200 that is not 0 where the message was refused."""


@dataclass(frozen=True, slots=True)
class WebhookRules:
    """What counts at this moment, and how it is reached.

    Attributes:
        hooks: the receivers by name.
        chat: the origins to which webhooks of users may lead.
        transport: how requests travel; None: over the network.
    """

    hooks: Callable[[], Mapping[str, Webhook]]
    chat: Callable[[], Sequence[str]]
    transport: httpx2.BaseTransport | None = None


class WebhookCarrier:
    """Sends what is for webhooks.

    Args:
        vault: where the secrets lie that deliveries are signed with, and the addresses of users' webhooks.
        writer: writes the texts for users.
    """

    name = "webhooks"
    channels: tuple[str, ...] = (WEBHOOK, CHAT)

    def __init__(
        self,
        rules: WebhookRules,
        vault: Vault,
        subscriptions: Subscriptions,
        writer: MessageWriter,
        clock: WallClock,
    ) -> None:
        self._rules = rules
        self._vault = vault
        self._subscriptions = subscriptions
        self._writer = writer
        self._clock = clock
        self._making_client = threading.Lock()
        self._late = LateCalls()

    def why_not(self) -> str:
        """Nothing stands against all receivers at once."""
        return ""

    def lane_of(self, target: Target) -> Target:
        """Each receiver is one of its own."""
        return target

    @contextmanager
    def opened(self) -> Iterator[Carry]:
        """What sends; each message has a connection of its own."""
        yield self._carry_timed

    def cut(self) -> None:
        """End all connections."""
        self._late.call_all()

    def close(self) -> None:
        """Close the client."""
        if "_client" in self.__dict__:
            self._client.close()

    def keep_chat(self, user: str, url: str) -> None:
        """Keep the address of a user's webhook.

        Raises:
            UnavailableError: nothing can be encrypted here.
        """
        self._vault.put(USER, user, CHAT_WEBHOOK, url, user)

    def forget_chat(self, user: str) -> None:
        """Forget it, if it is still there."""
        with suppress(NotFoundError):
            self._vault.drop(USER, user, CHAT_WEBHOOK)

    def try_chat(self, user: str) -> None:
        """Send a test message to a user's webhook.

        Raises:
            NotFoundError: there is none.
            UnavailableError: it did not take it.
        """
        text = self._writer.trial(self._subscriptions.of(user)).text
        trouble = self._send(self._chat_of(user), {"topic": TRIAL, "user": user}, text, 0).trouble
        if trouble:
            raise UnavailableError(f"the webhook did not take it: {trouble}", "check its address and its format")

    @cached_property
    def _client(self) -> httpx2.Client:
        """Made when there is something to deliver: it loads all certificates that this machine trusts."""
        import httpx2

        limits = httpx2.Limits(max_keepalive_connections=0)
        return httpx2.Client(
            timeout=ANSWER_WITHIN_S, transport=self._rules.transport, follow_redirects=False, limits=limits
        )

    def _carry_timed(self, together: Sequence[Delivery]) -> Carried:
        begun = self._clock()
        carried = self._carry(together)
        return replace(carried, is_slow=self._clock() - begun >= SLOW_S)

    def _carry(self, together: Sequence[Delivery]) -> Carried:
        first = together[0]
        if first.target.channel == CHAT:
            return self._carry_chat(together)
        hook = self._rules.hooks().get(first.target.name)
        if hook is None:
            return Carried("no longer configured", is_final=True)
        try:  # never unsigned: the receiver could not distinguish it from a forgery
            hook = self._opened(hook)
        except MillpondError as error:
            return Carried(str(error))
        return self._send(hook, first.notice, first.text, first.id)

    def _opened(self, hook: Webhook) -> Webhook:
        """A webhook with those of its secrets that the vault has.

        Raises:
            NotFoundError, UnavailableError: one is gone, or cannot be opened.
        """
        return replace(
            hook,
            url=hook.url or self._vault.value(WEBHOOK_ADDRESS, "", hook.name),
            secret=self._vault.value(SERVER, "", hook.secret_name) if hook.secret_name else hook.secret,
        )

    def _carry_chat(self, together: Sequence[Delivery]) -> Carried:
        user = together[0].target.name
        try:
            hook = self._chat_of(user)
        except NotFoundError as error:
            return Carried(error.cause, is_final=True)
        except MillpondError as error:
            return Carried(str(error))
        message = self._writer.message(self._subscriptions.of(user), together, _MOST_BYTES.get(hook.format))
        body = {"notices": [each.notice for each in together[: self._writer.most_shown]], "count": len(together)}
        return self._send(hook, body, message.text, together[0].id)

    def _chat_of(self, user: str) -> Webhook:
        """A user's webhook.

        Raises:
            NotFoundError: there is none, or it leads to where none may lead.
            UnavailableError: its address cannot be opened.
        """
        form = self._subscriptions.of(user).chat
        if not form:
            raise NotFoundError("the user has no webhook any more", "set it with `pond notify chat`")
        url = self._vault.value(USER, user, CHAT_WEBHOOK)
        if origin_of(url) not in self._rules.chat():
            raise NotFoundError("the configuration does not allow webhooks of users there", "set another address")
        return Webhook(user, url, (), format=form)

    def _pause_s(self, answer: httpx2.Response) -> float | None:
        """How long a receiver wants to be left alone (RFC 9110, 10.2.3); None: it does not say that it does."""
        asked = answer.headers.get("Retry-After", "")
        if asked.isascii() and asked.isdecimal():
            return float(asked[:_LONGEST_NUMBER])
        with suppress(ValueError, OverflowError):
            return max(parsedate_to_datetime(asked).timestamp() - self._clock(), 0.0)
        return 0.0 if answer.status_code == TOO_MANY_REQUESTS else None

    def _send(self, hook: Webhook, notice: dict[str, Any], text: str, number: int) -> Carried:
        import httpx2  # here, as most servers have no webhooks

        body, headers = request_of(hook, notice, text, int(self._clock()))
        headers |= {NUMBER_HEADER: str(number)}
        with self._making_client:
            client = self._client
        try:
            with (
                bounded(hook.url, ANSWER_WITHIN_S, lambda _host, _reach: True, self._late.called_if_late) as extensions,
                client.stream("POST", hook.url, content=body, headers=headers, extensions=extensions) as answer,
            ):
                if not answer.is_success:
                    return Carried(f"it answered {answer.status_code}", pause_s=self._pause_s(answer))
                field = _REFUSALS.get(hook.format)  # nothing else is read of an answer: it may have no end
                return Carried(_refusal(field, next(answer.iter_raw(_MOST_READ), b"")) if field else "")
        except httpx2.HTTPError as error:
            # Where the connection was cut, as time was over, that is no TimeoutException.
            is_silent = isinstance(error, httpx2.TransportError)
            return Carried(f"{type(error).__name__}: {error}", is_silent=is_silent)
        except (httpx2.InvalidURL, ValueError) as error:
            return Carried(f"the address is none: {error}")


def request_of(hook: Webhook, notice: dict[str, Any], sentence: str, now: int) -> tuple[bytes, dict[str, str]]:
    """Body and headers of one delivery.

    Args:
        now: seconds since 1970, part of what is signed.
    """
    headers = {"Content-Type": "application/json"}
    match hook.format:
        case "slack":
            # There, <!channel> calls all, and <URL|WORDS> is a link. Source: Slack, formatting message text, escaping.
            return _json({"text": html.escape(sentence, quote=False)}), headers
        case "feishu":
            # There, <at user_id="all"> calls all, and no way to escape it is documented.
            text = _cut(sentence.replace("<", "\N{FULLWIDTH LESS-THAN SIGN}"), _MOST_BYTES["feishu"])
            body: dict[str, Any] = {"msg_type": "text", "content": {"text": text}}
            if hook.secret:
                body |= {"timestamp": str(now), "sign": _feishu_sign(hook.secret, now)}
            return _json(body), headers
        case "wecom":
            return _json({"msgtype": "text", "text": {"content": _cut(sentence, _MOST_BYTES["wecom"])}}), headers
        case _:
            content = _json({**notice, "text": sentence})
            if hook.secret:
                digest = hmac.new(hook.secret.encode(), f"{now}.".encode() + content, hashlib.sha256).hexdigest()
                headers[SIGNATURE_HEADER] = f"t={now},v1={digest}"
            return content, headers


def _cut(text: str, most_bytes: int) -> str:
    return text.encode()[:most_bytes].decode(errors="ignore")


def _refusal(field: str, answer: bytes) -> str:
    """Why a message was refused although the status says that it was not; empty where it was taken."""
    try:
        code = json.loads(answer).get(field, 0)
    except (ValueError, AttributeError, RecursionError):  # it is no object
        return ""
    return f"it answered {field} {str(code)[:20]!r}" if code else ""


def _feishu_sign(secret: str, now: int) -> str:
    """Source: Feishu open platform, custom bots, signature verification: HMAC-SHA256 of nothing under this key."""
    key = f"{now}\n{secret}".encode()
    return base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode()


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
