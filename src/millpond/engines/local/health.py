"""Looks after the devices now and then: faults, and processes of others on them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

from millpond.model.devices import Device, Health
from millpond.model.nodes import Node
from millpond.node.devices.vendor import Ours
from millpond.node.machine import Machine


class HealthWatch:
    """A thread of its own, as drivers can take seconds to answer.

    A card counts as busy elsewhere only when two looks in a row find it so: a task of ours that starts or ends just
    between listing our processes and asking the driver looks like a stranger once.

    Args:
        ours: what our tasks use at the moment.
        report: told the node's name and the device, for each change.
    """

    def __init__(
        self,
        machine: Machine,
        ours: Callable[[], Ours],
        report: Callable[[str, Device], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._machine = machine
        self._ours = ours
        self._report = report
        self._on_failure = on_failure
        self._nodes = {node.name: node for node in machine.nodes}
        self._suspected: set[str] = set()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes with the health last seen."""
        return tuple(self._nodes.values())

    def start(self, interval_s: float) -> None:
        """Look every so many seconds, when there are devices that can fail at all."""
        if any(not device.fake for node in self._machine.nodes for device in node.devices):
            self._thread = threading.Thread(target=self._run, args=(interval_s,), name="device-health", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """No more looks; one that hangs in the driver is not waited for."""
        self._closed.set()

    def look(self) -> None:
        """Look once, and report what changed."""
        ours = self._ours()
        seen = {device.uuid: device for vendor in self._machine.vendors.values() for device in vendor.discover(ours)}
        for node in self.nodes:
            looked = [(device, self._present(device, seen.get(device.uuid))) for device in node.devices]
            changed = [now for before, now in looked if now.health is not before.health]
            self._nodes[node.name] = replace(node, devices=tuple(now for _, now in looked))
            self._report_all(node.name, changed)

    def _present(self, before: Device, seen: Device | None) -> Device:
        """A device as it is to be shown now."""
        if seen is None:
            return replace(before, health=Health.FAULTY, health_detail="the driver does not list it any more")
        if seen.health is Health.BUSY_ELSEWHERE and before.health is Health.OK and before.uuid not in self._suspected:
            self._suspected.add(before.uuid)
            return before
        if seen.health is not Health.BUSY_ELSEWHERE:
            self._suspected.discard(before.uuid)
        return replace(before, health=seen.health, health_detail=seen.health_detail)

    def _report_all(self, node: str, devices: Iterable[Device]) -> None:
        for device in devices:
            self._report(node, device)

    def _run(self, interval_s: float) -> None:
        while not self._closed.wait(interval_s):
            try:
                self.look()
            except Exception as error:  # handed on: the engine's caller is told
                self._on_failure(error)
                return
