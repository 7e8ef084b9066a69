"""The server's own history as rows of a native trace, so that a policy can be tried on the jobs of last month.

A row says what a policy is asked to schedule: since when a job could start, what it asks for, and how long it runs
when nothing disturbs it. The last is its last run, without the time in which it was suspended: what earlier runs did
was lost when they were ended. Where a job saves its work it is the time of all its runs together.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from millpond.forecasting.durations import Forecast
from millpond.model.errors import InvalidInputError
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.resources import CARD_MILLI, TaskRequest
from millpond.model.workloads import CheckpointMode, Job
from millpond.server.runtime.forecasts import forecasts_at_submission
from millpond.server.runtime.loop import Loop
from millpond.server.storage.job_files import JobFiles
from millpond.server.store.store import Store
from millpond.server.views.reports.recorded_jobs import NEVER_RAN, Recorded, RecordedJob
from millpond.server.views.visibility import EVERYBODY, Reader
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.reports.history import HistoryPage, TraceRow

_UNREADABLE = "this version does not understand their job files"
_UNKNOWN_CARD = "they asked for device memory of a card that is gone"
_NOT_ENDED = "wait or run still"
_PART = 1_000
"""So many jobs are read at once."""


@dataclass(frozen=True, slots=True)
class HistorySpan:
    """Which part of the history is asked for.

    Attributes:
        since, until: instants between which jobs were submitted.
        after: ``next`` of the part before; empty for the first.
    """

    since: float
    until: float
    after: str
    limit: int


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the history; ``next`` is where it goes on."""

    jobs: list[tuple[JobInfo, Job, float]]
    left_out: Counter[str]
    next: str


class HistoryExport:
    """Reads jobs that ended, as rows of a trace or as they are."""

    def __init__(self, store: Store, loop: Loop, job_files: JobFiles) -> None:
        self._store = store
        self._loop = loop
        self._job_files = job_files

    async def page(self, span: HistorySpan, reader: Reader) -> HistoryPage:
        """One part of the history, as far as these readers may see the jobs; the last one also says what is missing.

        Raises:
            InvalidInputError: ``after`` is no place.
        """
        nodes = await self._loop.ask(lambda core: core.scheduler.machines())
        devices = {device.uuid: device for node in nodes for device in node.devices}
        page = await asyncio.to_thread(self._page, span, reader, devices)
        if page.next:
            return page
        left_out = page.left_out | self._not_ended(span.since, span.until, reader)
        return page.model_copy(update={"left_out": left_out, "cluster": _cluster(nodes)})

    async def recorded_with_present(self, since: float, until: float, earlier_s: float, most: int) -> Recorded:
        """The jobs of all users that were submitted between two instants and have ended, whole, with what was under
        way: jobs of the time before, and those that run still.

        Args:
            earlier_s: so many seconds before ``since`` are read too, less where that is more than ``most`` jobs;
                forecasts rest on what ended from then on.

        Raises:
            InvalidInputError: there are more than ``most`` jobs in the span.
        """
        read = await self._all_ended(since, until, most)
        earlier = await self._latest_before(since, earlier_s, most)
        running = await asyncio.to_thread(self._running, until)
        every = sorted((*earlier.jobs, *read.jobs, *running), key=lambda each: each[0].queued_at)
        guesses = await asyncio.to_thread(forecasts_at_submission, [(info, job) for info, job, _ in every])
        forecasts = {info.id: guess for (info, _, _), guess in zip(every, guesses, strict=True)}
        ended, before, still = (
            [_recorded(info, job, length, forecasts[info.id]) for info, job, length in part]
            for part in (read.jobs, earlier.jobs, running)
        )
        return Recorded(ended, dict(read.left_out) | self._not_ended(since, until, EVERYBODY), before, still)

    async def _latest_before(self, since: float, earlier_s: float, most: int) -> _Part:
        """The jobs of the time before that have ended, as far back as there are not too many."""
        while True:
            try:
                return await self._all_ended(since - earlier_s, since, most)
            except InvalidInputError:
                earlier_s /= 4.0

    async def _all_ended(self, since: float, until: float, most: int) -> _Part:
        """All parts of the jobs of all users that ended."""
        whole = _Part([], Counter(), "")
        after = ""
        while True:
            part = await asyncio.to_thread(self._ended, HistorySpan(since, until, after, _PART), EVERYBODY)
            whole.jobs.extend(part.jobs)
            whole.left_out.update(part.left_out)
            if len(whole.jobs) > most:
                raise InvalidInputError(f"more than {most:,} jobs between these instants", "ask about a shorter span")
            if not part.next:
                return whole
            after = part.next

    def _running(self, now: float) -> list[tuple[JobInfo, Job, float]]:
        """The jobs that hold cards and have not ended, with the seconds of their run so far."""
        live = [info for info in self._loop.job_cache.newest_first() if info.array is None]
        ran = [(info, ran_s) for info in live if (ran_s := info.ran_s(now)) is not None]
        jobs = self._jobs_of([info for info, _ in ran])
        return [(info, jobs[info.id], ran_s) for info, ran_s in ran if info.id in jobs]

    def _not_ended(self, since: float, until: float, reader: Reader) -> dict[str, int]:
        live = self._live_between(since, until, reader)
        return {_NOT_ENDED: live} if live else {}

    def _live_between(self, since: float, until: float, reader: Reader) -> int:
        return sum(
            info.array is None and reader.sees(info) and since <= info.submitted_at < until
            for info in self._loop.job_cache.newest_first()
        )

    def _page(self, span: HistorySpan, reader: Reader, devices: dict[str, Device]) -> HistoryPage:
        part = self._ended(span, reader)
        rows = []
        for info, job, length_s in part.jobs:
            asked = _cards(info, job, devices)
            if asked is None:
                part.left_out[_UNKNOWN_CARD] += 1
            else:
                rows.append(_row(info, job, asked, length_s))
        return HistoryPage(rows=rows, left_out=dict(part.left_out), next=part.next)

    def _ended(self, span: HistorySpan, reader: Reader) -> _Part:
        """A part of the jobs that ended, with the seconds that each runs when nothing disturbs it."""
        behind = _place(span.after) if span.after else (span.since, "")
        infos, last = self._store.jobs.ended_between(behind, span.until, span.limit, reader.owners)
        ran = [info for info in infos if info.started_at is not None]
        jobs_of = self._jobs_of(ran)
        found = [(info, jobs_of[info.id]) for info in ran if info.id in jobs_of]
        missing = {NEVER_RAN: len(infos) - len(ran), _UNREADABLE: len(ran) - len(found)}
        left_out = Counter({reason: number for reason, number in missing.items() if number})
        saving = [(info, job) for info, job in found if job.checkpoint.mode is not CheckpointMode.NONE]
        whole = self._store.books.computed_s([info.id for info, _ in saving if info.attempt > 1])
        jobs = [(info, job, _length_s(info, whole.get(info.id))) for info, job in found]
        return _Part(jobs, left_out, "" if last is None else f"{last[0]!r} {last[1]}")

    def _jobs_of(self, infos: Sequence[JobInfo]) -> dict[str, Job]:
        """By id, jobs as the scheduler has them, without those whose files this version does not understand."""
        accepted = self._job_files.readable({info.parent or info.id for info in infos})
        found = ((info, accepted.get(info.parent or info.id)) for info in infos)
        return {
            info.id: replace(each.spec.job, id=info.id, user=info.user, queue=info.queue, group=info.group)
            for info, each in found
            if each is not None
        }


