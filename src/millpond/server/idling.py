"""When a place to work is idle, and what follows: a warning first, then it is suspended or stopped.

The rule is a pure function of instants. What counts as use is somebody at the proxy or in a session, and processor time
of the task's own processes, so that a notebook which computes through the night is left alone.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final

from millpond.model.errors import MillpondError
from millpond.model.events import Noted, StopRequested, SuspendRequested
from millpond.model.states import JobState
from millpond.model.workloads import Kind
from millpond.node import procfs
from millpond.node.records import RunRecord, TaskFiles, TaskId, read_record
from millpond.node.runner import detached_processes
from millpond.server.activity import Activity
from millpond.server.inbox import ChangeJob
from millpond.server.loop import Loop
from millpond.server.wording import lasting
from millpond.specs.dev_rules import DevRules
from millpond.specs.job_bodies import JobInfo

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 20.0
BUSY_PART: Final = 0.05
"""A task that uses more than this part of one core is in use."""
_ANSWER_WITHIN_S: Final = 30.0
_WHO: Final = "the rule for idle places"


class Verdict(Enum):
    """What is to be done about a place to work."""

    REST = auto()
    WARN = auto()
    ACT = auto()


def judge(rules: DevRules, now: float, used_at: float, warned_at: float | None) -> Verdict:
    """Whether it is time to warn, or to act.

    Nobody loses a place without a warning that stood for the whole of ``warn_before_s``, however late it came.

    Args:
        used_at: when it was last used.
        warned_at: when its user was warned; a warning before ``used_at`` counts no more.
    """
    if rules.idle_after_s is None:
        return Verdict.REST
    if now < used_at + rules.idle_after_s - rules.warn_before_s:
        return Verdict.REST
    if warned_at is None or warned_at < used_at:
        return Verdict.WARN
    due = max(used_at + rules.idle_after_s, warned_at + rules.warn_before_s)
    return Verdict.ACT if now >= due else Verdict.REST


@dataclass(slots=True)
class _Place:
    """What is known of one running place to work."""

    attempt: int
    used_at: float
    cpu_s: float
    looked_at: float
    warned_at: float | None = None


class IdleWatch:
    """Looks after all running places to work, on a thread of its own.

    Args:
        clock: seconds since 1970.
        cpu_s_of: processor time that a task's processes have used.
    """

    def __init__(
        self,
        loop: Loop,
        activity: Activity,
        state_dir: Path,
        rules: DevRules,
        clock: Callable[[], float],
        cpu_s_of: Callable[[RunRecord], float],
    ) -> None:
        self._loop = loop
        self._activity = activity
        self._state_dir = state_dir
        self._rules = rules
        self._clock = clock
        self._cpu_s_of = cpu_s_of
        self._places: dict[str, _Place] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="idle-watch", daemon=True)

    def start(self) -> None:
        """Begin to look, when there is a rule to look for."""
        if self._rules.idle_after_s is not None:
            self._thread.start()

    def close(self) -> None:
        """No more looks."""
        self._closed.set()

    def look(self) -> None:
        """Look at each place once, and do what is due."""
        jobs = {
            job.id: job
            for job in self._loop.board.newest_first()
            if job.kind == Kind.DEV and job.state == JobState.RUNNING
        }
        for gone in self._places.keys() - jobs.keys():
            del self._places[gone]
        for job in jobs.values():
            self._look_at(job)

    def _run(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            if not self._loop.alive:
                return
            self.look()

    def _look_at(self, job: JobInfo) -> None:
        now = self._clock()
        cpu_s = self._cpu_s(job)
        place = self._places.get(job.id)
        if place is None or place.attempt != job.attempt:  # it runs since now, or goes on since now
            place = self._places[job.id] = _Place(job.attempt, now, cpu_s, now)
        if cpu_s - place.cpu_s > BUSY_PART * (now - place.looked_at):
            place.used_at = now
        place.cpu_s, place.looked_at = cpu_s, now
        place.used_at = max(place.used_at, self._activity.last_used(job.id, of_pages=self._rules.heeds_pages) or 0.0)
        match judge(self._rules, now, place.used_at, place.warned_at):
            case Verdict.REST:
                return
            case Verdict.WARN:
                place.warned_at = now
                self._warn(job, now)
            case Verdict.ACT:
                self._act(job)

    def _warn(self, job: JobInfo, now: float) -> None:
        notice = lasting(self._rules.warn_before_s)
        what = "suspended" if self._rules.on_idle == "suspend" else "stopped"
        text = f"nobody has used it for a while; it will be {what} in {notice} unless somebody does"
        self._loop.tell([Noted(now, job.id, text)])
        for task in job.tasks:
            self._write(TaskFiles.of(self._state_dir, TaskId(job.id, job.attempt, task.task)).log, text)

    def _write(self, log_file: Path, text: str) -> None:
        """A line in the task's own output, where its user looks."""
        try:
            with os.fdopen(os.open(log_file, os.O_WRONLY | os.O_APPEND), "ab") as file:
                file.write(f"\nmillpond: {text}\n".encode())
        except OSError as error:
            log.warning("the warning could not be written to %s: %s", log_file, error)

    def _act(self, job: JobInfo) -> None:
        name = job.id
        if self._rules.on_idle == "suspend":
            try:
                self._ask(ChangeJob(name, lambda _, now: SuspendRequested(now, name, by=_WHO)))
            except MillpondError as error:
                log.info("%s is idle and cannot be suspended (%s); it is stopped", name, error)
            else:
                return
        try:
            self._ask(ChangeJob(name, lambda _, now: StopRequested(now, name, _WHO)))
        except MillpondError as error:
            log.info("%s is idle and could not be stopped: %s", name, error)  # it ended by itself

    def _ask(self, change: ChangeJob) -> None:
        self._loop.change_job(change).result(_ANSWER_WITHIN_S)

    def _cpu_s(self, job: JobInfo) -> float:
        used = 0.0
        for task in job.tasks:
            record = read_record(TaskFiles.of(self._state_dir, TaskId(job.id, job.attempt, task.task)))
            if record is not None and record.alive:
                used += self._cpu_s_of(record)
        return used


def cpu_s_of(record: RunRecord) -> float:
    """Processor time in seconds that everything below a task's supervisor has used, ended processes included."""
    used = procfs.cpu_s_below(record.supervisor_pid)
    return used + procfs.cpu_s(detached_processes(record))
