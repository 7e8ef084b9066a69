"""Control groups for tasks: where they can be made, and what is written into them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millpond.node.host import cgroups, controllers, procfs
from millpond.node.host.cgroups import ControlGroup
from millpond.node.host.controllers import SERVER_GROUP, TASKS_UNIT, Amounts, Controllers, GroupMode, find_controllers
from millpond.node.host.device_memory import regions
from millpond.node.task.forkserver_client import ForkserverClient
from millpond.node.task.limits import Limiter


@pytest.fixture
def membership(tmp_path: Path) -> Path:
    path = tmp_path / "membership"
    path.write_text("3:memory:/srv\n2:cpu,cpuacct:/\n1:name=systemd:/x\n0::/unit\n")
    return path


def folders_of(tmp_path: Path, *names: str) -> Path:
    mount = tmp_path / "cgroup"
    for name in names:
        (mount / name).mkdir(parents=True)
    return mount


def test_a_group_that_was_not_handed_over_is_left_alone(tmp_path: Path, membership: Path) -> None:
    mount = folders_of(tmp_path, "memory/srv", "cpu")
    assert find_controllers(GroupMode.AUTO, mount, membership)[0] is None
    found, trouble = find_controllers(GroupMode.ALWAYS, mount, membership)
    assert found == Controllers({"memory": (1, mount / "memory/srv"), "cpu": (1, mount / "cpu")})
    assert trouble == ""
    assert find_controllers(GroupMode.OFF, mount, membership) == (None, "switched off")


def test_a_group_that_systemd_handed_over_is_used(tmp_path: Path, membership: Path) -> None:
    mount = folders_of(tmp_path, "unit")
    (mount / "unit" / "cgroup.controllers").write_text("cpu io memory pids\n")
    try:
        os.setxattr(mount / "unit", "user.delegate", b"1")
    except OSError:
        pytest.skip("no extended attributes on this file system")
    found, _ = find_controllers(GroupMode.AUTO, mount, membership)
    assert found is not None
    assert found.folders == dict.fromkeys(("memory", "cpu", "pids"), (2, mount / "unit"))


def test_a_server_that_lives_in_a_leaf_of_its_group_makes_groups_beside_it(tmp_path: Path) -> None:
    mount = folders_of(tmp_path, "unit/server")
    for folder in ("unit", "unit/server"):
        (mount / folder / "cgroup.controllers").write_text("memory\n")
    membership = tmp_path / "membership"
    membership.write_text("0::/unit/server\n")
    found, _ = find_controllers(GroupMode.ALWAYS, mount, membership)
    assert found == Controllers({"memory": (2, mount / "unit")})


def test_where_a_unit_for_tasks_is_up_beside_the_server_its_group_is_divided_whoever_is_in_it(tmp_path: Path) -> None:
    mount = folders_of(tmp_path, "slice/server-7.service", f"slice/{TASKS_UNIT}")
    for folder in (mount / "slice").iterdir():
        (folder / "cgroup.controllers").write_text("memory pids\n")
        (folder / "cgroup.type").write_text("domain\n")
        (folder / "cgroup.procs").write_text("1\n")
    (mount / "slice" / TASKS_UNIT / "memory.max").write_text("4096\n")
    membership = tmp_path / "membership"
    membership.write_text("0::/slice/server-7.service\n")
    found, _ = find_controllers(GroupMode.AUTO, mount, membership)
    assert found == Controllers(dict.fromkeys(("memory", "pids"), (2, mount / "slice" / TASKS_UNIT)))
    assert controllers.memory_limit_bytes(mount, membership) == 4096


def test_a_group_shared_with_other_programs_is_left_alone(tmp_path: Path) -> None:
    mount = folders_of(tmp_path, "session")
    (mount / "session" / "cgroup.controllers").write_text("memory\n")
    (mount / "session" / "cgroup.type").write_text("domain\n")
    (mount / "session" / "cgroup.procs").write_text(f"1\n{os.getpid()}\n")
    membership = tmp_path / "membership"
    membership.write_text("0::/session\n")
    found, trouble = find_controllers(GroupMode.ALWAYS, mount, membership)
    assert found is None
    assert "shares its control group" in trouble


def test_opening_a_group_moves_the_server_down_and_lets_the_controllers_in(tmp_path: Path) -> None:
    mount = folders_of(tmp_path, "unit/server")
    unit = mount / "unit"
    for name, text in (("cgroup.type", "domain"), ("cgroup.procs", "71\n"), ("cgroup.subtree_control", "")):
        (unit / name).write_text(text)
    (unit / "server" / "cgroup.procs").write_text("")
    controllers.open_for_groups(Controllers({"memory": (2, unit), "cpu": (2, unit)}))
    assert (unit / "server" / "cgroup.procs").read_text() == "71"
    assert (unit / "cgroup.subtree_control").read_text() == "+memory +cpu"


def test_supervisors_live_where_their_server_does_not_find_them_left_over(tmp_path: Path) -> None:
    leaf = Controllers({"memory": (2, tmp_path)}).leaf
    assert leaf == tmp_path / SERVER_GROUP
    leaf.mkdir()
    (leaf / "cgroup.procs").touch()
    forkserver = ForkserverClient(leaf)
    born = int((leaf / "cgroup.procs").read_text())
    assert born in procfs.descendants(os.getpid())
    forkserver.close()
    assert Controllers({"memory": (1, tmp_path)}).leaf is None


def test_what_a_task_asked_for_is_written_as_each_version_wants_it(tmp_path: Path) -> None:
    amounts = Amounts(1_500, 512, 100, cpu_is_bound=True)
    one = Controllers({"memory": (1, tmp_path / "m"), "cpu": (1, tmp_path / "c"), "pids": (1, tmp_path / "p")})
    assert [group.settings for group in one.groups("t", amounts)] == [
        {"memory.limit_in_bytes": str(512 * 2**20)},
        {"cpu.shares": "1536", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"},
        {"pids.max": "100"},
    ]
    two = Controllers(dict.fromkeys(("memory", "cpu", "pids"), (2, tmp_path)))
    (group,) = two.groups("t", amounts)
    settings = {
        "memory.max": str(512 * 2**20),
        "cpu.weight": "150",
        "cpu.max": "150000 100000",
        "pids.max": "100",
    }
    assert group == ControlGroup(str(tmp_path / "t"), settings, "memory.events")


def test_device_memory_is_bounded_by_the_kernels_name_for_it(tmp_path: Path) -> None:
    amounts = Amounts(1_000, 0, device_memory_mib={"drm/0000:03:00.0/vram0": 4096})
    (group,) = Controllers(dict.fromkeys(("cpu", "dmem"), (2, tmp_path))).groups("t", amounts)
    assert group.settings["dmem.max"] == f"drm/0000:03:00.0/vram0 {4096 * 2**20}"


def test_the_kernel_names_memory_by_the_bus_whatever_driver_counts_it(tmp_path: Path) -> None:
    lines = (
        "drm/0000:03:00.0/vram0 8514437120",
        "drm/0000:03:00.0/stolen 67108864",
        "drm/0000:C3:00.0/vram 1000",
        "nvidia/00000001:4D:00.0/vidmem 2000",
    )
    assert regions(tmp_path) == {}
    (tmp_path / "dmem.capacity").write_text("\n".join(lines) + "\n")
    assert regions(tmp_path) == {
        "0000:03:00.0": "drm/0000:03:00.0/vram0",
        "0000:c3:00.0": "drm/0000:C3:00.0/vram",
        "0001:4d:00.0": "nvidia/00000001:4D:00.0/vidmem",
    }


def test_who_may_use_idle_cpus_has_a_weight_alone_and_who_named_no_memory_no_bound(tmp_path: Path) -> None:
    (group,) = Controllers({"memory": (2, tmp_path), "cpu": (2, tmp_path)}).groups("t", Amounts(0, 0))
    assert group.settings == {"cpu.weight": "1"}


def test_a_group_that_cannot_be_made_is_the_machines_fault_and_not_the_commands(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="its control group cannot be made") as caught:
        cgroups.make([ControlGroup(str(tmp_path / "gone" / "t"))])
    assert not isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize(("controllers", "pinned"), [(("memory", "pids"), True), (("memory", "cpu", "pids"), False)])
def test_a_task_is_pinned_to_its_cpus_where_its_group_has_no_say_about_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, controllers: tuple[str, ...], pinned: bool
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    limiter = Limiter(Controllers(dict.fromkeys(controllers, (2, tmp_path))), pins=True)
    limits = limiter.limits("t", Amounts(2_000, 512), said_memory=True, pinned=[(0,)])
    assert limits.process.cpus == ((1, 2) if pinned else ())
    assert limits.process.groups
