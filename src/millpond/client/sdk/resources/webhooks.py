"""Webhooks of a server as Python methods: ``Client().webhooks.all()``, and what is delivered to them and to users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millpond.client.sdk.transport.connection import Requests, segment
from millpond.specs.api.events import DeliveryInfo, DeliveryList

if TYPE_CHECKING:
    from millpond.specs.api.webhooks import WebhookInfo


class WebhooksClient(Requests):
    """The webhooks of the server that a client talks to; all of it is for admins."""

    def all(self) -> list[WebhookInfo]:
        """Those of the configuration, and those that were added since."""
        from millpond.specs.api.webhooks import WebhookList

        return self._ask(WebhookList, "GET", "/webhooks").webhooks

    def add(
        self,
        name: str,
        url: str,
        *,
        format: str = "millpond",  # noqa: A002 - the API's word
        on: Sequence[str] = (),
        queues: Sequence[str] = (),
        secret: str = "",
    ) -> WebhookInfo:
        """Have another program notified of what happens to jobs.

        Args:
            url: the server keeps it as a secret.
            format: of the body: ``slack``, ``feishu``, ``wecom``, or Millpond's own.
            on: events, such as ``job.failed``; none: all.
            queues: only of jobs of these; none: of all.
            secret: name of the server's secret that deliveries are signed with; empty: they are not.

        Raises:
            InvalidInputError: a field is wrong.
            NotFoundError: there is no such queue, or no such secret of the server.
            ConflictError: there is one of this name.
        """
        from millpond.specs.api.webhooks import WebhookInfo

        body = {"name": name, "url": url, "format": format, "on": list(on), "queues": list(queues), "secret": secret}
        return self._ask(WebhookInfo, "POST", "/webhooks", json=body)

    def remove(self, name: str) -> WebhookInfo:
        """Have one that was added notified no more.

        Raises:
            NotFoundError: there is none of this name.
            ConflictError: the configuration names it.
        """
        from millpond.specs.api.webhooks import WebhookInfo

        return self._ask(WebhookInfo, "DELETE", f"/webhooks/{segment(name)}")

    def test(self, name: str) -> DeliveryInfo:
        """Send a test message to one; ``delivery`` says what came of it.

        Raises:
            NotFoundError: there is none of this name.
        """
        return self._ask(DeliveryInfo, "POST", f"/webhooks/{segment(name)}/test")

    def deliveries(self, limit: int = 100) -> list[DeliveryInfo]:
        """Deliveries to webhooks and users, past and pending, newest first."""
        return self._ask(DeliveryList, "GET", "/webhooks/deliveries", params={"limit": limit}).deliveries

    def delivery(self, number: int) -> DeliveryInfo:
        """One of them, and what came of it so far.

        Raises:
            NotFoundError: there is none of that number any more.
        """
        return self._ask(DeliveryInfo, "GET", f"/webhooks/deliveries/{number}")
