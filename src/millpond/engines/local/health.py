"""Watch the devices for faults and foreign processes: regularly, before they are handed out, and whenever a driver
reports something.

What a driver reports as a fault of a device stays with it until it was reset (it was away, or the driver complained of
it, and does so no longer), or has been quiet for ``QUIET_S`` without a complaint of the driver, or until the server
starts again. What comes back so is on probation (``scheduling.nodes.card_cordons``). A fault of a program goes to the
history of the jobs on the device.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from millpond.model.errors import UnavailableError
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.telemetry import FaultScope, HealthEvent
from millpond.node.devices.vendor import CardDivider, HealthStream, OwnProcesses
from millpond.node.host.machine import Machine
from millpond.node.host.periodic_worker import UNTIL_WOKEN, PeriodicWorker

log = logging.getLogger(__name__)

QUIET_S: Final = 3_600.0
"""After so long without another fault a device may be used again."""
_LOOK_EVERY_S: Final = 10.0
_SURE_AFTER_S: Final = 1.0
"""So long after a look that found a foreign process comes the one that makes sure: a driver may list a process that has
ended for a moment."""
_FRESH_S: Final = 0.5
"""What was seen so long ago is seen now: a burst of starts is no burst of looks."""
_LISTENS_FOR_S: Final = 1.0
"""How long a closed watch may go on listening."""
_SAID_AGAIN_AFTER_S: Final = 60.0
"""A program that goes wrong may do so a thousand times a second."""
LOST_CARD: Final = "the driver does not list it any more"


@dataclass(frozen=True, slots=True)
class HealthListener:
    """Callbacks for what is found.

    Attributes:
        changed: called with the node's name and the device, for each change of health, and with whether no reset
            mends it.
        reported: called with the node's name, the device, what its driver reported of it that leaves it in use, and
            whether that is a program's fault.
        failed: called with a defect; the watch has ended.
        described_anew: called with a node whose cards have been divided otherwise.
    """

    changed: Callable[[str, Device, bool], None]
    reported: Callable[[str, Device, str, bool], None]
    failed: Callable[[BaseException], None]
    described_anew: Callable[[Node], None] = lambda node: None


@dataclass(frozen=True, slots=True)
class _AwaitedLook:
    """Whether foreign processes use some of these devices (by UUID), and who waits for the answer."""

    devices: frozenset[str]
    then: Callable[[Sequence[Device]], None]


@dataclass(slots=True)
class _DeviceFault:
    """A fault that a driver reported of a device.

    Attributes:
        at: when it was reported last.
        was_seen: a look has found the device away, or its driver complaining.
    """

    text: str
    at: float
    needs_person: bool
    was_seen: bool = False


class HealthWatch:
    """Threads of its own, as drivers can take seconds to answer.

    A card counts as busy elsewhere only when two looks in a row find it so: an own task that starts or ends just
    between listing its processes and asking the driver looks like a foreign one once.

    Args:
        own: the devices and processes of the tasks at the moment.
        clock: seconds, of any beginning.
    """

    def __init__(
        self,
        machine: Machine,
        own: Callable[[], OwnProcesses],
        listener: HealthListener,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._machine = machine
        self._own = own
        self._listener = listener
        self._clock = clock
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        """Held from a look at the drivers until what it found is taken in: meanwhile no card is divided."""
        self._nodes = {node.name: node for node in machine.nodes}
        self._suspected: set[str] = set()
        self._faults: dict[str, _DeviceFault] = {}
        self._said: dict[tuple[str, str], float] = {}
        self._trouble: dict[str, str] = {}
        self._questions: list[_AwaitedLook] = []
        self._looked_at: float | None = None
        self._closed = threading.Event()
        self._worker = PeriodicWorker("device-health", self._pass, _LOOK_EVERY_S, "devices cannot be looked at")

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes with the health last seen."""
        return tuple(self._nodes.values())

    def start(self) -> None:
        """Look regularly and listen, when there are devices that can fail at all."""
        if all(device.fake for node in self._machine.nodes for device in node.devices):
            return
        self._worker.start(_LOOK_EVERY_S)
        for vendor in self._machine.vendors.values():
            stream = vendor.watch()
            if stream is not None:
                name = f"{vendor.name}-events"
                threading.Thread(target=self._listen, args=(stream,), name=name, daemon=True).start()

    def ask(self, devices: Collection[str], then: Callable[[Sequence[Device]], None]) -> None:
        """Find out which of some devices (by UUID) foreign processes use now, which is news of those devices, too.

        Any thread may ask. One look answers all who asked before it began; a device on which it finds a foreign
        process for the first time is answered for by the next.

        Args:
            then: called with those devices; at once where no look is needed, else on the watch's thread. A driver that
                hangs has it wait.
        """
        real = frozenset(device.uuid for device in self._devices() if device.uuid in devices and not device.fake)
        now = self._clock()
        with self._lock:
            is_fresh = self._looked_at is not None and 0 <= now - self._looked_at < _FRESH_S
            needs_look = bool(real) and not (is_fresh and real.isdisjoint(self._doubted()))
            if needs_look:
                self._questions.append(_AwaitedLook(real, then))
        if needs_look:
            self._worker.wake()
        else:
            then(self._in_foreign_use(real))

    def close(self) -> None:
        """No more looks; one that hangs in the driver is not waited for."""
        self._closed.set()
        self._worker.close(0.0)

    def look(self) -> None:
        """Look once, report what changed, and answer who asked."""
        with self._looking:
            began = self._clock()
            with self._lock:
                asked, self._questions = self._questions, []
            try:
                self._look()
            finally:  # a look that fails says nothing against a device
                with self._lock:
                    self._looked_at = began
                    doubted = self._doubted()
                    open_still = [each for each in asked if not each.devices.isdisjoint(doubted)]
                    self._questions += open_still
                for question in asked:
                    if question not in open_still:
                        question.then(self._in_foreign_use(question.devices))

    def _look(self) -> None:
        own = self._own()
        seen, silent = self._discover(own)
        with self._lock:
            for node in self.nodes:
                now = (
                    device if device.vendor in silent else self._present(device, seen.get(device.uuid))
                    for device in node.devices
                )
                self._show(node, now)

    @contextmanager
    def looking_again(self, name: str, card: str) -> Iterator[CardDivider]:
        """Divide a card of a node inside of this, while nobody looks; what it shows then is taken in and reported, also
        where dividing it failed.

        Raises:
            UnavailableError: nothing divides cards of its vendor.
        """
        with self._looking:
            node = self._nodes[name]
            before = [device for device in node.devices if device.card == card]
            vendor = self._machine.vendors[before[0].vendor]
            divider = vendor.divider()
            if divider is None:
                raise UnavailableError(f"nothing divides devices of {vendor.title} here")
            try:
                yield divider
            finally:
                found = [device for device in vendor.discover(self._own()) if device.card == card]
                if found:  # a card that vanished meanwhile is faulty at the next look
                    self._exchange(name, before[0], found)

    def _exchange(self, name: str, before: Device, found: Sequence[Device]) -> None:
        """What a card shows stands where it stood before, in the description of its node."""
        with self._lock:
            devices = list[Device]()
            for device in self._nodes[name].devices:
                if device.card != before.card:
                    devices.append(device)
                elif all(each.card != before.card for each in devices):
                    devices += [replace(each, switch=before.switch, socket=before.socket) for each in found]
            fresh = self._nodes[name] = replace(self._nodes[name], devices=tuple(devices))
        self._listener.described_anew(fresh)

    def _discover(self, own: OwnProcesses) -> tuple[dict[str, Device], set[str]]:
        """All devices by UUID, and the vendors that cannot report theirs: those stay as they are.

        A tool that hangs is no reason to end what runs; and what the vendor of another package raises is reported, not
        fatal.
        """
        seen: dict[str, Device] = {}
        silent = set()
        for name, vendor in self._machine.vendors.items():
            try:
                seen.update((device.uuid, device) for device in vendor.discover(own))
                self._trouble.pop(name, None)
            except Exception as error:
                silent.add(name)
                if self._trouble.get(name) != str(error):
                    self._trouble[name] = str(error)
                    log.warning("%s devices cannot be looked at: %s", vendor.title, error)
        return seen, silent

    def without_remaps(self, name: str) -> Node:
        """A node from whose devices nothing comes back on others from now on."""
        with self._lock:
            node = self._nodes[name]
            devices = tuple(replace(device, remaps=False) for device in node.devices)
            self._nodes[name] = replace(node, devices=devices)
            return self._nodes[name]

    def take(self, event: HealthEvent) -> None:
        """Note what a driver reported, and report what follows."""
        with self._lock:
            for node, device in list(self._concerned(event)):
                match event.scope:
                    case FaultScope.TASK | FaultScope.NOTE:
                        self._report(node, device, event)
                    case FaultScope.DEVICE | FaultScope.PERSON:
                        self._enter(node, device, event)
            if event.scope in (FaultScope.DEVICE, FaultScope.PERSON):
                for node in self.nodes:
                    self._show(node, [self._with_fault(device) for device in node.devices])

    def _concerned(self, event: HealthEvent) -> Iterator[tuple[Node, Device]]:
        """The devices that an event is about; of a card that is cut up, all its instances."""
        for node in self.nodes:
            for device in node.devices:
                if event.device and event.device in (device.uuid, device.parent):
                    yield node, device

    def _enter(self, node: Node, device: Device, event: HealthEvent) -> None:
        """Enter a fault; of one that is known already, that a person is needed is news."""
        before = self._faults.get(device.uuid)
        needs_person = event.scope is FaultScope.PERSON
        fault = _DeviceFault(event.text, self._clock(), needs_person or (before is not None and before.needs_person))
        self._faults[device.uuid] = fault
        if before is not None and fault.needs_person and not before.needs_person:
            self._listener.changed(node.name, self._with_fault(device), True)

    def _report(self, node: Node, device: Device, event: HealthEvent) -> None:
        now, key = self._clock(), (device.uuid, event.text)
        if now - self._said.get(key, -_SAID_AGAIN_AFTER_S) >= _SAID_AGAIN_AFTER_S:
            self._said[key] = now
            self._listener.reported(node.name, device, event.text, event.scope is FaultScope.TASK)

    def _present(self, before: Device, seen: Device | None) -> Device:
        """A device as it is to be shown now."""
        fault = self._faults.get(before.uuid)
        if fault is not None and (seen is None or seen.health is DeviceHealth.FAULTY):
            fault.was_seen = True
        if seen is None:
            return replace(before, health=DeviceHealth.FAULTY, health_detail=LOST_CARD)
        if fault is not None:
            is_quiet = self._clock() - fault.at >= QUIET_S
            if seen.health is DeviceHealth.FAULTY or not (fault.was_seen or is_quiet):
                return self._with_fault(before)
            del self._faults[before.uuid]
        if (
            seen.health is DeviceHealth.BUSY_ELSEWHERE
            and before.health is DeviceHealth.OK
            and before.uuid not in self._suspected
        ):
            self._suspected.add(before.uuid)
            return before
        if seen.health is not DeviceHealth.BUSY_ELSEWHERE:
            self._suspected.discard(before.uuid)
        return replace(before, health=seen.health, health_detail=seen.health_detail)

    def _with_fault(self, device: Device) -> Device:
        fault = self._faults.get(device.uuid)
        return device if fault is None else replace(device, health=DeviceHealth.FAULTY, health_detail=fault.text)

    def _show(self, node: Node, now: Iterable[Device]) -> None:
        devices = tuple(now)
        self._nodes[node.name] = replace(node, devices=devices)
        for before, device in zip(node.devices, devices, strict=True):
            if device.health is not before.health:
                fault = self._faults.get(device.uuid)
                self._listener.changed(node.name, device, fault is not None and fault.needs_person)

    def _devices(self) -> Iterator[Device]:
        return (device for node in self.nodes for device in node.devices)

    def _doubted(self) -> set[str]:
        """Devices on which one look has found a foreign process, and no second one yet."""
        return {
            device.uuid
            for device in self._devices()
            if device.uuid in self._suspected and device.health is DeviceHealth.OK
        }

    def _in_foreign_use(self, devices: Collection[str]) -> list[Device]:
        return [
            device
            for device in self._devices()
            if device.uuid in devices and device.health is DeviceHealth.BUSY_ELSEWHERE
        ]

    def _pass(self) -> float | None:
        try:
            if self._doubted() and self._looked_at is not None:
                early_s = self._looked_at + _SURE_AFTER_S - self._clock()
                if early_s > 0:
                    return early_s
            self.look()
            if self._doubted():
                return _SURE_AFTER_S
        except OSError:  # too many files are open, say: the next look may do
            raise
        except Exception as error:  # handed on to the engine's caller
            self._listener.failed(error)
            return UNTIL_WOKEN
        return None

    def _listen(self, stream: HealthStream) -> None:
        while not self._closed.is_set():
            try:
                for event in stream.wait(_LISTENS_FOR_S):
                    self.take(event)
            except UnavailableError as error:
                log.warning("%s", error)
                return  # the regular looks remain
            except OSError as error:
                log.warning("reports of a driver cannot be read: %s", error)
                self._closed.wait(_LISTENS_FOR_S)
            except Exception as error:  # handed on to the engine's caller
                self._listener.failed(error)
                return
