"""Suspend, resume and migrate jobs: one step of one job at a time; the loop never waits.

Decisions about a job that is on its way wait until it has arrived; only its end does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from millpond.engines.local.device_sharing import DeviceSharing
from millpond.engines.local.live_tasks import LiveTasks
from millpond.engines.outbox import Outbox
from millpond.engines.task_ends import Refusal
from millpond.model.decisions import Decision, Grant, Migrate, Resume, Suspend, SuspendMode
from millpond.node.sharing.backend import MoveOutcome, MoveResult
from millpond.node.sharing.residency import FREEZE_S, move_deadline_s
from millpond.node.task.records import TaskId

_MOST_AT_ONCE = 16


class Suspension:
    """All jobs that are being suspended, resumed or migrated. Lives on the engine's loop; moves run beside it.

    Args:
        go_on: called with the decisions that had to wait, in their order.
        on_unmappable: called with a node whose driver brings nothing back on other devices.
    """

    def __init__(
        self,
        live: LiveTasks,
        sharing: DeviceSharing,
        outbox: Outbox,
        go_on: Callable[[Sequence[Decision]], None],
        on_unmappable: Callable[[str], None],
    ) -> None:
        self._live = live
        self._sharing = sharing
        self._residency = sharing.residency
        self._outbox = outbox
        self._go_on = go_on
        self._on_unmappable = on_unmappable
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
            frozen = [task for task in tasks if self._residency.is_frozen(task)]
            answers = self._leave(tasks, decision.mode)
            failed = _failure(answers)
            if failed is not None:
                self._return([task for task, answer in zip(tasks, answers, strict=True) if answer.ok])
                self._leave(frozen, SuspendMode.FREEZE)
            return failed

        self._begin(decision, leave)

    def resume(self, decision: Resume) -> None:
        """Let a job go on: all its tasks."""
        tasks = self._tasks(decision)
        grants = () if decision.placement is None else decision.placement.grants
        self._begin(decision, lambda: _failure(self._return(tasks, grants), lost_too=True))

    def migrate(self, decision: Migrate) -> None:
        """Take a job's only task to other devices of its node as it runs."""
        tasks = [TaskId(decision.job, decision.attempt, decision.placement.task)]
        self._begin(decision, lambda: _failure(self._migrate(tasks, decision.placement.grants), lost_too=True))

    def _tasks(self, decision: Decision) -> list[TaskId]:
        return [live.record.id for live in self._live.of_run(decision.job, decision.attempt)]

    def _begin(self, decision: Decision, act: Callable[[], Refusal | None]) -> None:
        self._waiting[decision.job] = []
        self._sharing.background.run(act, lambda refusal: self._arrived(decision, refusal))

    def _arrived(self, decision: Decision, refusal: Refusal | None) -> None:
        if refusal is None:
            self._outbox.confirm(decision)
        else:
            self._outbox.refuse(decision, refusal)
        self._go_on(self._waiting.pop(decision.job))

    # ---- beside the loop: each blocks until it is done or its deadline is over ---------------------------------------

    def _leave(self, tasks: Sequence[TaskId], mode: SuspendMode) -> list[MoveResult]:
        """Take tasks off their devices, all at once."""
        if mode is SuspendMode.FREEZE:
            return _all_at_once(lambda task: self._residency.freeze(task, FREEZE_S), tasks)
        if refusal := self._refusal(*tasks):
            return [refusal for _ in tasks]
        return _all_at_once(lambda task: self._residency.swap_out(task, self._move_s(task)), tasks)

    def _return(self, tasks: Sequence[TaskId], grants: Sequence[Grant] = ()) -> list[MoveResult]:
        """Let tasks go on, all at once.

        Args:
            grants: where the only one goes on; none: where they were.
        """
        return _all_at_once(lambda task: self._onto(task, grants, self._residency.resume), tasks)

    def _migrate(self, tasks: Sequence[TaskId], grants: Sequence[Grant]) -> list[MoveResult]:
        if refusal := self._refusal(*tasks):
            return [refusal]
        return _all_at_once(lambda task: self._onto(task, grants, self._residency.migrate), tasks)

    def _refusal(self, *tasks: TaskId) -> MoveResult | None:
        """Why none of these can leave a real device."""
        vendors = {self._sharing.vendor_of(task) for task in tasks}
        hindrance = self._sharing.hindrance() if vendors - {"", "fake"} else ""
        return MoveResult(MoveOutcome.UNSUPPORTED, hindrance) if hindrance else None

    def _onto(
        self, task: TaskId, grants: Sequence[Grant], move: Callable[[TaskId, float, Sequence[Grant]], MoveResult]
    ) -> MoveResult:
        """Move a task, perhaps to other devices; a container keeps its own."""
        record = self._live.record(task)
        if record is not None and record.container and not {grant.device for grant in grants} <= {*record.devices}:
            reason = "it runs in a container, which was given its cards when it started"
            return MoveResult(MoveOutcome.UNSUPPORTED, reason)
        answer = move(task, self._move_s(task), grants)
        if answer.unmappable and record is not None:
            self._sharing.background.call(self._on_unmappable, record.node)
        return answer

    def _move_s(self, task: TaskId) -> float:
        return move_deadline_s(self._residency.ledger.total_mib(task))


def _failure(answers: Sequence[MoveResult], lost_too: bool = False) -> Refusal | None:
    """Why it did not come about for all of them.

    Tasks that are lost are ended, and their end is reported separately; a job that is to go on needs them.
    """
    failed = [answer for answer in answers if not answer.ok]
    worst = next((answer for answer in failed if lost_too or answer.outcome is not MoveOutcome.LOST), None)
    if worst is None and failed and len(failed) == len(answers):
        worst = failed[0]
    return None if worst is None else Refusal(worst.reason, worst.is_lost)


def _all_at_once(act: Callable[[TaskId], MoveResult], tasks: Sequence[TaskId]) -> list[MoveResult]:
    done: dict[TaskId, MoveResult] = {}

    def safely(task: TaskId) -> None:
        try:
            done[task] = act(task)
        except OSError as error:  # a full disk: the desired state cannot be written, so nothing is done
            done[task] = MoveResult(MoveOutcome.TIMEOUT, f"the machine fails to do it: {error}")

    with contextlib.suppress(RuntimeError), ThreadPoolExecutor(_MOST_AT_ONCE) as pool:
        for task in tasks:
            pool.submit(safely, task)
    for task in tasks:
        if task not in done:  # the machine has no room for another thread
            safely(task)
    return [done[task] for task in tasks]
