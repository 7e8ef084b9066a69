"""Notify users of what only time brings about: long waits, idle cards, ends to come, reservations, changed queues.

Everything is checked again and again, and reported once, also across restarts: a key is stored with each delivery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.exc import DBAPIError

from millpond.model.states import JobState
from millpond.node.host.clocks import WallClock
from millpond.node.host.periodic_worker import EXPECTED, Periodic, PeriodicWorker
from millpond.scheduling.reserving.views import ReservationView
from millpond.server.jobs.monitors.idle_jobs import IdleEnd
from millpond.server.jobs.time_limits import LimitLeft, limits_left
from millpond.server.notifications.notices import Notice, job_notice
from millpond.server.notifications.outbox import KeyedNotice, NoticeOutbox
from millpond.server.notifications.subscriptions import Subscriptions
from millpond.server.runtime.core import Core
from millpond.server.runtime.loop import Loop
from millpond.server.runtime.queue_settings.service import QueueSettings
from millpond.server.store.deliveries import Target
from millpond.server.views.hardware.pool_room import idle_since
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.notifications import Topic

LOOK_EVERY_S: Final = 15.0
_FRESH_S: Final = 86_400.0
"""What began, or was changed, longer ago is news to nobody."""


@dataclass(frozen=True, slots=True)
class WatchSources:
    """Where it looks.

    Attributes:
        idle_cards: since when cards have not computed, by UUID.
        idle_ends: of idle sessions, when and how they leave their cards if they stay unused, by job.
    """

    loop: Loop
    queues: QueueSettings
    idle_cards: Callable[[], Mapping[str, float]]
    idle_ends: Callable[[], Mapping[str, IdleEnd]]


class NoticeWatch(Periodic):
    """Looks, on a thread of its own, at that alone of which any user is told."""

    def __init__(
        self, sources: WatchSources, subscriptions: Subscriptions, outbox: NoticeOutbox, clock: WallClock
    ) -> None:
        self._sources = sources
        self._subscriptions = subscriptions
        self._outbox = outbox
        self._clock = clock
        self._told: set[tuple[str, str]] = set()
        """Users, and keys of what they were told of that may still be found."""
        trouble = "nobody is told of long waits and idle cards now"
        self._worker = PeriodicWorker("notices", self.look, LOOK_EVERY_S, trouble, (*EXPECTED, DBAPIError))

    def look(self) -> None:
        """Look at everything once, and tell whoever wants to be told."""
        now = self._clock()
        told: set[tuple[str, str]] = set()
        posts: list[tuple[KeyedNotice, list[Target]]] = []
        for keyed in (*self._of_jobs(now), *self._of_reservations(now), *self._of_queues(now)):
            for subscription, rule in self._subscriptions.wanting(keyed.notice):
                targets = self._outbox.targets_of([(subscription.user, rule.channels)])
                if not targets or not _is_due(keyed.notice, rule.span, subscription.since, now):
                    continue
                mark = (subscription.user, keyed.key)
                if mark not in self._told and mark not in told:
                    posts.append((keyed, targets))
                told.add(mark)
        self._outbox.post(posts)
        self._told = told

    # ---- what is found ----------------------------------------------------------------------------------------------

    def _of_jobs(self, now: float) -> Iterator[KeyedNotice]:
        jobs = self._sources.loop.job_cache.newest_first()
        running = [job for job in jobs if job.state == JobState.RUNNING and job.array is None]
        # Jobs wait by the scheduler's time, which is ahead of a clock that was set back.
        yield from _waiting(self._concerned(Topic.WAITING, jobs), max(now, self._sources.loop.now))
        yield from self._idle(self._concerned(Topic.IDLE, running), now)
        yield from self._ending(self._concerned(Topic.ENDING, running), now)

    def _concerned(self, topic: Topic, jobs: Iterable[JobInfo]) -> list[JobInfo]:
        """Those of which any user is told this."""
        users, queues = self._subscriptions.concerned(topic)
        return [job for job in jobs if job.user in users or job.queue in queues]

    def _idle(self, running: Iterable[JobInfo], now: float) -> Iterator[KeyedNotice]:
        cards = self._sources.idle_cards()
        for job in running:
            since = idle_since(job, cards, now)
            if job.gpu_milli and job.kept_until is None and since < now:
                key = f"{Topic.IDLE}:{job.id}:{job.attempt}:{since // _FRESH_S:.0f}"  # once for each day
                yield KeyedNotice(job_notice(Topic.IDLE, now, job, span_s=now - since), key)

    def _ending(self, running: Iterable[JobInfo], now: float) -> Iterator[KeyedNotice]:
        jobs = {job.id: job for job in running}
        if not jobs:
            return
        for name, end in self._sources.idle_ends().items():
            job = jobs.get(name)
            if job is not None:
                key = f"{Topic.ENDING}:{name}:{job.attempt}:idle:{end.warned_at:.0f}"
                yield KeyedNotice(job_notice(Topic.ENDING, now, job, ends_at=now + end.left_s), key)
        limits: Mapping[str, LimitLeft] = self._ask(lambda core: limits_left(core, jobs, now))
        for name, left in limits.items():
            if left.ends_at is not None:
                key = f"{Topic.ENDING}:{name}:{jobs[name].attempt}:{left.limit_s:.0f}"
                yield KeyedNotice(job_notice(Topic.ENDING, now, jobs[name], ends_at=left.ends_at), key)

    def _of_reservations(self, now: float) -> Iterator[KeyedNotice]:
        if not any(self._subscriptions.concerned(Topic.RESERVATION_BEGAN)):
            return
        views: list[ReservationView] = self._ask(lambda core: core.scheduler.reservations())
        for view in views:
            agreed = view.reservation
            if now - _FRESH_S < agreed.begin <= now:
                notice = Notice(
                    Topic.RESERVATION_BEGAN,
                    agreed.begin,
                    "",
                    "",
                    agreed.by,
                    agreed.queue,
                    reservation=agreed.name,
                    cards=agreed.cards,
                )
                yield KeyedNotice(notice, f"{Topic.RESERVATION_BEGAN}:{agreed.name}:{agreed.begin:.0f}")

    def _of_queues(self, now: float) -> Iterator[KeyedNotice]:
        if not any(self._subscriptions.concerned(Topic.QUEUE_CHANGED)):
            return
        for row in self._sources.queues.changed_since(now - _FRESH_S):
            notice = Notice(Topic.QUEUE_CHANGED, row.at, "", "", "", row.name, by=row.by)
            yield KeyedNotice(notice, f"{Topic.QUEUE_CHANGED}:{row.name}:{row.version}")

    def _ask(self, question: Callable[[Core], Any]) -> Any:
        return self._sources.loop.look_up(question, is_long=True)


def _is_due(notice: Notice, span_s: float, since: float, now: float) -> bool:
    """Whether it is time to tell of a notice by a rule.

    Args:
        span_s: of the rule.
        since: when its user chose it.
    """
    match notice.topic:
        case Topic.WAITING | Topic.IDLE:
            return (notice.span_s or 0.0) >= span_s
        case Topic.ENDING:
            return notice.ends_at is not None and notice.ends_at - now <= span_s
        case _:
            return notice.at >= since


def _waiting(jobs: Iterable[JobInfo], now: float) -> Iterator[KeyedNotice]:
    """Jobs and arrays that could start and wait for their first start."""
    for job in jobs:
        is_first = job.first_started_at is None and job.eligible_at is not None and not job.parent
        if is_first and job.state == JobState.QUEUED and not (job.array and job.array.running + job.array.ended):
            notice = job_notice(Topic.WAITING, now, job, span_s=now - job.queued_at)
            yield KeyedNotice(notice, f"{Topic.WAITING}:{job.id}")
