"""Jobs on their way off their devices, back, or to others: one step of one job at a time, and the loop never waits.

Decisions about a job that is on its way wait until it has arrived; only its end does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millpond.engines.local.background import Background
from millpond.engines.local.live_tasks import LiveTasks
from millpond.engines.local.outbox import Outbox
from millpond.engines.local.suspension import Suspension
from millpond.engines.local.verdicts import Refusal
from millpond.model.decisions import Decision, Migrate, Resume, Suspend, SuspendMode
from millpond.node.sharing.backend import MoveOutcome, MoveResult
from millpond.node.task.records import TaskId


class Moves:
    """All jobs that are being suspended, resumed or migrated. Lives on the engine's loop.

    Args:
        go_on: called with the decisions that had to wait, in their order.
    """

    def __init__(
        self,
        live: LiveTasks,
        suspension: Suspension,
        background: Background,
        outbox: Outbox,
        go_on: Callable[[Sequence[Decision]], None],
    ) -> None:
        self._live = live
        self._suspension = suspension
        self._background = background
        self._outbox = outbox
        self._go_on = go_on
        self._waiting: dict[str, list[Decision]] = {}

    def defer(self, decision: Decision) -> bool:
        """Have a decision wait if its job is on its way; whether it does."""
        if decision.job not in self._waiting:
            return False
        self._waiting[decision.job].append(decision)
        return True

    def suspend(self, decision: Suspend) -> None:
        """Take a job off its devices: all its tasks, or none."""
        tasks = self._tasks(decision)

        def leave() -> Refusal | None:
            frozen = [task for task in tasks if self._suspension.is_frozen(task)]
            answers = self._suspension.suspend(tasks, decision.mode)
            failed = _failure(answers)
            if failed is not None:
                self._suspension.resume([task for task, answer in zip(tasks, answers, strict=True) if answer.ok])
                self._suspension.suspend(frozen, SuspendMode.FREEZE)
            return failed

        self._begin(decision, leave)

    def resume(self, decision: Resume) -> None:
        """Let a job go on: all its tasks."""
        tasks = self._tasks(decision)
        grants = () if decision.placement is None else decision.placement.grants
        self._begin(decision, lambda: _failure(self._suspension.resume(tasks, grants), lost_too=True))

    def migrate(self, decision: Migrate) -> None:
        """Take a job's only task to other devices as it runs."""
        task = TaskId(decision.job, decision.attempt, decision.placement.task)
        grants = decision.placement.grants
        self._begin(decision, lambda: _failure([self._suspension.migrate(task, grants)], lost_too=True))

    def _tasks(self, decision: Decision) -> list[TaskId]:
        return [live.record.id for live in self._live.of_run(decision.job, decision.attempt)]

    def _begin(self, decision: Decision, act: Callable[[], Refusal | None]) -> None:
        self._waiting[decision.job] = []
        self._background.run(act, lambda refusal: self._arrived(decision, refusal))

    def _arrived(self, decision: Decision, refusal: Refusal | None) -> None:
        if refusal is None:
            self._outbox.confirm(decision)
        else:
            self._outbox.refuse(decision, refusal)
        self._go_on(self._waiting.pop(decision.job))


def _failure(answers: Sequence[MoveResult], lost_too: bool = False) -> Refusal | None:
    """Why it did not come about for all of them. Tasks that are lost are ended, and their end is reported separately; a
    job
    that is to go on needs them."""
    for answer in answers:
        if not answer.ok and (lost_too or answer.outcome is not MoveOutcome.LOST):
            return _refusal(answer)
    if answers and not any(answer.ok for answer in answers):
        return _refusal(answers[0])
    return None


def _refusal(answer: MoveResult) -> Refusal:
    return Refusal(answer.reason, answer.outcome is MoveOutcome.LOST and not answer.ended)
