"""Data-centre GPUs of Intel, by the JSON of ``xpu-smi``."""

from __future__ import annotations

import re
from typing import Any

from millpond.model.hardware.telemetry import DeviceSample
from millpond.model.units import MIB
from millpond.node.devices.tool import ToolReading, ToolVendor, local_uuid, parse_json
from millpond.node.devices.vendor import Fact

_NOISE = re.compile(r"\((R|TM)\)|\bIntel\b|\bData Center\b|\bGPU\b|\bGraphics\b")


class IntelVendor(ToolVendor):
    """What ``xpu-smi discovery`` lists."""

    name = "intel"
    title = "Intel"
    tool = "xpu-smi"
    variable = "ZE_AFFINITY_MASK"

    def read(self) -> list[ToolReading]:
        """One call for the list, two for each device."""
        return [self._reading(entry) for entry in self._ask("discovery")["device_list"]]

    def facts(self) -> tuple[Fact, ...]:
        """The driver's version, which the tool reports for each device."""
        listed = self._ask("discovery")["device_list"]
        versions = {self._ask("discovery", entry["device_id"]).get("driver_version", "unknown") for entry in listed}
        return (Fact("driver", ", ".join(sorted(versions)) or "of an unknown version"),)

    def _reading(self, entry: dict[str, Any]) -> ToolReading:
        number = int(entry["device_id"])
        about = self._ask("discovery", number)
        metrics = {each["metrics_type"]: each.get("value") for each in self._ask("stats", number)["device_level"]}
        size = about.get("memory_physical_size_byte")
        use = metrics.get("XPUM_STATS_GPU_UTILIZATION")
        memory_used = metrics.get("XPUM_STATS_MEMORY_USED")
        temperature = metrics.get("XPUM_STATS_GPU_CORE_TEMPERATURE")
        clock = metrics.get("XPUM_STATS_GPU_FREQUENCY")
        sample = DeviceSample(
            entry.get("uuid") or local_uuid(self.name, number),
            use_milli=None if use is None else round(float(use) * 10),
            memory_used_mib=None if memory_used is None else round(float(memory_used)),
            memory_mib=None if size is None else int(size) // MIB,
            power_w=metrics.get("XPUM_STATS_POWER"),
            temperature_c=None if temperature is None else round(float(temperature)),
            clock_mhz=None if clock is None else round(float(clock)),
        )
        return ToolReading(number, "-".join(_NOISE.sub(" ", entry["device_name"]).split()) or "GPU", sample)

    def _ask(self, command: str, device: int | None = None) -> Any:
        return parse_json(self.run([self.tool, command, *([] if device is None else ["-d", str(device)]), "-j"]))
