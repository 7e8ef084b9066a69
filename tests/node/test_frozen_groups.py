"""Control groups are halted by the files that the kernel gives them; here the files alone."""

from __future__ import annotations

from pathlib import Path

from millpond.node.host import cgroups


def group(folder: Path, **files: str) -> list[str]:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return [str(folder)]


def test_a_group_is_halted_and_thawed_as_a_whole(tmp_path: Path) -> None:
    groups = group(tmp_path, cgroup_freeze="0", cgroup_events="populated 1\nfrozen 0\n")
    assert cgroups.freeze(groups)
    assert (tmp_path / "cgroup.freeze").read_text() == "1"
    assert not cgroups.is_frozen(groups)  # the kernel has not said so yet
    (tmp_path / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    assert cgroups.is_frozen(groups)
    cgroups.thaw(groups)
    assert (tmp_path / "cgroup.freeze").read_text() == "0"


def test_groups_without_the_switch_cannot_be_halted(tmp_path: Path) -> None:
    groups = group(tmp_path, memory_limit_in_bytes="1")
    assert not cgroups.freeze(groups)
    assert not cgroups.is_frozen(groups)


def test_a_bound_on_memory_is_moved_in_either_hierarchy(tmp_path: Path) -> None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("1")
        cgroups.bound([str(folder)], 3)
        assert (folder / name).read_text() == str(3 * 2**20)
