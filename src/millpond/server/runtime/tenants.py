"""What the scheduler has to know of groups and users: the queues that groups own, what accounts may hold, and whether
jobs of several people may run here at all.

The accounts are stored first and reported to the scheduler then; all of them are reported again when the server
starts, so that a server that died between the two changes nothing.
"""

from __future__ import annotations

from millpond.model.errors import InvalidInputError
from millpond.model.events import Event, LimitChanged, QueueChanged
from millpond.model.reasons import Cause
from millpond.model.tenancy.tenants import ROOT_QUEUE, Limit, Queue
from millpond.node.host.clocks import WallClock
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.isolation import Isolation
from millpond.server.auth.records import Group, User
from millpond.server.runtime.core import Core
from millpond.server.runtime.loop import Loop


class Tenants:
    """Reports to the scheduler groups and limits, and whether it may start anything."""

    def __init__(self, accounts: Accounts, isolation: Isolation, loop: Loop, clock: WallClock) -> None:
        self._accounts = accounts
        self._isolation = isolation
        self._loop = loop
        self._clock = clock

    def events(self, core: Core) -> list[Event]:
        """Everything that the scheduler does not know yet; for the start of a server."""
        events: list[Event] = []
        for group in self._accounts.groups():
            events += self._of_group(core, group)
        for user in self._accounts.users():
            events += self._of_user(core, user)
        return events + self.isolation_events(core)

    def isolation_events(self, core: Core) -> list[Event]:
        """Whether the scheduler may start anything, if it does not know that yet."""
        return self._isolation.events(core.scheduler.holds.get(Cause.NOT_ISOLATED, ""))

    async def check_queue(self, queue: str) -> None:
        """Whether a group can own this queue.

        Raises:
            InvalidInputError: it has queues below it, or is the root.
        """
        await self._loop.ask(lambda core: _check(core, queue))

    async def check_limits(self, group: Group) -> None:
        """Whether a group can have its limits.

        Raises:
            ConflictError: a reservation of its queue would no longer fit.
        """

        def check(core: Core) -> None:
            if core.scheduler.has_queue(group.queue):
                core.scheduler.require_reserved(_limit_of(group))

        await self._loop.ask(check)

    async def changed_group(self, group: Group) -> None:
        """A group is new, or has other limits."""
        self._loop.notify(await self._loop.ask(lambda core: self._of_group(core, group)))
        await self._loop.ask(lambda core: None)

    async def changed_user(self, user: User) -> None:
        """A user is new, or has other limits, or was disabled or enabled."""
        self._loop.notify(await self._loop.ask(lambda core: [*self._of_user(core, user), *self.isolation_events(core)]))
        await self._loop.ask(lambda core: None)

    def _of_group(self, core: Core, group: Group) -> list[Event]:
        events: list[Event] = []
        if not core.scheduler.has_queue(group.queue):
            events.append(QueueChanged(self._clock(), Queue(group.queue)))
        return events + self._if_new(core, _limit_of(group))

    def _of_user(self, core: Core, user: User) -> list[Event]:
        limits = user.limits
        return self._if_new(
            core, Limit(user.name, "", limits.jobs, limits.gpu_milli, limits.cpu_milli, limits.card_mib)
        )

    def _if_new(self, core: Core, limit: Limit) -> list[Event]:
        if core.scheduler.limit_of(limit.user, limit.queue) == limit:
            return []
        return [LimitChanged(self._clock(), limit)]


def _limit_of(group: Group) -> Limit:
    limits = group.limits
    return Limit("", group.queue, limits.jobs, limits.gpu_milli, limits.cpu_milli, limits.card_mib)


def _check(core: Core, queue: str) -> None:
    if queue == ROOT_QUEUE or (core.scheduler.has_queue(queue) and not core.scheduler.takes_jobs(queue)):
        raise InvalidInputError(f"queue {queue!r} has queues below it", "let the group own one of those")
