"""What this machine, its driver and its card can do at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from gpu import guard
from gpu.bench import Bench, Measurement
from gpu.results import Status, Verdict
from millpond.node.sharing.helper import CheckpointHelper

_CHECKPOINT_CALLS = ("Lock", "Checkpoint", "Restore", "Unlock", "GetState", "GetRestoreThreadId")
_READS = (
    "UtilizationRates",
    "MemoryInfo",
    "PowerUsage",
    "TotalEnergyConsumption",
    "PowerManagementLimit",
    "PowerManagementLimitConstraints",
    "CurrentClocksEventReasons",
    "ComputeRunningProcesses",
    "MigMode",
    "ComputeMode",
    "PersistenceMode",
    "RemappedRows",
    "SupportedEventTypes",
    "NumaNodeId",
    "VirtualizationMode",
    "GpuFabricInfo",
)
_MIB = 1024 * 1024


def measure(bench: Bench) -> dict[str, Any]:
    """Ask everything once."""
    helper = CheckpointHelper(bench.env)
    try:
        swaps = helper.probe()
    finally:
        helper.close()
    started = bench.child(started=False).ask("start")
    return {
        "compute_capability": bench.nvml.ask("nvmlDeviceGetCudaComputeCapability", bench.handle),
        "multiprocessors": started["multiprocessors"],
        "checkpoints": {"usable": swaps.usable, "reason": swaps.reason},
        "checkpoint_calls": _known_calls(),
        "nvml": {name: _told(bench, name) for name in _READS},
        "mps_control": shutil.which("nvidia-cuda-mps-control"),
        "cgroup_v2": Path("/sys/fs/cgroup/cgroup.controllers").is_file(),
        "compiler": shutil.which("gcc") or shutil.which("cc") or shutil.which("clang"),
        "torch": bench.has_torch,
        "host_memory_free_mib": psutil.virtual_memory().available // _MIB,
        "root": os.geteuid() == 0,
    }


def judge(figures: Mapping[str, Any]) -> Verdict:
    """There is no line to meet: what was found was found."""
    return Verdict(Status.PASS)


def _known_calls() -> list[str]:
    binding = guard.cuda()
    return [name for name in _CHECKPOINT_CALLS if hasattr(binding, f"cuCheckpointProcess{name}")]


def _told(bench: Bench, name: str) -> str:
    module = bench.nvml.module
    try:
        getattr(module, f"nvmlDeviceGet{name}")(bench.handle)
    except bench.nvml.error as error:
        return str(error)
    except (AttributeError, TypeError):
        return "not called: the binding has it in another form"
    return "told"


MEASUREMENT = Measurement(
    "m00_probe", "what can this machine, its driver and its card do", "none: it is recorded", 5, measure, judge
)
