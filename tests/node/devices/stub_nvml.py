"""A stand-in for pynvml that answers what a test wrote down, and NOT_SUPPORTED to everything else."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

NOT_SUPPORTED, TIMEOUT, UNKNOWN = 3, 10, 999

MIB = 1024 * 1024


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


def plain(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(**values)


class StubNvml:
    """Handles are the UUIDs themselves. An answer is a value, an error, or a function of the call's arguments."""

    NVMLError = NVMLError

    def __init__(self, uuids: list[str], **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlDeviceGetCount": len(uuids),
            "nvmlDeviceGetHandleByIndex": lambda index: uuids[index],
            "nvmlDeviceGetIndex": uuids.index,
            "nvmlDeviceGetUUID": lambda handle: handle,
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetMemoryInfo": plain(total=143_771 * MIB, used=1_024 * MIB),
            "nvmlDeviceGetComputeRunningProcesses": [],
            **answers,
        }

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            answer = self.answers.get(name, NVMLError(NOT_SUPPORTED))
            if callable(answer):
                answer = answer(*arguments)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call
