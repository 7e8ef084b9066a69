"""What a measurement may not do to a card that others use too, made impossible rather than asked for.

Both bindings are handed out behind a guard: of NVML only what reads, of CUDA nothing that touches the device as a
whole, and managed memory only as little as one measurement needs. Children get an environment in which nobody's MPS
can be met. Whatever else begins a program or ends one goes through ``children``.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millpond.model.errors import InvalidInputError, UnavailableError

MANAGED_MIB = 64
"""The most managed memory that any measurement asks for; more than is free can bring a card down."""

_MIB = 1024 * 1024
_NVML_READS = (
    "nvmlDeviceGet",
    "nvmlDeviceRegisterEvents",
    "nvmlErrorString",
    "nvmlEventSet",
    "nvmlExceptionClass",
    "nvmlGpmMetricsGet",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSample",
    "nvmlInit",
    "nvmlShutdown",
    "nvmlSystemGet",
)
_CUDA_NEVER = ("cuDevicePrimaryCtxReset", "cuMemAdvise", "cuMemAllocManaged", "cuMemPrefetch", "cuCtxResetPersisting")
_MPS = "CUDA_MPS_"
_LOOK_UPS = ((11030, 0), (12000, 0), (12000, 1), (12000, 2), (13000, 0))
"""CUDA versions of callers, and the default, legacy and per-thread default stream."""


class ForbiddenError(InvalidInputError):
    """A measurement asked for something that it may not do."""


class Guarded:
    """A binding of which only some calls can be reached.

    Args:
        module: the binding.
        allows: says of a function's name whether it may be called.
    """

    def __init__(self, module: Any, allows: Any) -> None:
        self._module = module
        self._allows = allows

    def __getattr__(self, name: str) -> Any:
        if not self._allows(name):
            raise ForbiddenError(f"{name} may not be called here", "measurements leave the card as they find it")
        return getattr(self._module, name)


def pynvml() -> Any:
    """NVML's binding, for reading.

    Raises:
        ImportError: it is not installed.
    """
    return Guarded(importlib.import_module("pynvml"), nvml_allows)


def cuda() -> Any:
    """The CUDA driver's binding.

    Raises:
        UnavailableError: it is not installed.
    """
    return Guarded(_cuda(), cuda_allows)


def allocate_managed(size: int, free: int) -> Any:
    """Managed memory: the error and the pointer, as the binding says them.

    Args:
        size, free: bytes wanted, and free on the card.

    Raises:
        ForbiddenError: more than ``MANAGED_MIB``, or than is free.
    """
    if size > min(MANAGED_MIB * _MIB, free):
        raise ForbiddenError(
            f"{size // _MIB} MiB of managed memory may not be asked for",
            f"at most {MANAGED_MIB} MiB, and never more than is free",
        )
    driver = _cuda()
    return driver.cuMemAllocManaged(size, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL)


def nvml_allows(name: str) -> bool:
    """Whether a name of NVML's binding may be used: anything but functions, and functions that read."""
    return not name.startswith("nvml") or name.startswith(_NVML_READS)


def cuda_allows(name: str) -> bool:
    """Whether a name of CUDA's binding may be used."""
    return not name.startswith(_CUDA_NEVER)


def environment(inherited: Mapping[str, str], card: str, folder: Path) -> dict[str, str]:
    """What children of a measurement start with.

    Args:
        card: UUID of the one that they see.
        folder: private; no MPS listens in it.
    """
    kept = {name: value for name, value in inherited.items() if not name.startswith(_MPS)}
    return kept | {"CUDA_VISIBLE_DEVICES": card, "CUDA_MPS_PIPE_DIRECTORY": str(folder / "no-mps")}


def looked_up(name: str) -> dict[str, Any]:
    """Which of the driver's exported functions its own look-up gives for a name: ``own`` where it is none of them.

    Nothing of what is found is called. Source: CUDA driver API, cuGetProcAddress and its flags.
    """
    library = ctypes.CDLL("libcuda.so.1")
    exported: dict[int | None, str] = {}
    for suffix in ("", "_v2", "_v3", "_v4", "_ptsz", "_v2_ptsz"):
        if hasattr(library, name + suffix):
            exported.setdefault(ctypes.cast(getattr(library, name + suffix), ctypes.c_void_p).value, name + suffix)
    found: dict[str, Any] = {"exported": sorted(exported.values())}
    for version, flags in _LOOK_UPS:
        place, status = ctypes.c_void_p(), ctypes.c_int()
        arguments = (ctypes.byref(place), ctypes.c_int(version), ctypes.c_uint64(flags), ctypes.byref(status))
        error = library.cuGetProcAddress_v2(name.encode(), *arguments)
        told = exported.get(place.value, "own") if place.value else "none"
        found[f"{version}, flags {flags}"] = told if not error else f"error {error}"
    return found


def _cuda() -> Any:
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError:
        raise UnavailableError(
            "the Python package cuda-bindings is not installed", "pip install 'millpond[gpu]'"
        ) from None
