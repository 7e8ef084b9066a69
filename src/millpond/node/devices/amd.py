"""Instinct and Radeon GPUs of AMD, by the JSON of ``amd-smi``."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from millpond.model.errors import UnavailableError
from millpond.model.hardware.telemetry import DeviceLink, DeviceSample, ProcessSample
from millpond.model.hardware.topology import Link
from millpond.model.units import MIB
from millpond.node.devices.tool import ToolReading, ToolVendor, local_uuid, parse_json
from millpond.node.devices.vendor import Fact

_NOISE = ("AMD", "Instinct", "Radeon")
_LINKS = {"XGMI": Link.NVSWITCH, "PCIE": Link.CROSS_SOCKET}
"""On a board, XGMI joins all with all; for pairs over PCIe the tool does not say what lies between."""


class AmdVendor(ToolVendor):
    """What ``amd-smi list`` lists."""

    name = "amd"
    title = "AMD"
    tool = "amd-smi"
    variable = "ROCR_VISIBLE_DEVICES"

    def read(self) -> list[ToolReading]:
        """The tool has a command for names, one for figures, and one for processes."""
        products = {int(entry["gpu"]): entry.get("asic", {}) for entry in self._ask("static", "--asic")}
        metrics = {int(entry["gpu"]): entry for entry in self._ask("metric")}
        processes = self._processes()
        return [
            ToolReading(
                number,
                _model(products.get(number, {}).get("market_name", "")),
                _sample(_uuid(entry), metrics.get(number, {}), processes, number),
            )
            for entry in self._ask("list")
            for number in [int(entry["gpu"])]
        ]

    def links(self) -> tuple[DeviceLink, ...]:
        """By ``amd-smi topology``: over XGMI or over PCIe."""
        uuids = {reading.index: reading.sample.device for reading in self._look()}
        try:
            rows = {int(entry["gpu"]): entry.get("links", []) for entry in self._ask("topology")}
        except (UnavailableError, ValueError, KeyError):
            return ()
        kinds = {
            (one, int(link["gpu"])): _LINKS[link["link_type"]]
            for one, links in rows.items()
            for link in links
            if link.get("link_type") in _LINKS
        }
        return tuple(
            DeviceLink(uuids[one], uuids[other], kinds[one, other])
            for one, other in combinations(uuids, 2)
            if (one, other) in kinds
        )

    def pci_addresses(self) -> dict[str, str]:
        """By ``amd-smi list``."""
        try:
            entries = self._ask("list")
        except (UnavailableError, ValueError, KeyError):
            return {}
        return {_uuid(entry): str(entry["bdf"]) for entry in entries if "bdf" in entry}

    def facts(self) -> tuple[Fact, ...]:
        """The driver's version."""
        versions = {str(entry.get("driver", {}).get("version", "unknown")) for entry in self._ask("static", "--driver")}
        return (Fact("driver", ", ".join(sorted(versions)) or "of an unknown version"),)

    def _processes(self) -> dict[int, tuple[ProcessSample, ...]] | None:
        try:
            entries = self._ask("process")
        except UnavailableError:
            return None
        return {int(entry["gpu"]): tuple(_process_samples(entry.get("process_list", []))) for entry in entries}

    def _ask(self, command: str, *options: str) -> list[dict[str, Any]]:
        """Newer tools wrap the list of devices."""
        answer = parse_json(self.run([self.tool, command, *options, "--json"]))
        entries: list[dict[str, Any]] = answer["gpu_data"] if isinstance(answer, dict) else answer
        return entries


def _uuid(entry: dict[str, Any]) -> str:
    return entry.get("uuid") or local_uuid(AmdVendor.name, int(entry["gpu"]))


def _model(product: str) -> str:
    return "-".join(word for word in product.split() if word not in _NOISE) or "GPU"


def _sample(
    uuid: str, metric: dict[str, Any], processes: dict[int, tuple[ProcessSample, ...]] | None, number: int
) -> DeviceSample:
    usage, power, memory = metric.get("usage"), metric.get("power"), metric.get("mem_usage")
    use, temperature = _value(usage, "gfx_activity"), _value(metric.get("temperature"), "hotspot")
    used_mib, total_mib = _value(memory, "used_vram"), _value(memory, "total_vram")
    return DeviceSample(
        uuid,
        use_milli=None if use is None else round(use * 10),
        memory_used_mib=None if used_mib is None else round(used_mib),
        memory_mib=None if total_mib is None else round(total_mib),
        power_w=_value(power, "socket_power"),
        energy_j=_value(metric.get("energy"), "total_energy_consumption"),
        temperature_c=None if temperature is None else round(temperature),
        processes=None if processes is None else processes.get(number, ()),
    )


def _value(section: Any, name: str) -> float | None:
    """A figure with its unit, or a bare one; what the card does not report is N/A."""
    figure = section.get(name) if isinstance(section, dict) else None
    if isinstance(figure, dict):
        figure = figure.get("value")
    return float(figure) if isinstance(figure, (int, float)) else None


def _process_samples(entries: list[dict[str, Any]]) -> list[ProcessSample]:
    found = []
    for entry in entries:
        about = entry.get("process_info", entry)
        if isinstance(about, dict) and "pid" in about:  # a text says that there is none
            memory = _value(about.get("memory_usage"), "vram_mem")
            found.append(ProcessSample(int(about["pid"]), None if memory is None else round(memory / MIB)))
    return found
