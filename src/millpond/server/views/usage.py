"""Usage as the API shows it: who used what, at which price, and what was delivered to webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from millpond.server.auth.accounts import Accounts
from millpond.server.auth.roles import Caller, Verb
from millpond.server.storage.disk_use import DiskBooks
from millpond.server.store.books import Share
from millpond.server.store.store import Store
from millpond.specs.api.events import DeliveryInfo
from millpond.specs.api.usage import DiskInfo, UsageList, UsageRow
from millpond.specs.config.prices import PriceList

_HOUR_S: Final = 3600.0


class Bookkeeper:
    """Shows usage to the users who may see it.

    Args:
        disk: what users hold on disk.
        prices: gives the price list as it is now.
    """

    def __init__(self, store: Store, accounts: Accounts, disk: DiskBooks, prices: Callable[[], PriceList]) -> None:
        self._store = store
        self._accounts = accounts
        self._disk = disk
        self._prices = prices

    async def usage(self, by: str, since: float, until: float, caller: Caller) -> UsageList:
        """Who held how much between two instants: all users, or those whose usage the caller may see.

        Args:
            by: a ``specs.api.usage.Grouping``.
        """
        prices = self._prices()
        share = None if caller.admin else Share(caller.user, self._accounts.queues_for(caller, Verb.READ_USAGE))
        sums = await asyncio.to_thread(self._store.books.sums, by, since, until, share)
        rows = [
            UsageRow(
                name=total.name,
                model=total.model,
                jobs=total.jobs,
                gpu_hours=total.gpu_seconds / _HOUR_S,
                cpu_hours=total.cpu_seconds / _HOUR_S,
                memory_gib_hours=total.memory_gib_seconds / _HOUR_S,
                cost=prices.cost(total.model, total.gpu_seconds / _HOUR_S),
            )
            for total in sums
        ]
        disk = self._disk_of(by, share)
        return UsageList(
            by=by, since=since, until=until, currency=prices.currency if prices.gpu_hour else "", rows=rows, disk=disk
        )

    def _disk_of(self, by: str, share: Share | None) -> list[DiskInfo]:
        """What those hold on disk whose usage is asked for; by user or by queue only, the largest first."""
        found: list[DiskInfo] = []
        if by == "user":
            found = [
                self._disk.of_user(name) for name in self._disk.latest.users if share is None or share.user == name
            ]
        elif by == "queue":
            groups = self._accounts.groups()
            found = [
                self._disk.of_group(group.name) for group in groups if share is None or group.queue in share.queues
            ]
        return sorted((each for each in found if each.used_bytes), key=lambda each: (-each.used_bytes, each.name))

    async def deliveries(self, limit: int) -> list[DeliveryInfo]:
        """What was or is to be delivered to webhooks, newest first."""
        found = await asyncio.to_thread(self._store.deliveries.latest, limit)
        return [
            DeliveryInfo(
                id=one.id,
                hook=one.hook,
                at=one.at,
                text=one.text,
                state=one.state,
                tries=one.tries,
                due_at=one.due_at,
                trouble=one.trouble,
            )
            for one in found
        ]
