"""What the cards of a node and their slices did at the agent's last looks, as Prometheus reads it.

The agent looks at its cards and at the gates anyway. Nothing here asks the driver, so a scrape costs no more than its
text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from millpond.engines.kubernetes.agent.allocations import Allocation
from millpond.engines.kubernetes.cluster.agent_report import AgentReport
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.telemetry import DeviceSample
from millpond.model.units import MIB
from millpond.node.devices.device_metrics import DeviceFigures, SliceFigures, device_metrics, slice_metrics
from millpond.node.devices.vendor import STALE_AFTER_S
from millpond.node.sharing.backend import SliceUsage
from millpond.node.sharing.desired_state import DesiredState
from millpond.node.sharing.device_times import DeviceTimes
from millpond.node.task.records import TaskId


@dataclass(frozen=True, slots=True)
class _GateUse:
    """What a gate counts: part of the time between two looks, and bytes of device memory."""

    use_milli: int | None = None
    used_bytes: int | None = None


class CardMeter:
    """The last looks at the cards of one node. What is remembered is replaced as a whole, so any thread may read it.

    Args:
        allocations: gives what pods have now.

    Attributes:
        report: how the cards were described last.
    """

    def __init__(self, allocations: Callable[[], Iterable[Allocation]]) -> None:
        self._allocations = allocations
        self.report = AgentReport()
        self._samples: tuple[float, Mapping[str, DeviceSample]] = (0.0, {})
        self._uses: tuple[float, Mapping[TaskId, _GateUse]] = (0.0, {})
        self._device_times = DeviceTimes[TaskId]()

    def sampled(self, samples: Iterable[DeviceSample], now: float) -> None:
        """The driver said how the cards fare.

        Args:
            now: seconds, monotonic.
        """
        self._samples = now, {each.device: each for each in samples}

    def counted(self, usages: Iterable[tuple[Allocation, SliceUsage]], now: float) -> None:
        """The gates said what pods make of their slices; all of them that have any."""
        by_task = {made.pod.task: usage for made, usage in usages}
        busy_ns = {task: usage.busy_ns for task, usage in by_task.items() if usage.busy_ns is not None}
        uses = self._device_times.look(busy_ns, now)
        found = {task: _GateUse(uses.get(task), usage.used_bytes) for task, usage in by_task.items()}
        self._uses = now, found

    def page(self, node: str, now: float) -> bytes:
        """All figures, in the text format of Prometheus."""
        cards = self.cards(node, now)
        return "".join((*device_metrics(cards), *slice_metrics(cards))).encode()

    def cards(self, node: str, now: float) -> list[DeviceFigures]:
        """The cards as they were last seen; what was measured too long ago is unknown."""
        report, (sampled_at, samples), (counted_at, uses) = self.report, self._samples, self._uses
        samples = samples if now - sampled_at <= STALE_AFTER_S else {}
        uses = uses if now - counted_at <= STALE_AFTER_S else {}
        slices: dict[str, list[SliceFigures]] = {}
        for made in sorted(self._allocations(), key=lambda each: each.number):
            use = uses.get(made.pod.task, _GateUse())
            for grant in made.pod.order.grants:
                part = SliceFigures(grant.compute_milli, grant.memory_mib, use.use_milli, _used_mib(made, use))
                slices.setdefault(grant.device, []).append(part)
        return [
            DeviceFigures(
                node,
                device.index,
                device.instance,
                device.model,
                device.fake,
                device.memory_mib,
                _health(device, report),
                samples.get(device.uuid),
                slices.get(device.uuid, ()),
            )
            for device in report.devices
        ]


def _used_mib(made: Allocation, use: _GateUse) -> int | None:
    """A gate counts what is its task's wherever it lies: of a swapped one nothing is on the card."""
    if use.used_bytes is None:
        return None
    return 0 if made.state is DesiredState.SWAPPED else use.used_bytes // MIB


def _health(device: Device, report: AgentReport) -> str:
    """As the server has it: a card that others have, or of which nothing is known, cannot be handed out."""
    is_away = device.uuid in report.others or report.driver_away
    return DeviceHealth.BUSY_ELSEWHERE if is_away and device.health is DeviceHealth.OK else device.health
