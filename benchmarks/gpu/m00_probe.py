"""What this machine, its driver and its card can do at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from benchmarks.gpu import guard
from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.children import ChildError, exported
from benchmarks.gpu.results import Status, Verdict
from benchmarks.gpu.swapping import state
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
_LOOK_UPS = (
    "cuMemAlloc",
    "cuMemFree",
    "cuMemAllocAsync",
    "cuMemGetInfo",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuGraphLaunch",
    "cuGraphInstantiate",
    "cuStreamSynchronize",
    "cuStreamDestroy",
    "cuCtxCreate",
    "cuDevicePrimaryCtxRelease",
    "cuEventRecord",
    "cuGetProcAddress",
)
_NOBODY = 65534
_MIB = 1024 * 1024


def measure(bench: Bench) -> dict[str, Any]:
    """Ask everything once."""
    helper = CheckpointHelper(bench.env)
    try:
        why_not = helper.why_not()
        child = bench.child(started=False)
        started = child.ask("start")
        bench.journal.case("driver's exports", _exports(bench, child.pid))
        bench.journal.case("look-ups", child.ask("lookups", names=_LOOK_UPS))
        bench.journal.case("states of processes", why_not or _states(bench, helper, child.pid))
        bench.journal.case("listed processes", _listed(bench, child.pid))
    finally:
        helper.close()
    return {
        "compute_capability": bench.nvml.ask("nvmlDeviceGetCudaComputeCapability", bench.handle),
        "multiprocessors": started["multiprocessors"],
        "checkpoints": {"usable": not why_not, "reason": why_not},
        "checkpoint_calls": _known_calls(),
        "nvml": {name: _told(bench, name) for name in _READS},
        "mps_control": shutil.which("nvidia-cuda-mps-control"),
        "cgroup_v2": Path("/sys/fs/cgroup/cgroup.controllers").is_file(),
        "compiler": shutil.which("gcc") or shutil.which("cc") or shutil.which("clang"),
        "torch": bench.has_torch,
        "host_memory_free_mib": psutil.virtual_memory().available // _MIB,
        "root": os.geteuid() == 0,
    }


def _exports(bench: Bench, pid: int) -> dict[str, Any]:
    """The names that the driver's library exports, in a file beside the results."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    library = next((Path(line.split()[-1]) for line in lines if "libcuda.so" in line), None)
    names = [] if library is None else exported(library)
    if names:
        bench.journal.path.with_name("driver-symbols.txt").write_text("\n".join(names) + "\n")
    return {"library": str(library), "count": len(names)}


def _states(bench: Bench, helper: CheckpointHelper, computes: int) -> dict[str, str]:
    """What the driver says of processes that use no card, have ended, or are another user's."""
    ended = bench.child(started=False)
    ended.kill()
    processes = {"computes": computes, "first of the machine": 1, "uses no card": os.getpid(), "has ended": ended.pid}
    said = {name: state(helper, pid) for name, pid in processes.items()}
    if os.geteuid() == 0:
        try:
            said["another user's"] = state(helper, bench.child(user=_NOBODY).pid)
        except (ChildError, OSError) as error:  # it may not even execute our interpreter
            said["another user's"] = f"not tried: {error}"
    return said


def _listed(bench: Bench, pid: int) -> dict[str, Any]:
    """Whether NVML names processes by our numbers, and with their memory."""
    found: dict[str, Any] = {}
    for kind in ("Compute", "Graphics"):
        running = bench.nvml.ask(f"nvmlDeviceGet{kind}RunningProcesses", bench.handle)
        found[kind] = None if running is None else [[each.pid == pid, each.usedGpuMemory] for each in running]
    return found


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
    "m00_probe", "what can this machine, its driver and its card do", "none: it is recorded", 15, measure, judge
)
