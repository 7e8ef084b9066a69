"""The executor carries decisions out. It lives on the engine's loop: one thread, nothing here blocks.

Decisions about a job whose start is still pending wait for its answer, so that what the core receives always comes in
an order it can follow.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from millpond.engines.local.background import Background, when_possible
from millpond.engines.local.device_sharing import DeviceSharing, Room, SharingCallbacks
from millpond.engines.local.live_tasks import Live, LiveTasks
from millpond.engines.local.options import EngineOptions
from millpond.engines.local.ports import agree
from millpond.engines.local.start_pacing import Pace
from millpond.engines.local.starts import PendingStart, StartContext
from millpond.engines.local.suspension import Suspension
from millpond.engines.local.verdicts import NEVER_STARTED, verdict_on
from millpond.engines.outbox import Outbox
from millpond.engines.task_ends import Refusal, ends_swapped
from millpond.model.decisions import CapPower, Decision, Migrate, Prefetch, Resume, Start, Stop, Suspend
from millpond.model.errors import InconsistentStateError, MillpondError, UnavailableError
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.reasons import Cause
from millpond.model.sharing import EscapePolicy
from millpond.model.states import Outcome
from millpond.node.host.machine import Machine
from millpond.node.sharing.escapes import Escape, EscapeKind
from millpond.node.task import runner
from millpond.node.task.forkserver_client import ForkserverClient
from millpond.node.task.launch import LaunchSpec
from millpond.node.task.records import RunRecord, TaskFiles, TaskId, attempt_dir, read_record, running_records
from millpond.node.task.runner import StopRequest

log = logging.getLogger(__name__)

_UNEXPECTED_GRACE_S = 10.0
_CARDS_LOOKED_AT_WITHIN_S = 3.0
"""A start waits no longer to hear who else uses its cards: a driver may hang."""

FindForeignUse = Callable[[Collection[str], Callable[[Sequence[Device]], None]], None]
"""Finds out which of some devices (by UUID) foreign processes use, and calls back with them from any thread."""


class Executor:
    """All tasks of this machine.

    Args:
        state_dir: absolute; where records and logs lie.
        launch_of: what a job executes; raises a MillpondError when it does not know.
        on_unmappable: called with a node whose driver brings nothing back on other devices.

    Attributes:
        find_foreign_use: asked before devices are handed out.
    """

    def __init__(
        self,
        machine: Machine,
        state_dir: Path,
        launch_of: Callable[[str], LaunchSpec],
        outbox: Outbox,
        loop: asyncio.AbstractEventLoop,
        options: EngineOptions,
        on_unmappable: Callable[[str], None],
    ) -> None:
        self.live = LiveTasks(state_dir, loop, self._task_ended, self._task_kept)
        self._ending: dict[TaskId, StopRequest] = {}
        self._kept: set[TaskId] = set()
        callbacks = SharingCallbacks(self._lost, self._escaped, self._displaced, self._ending.__contains__)
        self.sharing = DeviceSharing(machine, self.live, Background(loop), callbacks, options)
        self._suspension = Suspension(self.live, self.sharing, outbox, self._dispatch_all, on_unmappable)
        self.forkserver = ForkserverClient(options.limiter.supervisors)
        self.find_foreign_use: FindForeignUse = lambda devices, then: then(())
        self._servers = frozenset(options.servers)
        self._context = StartContext(machine, state_dir, self.live, self.forkserver, loop, options)
        self._launch_of = launch_of
        self._outbox = outbox
        self._pending: dict[str, tuple[PendingStart, int]] = {}
        self._pace = Pace(loop)
        self._latest = 0
        self._recovering: list[Decision] | None = None

    def take_in(self, node: Node) -> None:
        """A node of this machine has other devices from now on; any thread may say so."""
        self.sharing.take_in(node.devices)
        machine = self._context.machine
        nodes = tuple(node if each.name == node.name else each for each in machine.nodes)
        self._context = replace(self._context, machine=replace(machine, nodes=nodes))

    def carry_out(self, decision: Decision) -> None:
        """Take one decision on; one that was taken on before is let be (their ids rise)."""
        if decision.id > self._latest:
            self._latest = decision.id
            if self._recovering is not None:
                self._recovering.append(decision)
            else:
                self._dispatch(decision)

    def adopt(self, expected: Collection[TaskId], unanswered: Sequence[Decision]) -> None:
        """Go on where an earlier engine stopped; see ``LocalEngine.adopt``."""
        self._recovering = list(unanswered)
        self._latest = max([self._latest, *(decision.id for decision in unanswered)])
        left = set(expected)
        when_possible(
            self._context.loop,
            lambda: self._find_tasks(expected, left, unanswered),
            lambda found: self._recover(found, unanswered),
        )

    def _find_tasks(
        self, expected: Collection[TaskId], left: set[TaskId], unanswered: Sequence[Decision]
    ) -> list[RunRecord]:
        """Watch those that live, report those that are over, and end what is not expected; returns what was found.

        Args:
            left: those expected that are still to be looked for; each is taken out.

        Raises:
            OSError: the machine cannot tell now; what is left can be looked for again.
        """
        starts = (decision for decision in unanswered if isinstance(decision, Start))
        starting = {TaskId(start.job, start.attempt, placed.task) for start in starts for placed in start.placements}
        for task in sorted(left - starting, key=lambda each: (each.job, each.task)):  # starts find theirs themselves
            files = TaskFiles.of(self._context.state_dir, task)
            record = read_record(files) or runner.lost_record(files)
            if record is None or record.server not in self._servers:
                self._outbox.ended(task, NEVER_STARTED)
            elif self.live.attach(record) is None:
                self._outbox.ended(task, verdict_on(self.live.final_record(record)))
            left.remove(task)
        found = list(self.own_records())
        for record in found:
            if record.id in starting:
                self.live.attach(record, expected=False)  # looked at now, reported when its start is repeated
            elif record.id not in expected:
                self._end_unexpected(record)
        return found

    def _recover(self, found: Sequence[RunRecord], unanswered: Sequence[Decision]) -> None:
        moved = {decision.job for decision in unanswered if isinstance(decision, (Suspend, Resume, Migrate))}
        living = [record for record in found if self.live.get(record.id) is not None]
        tasks = [record.id for record in living]
        for record in living:
            if record.kept_at is not None:
                self._task_kept(record.id)
        self.sharing.recover(living, lambda task: task.job in moved, lambda: self._recovered(tasks))

    def own_records(self) -> Iterator[RunRecord]:
        """Every task of ours whose end is not noted; never one that another server started. Any thread."""
        return (record for record in running_records(self._context.state_dir) if record.server in self._servers)

    def _recovered(self, tasks: Collection[TaskId]) -> None:
        """The books are whole; what ended while they were made was released before it stood in them."""
        for task in tasks:
            if self.live.get(task) is None:
                self.sharing.release(task)
        waiting, self._recovering = self._recovering or [], None
        self._dispatch_all(waiting)

    def _end_unexpected(self, record: RunRecord) -> None:
        """The core counts its cards as free, so it must not go on."""
        live = self.live.attach(record, expected=False)
        if live is None:
            self.live.final_record(record)
        else:
            log.warning("task %d of %s runs and nothing counts on it: it is ended", record.id.task, record.id.job)
            self._end(live, _UNEXPECTED_GRACE_S)

    def _dispatch_all(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            self._dispatch(decision)

    def _dispatch(self, decision: Decision) -> None:
        if decision.job in self._pending:
            self._pending[decision.job][0].deferred.append(decision)
            return
        if not isinstance(decision, Stop) and self._suspension.defer(decision):
            return
        try:
            match decision:
                case Start():
                    self._start(decision)
                case Stop():
                    when_possible(self._context.loop, partial(self._stop, decision), lambda _: None)
                case Suspend():
                    self._suspension.suspend(decision)
                case Resume():
                    self._suspension.resume(decision)
                case Migrate():
                    self._suspension.migrate(decision)
                case CapPower() | Prefetch():
                    # ``monitoring.power_enforcement`` caps the cards of jobs that run, and a job is lined up only once
                    # its image is on this machine: nothing is left to do.
                    self._outbox.confirm(decision)
                case _:
                    raise InconsistentStateError(f"no way to carry out a {type(decision).__name__}")
        except InconsistentStateError:
            raise
        except MillpondError as error:
            self._outbox.refuse(decision, Refusal(str(error), device_fault=isinstance(error, UnavailableError)))
        except OSError as error:
            self._outbox.refuse(decision, Refusal(f"the machine fails to do it: {error}", device_fault=True))

    def _start(self, decision: Start) -> None:
        launch = self._launch_of(decision.job)
        pending = PendingStart(decision, launch, self._context, self._start_answered)
        taken = self.live.ports() | {port for _, port in self._pending.values()}
        taken |= {port for other, _ in self._pending.values() for port in other.ports.values()}
        highest = max(placed.task for placed in decision.placements)
        run = attempt_dir(self._context.state_dir, decision.job, decision.attempt)
        meeting = agree(run, highest + 1, taken, launch.private_network)
        pending.choose_ports({*taken, meeting.port})
        self._pending[decision.job] = (pending, meeting.port)

        def admitted(room: Room) -> None:
            if room.refusal is not None:
                pending.refuse(room.refusal)
            else:
                self._pace.enter(partial(pending.begin, meeting, room.envs))

        def looked_at(in_use: Refusal | None) -> None:
            if in_use is not None:
                pending.refuse(in_use)
            else:
                self.sharing.admit(pending.tasks, launch, admitted, shares_cards=decision.cause is Cause.SHARES)

        self._look_at_cards(pending, looked_at)

    def _look_at_cards(self, pending: PendingStart, then: Callable[[Refusal | None], None]) -> None:
        """Call back with why the cards of a start are not handed out, if foreign processes are on them by now."""
        cards = [device.uuid for device in pending.devices.values() if not device.fake]
        if not cards:
            then(None)
            return
        loop, is_open = self._context.loop, True

        def answer(used: Sequence[Device]) -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                timer.cancel()
                then(_foreign_use_refusal(used))

        def heard(used: Sequence[Device]) -> None:
            with contextlib.suppress(RuntimeError):  # the engine is closed
                loop.call_soon_threadsafe(answer, used)

        timer = loop.call_later(_CARDS_LOOKED_AT_WITHIN_S, answer, ())
        self.find_foreign_use(cards, heard)

    def _start_answered(self, pending: PendingStart) -> None:
        """Say how a start went, then what has happened since, then do what waited for it."""
        del self._pending[pending.decision.job]
        if pending.refusal is None:
            self._outbox.confirm(pending.decision, pending.confinement)
            for record in pending.ended:
                self._outbox.ended(record.id, verdict_on(record))
        else:
            self._outbox.refuse(pending.decision, pending.refusal)
        for task in pending.tasks:  # of a repeated start, some may be over that no engine saw alive
            if self.live.get(task) is None:
                self.sharing.release(task)
        if pending.launch.keep_s:
            for live in self.live.of_run(pending.decision.job, pending.decision.attempt):
                self._task_kept(live.record.id)
        self._dispatch_all(pending.deferred)

    def _stop(self, decision: Stop) -> None:
        for live in self.live.of_run(decision.job, decision.attempt):
            if not decision.tasks or live.record.id.task in decision.tasks:
                self._warn_of_absence(live.record.id, decision.grace_s)
                self._end(live, decision.grace_s)
        self._outbox.confirm(decision)

    def _end(self, live: Live, grace_s: float, why: str = "", outcome: Outcome = Outcome.DEVICE_LOST) -> None:
        task = live.record.id
        request = StopRequest(grace_s, why, outcome.value if why else "")
        before = self._ending.get(task)
        if before is not None and before.why:  # the first cause of its end is what its owner reads
            request = replace(before, grace_s=min(before.grace_s, grace_s))
        self._ending[task] = request  # before the task gets notice: it may not be frozen any more
        self.sharing.let_launch(task)
        self.live.request_stop(live, request)

    def _warn_of_absence(self, task: TaskId, grace_s: float) -> None:
        """A task that is to end while its memory is on the host does not get its device back for that: others may have
        been given it."""
        if grace_s > 0 and task not in self._ending and self.sharing.is_swapped(task):
            self._outbox.note(task.job, ends_swapped(task.task, grace_s))

    def _lost(self, task: TaskId, reason: str) -> None:
        """End a task that cannot go on; its end is reported once it is over."""
        live = self.live.get(task)
        if live is not None:
            self._end(live, 0.0, reason)

    def _displaced(self, task: TaskId, for_job: str) -> None:
        """Note that a task has left its device for a job that shares it, or is back there."""
        if for_job:
            self._outbox.note(
                task.job, f"task {task.task} made room on its device for {for_job}, and waits on the host"
            )
        else:
            self._outbox.note(task.job, f"task {task.task} is back on its device")

    def _escaped(self, escape: Escape) -> None:
        """A task uses a device beyond its slice: what follows is its pool's to say."""
        live = self.live.get(escape.task)
        if live is None or not live.expected:
            return
        if escape.kind in (EscapeKind.DISTURBED, EscapeKind.UNFAIR):  # it may be the one who is harmed
            self._outbox.note(escape.task.job, escape.text)
            return
        with contextlib.suppress(OSError):  # a full disk keeps the escape from being shown, and nothing else
            TaskFiles.of(self._context.state_dir, escape.task).escape.write_text(escape.text)
        match live.record.escapes:
            case EscapePolicy.REPORT:
                self._outbox.note(escape.task.job, f"{escape.text}; it goes on, as its pool has it reported only")
            case EscapePolicy.SUSPEND:
                self._outbox.note(escape.task.job, f"{escape.text}; it is suspended, as its pool has it")
                self._outbox.ask_to_suspend(escape.task.job)
            case EscapePolicy.KILL:
                self._end(live, 0.0, f"{escape.text}; it was ended, as its pool has it", Outcome.USER_ERROR)

    def _task_kept(self, task: TaskId) -> None:
        """Report that the place of a failed task is kept, once, if its record says so."""
        files = TaskFiles.of(self._context.state_dir, task)
        when_possible(self._context.loop, lambda: read_record(files), lambda record: self._say_kept(task, record))

    def _say_kept(self, task: TaskId, record: RunRecord | None) -> None:
        live = self.live.get(task)
        if live is None or not live.expected or task.job in self._pending or task in self._kept:
            return
        if record is None or record.kept_at is None or record.kept_until is None:
            return
        self._kept.add(task)
        verdict = verdict_on(record)
        self._note_shared_failure(task, verdict.detail)
        self._outbox.kept(task, verdict, record.kept_until)

    def _task_ended(self, live: Live, record: RunRecord) -> None:
        self._ending.pop(record.id, None)
        self._kept.discard(record.id)
        verdict = verdict_on(record)
        if verdict.outcome is Outcome.USER_ERROR and record.kept_at is None:
            self._note_shared_failure(record.id, verdict.detail)
        self.sharing.release(record.id)
        pending, _ = self._pending.get(record.id.job, (None, 0))
        if pending is not None and pending.decision.id == live.record.decision:
            pending.task_ended(record)
        elif live.expected:
            self._outbox.ended(record.id, verdict)

    def _note_shared_failure(self, task: TaskId, how: str) -> None:
        """Note the failure of a task to the jobs in its fault domain, as it may be what ends their tasks too."""
        for other in sorted(self.sharing.fault_domain(task), key=lambda each: (each.job, each.task)):
            self._outbox.note(
                other.job,
                f"{task.job}, which shares the multi-process service on a card with task {other.task}, failed ({how}); "
                "a fatal fault of one ends all that share it",
            )


def _foreign_use_refusal(devices: Sequence[Device]) -> Refusal | None:
    if not devices:
        return None
    who = "; ".join(f"card {device.index} is {device.health_detail}" for device in devices)
    return Refusal(f"others have come to what it was to get: {who}", device_fault=True)
