"""Delivers to webhooks: takes what is due from the store, sends it, and stores the result.

A receiver that fails is tried again after a pause that doubles, for about a day; then the delivery is given up and
stays in the list. A receiver may get a delivery twice (the server was killed before it stored the result), and never
loses one; the delivery's number identifies it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.exc import DBAPIError

from millpond.model.errors import MillpondError
from millpond.node.host.periodic_worker import EXPECTED, Periodic, PeriodicWorker
from millpond.server.auth.vault.secrets import SERVER, Vault
from millpond.server.http.outgoing import bounded
from millpond.server.operations.webhooks.notices import notices_of
from millpond.server.runtime.loop_dependencies import TurnResult
from millpond.server.store.deliveries import DELIVERED, GIVEN_UP, WAITING, Delivery, NewDelivery
from millpond.server.store.store import Store
from millpond.specs.config.webhooks import Webhook

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 3600.0
MOST_TRIES: Final = 30
"""With the pauses above: about a day."""
ANSWER_WITHIN_S: Final = 10.0
NUMBER_HEADER: Final = "Millpond-Delivery"

_AT_ONCE: Final = 50
_LONGEST_WECOM: Final = 2_048
"""Bytes of a text message. Source: WeCom developer centre, group robots."""
_MOST_READ: Final = 4_096
"""Bytes of an answer."""
_REFUSALS: Final = {"wecom": "errcode", "feishu": "code"}
"""By format, the field of an answer with the status 200 that is not 0 where the message was refused."""
_LONGEST_SLEEP_S: Final = 60.0
SIGNATURE_HEADER = "Millpond-Signature"
"""``t=SECONDS,v1=HEX``: HMAC-SHA256 with the secret over ``SECONDS.BODY``. A receiver refuses what is too old."""


class WebhookDeliveryWorker(Periodic):
    """Delivers what the scheduler's thread has left in the store.

    Args:
        hooks: gives the receivers as they are configured now, by name.
        vault: where the secrets lie that deliveries are signed with.
        clock: seconds since 1970.
        transport: for tests; by default the network.
    """

    def __init__(
        self,
        store: Store,
        hooks: Callable[[], Mapping[str, Webhook]],
        vault: Vault,
        clock: Callable[[], float],
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._store = store
        self._hooks = hooks
        self._vault = vault
        self._clock = clock
        self._transport = transport
        self._worker = PeriodicWorker(
            "webhooks", self.deliver_due, FIRST_PAUSE_S, "webhooks wait for the store", (*EXPECTED, DBAPIError)
        )

    def close(self) -> None:
        """End the thread; what is not delivered yet waits for the next server."""
        self._worker.close(ANSWER_WITHIN_S)
        if "_client" in self.__dict__:
            self._client.close()

    def address(self, turn: TurnResult) -> list[NewDelivery]:
        """The deliveries that a turn leads to; to be stored with it."""
        return [
            NewDelivery(hook.name, notice.at, notice.plain(), notice.sentence)
            for notice in notices_of(turn)
            for hook in self._hooks().values()
            if notice.topic in hook.on and (not hook.queues or notice.queue in hook.queues)
        ]

    def wake(self) -> None:
        """There is something to deliver. Any thread."""
        self._worker.wake()

    def deliver_due(self) -> float:
        """Try everything that is due once; returns after how many seconds something is due again."""
        for delivery in self._store.deliveries.due(self._clock(), _AT_ONCE):
            if self._worker.closing:
                break
            self._deliver(delivery)
        due_at = self._store.deliveries.next_due()
        return _LONGEST_SLEEP_S if due_at is None else min(max(due_at - self._clock(), 0.0), _LONGEST_SLEEP_S)

    @cached_property
    def _client(self) -> httpx2.Client:
        """Made when there is something to deliver: it loads all certificates that this machine trusts."""
        import httpx2

        limits = httpx2.Limits(max_keepalive_connections=0)
        return httpx2.Client(timeout=ANSWER_WITHIN_S, transport=self._transport, follow_redirects=False, limits=limits)

    def _deliver(self, delivery: Delivery) -> None:
        hook = self._hooks().get(delivery.hook)
        now = self._clock()
        if hook is None:
            self._store.deliveries.tried(delivery.id, GIVEN_UP, now, "no longer configured")
            return
        trouble = self._send(hook, delivery, int(now))
        if not trouble:
            self._store.deliveries.tried(delivery.id, DELIVERED, now, "")
            return
        tries = delivery.tries + 1
        state = GIVEN_UP if tries >= MOST_TRIES else WAITING
        pause = min(FIRST_PAUSE_S * 2.0**delivery.tries, LONGEST_PAUSE_S)
        self._store.deliveries.tried(delivery.id, state, now + pause, trouble)
        log.warning("webhook %s, delivery %d, try %d: %s", hook.name, delivery.id, tries, trouble)

    def _send(self, hook: Webhook, delivery: Delivery, now: int) -> str:
        """What went wrong; empty when it was taken."""
        import httpx2  # here, as most servers have no webhooks

        if hook.secret_name:
            try:  # never unsigned: the receiver could not distinguish it from a forgery
                hook = replace(hook, secret=self._vault.value(SERVER, "", hook.secret_name))
            except MillpondError as error:
                return str(error)
        body, headers = request_of(hook, delivery.notice, delivery.text, now)
        headers |= {NUMBER_HEADER: str(delivery.id)}
        try:
            with (
                bounded(hook.url, ANSWER_WITHIN_S, lambda _host, _reach: True) as extensions,
                self._client.stream("POST", hook.url, content=body, headers=headers, extensions=extensions) as answer,
            ):
                if not answer.is_success:
                    return f"it answered {answer.status_code}"
                field = _REFUSALS.get(hook.format)  # nothing else is read of an answer: it may have no end
                return _refusal(field, next(answer.iter_raw(_MOST_READ), b"")) if field else ""
        except httpx2.HTTPError as error:
            return f"{type(error).__name__}: {error}"
        except (httpx2.InvalidURL, ValueError) as error:
            return f"the address is none: {error}"


def request_of(hook: Webhook, notice: dict[str, Any], sentence: str, now: int) -> tuple[bytes, dict[str, str]]:
    """Body and headers of one delivery.

    Args:
        now: seconds since 1970, part of what is signed.
    """
    headers = {"Content-Type": "application/json"}
    match hook.format:
        case "slack":
            return _json({"text": sentence}), headers
        case "feishu":
            body: dict[str, Any] = {"msg_type": "text", "content": {"text": sentence}}
            if hook.secret:
                body |= {"timestamp": str(now), "sign": _feishu_sign(hook.secret, now)}
            return _json(body), headers
        case "wecom":
            cut = sentence.encode()[:_LONGEST_WECOM].decode(errors="ignore")
            return _json({"msgtype": "text", "text": {"content": cut}}), headers
        case _:
            content = _json({**notice, "text": sentence})
            if hook.secret:
                digest = hmac.new(hook.secret.encode(), f"{now}.".encode() + content, hashlib.sha256).hexdigest()
                headers[SIGNATURE_HEADER] = f"t={now},v1={digest}"
            return content, headers


def _refusal(field: str, answer: bytes) -> str:
    """Why a message was refused although the status says that it was not; empty where it was taken."""
    try:
        code = json.loads(answer).get(field, 0)
    except (ValueError, AttributeError):  # it is no object
        return ""
    return f"it answered {field} {str(code)[:20]!r}" if code else ""


def _feishu_sign(secret: str, now: int) -> str:
    """Source: Feishu open platform, custom bots, signature verification: HMAC-SHA256 of nothing under this key."""
    key = f"{now}\n{secret}".encode()
    return base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode()


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