def _recorded(info: JobInfo, job: Job, length_s: float, forecast: Forecast | None = None) -> RecordedJob:
    ended_at = math.inf if info.ended_at is None else info.ended_at
    started_at = info.queued_at if info.started_at is None else info.started_at
    return RecordedJob(job, info.queued_at, length_s, ended_at, started_at, forecast)


def _length_s(info: JobInfo, whole_s: float | None) -> float:
    return max(info.ran_s(info.ended_at or info.submitted_at) or 0.0, whole_s or 0.0)


def _place(text: str) -> tuple[float, str]:
    """Where a part of the history ended, as ``next`` has it."""
    at, _, job = text.partition(" ")
    try:
        if not job.isprintable():
            raise ValueError(job)
        return float(at), job
    except ValueError as error:
        raise InvalidInputError(f"{text!r} is no place in the history", "take `next` of the answer before") from error


def _cluster(nodes: Sequence[Node]) -> str:
    """The machines as ``NxG:MODEL``; empty where they differ, or have no cards."""
    kinds = {tuple(device.model for device in node.devices) for node in nodes}
    models = next(iter(kinds)) if len(kinds) == 1 else ()
    return f"{len(nodes)}x{len(models)}:{_word(models[0])}" if len(set(models)) == 1 else ""


def _word(model: str) -> str:
    """A card's model as the description of a cluster can name it."""
    return re.sub(r"[^\w.-]+", "-", model)


def _row(info: JobInfo, job: Job, asked: tuple[int, int], length_s: float) -> TraceRow:
    requests = _requests(info, job)
    alike = len(set(requests)) == 1
    models = sorted({model for request in requests for model in request.models})
    return TraceRow(
        submit_s=info.queued_at,
        duration_s=length_s,
        gpus=asked[0],
        gpu_milli=asked[1],
        job=info.id,
        user=info.user,
        name=info.name,
        queue=info.queue,
        tasks=len(requests) if alike and len(requests) > 1 else None,
        cpu_milli=sum(request.cpu_milli for request in requests),
        memory_mib=sum(request.memory_mib for request in requests),
        gpu_models="|".join(map(_word, models)),
        priority=info.priority,
        time_limit_s=job.time_limit_s,
        minimum_run_s=job.minimum_run_s,
        preemptible="yes" if job.preemptible else "no",
    )


def _requests(info: JobInfo, job: Job) -> list[TaskRequest]:
    """What each of its tasks asked for; an elastic job had as many as it had in the end."""
    by_role = {role.name: role.request for role in job.roles}
    return [by_role[task.role] for task in info.tasks if task.role in by_role] or [job.roles[0].request]


def _cards(info: JobInfo, job: Job, devices: dict[str, Device]) -> tuple[int, int] | None:
    """How many cards the tasks asked for in all, and which share of each; None where that cannot be said."""
    requests = _requests(info, job)
    milli = []
    for request, task in zip(requests, info.tasks, strict=False):
        share = request.slice.compute_milli
        if request.devices and share == 0:  # a slice by memory alone
            card = next((devices[grant.uuid] for grant in task.devices if grant.uuid in devices), None)
            if card is None or not card.memory_mib:
                return None
            share = max(round(CARD_MILLI * request.slice.memory_mib / card.memory_mib), 1)
        milli.append((request.devices, min(share, CARD_MILLI)))
    return _together(milli)


def _together(milli: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Cards and share of each for all tasks: as they are where all are alike, else what they come to."""
    cards = sum(count for count, _ in milli)
    shares = {share for count, share in milli if count}
    if len(shares) <= 1:
        return cards, next(iter(shares), CARD_MILLI)
    total = sum(count * share for count, share in milli)
    return (1, total) if total < CARD_MILLI else (-(-total // CARD_MILLI), CARD_MILLI)
