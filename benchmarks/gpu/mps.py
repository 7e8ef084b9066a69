"""Clients of NVIDIA's multi-process service, as the node's own code starts them, in directories of the measurement."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.gpu.bench import Bench
from millpond.model.decisions import Grant
from millpond.model.errors import UnavailableError
from millpond.node.sharing.backend import EnforcementRequest
from millpond.node.sharing.mps import MpsEnforcer
from millpond.node.task.records import TaskId

BELOW_NORMAL = {"CUDA_MPS_CLIENT_PRIORITY": "1"}

_WHOLE_MILLI = 1000


@dataclass(slots=True)
class Pack:
    """Clients that share the card under one daemon, which is there while there are any."""

    bench: Bench
    hold: MpsEnforcer
    numbers: Iterator[int] = field(default_factory=itertools.count)
    tasks: list[TaskId] = field(default_factory=list)

    def client(self, limit_milli: int = _WHOLE_MILLI, memory_mib: int = 0) -> dict[str, str]:
        """What one more is started with.

        Args:
            memory_mib: its part of the memory; 0 for all.

        Raises:
            UnavailableError: the daemon does not come up.
        """
        device = self.bench.device
        part = Grant(device.uuid, limit_milli, limit_milli, memory_mib or device.memory_mib)
        task = TaskId("measurement", 1, next(self.numbers))
        found = self.hold.prepare(EnforcementRequest(task, self.bench.folder / f"client-{task.task}", [part]))
        self.tasks.append(task)
        return dict(found.env)


@contextlib.contextmanager
def pack(bench: Bench) -> Iterator[Pack]:
    """A pack; its clients have to end before the block does.

    Raises:
        UnavailableError: the service is not installed.
    """
    hold = MpsEnforcer(bench.folder)
    if reason := hold.why_not():
        raise UnavailableError(reason)
    opened = Pack(bench, hold)
    try:
        yield opened
    finally:
        for task in opened.tasks:
            hold.release(task)
