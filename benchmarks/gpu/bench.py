"""What a measurement works with: one idle card, children on it, a folder, and so many seconds."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from benchmarks.gpu import guard
from benchmarks.gpu.children import Child
from benchmarks.gpu.results import Journal, Place, Verdict
from millpond.model.errors import UnavailableError
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.node.devices.nvidia import NvidiaVendor
from millpond.node.devices.nvml.library import Nvml, text

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Measurement:
    """One question to a card.

    Attributes:
        seconds: what it takes, about; stretched and shrunk to the time that there is.
        measure: the figures, from a card.
        judge: whether the figures meet the pass line.
    """

    name: str
    question: str
    pass_line: str
    seconds: float
    measure: Callable[[Bench], dict[str, Any]]
    judge: Callable[[Mapping[str, Any]], Verdict]


@dataclass
class Bench:
    """The card, and everything that is started on it; it all ends with the block.

    Attributes:
        device: the card, as the node's own code finds it.
        seconds: how long the measurement may take, about.
        folder: for its files; gone afterwards.
        journal: for what it finds, part by part.
        host_mib: host memory that it may fill.
    """

    device: Device
    nvml: Nvml
    seconds: float
    folder: Path
    journal: Journal
    host_mib: int
    workload: str = "calls of the driver"
    ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *error: object) -> None:
        self.ends.close()

    @cached_property
    def env(self) -> dict[str, str]:
        """What children inherit."""
        return guard.environment(os.environ, self.device.uuid, self.folder)

    @cached_property
    def has_torch(self) -> bool:
        """Whether children can compute with PyTorch."""
        return importlib.util.find_spec("torch") is not None

    def child(
        self,
        env: Mapping[str, str] | None = None,
        *,
        torch: bool = False,
        started: bool = True,
        user: int | None = None,
    ) -> Child:
        """A program on the card, with its context made unless ``started`` is False.

        Args:
            env: beside what every child has.
            torch: one that uses PyTorch.
            user: whom it runs as, where that is another.
        """
        child = self.ends.enter_context(Child({**self.env, **(env or {})}, torch=torch, user=user))
        if started:
            workload = child.ask("start")["workload"]
            self.workload = workload if torch else self.workload
        return child

    def worker(self, env: Mapping[str, str] | None = None) -> Child:
        """A program on the card that computes as users' programs do, where that is possible."""
        return self.child(env, torch=self.has_torch)

    def children(self, envs: Sequence[Mapping[str, str]], *, torch: bool = False) -> list[Child]:
        """Several, which begin at the same time."""
        begun = [self.child(env, torch=torch, started=False) for env in envs]
        for child in begun:
            child.send("start")
        for child in begun:
            workload = child.answer()["workload"]
            self.workload = workload if torch else self.workload
        return begun

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """What is started within ends with this block already."""
        outer, self.ends = self.ends, contextlib.ExitStack()
        try:
            with self.ends:
                yield
        finally:
            self.ends = outer

    @cached_property
    def handle(self) -> Any:
        """Of the card, for NVML."""
        return self.nvml.must("nvmlDeviceGetHandleByUUID", self.device.uuid)

    def used_mib(self) -> int:
        """Memory used on the card, by everybody."""
        return int(self.nvml.module.nvmlDeviceGetMemoryInfo(self.handle).used) // _MIB

    def free_mib(self) -> int:
        """Memory left on the card."""
        return int(self.nvml.module.nvmlDeviceGetMemoryInfo(self.handle).free) // _MIB

    def bytes_of(self, pid: int) -> int | None:
        """Memory of one process; 0 when it has none, None when the driver does not tell."""
        running = self.nvml.ask("nvmlDeviceGetComputeRunningProcesses", self.handle)
        if running is None or any(process.usedGpuMemory is None for process in running):
            return None
        return sum(int(process.usedGpuMemory) for process in running if process.pid == pid)

    def mib_of(self, pid: int) -> int | None:
        """The same in MiB."""
        used = self.bytes_of(pid)
        return None if used is None else used // _MIB

    def place(self) -> Place:
        """Where all this is."""
        ask = self.nvml.ask
        version = ask("nvmlSystemGetCudaDriverVersion_v2") or 0
        return Place(
            card=text(ask("nvmlDeviceGetName", self.handle)),
            memory_mib=self.device.memory_mib,
            driver=text(ask("nvmlSystemGetDriverVersion")),
            cuda=f"{version // 1000}.{version % 1000 // 10}" if version else "",
            bindings=_version("cuda-bindings"),
            workload=self.workload,
            kernel=platform.release(),
            cpus=os.cpu_count() or 0,
            host_memory_mib=psutil.virtual_memory().total // _MIB,
        )


def find_card(wait_s: float = 0.0) -> tuple[Device, Nvml]:
    """A card on which nobody computes, and the library that tells of it; of those that we are to see, if that is said.

    Args:
        wait_s: how long somebody who computes there may take to leave.

    Raises:
        UnavailableError: there is none; the cause says why.
    """
    nvml, vendor, until = Nvml(guard.pynvml), NvidiaVendor(guard.pynvml), time.monotonic() + wait_s
    while True:
        found = [device for device in vendor.discover() if _is_ours(device)]
        for device in found:
            if device.health is DeviceHealth.OK and not device.parent:
                return device, nvml
        if not found or time.monotonic() >= until:
            break
        time.sleep(0.2)
    if not found:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        here = "is here" if visible is None else f"is here that CUDA_VISIBLE_DEVICES ({visible!r}) lets be seen"
        raise UnavailableError(f"no NVIDIA card {here}", "run this on a machine that has one")
    why = "; ".join(device.health_detail for device in found if device.health_detail) or "all are divided (MIG)"
    raise UnavailableError(f"no card of this machine can be measured ({why})", "measure when one is idle")


def _is_ours(device: Device) -> bool:
    """Whether ``CUDA_VISIBLE_DEVICES`` lets us have it: by UUID, by its beginning, or by number; unset: all."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in (visible or "").split(",") if name.strip()]
    return visible is None or any(
        int(name) == device.index if name.isdecimal() else device.uuid.startswith(name) for name in names
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
