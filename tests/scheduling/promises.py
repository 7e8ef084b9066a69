"""What is promised in any world: guarantees are met in one round, and evictions end.

Both are judged by what the core decides, and on forks of it; the code that takes back and displaces is not asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from worlds import World

from millpond.model.decisions import Decision, Start, Stop, Suspend
from millpond.model.events import Confirmed, Ended, Event, Refused, StopRequested
from millpond.model.reasons import Cause
from millpond.model.states import JobState, Outcome, TaskState
from millpond.scheduling.records import JobRecord
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.suspension.suspension import is_suspending

MOST_ROUNDS = 3
"""Cycles of a fork until those have started that have room at once."""
NOT_FOR_OTHERS = (Cause.SHRUNK, Cause.TURN_TAKEN)


class EvictionWatch:
    """Looks on while a world decides.

    Attributes:
        evictions: how many it has seen.
        wrong: what should not be, in words.
    """

    def __init__(self, world: World) -> None:
        self.evictions = 0
        self.wrong: list[str] = []
        self._world = world
        self._at = world.now
        self._left_for: set[tuple[str, str]] = set()
        self._tell, self._tick = world.tell, world.tick
        world.tell = self._hear  # type: ignore[method-assign]
        world.tick = self._look_on  # type: ignore[method-assign]

    def _hear(self, event: Event) -> None:
        is_answer = isinstance(event, Confirmed | Refused)
        if not is_answer and not (isinstance(event, Ended) and event.outcome is Outcome.STOPPED):
            self._left_for.clear()
        self._tell(event)

    def _look_on(self) -> list[Decision]:
        decisions = self._tick()
        if self._world.now != self._at:
            self._at = self._world.now
            self._left_for.clear()
        for each in decisions:
            if isinstance(each, Stop | Suspend) and each.for_job and each.cause not in NOT_FOR_OTHERS:
                self._judge(each.job, each.for_job)
        return decisions

    def _judge(self, job: str, for_job: str) -> None:
        self.evictions += 1
        if any(job == other for other, _ in self._left_for):
            self.wrong.append(f"{job} leaves twice at {self._at}, and nothing has happened between")
        if (for_job, job) in self._left_for:
            self.wrong.append(f"{job} leaves for {for_job}, which has left for it")
        self._left_for.add((job, for_job))


def unmet_guarantees(core: Scheduler, now: float, guests: str) -> Iterator[str]:
    """Jobs that wait although a guarantee covers them, and that start once nothing of others is in their way.

    Args:
        guests: a queue without a guarantee; of its work, and of background work, what carries no protection leaves.
    """
    state = core._state
    if core.holds or state.replans or state.cluster.cells.allocator is not None:
        return
    for record in list(core.jobs.values()):
        is_guest = record.queue == guests or record.job.is_background
        if is_guest or record.state is not JobState.QUEUED or not record.line or record.id in core._claims.by_job:
            continue
        if not _is_covered(core, record) or core.cause(record.id, now).cause is Cause.USER_LIMIT:
            continue  # limits of users are not taken back
        fork = core.fork()
        for other in list(fork.jobs.values()):
            if (other.queue == guests or other.job.is_background) and not other.state.ended:
                _let_go(fork, other, now)
        if record.id in _started(fork, now):
            yield f"{record.id} waits, and starts without borrowed work: {core.cause(record.id, now).summary}"


def _is_covered(core: Scheduler, record: JobRecord) -> bool:
    """Whether a guarantee covers the least size of a job, whichever cards it takes."""
    state, amount = core._state, record.demand.least_amount
    if not state.queues.guarantees_by_card:
        return state.queues.guarantor(record.queue, amount) is not None
    choices = list(state.entitlements.choices(record, amount))
    return len(state.entitlements.guaranteed_choices(record)) == len(choices)


def _let_go(core: Scheduler, record: JobRecord, now: float) -> None:
    if record.state is not JobState.QUEUED:
        is_leaving = any(task.state is TaskState.STOPPING for task in record.tasks)
        if is_leaving or is_suspending(core._state, record) or not record.job.preemptible or record.job.minimum_run_s:
            return
    attempt, is_queued = record.attempt, record.state is JobState.QUEUED
    core.handle(StopRequested(now, record.id))
    if not is_queued:
        core.handle(Ended(now, record.id, attempt, Outcome.STOPPED))


def _started(core: Scheduler, now: float) -> Counter[str]:
    started = Counter[str]()
    for _ in range(MOST_ROUNDS):
        decisions = core.decide(now)
        for each in decisions:
            core.handle(Confirmed(now, each.id))
        started.update(each.job for each in decisions if isinstance(each, Start))
    return started
