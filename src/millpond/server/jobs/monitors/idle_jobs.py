"""When a dev job is idle, and what follows: a warning first, then it gives its cards back, or what the rule says.

The rule is a pure function of instants. What counts as use is a person at the proxy or in a session, and processor time
of the task's own processes, so that a notebook which computes through the night is left alone.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final

from millpond.model.errors import MillpondError
from millpond.model.events import Noted, StopRequested, SuspendRequested
from millpond.model.states import JobState
from millpond.model.workloads import Kind
from millpond.node.host.clocks import WallClock
from millpond.node.host.periodic_worker import Periodic, PeriodicWorker, for_each
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.monitoring.activity import Activity
from millpond.server.runtime.inbox import ChangeJob
from millpond.server.runtime.loop import Loop
from millpond.server.wording import lasting
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.config.tasks import DevFile

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 20.0
BUSY_PART: Final = 0.05
"""A task that uses more than this part of one core is in use."""
_WHO: Final = "the rule for idle dev jobs"


class Leave(Enum):
    """How an idle dev job leaves its cards. Of two ways, the later one costs its user more."""

    SWAP = "suspended"
    FREEZE = "halted"
    STOP = "ended"


_BY_COST = list(Leave)
_MEANS = {
    Leave.SWAP: "its device memory moves to the host, and its cards are free",
    Leave.FREEZE: "its device memory stays on its cards",
    Leave.STOP: "with notice and grace",
}
_LEAVES = {"freeze": Leave.FREEZE, "stop": Leave.STOP}


class IdleVerdict(Enum):
    """What is to be done about a dev job."""

    REST = auto()
    WARN = auto()
    ACT = auto()


def judge(rules: DevFile, now: float, used_at: float, warned_at: float | None) -> tuple[IdleVerdict, float]:
    """Whether it is time to warn, or to act; and, if not, when it is if it stays unused: an instant.

    Nothing happens to a dev job without a warning that stood for the whole of ``warn_before_s``, however late it came.

    Args:
        used_at: when it was last used.
        warned_at: when its user was warned; a warning before ``used_at`` counts no more.
    """
    if rules.idle_after is None:
        return IdleVerdict.REST, math.inf
    if warned_at is None or warned_at < used_at:
        due, verdict = used_at + rules.idle_after - rules.warn_before, IdleVerdict.WARN
    else:
        due, verdict = max(used_at + rules.idle_after, warned_at + rules.warn_before), IdleVerdict.ACT
    return (verdict, now) if now >= due else (IdleVerdict.REST, due)


@dataclass(frozen=True, slots=True)
class IdleEnd:
    """When an idle dev job leaves its cards if it stays unused, and when its user was warned of that.

    Attributes:
        left_s: seconds until then.
        warned_at: by the clock of ``Activity``.
    """

    left_s: float
    warned_at: float


@dataclass(slots=True)
class _IdleJob:
    """What is known of one running dev job."""

    attempt: int
    used_at: float
    cpu_s: float
    looked_at: float
    warned_at: float | None = None
    warned_of: Leave = Leave.SWAP


class IdleWatch(Periodic):
    """Looks after all running dev jobs, on a thread of its own.

    Args:
        cpu_s_of: processor time that a task's processes have used; None where that is not known.
        why_never_halted: why the engine halts and swaps no job; empty: it does.
    """

    def __init__(
        self,
        loop: Loop,
        activity: Activity,
        state_dir: Path,
        rules: DevFile,
        clock: WallClock,
        cpu_s_of: Callable[[TaskId], float | None],
        why_never_halted: Callable[[], str],
    ) -> None:
        self._loop = loop
        self._activity = activity
        self._state_dir = state_dir
        self._rules = rules
        self._clock = clock
        self._cpu_s_of = cpu_s_of
        self._why_never_halted = why_never_halted
        self._watched: dict[str, _IdleJob] = {}
        self._worker = PeriodicWorker("idle-watch", self.look, LOOK_EVERY_S, "idle dev jobs are not looked at now")

    def start(self) -> None:
        """Begin to look, when there is a rule to look for."""
        if self._rules.idle_after is not None:
            self._worker.start()

    def ends(self) -> dict[str, IdleEnd]:
        """The jobs whose users were warned, by id. Any thread."""
        idle_s, now, found = self._rules.idle_after, self._activity.now(), {}
        for name, known in list(self._watched.items()):
            warned_at = known.warned_at
            if idle_s is not None and warned_at is not None and warned_at >= known.used_at:
                at = max(known.used_at + idle_s, warned_at + self._rules.warn_before)
                found[name] = IdleEnd(at - now, warned_at)
        return found

    def look(self) -> float:
        """Look at each dev job once, and do what is due; says in how many seconds to look again at the latest."""
        jobs = {
            job.id: job
            for job in self._loop.job_cache.newest_first()
            if job.kind == Kind.DEV and job.state == JobState.RUNNING
        }
        for gone in self._watched.keys() - jobs.keys():
            del self._watched[gone]
        due = [math.inf]
        for_each(jobs.values(), lambda job: due.append(self._look_at(job)))
        return min(max(min(due) - self._activity.now(), 0.0), LOOK_EVERY_S)

    def _look_at(self, job: JobInfo) -> float:
        """Do what is due for one; returns when the next thing is due if it stays unused: an instant."""
        now = self._activity.now()
        cpu_s = self._cpu_s(job)
        known = self._watched.get(job.id)
        if known is None or known.attempt != job.attempt:  # it runs since now, or goes on since now
            known = self._watched[job.id] = _IdleJob(job.attempt, now, cpu_s, now)
        if cpu_s - known.cpu_s > BUSY_PART * (now - known.looked_at):
            known.used_at = now
        known.cpu_s, known.looked_at = cpu_s, now
        heeds_pages = self._rules.open_pages == "touched"
        known.used_at = max(known.used_at, self._activity.last_used(job.id, of_pages=heeds_pages) or 0.0)
        verdict, due = judge(self._rules, now, known.used_at, known.warned_at)
        if verdict is IdleVerdict.REST:
            return due
        leave, why = self._way_of(job)
        costs_more = _BY_COST.index(leave) > _BY_COST.index(known.warned_of)
        if verdict is IdleVerdict.WARN or costs_more:
            known.warned_at, known.warned_of = now, leave
            self._warn(job, leave, why)
            return now + self._rules.warn_before
        self._act(job, leave)
        return now + LOOK_EVERY_S

    def _way_of(self, job: JobInfo) -> tuple[Leave, str]:
        """How it would leave its cards now, and why not in the way that costs its user least."""
        if why := self._why_never_halted():
            return Leave.STOP, "" if self._rules.on_idle == "stop" else why
        if self._rules.on_idle != "suspend":
            return _LEAVES[self._rules.on_idle], ""
        if job.gpu_milli == 0:
            return Leave.FREEZE, ""
        why = self._loop.look_up(lambda core: core.scheduler.why_not_swapped(job.id))
        return (Leave.STOP, why) if why else (Leave.SWAP, "")

    def _warn(self, job: JobInfo, leave: Leave, why: str) -> None:
        means = f", as it cannot be suspended ({why})" if why else ""
        means += f": {_MEANS[leave]}" if job.gpu_milli else ""
        notice = lasting(self._rules.warn_before)
        text = f"it has not been used for a while; unless it is, it is {leave.value} in {notice}{means}"
        self._loop.notify([Noted(self._clock(), job.id, text)])
        for task in job.tasks:
            self._write(TaskFiles.of(self._state_dir, TaskId(job.id, job.attempt, task.task)).log, text)

    def _write(self, log_file: Path, text: str) -> None:
        """A line in the task's own output, where its user looks."""
        try:
            with os.fdopen(os.open(log_file, os.O_WRONLY | os.O_APPEND), "ab") as file:
                file.write(f"\nmillpond: {text}\n".encode())
        except OSError as error:
            log.warning("the warning could not be written to %s: %s", log_file, error)

    def _act(self, job: JobInfo, leave: Leave) -> None:
        name, swap = job.id, leave is Leave.SWAP
        try:
            if leave is Leave.STOP:
                self._ask(ChangeJob(name, lambda _, now: StopRequested(now, name, _WHO)))
            else:
                self._ask(ChangeJob(name, lambda _, now: SuspendRequested(now, name, swap, _WHO)))
        except MillpondError as error:
            log.info("%s is idle, and could not be %s: %s", name, leave.value, error)  # it ended, or lost its room

    def _ask(self, change: ChangeJob) -> None:
        self._loop.wait_for(self._loop.change_job(change))

    def _cpu_s(self, job: JobInfo) -> float:
        runs = [TaskId(job.id, job.attempt, task.task) for task in job.tasks]
        return sum((self._cpu_s_of(run) or 0.0 for run in runs), 0.0)
