"""Ascend NPUs of Huawei, by the tables of ``npu-smi``. A card may have several chips; each is a device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

from millpond.model.errors import UnavailableError
from millpond.model.hardware.telemetry import DeviceLink, DeviceSample, ProcessSample
from millpond.model.hardware.topology import Link
from millpond.node.devices.tool import ToolReading, ToolVendor, cells_of, figure, local_uuid
from millpond.node.devices.vendor import Fact

_OF = re.compile(r"(\d+)\s*/\s*(\d+)")
_BUS = re.compile(r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
_WELL = ("OK", "Warning")
_LINKS = {
    "HCCS": Link.NVLINK_SINGLE,
    "HCCS_SW": Link.NVSWITCH,
    "PIX": Link.PCIE_SWITCH,
    "PXB": Link.PCIE_SWITCH,
    "PHB": Link.SOCKET,
    "SYS": Link.CROSS_SOCKET,
}
"""By the legend that ``npu-smi info -t topo`` prints; HCCS is their NVLink."""


class AscendVendor(ToolVendor):
    """What ``npu-smi info`` lists."""

    name = "ascend"
    title = "Ascend"
    tool = "npu-smi"
    variable = "ASCEND_RT_VISIBLE_DEVICES"

    def read(self) -> list[ToolReading]:
        """From the overview, whose rows come in pairs: the card, then its chip."""
        text = self.run([self.tool, "info"])
        processes = _processes(text)
        logic_ids = self._logic_ids()
        readings = []
        for number, (card, chip) in enumerate(_pairs(text)):
            npu, model = card[0].split()[:2]
            chip_id = chip[0].split()[0]
            power, temperature = card[2].split()[:2]
            memory, hbm = (*_OF.findall(chip[2]), ("0", "0"))[:2]
            used, total = hbm if int(hbm[1]) else memory
            sample = DeviceSample(
                local_uuid(self.name, chip[1]),
                use_milli=int(chip[2].split()[0]) * 10 if chip[2].split()[0].isdecimal() else None,
                memory_used_mib=int(used) if int(total) else None,
                memory_mib=int(total) or None,
                power_w=figure(power),
                temperature_c=None if (degrees := figure(temperature)) is None else round(degrees),
                processes=tuple(processes.get((npu, chip_id), ())),
            )
            trouble = "" if card[1] in _WELL else f"health is {card[1]}"
            readings.append(ToolReading(logic_ids.get((npu, chip_id), number), model, sample, trouble))
        return readings

    def links(self) -> tuple[DeviceLink, ...]:
        """From the matrix of ``npu-smi info -t topo``; older tools have none."""
        try:
            lines = self.run([self.tool, "info", "-t", "topo"]).splitlines()
        except UnavailableError:
            return ()
        rows = {words[0]: words[1:] for line in lines if (words := line.split()) and words[0].startswith("NPU")}
        devices = sorted(self._look(), key=lambda reading: reading.index)
        return tuple(
            DeviceLink(devices[one].sample.device, devices[other].sample.device, link)
            for one, other in combinations(range(len(devices)), 2)
            if (link := _link(rows, one, other)) is not None
        )

    def facts(self) -> tuple[Fact, ...]:
        """The version of tool and driver, from the head of the overview."""
        match = re.search(r"Version:\s*(\S+)", self.run([self.tool, "info"]))
        return (Fact("driver", match[1] if match else "of an unknown version"),)

    def _logic_ids(self) -> dict[tuple[str, str], int]:
        """The numbers that programs know chips by, by card and chip."""
        try:
            lines = self.run([self.tool, "info", "-m"]).splitlines()
        except UnavailableError:
            return {}
        words = (line.split() for line in lines)
        return {(row[0], row[1]): int(row[2]) for row in words if len(row) >= 4 and row[2].isdecimal()}


def _pairs(text: str) -> Iterator[tuple[list[str], list[str]]]:
    card: list[str] = []
    for cells in map(cells_of, text.splitlines()):
        if len(cells) == 3 and _BUS.fullmatch(cells[1]) and card:
            yield card, cells
        elif len(cells) == 3 and len(cells[0].split()) == 2 and cells[0].split()[0].isdecimal():
            card = cells


def _processes(text: str) -> dict[tuple[str, str], list[ProcessSample]]:
    """The second table, by card and chip."""
    found: dict[tuple[str, str], list[ProcessSample]] = {}
    for cells in map(cells_of, text.splitlines()):
        if len(cells) >= 4 and cells[1].isdecimal() and len(cells[0].split()) == 2:
            npu, chip = cells[0].split()
            memory_mib = int(cells[3]) if cells[3].isdecimal() else None
            found.setdefault((npu, chip), []).append(ProcessSample(int(cells[1]), memory_mib))
    return found


def _link(rows: dict[str, list[str]], one: int, other: int) -> Link | None:
    row = rows.get(f"NPU{one}", [])
    return _LINKS.get(row[other]) if other < len(row) else None
