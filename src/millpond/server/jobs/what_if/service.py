"""What a change would do to the jobs of this server: now, or in its recorded past. Nothing is changed.

An admin may ask about anything, a lead about the queues and jobs of their groups. A lead learns sums alone of others.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from millpond.model.errors import (
    ConflictError,
    InvalidInputError,
    MillpondError,
    NotAllowedError,
    NotFoundError,
)
from millpond.model.events import DurationPredicted, JobSubmitted, StopRequested
from millpond.model.workloads import Job
from millpond.node.host.clocks import WallClock
from millpond.scheduling.scheduler import Scheduler
from millpond.server.auth.queues import settle_place
from millpond.server.auth.roles import AccessTarget, Caller, Verb, absent, demand
from millpond.server.jobs.admission.submission import forecast_of
from millpond.server.jobs.what_if import play
from millpond.server.jobs.what_if.changes import Change, settings_change
from millpond.server.jobs.what_if.child import ask_child
from millpond.server.runtime.batch import ended_already, refusal
from millpond.server.server_components import ServerComponents
from millpond.server.views.reports.history_export import HistoryExport
from millpond.server.views.reports.recorded_jobs import Recorded
from millpond.server.views.visibility import Reader, reader_of
from millpond.specs.api.codec import from_json
from millpond.specs.api.reports.what_if import WhatIfInfo
from millpond.specs.api.reports.what_if_request import PastSpan, WhatIfRequest
from millpond.specs.job.job_spec import check_job

ANSWERED_WITHIN_S: Final = 75.0
MOST_RECORDED: Final = 20_000
"""Jobs of the past in one question."""
EARLIER_S: Final = 7 * 86_400.0
"""So long before them jobs are read too: for the forecasts of then, and as they held cards or waited still."""
_AT_ONCE: Final = 2
"""Each is a process of its own."""


class WhatIf:
    """Answers questions about changes, one at a time for each caller."""

    def __init__(
        self,
        components: ServerComponents,
        history: HistoryExport,
        clock: WallClock,
    ) -> None:
        self._accounts, self._forecaster = components.accounts, components.forecaster
        self._queue_settings, self._on_cluster = components.queue_settings, components.on_cluster
        self._lookup, self._loop = components.lookup, components.loop
        self._history = history
        self._clock = clock
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._asking: set[str] = set()

    async def answer(self, request: WhatIfRequest, caller: Caller) -> WhatIfInfo:
        """What the changes of the request would do, all together.

        Raises:
            NotFoundError, InvalidInputError: a change is about what is not there, is none, or is refused.
            NotAllowedError: it is not for the caller to ask.
            ConflictError: the caller's last question is not answered yet.
            UnavailableError: there was no answer in time.
        """
        if caller.user in self._asking:
            raise ConflictError("your last what-if question is not answered yet", "wait for its answer, or cancel it")
        self._asking.add(caller.user)
        try:
            async with self._slots:
                return await self._answer(request, caller)
        finally:
            self._asking.discard(caller.user)

    async def _answer(self, request: WhatIfRequest, caller: Caller) -> WhatIfInfo:
        self._require_own(request, caller)
        copy, at = await self._loop.ask(lambda core: (core.scheduler.fork(), core.now))
        begin_at = max(at, self._clock())
        recorded = await self._recorded(request.past, begin_at)
        change = await asyncio.to_thread(self._change, request, caller, copy, begin_at, recorded)
        await self._submit(request, caller, copy, change)
        if not change.events:
            raise InvalidInputError("no change is asked about", "name one, such as another guarantee of a queue")
        jobs = (
            [record.job for record in copy.jobs.values()] if recorded is None else [each.job for each in recorded.jobs]
        )

        def question() -> str:
            past = request.past
            span = (begin_at, begin_at + request.horizon_s)
            if past is not None:
                span = (past.since, min(past.until, begin_at))
            snapshot = json.dumps(copy.snapshot())
            return play.question_text(snapshot, (change.events, change.words), span, recorded)

        text = await asyncio.to_thread(question)
        remedy = "ask about a shorter span, or fewer changes"
        answer = from_json(WhatIfInfo, await ask_child(play.__name__, text, ANSWERED_WITHIN_S, remedy))
        return self._veiled(answer, jobs, caller)

    # ---- the change ---------------------------------------------------------------------------------------------

    def _require_own(self, request: WhatIfRequest, caller: Caller) -> None:
        """Let a lead ask about the queues of their groups alone."""
        if caller.admin:
            return
        own = self._accounts.queues_for(caller, Verb.ASK_WHAT_IF)
        for setting in request.set:
            if setting.queue not in own:
                raise NotAllowedError(
                    f"{caller.user} may not ask about queue {setting.queue!r}",
                    f"ask about {', '.join(sorted(own))}" if own else "ask an admin",
                )
        policies = (request.ordering, request.placement, request.preempt, request.reserve)
        if request.add_nodes or request.remove_nodes or any(policy is not None for policy in policies):
            raise NotAllowedError(
                f"{caller.user} may not ask about nodes and policies", "ask about a queue or a job, or ask an admin"
            )

    async def _recorded(self, past: PastSpan | None, now: float) -> Recorded | None:
        if past is None:
            return None
        if past.until <= past.since:
            raise InvalidInputError("the span ends before it begins", "let it end later")
        until = min(past.until, now)
        recorded = await self._history.recorded_with_present(past.since, until, EARLIER_S, MOST_RECORDED)
        if not recorded.jobs:
            missing = "; ".join(f"{number} {reason}" for reason, number in recorded.left_out.items())
            raise NotFoundError(
                "no job that ended was submitted then" + (f" (left out: {missing})" if missing else ""),
                "take a longer span, such as the last 30 days",
            )
        return recorded

    def _change(
        self, request: WhatIfRequest, caller: Caller, copy: Scheduler, at: float, recorded: Recorded | None
    ) -> Change:
        change = settings_change(request, copy, self._queue_settings, at)
        known = copy.jobs if recorded is None else {each.job.id: each for each in recorded.jobs}
        for name in dict.fromkeys(request.cancel):
            found = known.get(name)
            if found is None or (recorded is None and copy.jobs[name].state.ended):
                raise self._not_played(name, caller, recorded)
            self._require_own_job(found.job.id, found.job.user, found.job.group, caller)
            change.add(StopRequested(at, name), f"job {name} cancelled")
        if request.submit and recorded is not None:
            raise InvalidInputError("a new job and the past", "ask about a new job beside what runs and waits now")
        return change

    def _not_played(self, name: str, caller: Caller, recorded: Recorded | None) -> MillpondError:
        """The error for a job to be cancelled that is not among those that are played."""
        info = self._lookup.find(name)
        if info is None:
            return absent("job", name)
        self._require_own_job(info.id, info.user, info.group, caller)
        if info.array is not None:
            return InvalidInputError(
                "an array of jobs to be cancelled", f"name one of its jobs, such as '{info.id}[0]'"
            )
        if recorded is None:
            return ended_already(info)
        return NotFoundError(
            f"job {name!r} is not among the jobs of the past that are played",
            "those are played that were submitted in the span, ran, and have ended",
        )

    def _require_own_job(self, job: str, user: str, group: str, caller: Caller) -> None:
        target = AccessTarget("job", job, user, frozenset({group} - {""}))
        if not caller.admin:
            demand(caller, Verb.READ_JOBS, target)
            demand(caller, Verb.CHANGE_JOBS, target)

    async def _submit(self, request: WhatIfRequest, caller: Caller, copy: Scheduler, change: Change) -> None:
        """Add the submitted jobs, with the forecasts that they would get; the rest of the change is tried first."""
        trial = copy.fork()
        for event in change.events:
            # Jobs of the past are not the core's any more.
            if not isinstance(event, StopRequested) or event.job in trial.jobs:
                trial.handle(event)
        for number, document in enumerate(request.submit, 1):
            checked = check_job(document).submitted_at(change.at)
            spec, place = settle_place(self._accounts, self._queue_settings.rules, caller, checked)
            if spec.members is not None:
                raise InvalidInputError("an array of jobs to be submitted", "ask about one of its jobs")
            job = place.of(self._on_cluster(spec).to_job(f"new-{number}"))
            if (reason := trial.check(job)) is not None:
                raise refusal(reason)
            trial.check_reservation(job)
            what = f"{job.name or 'a job'} of {job.gpu_milli / 1000:g} cards submitted to {job.queue} as {job.id}"
            change.add(JobSubmitted(change.at, job), what)
            forecast = await forecast_of(self._forecaster, spec.file, job)
            if forecast is not None:
                change.events.append(DurationPredicted(change.at, job.id, forecast.expected_s, forecast.cautious_s))

    # ---- the answer ---------------------------------------------------------------------------------------------

    def _veiled(self, answer: WhatIfInfo, jobs: Iterable[Job], caller: Caller) -> WhatIfInfo:
        """The answer, of other groups without names."""
        reader = reader_of(caller)
        if reader.owners is None:
            return answer
        sees = _sees(reader)
        seen = {job.id for job in jobs if sees(job)}
        users = {job.user for job in jobs if job.id in seen} | {caller.user}
        queues = self._accounts.queues_for(caller, Verb.READ_JOBS)
        shown = [job for job in answer.jobs if job.job in seen or job.effect == "new"]
        return replace(
            answer,
            jobs=shown,
            hidden=len(answer.jobs) - len(shown),
            queues=[share for share in answer.queues if share.name in queues],
            users=[share for share in answer.users if share.name in users],
        )


def _sees(reader: Reader) -> Callable[[Job], bool]:
    owners = reader.owners
    return lambda job: owners is None or job.user == owners.user or job.group in owners.groups
