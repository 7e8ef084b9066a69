"""The webhooks of a server: those that the configuration names, and those that admins added while it ran.

One of the configuration is changed there alone, and takes the place of an added one of its name when it is read. What
was added is in the store, its address among the secrets: so all of it is there after a restart and in a backup.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from millpond.model.errors import ConflictError, NotFoundError
from millpond.server.auth.vault.secrets import SERVER, WEBHOOK_ADDRESS, Vault
from millpond.server.notifications.settings import NotificationContext
from millpond.server.store.settings import WebhookRow, WebhookStore
from millpond.specs.api.webhooks import NewWebhookRequest, WebhookInfo
from millpond.specs.config.webhooks import Webhook, WebhookFile, as_far_as_host
from millpond.specs.errors import SpecError, suggest
from millpond.specs.source_positions import Located
from millpond.specs.validation import validate

log = logging.getLogger(__name__)

MOST_WEBHOOKS: Final = 100
"""That can be added: each is looked at for each event."""
_LONGEST_SHOWN: Final = 120


class WebhookReceivers:
    """Blocks, but for ``hooks``: not for the thread of requests.

    Args:
        of_file: gives those that the configuration names now, by name.
    """

    def __init__(
        self,
        store: WebhookStore,
        of_file: Callable[[], Mapping[str, Webhook]],
        vault: Vault,
        context: NotificationContext,
    ) -> None:
        self._store = store
        self._of_file = of_file
        self._vault = vault
        self._context = context
        self._lock = threading.Lock()
        self._rows: Mapping[str, WebhookRow] = store.all()
        self._added = _hooks(self._rows)

    def hooks(self) -> Mapping[str, Webhook]:
        """All that count now, by name; of those that were added the vault has the address."""
        of_file, added = self._of_file(), self._added
        return {**of_file, **{name: hook for name, hook in added.items() if name not in of_file}}

    def all(self) -> list[WebhookInfo]:
        """All that count now, without what opens anything."""
        rows, of_file = self._rows, self._of_file()
        return [_info(hook, None if name in of_file else rows.get(name)) for name, hook in self.hooks().items()]

    def add(self, request: NewWebhookRequest, queues: Collection[str], by: str) -> WebhookInfo:
        """Have another program notified from now on.

        Args:
            queues: that there are.

        Raises:
            SpecError: a field is wrong.
            NotFoundError: it names a queue, or a secret of the server, that is not there.
            ConflictError: there is one of this name, or there are too many.
            UnavailableError: nothing may be changed, or encrypted, now.
        """
        self._context.require_changeable()
        file = _checked(request)
        for queue in file.queues:
            if queue not in queues:
                raise NotFoundError(f"no queue {queue!r}", suggest(queue, sorted(queues)))
        if file.secret is not None:
            self._vault.value(SERVER, "", file.secret)
        with self._lock:
            if file.name in self._of_file():
                raise ConflictError(f"the configuration names a webhook {file.name!r}", "choose another name")
            if file.name in self._rows:
                raise ConflictError(
                    f"there is a webhook {file.name!r} already", "remove it first, or choose another name"
                )
            if len(self._rows) >= MOST_WEBHOOKS:
                raise ConflictError(f"{MOST_WEBHOOKS} webhooks were added already", "remove some of them")
            document: dict[str, Any] = file.model_dump(exclude={"name", "secret_file"})
            row = WebhookRow(file.name, {**document, "url": as_far_as_host(file.url)}, by, self._context.clock())
            self._vault.put(WEBHOOK_ADDRESS, "", file.name, file.url, by)
            self._store.save(row)
            self._hold({**self._rows, file.name: row})
        return _info(self._added[file.name], row)

    def remove(self, name: str) -> WebhookInfo:
        """Have it notified no more; deliveries to it that wait are given up.

        Raises:
            NotFoundError: there is none of this name.
            ConflictError: the configuration names it.
            UnavailableError: nothing may be changed now.
        """
        self._context.require_changeable()
        with self._lock:
            if name in self._of_file():
                raise ConflictError(f"the configuration names the webhook {name!r}", "remove it there")
            row = self._rows.get(name)
            if row is None:
                raise absent_webhook(name, self.hooks())
            self._drop(name)
        return _info(_hook(row), row)

    def take_file(self) -> None:
        """The configuration was read: what it names takes the place of what was added under the same name."""
        with self._lock:
            for name in [name for name in self._rows if name in self._of_file()]:
                log.warning("the webhook %s of the configuration takes the place of the one that was added", name)
                self._drop(name)

    def _drop(self, name: str) -> None:
        self._store.drop(name)
        with suppress(NotFoundError):
            self._vault.drop(WEBHOOK_ADDRESS, "", name)
        self._hold({other: row for other, row in self._rows.items() if other != name})

    def _hold(self, rows: Mapping[str, WebhookRow]) -> None:
        self._rows = dict(sorted(rows.items()))
        self._added = _hooks(self._rows)


def absent_webhook(name: str, hooks: Collection[str]) -> NotFoundError:
    """The error for a name that no webhook has."""
    hint = f"there are {', '.join(hooks)}" if hooks else "there are none; `pond webhooks add` adds one"
    return NotFoundError(f"no webhook {name[:_LONGEST_SHOWN]!r}", hint)


def _checked(request: NewWebhookRequest) -> WebhookFile:
    try:
        return validate(WebhookFile, Located({name: value for name, value in request.model_dump().items() if value}))
    except SpecError as error:
        raise SpecError(error.problems, "the webhook would not be valid") from error


def _hooks(rows: Mapping[str, WebhookRow]) -> dict[str, Webhook]:
    return {name: _hook(row) for name, row in rows.items()}


def _hook(row: WebhookRow) -> Webhook:
    said = row.document
    return Webhook(
        row.name,
        "",
        tuple(said["on"]),
        tuple(said["queues"]),
        said["format"],
        secret_name=said["secret"] or "",
    )


def _info(hook: Webhook, row: WebhookRow | None) -> WebhookInfo:
    return WebhookInfo(
        name=hook.name,
        url=as_far_as_host(hook.url) if row is None else row.document["url"],
        format=hook.format,
        on=list(hook.on),
        queues=list(hook.queues),
        signed=bool(hook.secret or hook.secret_name),
        secret=hook.secret_name,
        in_file=row is None,
        by="" if row is None else row.by,
        at=0.0 if row is None else row.at,
    )
