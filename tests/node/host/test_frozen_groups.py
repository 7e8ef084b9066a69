"""Control groups are halted by the files that the kernel gives them; here the files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

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
        cgroups.bound([str(folder)], 3 * 2**20)
        assert (folder / name).read_text() == str(3 * 2**20)
        assert cgroups.memory_limit(str(folder)) == 3 * 2**20


def test_a_bound_on_memory_with_swap_space_goes_along_and_none_is_made(tmp_path: Path) -> None:
    for before, after in (("1", str(3 * 2**20)), ("9223372036854771712", "9223372036854771712")):
        (tmp_path / "memory.limit_in_bytes").write_text("1")
        (tmp_path / "memory.memsw.limit_in_bytes").write_text(before)
        cgroups.bound([str(tmp_path)], 3 * 2**20)
        assert (tmp_path / "memory.memsw.limit_in_bytes").read_text() == after


@pytest.mark.parametrize("said", ["max", "9223372036854771712", ""])
def test_a_group_may_have_no_bound_on_memory(tmp_path: Path, said: str) -> None:
    (tmp_path / "memory.limit_in_bytes").write_text(said)
    assert cgroups.memory_limit(str(tmp_path)) is None
