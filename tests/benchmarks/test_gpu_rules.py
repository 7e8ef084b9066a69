"""What measurements may not do to a card cannot be done by them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.gpu import guard

ROOM = Path(guard.__file__).parent
MIB = 1024 * 1024


@pytest.mark.parametrize(
    "name",
    [
        "nvmlDeviceSetPowerManagementLimit",
        "nvmlDeviceSetGpuLockedClocks",
        "nvmlDeviceResetGpuLockedClocks",
        "nvmlDeviceSetComputeMode",
        "nvmlDeviceSetMigMode",
        "nvmlDeviceSetPersistenceMode",
        "nvmlDeviceCreateGpuInstance",
        "nvmlGpuInstanceDestroy",
        "nvmlDeviceClearEccErrorCounts",
        "nvmlDeviceModifyDrainState",
    ],
)
def test_nothing_of_nvml_that_changes_a_card_is_within_reach(name: str) -> None:
    with pytest.raises(guard.ForbiddenError, match="may not be called"):
        getattr(guard.pynvml(), name)


def test_what_reads_is_within_reach() -> None:
    nvml = guard.pynvml()
    assert callable(nvml.nvmlDeviceGetMemoryInfo)
    assert callable(nvml.nvmlEventSetCreate)
    assert nvml.NVML_ERROR_TIMEOUT == 10


@pytest.mark.parametrize("name", ["cuMemAllocManaged", "cuDevicePrimaryCtxReset", "cuMemPrefetchAsync", "cuMemAdvise"])
def test_calls_of_cuda_that_touch_the_card_as_a_whole_are_out_of_reach(name: str) -> None:
    with pytest.raises(guard.ForbiddenError):
        getattr(guard.cuda(), name)


@pytest.mark.parametrize(("wanted", "free"), [(65 * MIB, 1024 * MIB), (64 * MIB, 63 * MIB), (2048 * MIB, 0)])
def test_managed_memory_is_little_and_never_more_than_is_free(wanted: int, free: int) -> None:
    with pytest.raises(guard.ForbiddenError, match="managed memory"):
        guard.allocate_managed(wanted, free)


def test_children_meet_nobody_elses_mps_and_one_card_alone(tmp_path: Path) -> None:
    inherited = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps", "CUDA_MPS_LOG_DIRECTORY": "/var", "HOME": "/root"}
    env = guard.environment(inherited, "GPU-1", tmp_path)
    assert env["CUDA_MPS_PIPE_DIRECTORY"].startswith(str(tmp_path))
    assert "CUDA_MPS_LOG_DIRECTORY" not in env
    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert env["HOME"] == "/root"


def test_nobody_goes_around_the_guard() -> None:
    """Only it opens the bindings; programs are started and ended where the rules of that are kept."""
    only = {
        r"import_module|import cuda|import pynvml|from cuda": {"guard.py"},
        r"nvidia-smi|killall|pkill|killpg": set(),
        r"subprocess": {"children.py", "run.py"},
        r"os\.kill": {"working.py", "orphans.py"},
    }
    for pattern, allowed in only.items():
        found = {path.name for path in ROOM.glob("*.py") if re.search(pattern, path.read_text())}
        assert found <= allowed, pattern
