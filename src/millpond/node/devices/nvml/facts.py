"""Facts about driver and cards for the administrator of a machine with NVIDIA cards."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from millpond.node.devices.nvml.library import Nvml, text
from millpond.node.devices.vendor import Fact

SWAP_SINCE = 570
"""First driver whose library can move the memory of a process to the host (CUDA driver API, 6.37 Checkpointing)."""

REMAP_SINCE = 580
"""First driver that restores on other cards (release notes of CUDA 13.0: cuda-checkpoint, GPU migration)."""


def facts_of(nvml: Nvml, cards: Sequence[Any]) -> tuple[Fact, ...]:
    """Driver, swapping, migrating, MIG, persistence mode, and whether processes can be distinguished."""
    facts_of_cards = (_persistence(nvml, cards), _mig(nvml, cards), _processes(nvml, cards))
    return (_driver(nvml), *_lost(nvml, cards), *_swapping(nvml), *facts_of_cards)


def driver_major(nvml: Nvml) -> int | None:
    """The driver's branch, such as 580; None when it does not say."""
    first = text(nvml.ask("nvmlSystemGetDriverVersion")).partition(".")[0]
    return int(first) if first.isdecimal() else None


def why_not_swapping(nvml: Nvml) -> Fact | None:
    """What keeps the memory of processes on the cards; None when nothing does."""
    if (driver_major(nvml) or 0) < SWAP_SINCE:
        found = "the driver is too old to move device memory to the host, so nothing is swapped"
        return Fact("swapping", found, f"install driver {SWAP_SINCE} or newer; all else works without")
    if not _has_cuda_bindings():
        found = "the Python package cuda-bindings is not installed, so nothing is swapped"
        return Fact("swapping", found, "pip install 'millpond[gpu]'")
    return None


def why_not_remapping(nvml: Nvml) -> Fact | None:
    """What keeps memory that was moved to the host from coming back on another card; None when nothing does."""
    hindrance = why_not_swapping(nvml)
    if hindrance is None and (driver_major(nvml) or 0) < REMAP_SINCE:
        found = "the driver is too old to bring memory back on another card, so work migrates by an end and a start"
        return Fact("migrating", found, f"install driver {REMAP_SINCE} or newer; all else works without")
    return hindrance


def _driver(nvml: Nvml) -> Fact:
    return Fact("driver", text(nvml.ask("nvmlSystemGetDriverVersion")) or "of an unknown version")


def _lost(nvml: Nvml, cards: Sequence[Any]) -> tuple[Fact, ...]:
    """Cards that the driver counts and cannot reach, if there are any."""
    missing = (nvml.ask("nvmlDeviceGetCount") or 0) - len(cards)
    if missing <= 0:
        return ()
    found = f"{missing} of {missing + len(cards)} cannot be reached: lost"
    return (Fact("cards", found, "see the kernel's log for XIDs; reset them, or reboot the machine"),)


def _swapping(nvml: Nvml) -> tuple[Fact, ...]:
    hindrance = why_not_swapping(nvml)
    if hindrance is not None:
        return (hindrance,)
    swaps = Fact("swapping", "driver and bindings can move device memory to the host")
    found = "the driver says that it can bring memory back on another card of the same model"
    return swaps, why_not_remapping(nvml) or Fact("migrating", found)


def _has_cuda_bindings() -> bool:
    try:
        return importlib.util.find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:
        return False  # not even its parent package


def _persistence(nvml: Nvml, cards: Sequence[Any]) -> Fact:
    modes = [nvml.ask("nvmlDeviceGetPersistenceMode", card) for card in cards]
    off = [str(number) for number, mode in enumerate(modes) if mode == 0]
    if off:
        found = f"off for card {', '.join(off)}: programs on an idle card wait for the driver, and settings are lost"
        return Fact("persistence mode", found, "run nvidia-persistenced (systemctl enable --now nvidia-persistenced)")
    return Fact("persistence mode", "on" if any(modes) else "unknown")


def _mig(nvml: Nvml, cards: Sequence[Any]) -> Fact:
    modes = [nvml.ask("nvmlDeviceGetMigMode", card) for card in cards]
    on = [str(number) for number, mode in enumerate(modes) if mode is not None and mode[0]]
    changing = [str(number) for number, mode in enumerate(modes) if mode is not None and mode[0] != mode[1]]
    if changing:
        return Fact(
            "MIG", f"to change for card {', '.join(changing)} at the next reset", "reset them when they are idle"
        )
    if on:
        return Fact("MIG", f"on for card {', '.join(on)}: their instances are handed out, whole")
    return Fact("MIG", "off")


def _processes(nvml: Nvml, cards: Sequence[Any]) -> Fact:
    what = "use by each process"
    running = [nvml.ask("nvmlDeviceGetComputeRunningProcesses", card) for card in cards]
    if any(found is None for found in running):
        return Fact(
            what, "not told: foreign processes on a card go unnoticed", "run the server where NVML may list them"
        )
    if any(process.usedGpuMemory is None for found in running for process in found):
        return Fact(what, "processes are listed, their memory is not", "run the server outside of containers and WSL")
    return Fact(what, "told")
