"""Makes pretended cards of a server behave as real ones may: one has fallen off its bus, one is held and left idle.

Python imports it at its start where its folder is in ``PYTHONPATH``; it changes no program but a server.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

FAILED, IDLE = ("dgx-2", 5), ("box-1", 1)
IDLE_AFTER_S = 10.0


def trouble() -> None:
    """Change the server's view of its cards."""
    from millpond.model.hardware.devices import DeviceHealth
    from millpond.model.hardware.telemetry import DeviceSample
    from millpond.node.devices.fake import FakeVendor
    from millpond.node.devices.nvml.faults import xid_text
    from millpond.node.host import machine
    from millpond.server.monitoring import idle_cards

    idle: set[str] = set()
    sample, fake_machine = FakeVendor.sample, machine.fake_machine

    def troubled_machine(nodes: Any) -> Any:
        made = fake_machine(nodes)
        shown = []
        for node in made.nodes:
            idle.update(device.uuid for device in node.devices if (node.name, device.index) == IDLE)
            devices = tuple(
                replace(device, health=DeviceHealth.FAULTY, health_detail=xid_text(79))
                if (node.name, device.index) == FAILED
                else device
                for device in node.devices
            )
            shown.append(replace(node, devices=devices))
        return replace(made, nodes=tuple(shown))

    def warm_sample(vendor: FakeVendor) -> tuple[DeviceSample, ...]:
        return tuple(
            replace(each, temperature_c=round(33 + (each.power_w or 0) / 9), use_milli=0)
            if each.device in idle
            else replace(each, temperature_c=round(33 + (each.power_w or 0) / 9))
            for each in sample(vendor)
        )

    def idle_since(_cards: idle_cards.IdleCards) -> Mapping[str, float]:
        return dict.fromkeys(idle, began)

    began = time.time()
    machine.fake_machine = troubled_machine
    FakeVendor.sample = warm_sample  # type: ignore[method-assign]
    idle_cards.IDLE_AFTER_S = IDLE_AFTER_S  # type: ignore[misc]
    idle_cards.IdleCards.since = property(idle_since, lambda cards, found: None)  # type: ignore[assignment]


if "millpond.server" in sys.orig_argv:
    trouble()
