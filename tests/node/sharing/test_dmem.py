"""Slices whose memory the kernel bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.model.decisions import Grant
from millpond.model.errors import UnavailableError
from millpond.model.sharing import SliceHold
from millpond.node.sharing.backend import EnforcementRequest
from millpond.node.sharing.dmem import DmemEnforcer
from millpond.node.task.records import TaskId

TASK = TaskId("job", 1, 0)
REGION = "drm/0000:03:00.0/vram0"
HOLD = DmemEnforcer({"GPU-1": REGION})


def request(device: str = "GPU-1", mib: int = 4096, contained: bool = False) -> EnforcementRequest:
    return EnforcementRequest(TASK, Path("/none"), [Grant(device, 250, 1000, mib)], contained=contained)


def test_a_slice_is_bounded_under_the_kernels_name() -> None:
    env = HOLD.prepare(request())
    assert (env.hold, env.device_memory_mib) == (SliceHold.DMEM, {REGION: 4096})
    assert HOLD.adopt(TASK, Path("/none"), ["GPU-1"])


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (request("GPU-2"), "does not count the memory of device GPU-2"),
        (request(contained=True), "a container's group is its runtime's"),
        (request(mib=0), "no amount of memory"),
    ],
)
def test_what_the_kernel_cannot_bound_is_refused_with_the_reason(asked: EnforcementRequest, why: str) -> None:
    with pytest.raises(UnavailableError, match=why):
        HOLD.prepare(asked)


def test_why_nothing_is_bounded_is_said() -> None:
    assert not HOLD.why_not()
    assert DmemEnforcer({}).why_not() == "the kernel counts the memory of no card (dmem)"
    assert DmemEnforcer({"GPU-1": REGION}, "tasks have no groups").why_not() == "tasks have no groups"
