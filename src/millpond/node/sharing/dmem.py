"""Slices whose memory the kernel holds, by the task's control group (``backend.SliceEnforcer``).

The kernel knows no shares of a card's time: where nothing else holds a slice, tasks take turns as the driver likes.
Where something else does, this bounds the memory too, in all programs of the task, with whatever they were started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from millpond.model.errors import UnavailableError
from millpond.model.sharing import SliceHold
from millpond.node.sharing.backend import EnforcementRequest, SliceEnforcer, TaskEnv
from millpond.node.task.records import TaskId


class DmemEnforcer(SliceEnforcer):
    """All slices of cards whose memory the kernel counts.

    Args:
        regions: the kernel's names for the memory of cards, by their UUIDs.
        trouble: why it bounds none here; empty when it does.
    """

    kind = SliceHold.DMEM

    def __init__(self, regions: Mapping[str, str], trouble: str = "") -> None:
        self._regions = regions
        self._trouble = trouble or ("" if regions else "the kernel counts the memory of no card (dmem)")

    def why_not(self) -> str:
        """See ``SliceEnforcer``."""
        return self._trouble

    def prepare(self, request: EnforcementRequest) -> TaskEnv:
        """See ``SliceEnforcer``."""
        [grant, *others] = request.grants
        if others:
            raise UnavailableError("the kernel bounds a slice of one card, not of several (dmem)")
        if grant.device not in self._regions:
            raise UnavailableError(f"the kernel does not count the memory of device {grant.device} (dmem)")
        if request.contained:
            raise UnavailableError("a container's group is its runtime's, which knows no bound on device memory (dmem)")
        if not grant.memory_mib:
            raise UnavailableError("the slice has no amount of memory that the kernel could bound (dmem)")
        return TaskEnv(self.kind, device_memory_mib={self._regions[grant.device]: grant.memory_mib})

    def adopt(self, task: TaskId, folder: Path, devices: Sequence[str]) -> bool:
        """See ``SliceEnforcer``. The groups of a task outlive the agent."""
        return True

    def move(self, task: TaskId, devices: Sequence[str]) -> None:
        """See ``SliceEnforcer``. The group of a task that runs is its supervisor's."""
        raise UnavailableError(
            "the bound on its device memory is that of the card it started on (dmem)", "end it and start it anew"
        )

    def release(self, task: TaskId) -> None:
        """See ``SliceEnforcer``. Its supervisor removes its groups."""
        return
