"""Plan a job without submitting it: what the scheduler would decide now."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from millpond.scheduling.scheduler import Scheduler
from millpond.server.auth.queues import settle_place
from millpond.server.auth.roles import Caller
from millpond.server.http.user_turns import UserTurns
from millpond.server.jobs.admission.submission import forecast_of
from millpond.server.jobs.monitors.deadlines import check_deadline
from millpond.server.jobs.reasons import as_cards_are, as_clocks_are
from millpond.server.jobs.what_if.plan import plan_apart
from millpond.server.runtime.batch import refusal
from millpond.server.runtime.core import Core
from millpond.server.server_components import ServerComponents
from millpond.server.views.visibility import reader_of
from millpond.specs.api.jobs.reasons import PlanInfo
from millpond.specs.job.job_spec import check_job

_PLANS_AT_ONCE: Final = 2
"""Each is a process of its own."""


class Plans:
    """Makes plans, each on a copy of the core.

    Args:
        unlimited: why all processes of a task together are not kept to its amounts; empty where they are.
        unshared: says why no card of a pool is shared out; nothing where some are. It may wait for the cluster.
    """

    def __init__(self, components: ServerComponents, unlimited: str, unshared: Callable[[str], str]) -> None:
        self._unlimited, self._unshared = unlimited, unshared
        self._accounts, self._queue_settings = components.accounts, components.queue_settings
        self._forecaster, self._lookup = components.forecaster, components.lookup
        self._on_cluster, self._loop = components.on_cluster, components.loop
        self._turns = UserTurns(_PLANS_AT_ONCE)

    async def make(self, document: Any, caller: Caller) -> PlanInfo:
        """What would become of a job if the caller submitted it now.

        Args:
            document: a job file as plain data.

        Raises:
            SpecError, InvalidInputError: the document is wrong, or the cluster can never run it.
            NotAllowedError: the caller may not use the queue.
            NotFoundError: its queue has no reservation of the name that it requires.
            UnavailableError: the caller waits for many already.
        """
        checked = check_job(document).submitted_at(time.time())
        spec, place = settle_place(self._accounts, self._queue_settings.rules, caller, checked)
        job = place.of(self._on_cluster(spec).to_job("plan"))
        forecast = await forecast_of(self._forecaster, spec.file, job)
        check_deadline(job, forecast, time.time())

        def copy(core: Core) -> tuple[Scheduler, float]:
            reason = core.scheduler.check(job)
            if reason is not None:
                raise refusal(reason)
            core.scheduler.check_reservation(job)
            return core.scheduler.fork(), core.now

        async with self._turns.turn(caller.user):
            twin, at = await self._loop.ask(copy)
            wall = time.time()
            now = max(at, wall)
            snapshot = await asyncio.to_thread(lambda: json.dumps(twin.snapshot()))
            plan = await plan_apart(snapshot, job, now, forecast)
        if any(map(spec.file.names_memory, spec.commands)):
            plan = replace(plan, unlimited=self._unlimited)
        if plan.reason is not None:
            reason = as_clocks_are(plan.reason, now, wall)
            plan = replace(plan, reason=await as_cards_are(reason, partial(self._unshared, job.pool)))
        return await asyncio.to_thread(reader_of(caller).plan, plan, self._lookup.find)
