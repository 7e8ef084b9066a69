"""The engine for one machine, as the server sees it: thread-safe, never blocking, fit to be killed at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from millpond.engines.local.executor import Executor
from millpond.engines.local.health import HealthListener, HealthWatch
from millpond.engines.local.options import EngineOptions
from millpond.engines.local.task_access import LocalTaskAccess
from millpond.engines.outbox import Outbox
from millpond.model.decisions import Decision
from millpond.model.engine import Inventory, Observed
from millpond.model.errors import InconsistentStateError, MillpondError, UnavailableError
from millpond.model.events import Event
from millpond.model.hardware.card_layouts import LayoutChange, LayoutChangeState
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.telemetry import SliceReading
from millpond.node.devices.failed_devices import FailedDevices
from millpond.node.host.machine import Machine
from millpond.node.task import runner
from millpond.node.task import running_tasks as running
from millpond.node.task.launch import LaunchSpec
from millpond.node.task.records import RunRecord, TaskId


class LocalEngine:
    """Carries decisions out on this machine (``model.engine.Engine``).

    Tasks do not depend on it: when it is closed, or its process killed, they go on, and the next engine on the same
    state directory adopts them.

    Args:
        state_dir: where records and logs lie; made if missing.
        launch_of: what a job executes, by job id; called on the engine's thread. Raises a MillpondError when it does
            not know, which refuses the start.

    Attributes:
        access: the ways into its tasks.

    Raises:
        UnavailableError: the kernel is too old.
        OSError: the state directory cannot be made.
    """

    def __init__(
        self,
        machine: Machine,
        state_dir: Path,
        launch_of: Callable[[str], LaunchSpec],
        options: EngineOptions,
    ) -> None:
        runner.require_pidfd()
        self._state_dir = state_dir.resolve()
        self._state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        running.make_room(self._state_dir)
        self._failed_devices = FailedDevices(self._state_dir)
        self._failed_devices.begin()
        for node in machine.nodes:
            for device in node.devices:
                self._note_health(node.name, device)
        self._outbox = Outbox(options.wake)
        self.access = LocalTaskAccess(self._state_dir)
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._failed)
        self._executor = Executor(
            machine, self._state_dir, launch_of, self._outbox, self._loop, options, self._unmappable
        )
        self._health = HealthWatch(
            machine,
            self._executor.sharing.own_processes,
            HealthListener(self._device_changed, self._device_reported, self._outbox.fail, self._described_anew),
        )
        self._executor.find_foreign_use = self._health.ask
        self._thread = threading.Thread(target=self._loop.run_forever, name="local-engine", daemon=True)
        self._thread.start()
        self._health.start()

    def apply(self, decisions: Sequence[Decision]) -> None:
        """Take decisions on, in the order of their ids. Returns at once; one that was applied before is let be."""
        for decision in decisions:
            self._loop.call_soon_threadsafe(self._executor.carry_out, decision)

    def adopt(self, expected: Iterable[TaskId], unanswered: Sequence[Decision]) -> None:
        """Go on where an earlier engine stopped. To be called once, before the first ``apply``. Returns at once.

        Tasks that run and are not expected are ended, as the core counts what they hold as free.

        Args:
            expected: tasks that hold something by the core's account; those that are over are reported, each once.
            unanswered: decisions that were neither confirmed nor refused, in their order; they are carried out now,
                and what an earlier engine did of them is found, not done again.
        """
        self._loop.call_soon_threadsafe(self._executor.adopt, frozenset(expected), tuple(unanswered))

    def events(self) -> list[Event]:
        """Everything that happened since the last call, oldest first. Does not block.

        Raises:
            InconsistentStateError: the engine failed by a defect of its own.
        """
        return self._outbox.drain()

    def inventory(self) -> Inventory:
        """The nodes, and every task of its own that has not come to its own end, whichever engine started it."""
        observed = tuple(
            Observed(record.id.job, record.id.attempt, record.id.task, record.node, record.confinement)
            for record in self._executor.own_records()
        )
        return Inventory(self._health.nodes, observed)

    @property
    def running(self) -> tuple[RunRecord, ...]:
        """The tasks that run now."""
        return tuple(self._executor.live.records())

    def slice_readings(self) -> Iterable[SliceReading]:
        """What tasks make of their parts of devices, as far as this machine counts it."""
        return self._executor.sharing.readings()

    def card_loads(self) -> Mapping[str, int]:
        """The mean use of cards of other machines: there are none."""
        return {}

    def why_nothing_is_shared(self, pool: str = "") -> str:
        """Why slices and swapping of real devices are refused here; empty where they are not, or there are none."""
        is_elsewhere = pool and all(node.pool != pool for node in self._health.nodes)
        return f"no card of this machine is in pool {pool}" if is_elsewhere else self._executor.sharing.hindrance()

    def divide(self, card: str, change: LayoutChange) -> None:
        """Divide a card that nothing runs on, and report what there is of it then, and how it went.

        Takes seconds; for one thread of the caller's. A card that is divided so already is left as it is.
        """
        try:
            self._divide(card, change)
            state, detail = LayoutChangeState.DONE, ""
        except MillpondError as error:
            state, detail = LayoutChangeState.FAILED, str(error)
        self._outbox.divided(card, replace(change, state=state, detail=detail))

    def _divide(self, card: str, change: LayoutChange) -> None:
        node = next((each for each in self._health.nodes if each.name == change.node), None)
        allowed = next((each for each in node.divisible if each.card == card), None) if node is not None else None
        layouts = () if allowed is None else allowed.layouts
        layout = next((each for each in layouts if each.instances == change.layout), None)
        if node is None or layout is None:
            raise UnavailableError("the configuration allows this layout no longer")
        devices = [device for device in node.devices if device.card == card]
        if layout.is_on(devices):
            return
        if any(device.uuid in task.devices for task in self.running for device in devices):
            raise UnavailableError("a task runs on it")
        with self._health.looking_again(node.name, card) as divider:
            divider.divide(card, change.layout)

    def _described_anew(self, node: Node) -> None:
        """What starts there from now on finds the new devices; the core hears of them last."""
        self._executor.take_in(node)
        self._outbox.joined(node)

    def why_nothing_is_halted(self) -> str:
        """Nothing is in the way of halting a job: its processes are this machine's."""
        return ""

    def why_no_card_is_closed(self) -> str:
        """Nothing is in the way of closing a single card: each task is told which cards are its own."""
        return ""

    def close(self) -> None:
        """End the engine's threads. The tasks go on."""
        self._health.close()
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._executor.live.close()
        self._executor.sharing.close()
        self._executor.forkserver.close()
        self._loop.close()

    def _device_changed(self, node: str, device: Device, needs_person: bool) -> None:
        """Note to the jobs on a device that fails which and why, before they are asked to end."""
        if text := self._note_health(node, device):
            self._note_to_jobs_on(device, text)
        self._outbox.health(node, device, needs_person)

    def _note_health(self, node: str, device: Device) -> str:
        """Note for the check of the machine whether a device has failed; returns how, in words."""
        failed = device.health is DeviceHealth.FAULTY
        text = f"card {device.index} of {node} has failed: {device.health_detail}" if failed else ""
        with contextlib.suppress(OSError):  # a full disk is said elsewhere
            self._failed_devices.note(device.uuid, text)
        return text

    def _unmappable(self, node: str) -> None:
        """The driver has refused what it was believed to do: that is not counted on from now on."""
        self._outbox.joined(self._health.without_remaps(node))

    def _device_reported(self, node: str, device: Device, text: str, is_of_program: bool) -> None:
        if is_of_program:
            text = f"{text}; the program's fault, not the card's"
            self._note_to_jobs_on(device, f"card {device.index} of {node} reports {text}")
        self._outbox.reported(node, device, text)

    def _note_to_jobs_on(self, device: Device, text: str) -> None:
        """All of them: which one it was, drivers do not say."""
        for job in sorted({task.id.job for task in self.running if device.uuid in task.devices}):
            self._outbox.note(job, text)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._outbox.fail(context.get("exception") or InconsistentStateError(str(context["message"])))
        loop.stop()
