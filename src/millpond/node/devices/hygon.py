"""DCUs of Hygon, by ``hy-smi``, whose tables have had several headings."""

from __future__ import annotations

import re

from millpond.model.errors import UnavailableError
from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.devices.tool import ToolReading, ToolVendor, figure, local_uuid
from millpond.node.devices.vendor import Fact

_MEMORY = re.compile(r"\[(\d+)\]\s*:\s*vram Total (Used )?Memory \(MiB\):\s*(\d+)", re.IGNORECASE)
_SERIES = re.compile(r"\[(\d+)\]\s*:\s*Card Series:\s*(\S+)", re.IGNORECASE)
_DRIVER = re.compile(r"Driver Version:\s*(\S+)", re.IGNORECASE)


class HygonVendor(ToolVendor):
    """What ``hy-smi`` lists."""

    name = "hygon"
    title = "Hygon"
    tool = "hy-smi"
    variable = "HIP_VISIBLE_DEVICES"

    def read(self) -> list[ToolReading]:
        """From the overview; sizes and models from lists of their own, which not all versions have."""
        total, used, models = dict[int, int](), dict[int, int](), dict[int, str]()
        for index, is_used, memory_mib in _MEMORY.findall(self._list("--showmeminfo", "vram")):
            (used if is_used else total)[int(index)] = int(memory_mib)
        for index, model in _SERIES.findall(self._list("--showproductname")):
            models[int(index)] = model
        return [
            ToolReading(
                index,
                models.get(index, "DCU"),
                DeviceSample(
                    local_uuid(self.name, index),
                    use_milli=_scaled(row.get("HCU%", row.get("DCU%")), 10),
                    memory_used_mib=used.get(index),
                    memory_mib=total.get(index),
                    power_w=figure(row.get("AvgPwr")),
                    temperature_c=_scaled(row.get("Temp"), 1),
                ),
            )
            for index, row in _rows(self.run([self.tool])).items()
        ]

    def facts(self) -> tuple[Fact, ...]:
        """The driver's version."""
        match = _DRIVER.search(self._list("--showdriverversion"))
        return (Fact("driver", match[1] if match else "of an unknown version"),)

    def _list(self, *options: str) -> str:
        try:
            return self.run([self.tool, *options])
        except UnavailableError:
            return ""


def _rows(text: str) -> dict[int, dict[str, str]]:
    """The overview's rows by index, each by heading."""
    headings: list[str] = []
    rows = {}
    for line in text.splitlines():
        words = line.split()
        if words and words[0] in ("HCU", "DCU"):
            headings = words
        elif headings and words and words[0].isdecimal() and len(words) == len(headings):
            rows[int(words[0])] = dict(zip(headings, words, strict=True))
    if not headings:
        raise ValueError("no table of devices")
    return rows


def _scaled(cell: str | None, factor: int) -> int | None:
    found = figure(cell)
    return None if found is None else round(found * factor)
