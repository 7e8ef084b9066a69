"""NVIDIA's management library (NVML) by its Python binding, where every call may have no answer.

Virtual machines, containers, MIG instances, old drivers and old cards each leave out other calls; a driver without a
function answers as one that does not support it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from millpond.model.errors import UnavailableError

_CANNOT_TELL = (3, 4, 13)
"""``nvmlReturn_t`` of nvml.h: not supported, no permission, function not found."""

_MOST_INSTANCES = 8

Load = Callable[[], Any]
"""Gives the ``pynvml`` module; an ImportError means that it is not installed."""


def load_pynvml() -> Any:
    """The binding that is installed."""
    return importlib.import_module("pynvml")


class Nvml:
    """The library, brought up once for the process.

    Raises:
        UnavailableError: the binding is not installed, or there is no driver, or it does not answer.
    """

    def __init__(self, load: Load = load_pynvml) -> None:
        try:
            self.module = load()
        except ImportError as error:
            raise UnavailableError(
                "the Python package nvidia-ml-py is not installed", "pip install nvidia-ml-py"
            ) from error
        self.error: type[Exception] = self.module.NVMLError
        try:
            self.module.nvmlInit()
        except self.error as error:
            raise UnavailableError(f"no NVIDIA driver ({error})", "install the NVIDIA driver") from error

    def ask(self, function: str, *arguments: Any) -> Any:
        """What a function of the library says; None when it does not say."""
        call = getattr(self.module, function, None)
        if call is None:
            return None
        try:
            return call(*arguments)
        except self.error:
            return None

    def must(self, function: str, *arguments: Any) -> Any:
        """The same where silence and trouble differ: None when it is not known here.

        Raises:
            NVMLError: something is wrong with the device.
        """
        try:
            return getattr(self.module, function)(*arguments)
        except self.error as error:
            if getattr(error, "value", None) in _CANNOT_TELL:
                return None
            raise

    def constant(self, name: str, default: int) -> int:
        """A number of the library's header, also where the binding is too old to know it."""
        return int(getattr(self.module, name, default))


def identity(handle: Any) -> object:
    """What all handles of one device have in common: the binding makes a pointer of its own for each answer."""
    return bytes(handle) if hasattr(handle, "contents") else handle


def text(value: str | bytes | None) -> str:
    """A string of the library; older bindings give bytes."""
    if value is None:
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def instances_of(nvml: Nvml, card: Any) -> list[Any] | None:
    """Handles of the MIG instances of a card; None when it is not in MIG mode."""
    mode = nvml.ask("nvmlDeviceGetMigMode", card)
    if mode is None or not mode[0]:
        return None
    most = nvml.ask("nvmlDeviceGetMaxMigDeviceCount", card)
    slots = range(_MOST_INSTANCES if most is None else most)
    found = (nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", card, slot) for slot in slots)
    return [handle for handle in found if handle is not None]
