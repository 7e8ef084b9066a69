"""What would become of a job if it were submitted now; nothing is."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from millpond.server.asking import Asking
from millpond.server.audience import audience_of
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.queues import settle_place
from millpond.server.auth.roles import Caller
from millpond.server.batch import refusal
from millpond.server.core import Core
from millpond.server.inbox import wall_clock
from millpond.server.lookup import Lookup
from millpond.server.planning import plan_apart
from millpond.specs.job import check_job
from millpond.specs.plan_bodies import PlanInfo

_PLANS_AT_ONCE: Final = 2
"""Each is a process of its own."""


class Plans:
    """Makes plans, each on a copy of the core."""

    def __init__(self, accounts: Accounts, asking: Asking, lookup: Lookup) -> None:
        self._accounts = accounts
        self._asking = asking
        self._lookup = lookup
        self._planning = asyncio.Semaphore(_PLANS_AT_ONCE)

    async def make(self, document: Any, caller: Caller) -> PlanInfo:
        """What would become of a job if the caller submitted it now.

        Args:
            document: a job file as plain data.

        Raises:
            SpecError, InvalidInputError: the document is wrong, or the cluster can never run it.
            NotAllowedError: the caller may not use the queue.
        """
        spec, place = settle_place(self._accounts, caller, check_job(document))
        job = place.of(spec.to_job("plan"))

        def copy(core: Core) -> tuple[str, float]:
            reason = core.scheduler.check(job)
            if reason is not None:
                raise refusal(reason)
            # As text already here: parts of a snapshot are the core's own, and it goes on.
            return json.dumps(core.scheduler.snapshot()), core.now

        async with self._planning:
            snapshot, at = await self._asking.ask(copy)
            plan = await plan_apart(snapshot, job, max(at, wall_clock()))
        return await asyncio.to_thread(audience_of(caller).plan, plan, self._lookup.find)
