"""Carries decisions out. Lives on the engine's loop: one thread, nothing here blocks.

Decisions about a job whose start is still pending wait for its answer, so that what the core is told always comes in an
order it can follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from millpond.engines.local.live import Live, LiveTasks
from millpond.engines.local.outbox import Outbox
from millpond.engines.local.rendezvous import agree
from millpond.engines.local.starting import PendingStart, Site
from millpond.engines.local.verdicts import NEVER_STARTED, Refusal, verdict_on
from millpond.model.decisions import Decision, Resume, Start, Stop, Suspend, SuspendMode
from millpond.model.errors import InconsistentStateError, MillpondError, UnavailableError
from millpond.node import runner
from millpond.node.launch import LaunchSpec
from millpond.node.limiting import Limiter
from millpond.node.machine import Machine
from millpond.node.nurse import Nurse
from millpond.node.records import RunRecord, TaskFiles, TaskId, attempt_dir, read_record, running_records
from millpond.node.sandbox import Sandbox

_UNEXPECTED_GRACE_S = 10.0


class Executor:
    """All tasks of this machine.

    Args:
        state_dir: absolute; where records and logs lie.
        launch_of: what a job executes; raises a MillpondError when it does not know.
        sandbox: what tasks are kept apart with.
        limiter: what keeps tasks to their amounts.
    """

    def __init__(
        self,
        machine: Machine,
        state_dir: Path,
        launch_of: Callable[[str], LaunchSpec],
        outbox: Outbox,
        loop: asyncio.AbstractEventLoop,
        sandbox: Sandbox | None,
        limiter: Limiter,
    ) -> None:
        self.live = LiveTasks(state_dir, loop, self._task_ended)
        self.nurse = Nurse()
        self._site = Site(machine, state_dir, self.live, self.nurse, loop, sandbox, limiter)
        self._launch_of = launch_of
        self._outbox = outbox
        self._pending: dict[str, tuple[PendingStart, int]] = {}
        self._latest = 0

    def carry_out(self, decision: Decision) -> None:
        """Take one decision on; one that was taken on before is let be (their ids rise)."""
        if decision.id > self._latest:
            self._latest = decision.id
            self._dispatch(decision)

    def adopt(self, expected: Collection[TaskId], unanswered: Sequence[Decision]) -> None:
        """Go on where an earlier engine stopped; see ``LocalEngine.adopt``."""
        starts = (decision for decision in unanswered if isinstance(decision, Start))
        starting = {TaskId(start.job, start.attempt, placed.task) for start in starts for placed in start.placements}
        for task in expected:
            if task in starting:
                continue  # carrying the start out (again) finds it
            record = read_record(TaskFiles.of(self._site.state_dir, task))
            if record is None:
                self._outbox.ended(task, NEVER_STARTED)
            elif self.live.attach(record) is None:
                self._outbox.ended(task, verdict_on(self.live.final_record(record)))
        for record in running_records(self._site.state_dir):
            if record.id not in expected and record.id not in starting:
                self._end_unexpected(record)
        for decision in unanswered:
            self.carry_out(decision)

    def _end_unexpected(self, record: RunRecord) -> None:
        """The core counts its cards as free, so it must not go on."""
        live = self.live.attach(record, expected=False)
        if live is None:
            self.live.final_record(record)
        else:
            self.live.request_stop(live, _UNEXPECTED_GRACE_S)

    def _dispatch(self, decision: Decision) -> None:
        if decision.job in self._pending:
            self._pending[decision.job][0].deferred.append(decision)
            return
        try:
            match decision:
                case Start():
                    self._start(decision)
                case Stop():
                    self._stop(decision)
                case Suspend():
                    self._suspend(decision)
                case Resume():
                    self._resume(decision)
                case _:
                    raise InconsistentStateError(f"no way to carry out a {type(decision).__name__}")
        except InconsistentStateError:
            raise
        except MillpondError as error:
            self._outbox.refuse(decision, Refusal(str(error), isinstance(error, UnavailableError)))
        except OSError as error:
            self._outbox.refuse(decision, Refusal(f"the machine fails to do it: {error}", True))

    def _start(self, decision: Start) -> None:
        pending = PendingStart(decision, self._launch_of(decision.job), self._site, self._start_answered)
        taken = self.live.ports() | {port for _, port in self._pending.values()}
        taken |= {port for other, _ in self._pending.values() for port in other.ports.values()}
        highest = max(placed.task for placed in decision.placements)
        meeting = agree(attempt_dir(self._site.state_dir, decision.job, decision.attempt), highest + 1, taken)
        pending.choose_ports({*taken, meeting.port})
        self._pending[decision.job] = (pending, meeting.port)
        pending.begin(meeting)

    def _start_answered(self, pending: PendingStart) -> None:
        """Say how a start went, then what has happened since, then do what waited for it."""
        del self._pending[pending.decision.job]
        if pending.refusal is None:
            self._outbox.confirm(pending.decision, pending.confinement)
            for record in pending.ended:
                self._outbox.ended(record.id, verdict_on(record))
        else:
            self._outbox.refuse(pending.decision, pending.refusal)
        for decision in pending.deferred:
            self._dispatch(decision)

    def _stop(self, decision: Stop) -> None:
        for live in self.live.of_run(decision.job, decision.attempt):
            if not decision.tasks or live.record.id.task in decision.tasks:
                self.live.request_stop(live, decision.grace_s)
        self._outbox.confirm(decision)

    def _suspend(self, decision: Suspend) -> None:
        lives = self.live.of_run(decision.job, decision.attempt)
        if decision.mode is SuspendMode.SWAP and any(live.record.devices for live in lives):
            reason = "this engine cannot move device memory to host memory; suspend by freezing"
            self._outbox.refuse(decision, Refusal(reason, False))
            return
        for live in lives:
            runner.freeze(live.record)
        self._outbox.confirm(decision)

    def _resume(self, decision: Resume) -> None:
        for live in self.live.of_run(decision.job, decision.attempt):
            runner.thaw(live.record)
        self._outbox.confirm(decision)

    def _task_ended(self, live: Live, record: RunRecord) -> None:
        pending, _ = self._pending.get(record.id.job, (None, 0))
        if pending is not None and pending.decision.id == live.record.decision:
            pending.task_ended(record)
        elif live.expected:
            self._outbox.ended(record.id, verdict_on(record))
