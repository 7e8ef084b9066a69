"""This machine as nodes of the pool."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace

from millpond.model.hardware.devices import SWAP_SHARE
from millpond.node.devices.discovery import FoundVendors
from millpond.node.devices.nvidia import NvidiaVendor
from millpond.node.host import controllers
from millpond.node.host.machine import describe_machine


def no_driver() -> SimpleNamespace:
    def fail() -> None:
        raise OSError("no library")

    return SimpleNamespace(nvmlInit=fail, NVMLError=OSError)


def test_a_machine_without_gpus_is_one_node_with_its_cores_and_memory_and_says_why() -> None:
    machine = describe_machine(found=FoundVendors((NvidiaVendor(no_driver),), {}))
    (node,) = machine.nodes
    assert node.name == socket.gethostname()
    assert node.cpu_milli == 1000 * len(os.sched_getaffinity(0))
    assert 0 < node.memory_mib <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    assert node.devices == ()
    assert machine.notes == ("no GPUs: no NVIDIA driver (no library)",)


def test_fake_gpus_stand_in_for_the_machine() -> None:
    machine = describe_machine("4x8:V100-32GB")
    assert [node.name for node in machine.nodes] == ["fake-1", "fake-2", "fake-3", "fake-4"]
    assert {device.cap_range_w for node in machine.nodes for device in node.devices} == {(150.0, 300.0)}
    assert machine.notes == ("32 fake GPUs on 4 fake nodes",)


def test_pretended_nodes_set_a_part_of_their_memory_aside_for_swapped_work_unless_told_otherwise() -> None:
    (node,) = describe_machine("8:V100-32GB").nodes
    assert node.swap_mib == node.memory_mib // SWAP_SHARE
    assert describe_machine("8:V100-32GB", swap_mib=7).nodes[0].swap_mib == 7
    assert describe_machine(found=FoundVendors((), {}), swap_mib=7).nodes[0].swap_mib == 0  # nothing here can swap


def test_a_task_without_devices_sees_none() -> None:
    assert describe_machine("8:V100-32GB").environment(()) == {"CUDA_VISIBLE_DEVICES": ""}


def test_the_memory_limit_of_a_container_is_read_in_both_versions(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("0::/box\n")
    group = tmp_path / "box"
    group.mkdir()
    (group / "memory.max").write_text("max\n")
    assert controllers.memory_limit_bytes(tmp_path, membership) is None
    (group / "memory.max").write_text("1073741824\n")
    assert controllers.memory_limit_bytes(tmp_path, membership) == 2**30

    membership.write_text("4:memory:/elsewhere\n")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("2147483648\n")
    assert controllers.memory_limit_bytes(tmp_path, membership) == 2**31


def test_kills_for_want_of_memory_are_counted_by_our_group_or_else_by_the_machine(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("0::/\n")
    assert controllers.kill_counter(tmp_path, membership) == Path("/proc/vmstat")
    (tmp_path / "memory.events").write_text("oom 0\noom_kill 0\n")
    assert controllers.kill_counter(tmp_path, membership) == tmp_path / "memory.events"
