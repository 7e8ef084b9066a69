"""MLUs of Cambricon, by the table of ``cnmon``: two lines for each card."""

from __future__ import annotations

import re

from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.devices.tool import ToolReading, ToolVendor, cells_of, local_uuid
from millpond.node.devices.vendor import Fact

_CARD = re.compile(r"(?P<index>\d+)\s+\S+\s+(?P<model>MLU\S+)")
_STATE = re.compile(r"(?P<celsius>\d+)C\s+(?P<watts>\d+)\s*W")
_MEMORY = re.compile(r"(?P<used>\d+)\s*MiB/\s*(?P<total>\d+)\s*MiB")
_DRIVER = re.compile(r"Driver\s+v?(\S+)")


class CambriconVendor(ToolVendor):
    """What ``cnmon`` lists."""

    name = "cambricon"
    title = "Cambricon"
    tool = "cnmon"
    variable = "MLU_VISIBLE_DEVICES"

    def read(self) -> list[ToolReading]:
        """From the overview."""
        readings = []
        above: list[str] = []
        text = self.run([self.tool])
        if "CNMON" not in text:
            raise ValueError("no table of cards")
        for cells in map(cells_of, text.splitlines()):
            if len(cells) != 3:
                continue
            card = _CARD.match(above[0]) if above else None
            if card is not None:
                readings.append(_reading(card, above, cells))
            above = [] if card is not None else cells
        return readings

    def facts(self) -> tuple[Fact, ...]:
        """The driver's version, from the head of the overview."""
        match = _DRIVER.search(self.run([self.tool]))
        return (Fact("driver", match[1] if match else "of an unknown version"),)


def _reading(card: re.Match[str], above: list[str], below: list[str]) -> ToolReading:
    state, memory = _STATE.search(below[0]), _MEMORY.search(below[1])
    use = above[2].partition("%")[0]
    sample = DeviceSample(
        local_uuid(CambriconVendor.name, above[1]),
        use_milli=int(use) * 10 if use.isdecimal() else None,
        memory_used_mib=int(memory["used"]) if memory else None,
        memory_mib=int(memory["total"]) if memory else None,
        power_w=float(state["watts"]) if state else None,
        temperature_c=int(state["celsius"]) if state else None,
    )
    return ToolReading(int(card["index"]), card["model"], sample)
