"""Folders as tasks leave them: nested beyond all bounds, shut, full of links, changed while they are looked through."""

from __future__ import annotations

import errno
import os
import resource
import stat
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.node.host.folder_trees import entries_below, remove_tree
from millpond.node.task.layout import open_regular
from nested_folders import nested

DEEP = 1_200
"""Beyond what Python recurses."""
BEYOND_PATHS = 2_500
"""With names of one letter, beyond what a path may be long."""

NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=2)
TREES = st.recursive(
    st.sampled_from(["file", "link"]), lambda inner: st.dictionaries(NAMES, inner, max_size=4), max_leaves=20
)


def make(place: Path, tree: object, outside: Path) -> dict[str, str]:
    """A tree as described; what lies in it, by path."""
    if tree == "file":
        place.write_text("x")
        return {str(place): "file"}
    if tree == "link":
        place.symlink_to(outside)
        return {str(place): "link"}
    assert isinstance(tree, dict)
    place.mkdir()
    found = {str(place): "folder"}
    for name, inner in tree.items():
        found |= make(place / name, inner, outside)
    return found


def kind_of(status: os.stat_result) -> str:
    return {stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFDIR: "folder"}[stat.S_IFMT(status.st_mode)]


@given(tree=st.dictionaries(NAMES, TREES, max_size=4))
def test_all_that_lies_in_a_tree_is_found_and_removed_and_no_link_is_followed(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, object]
) -> None:
    base = tmp_path_factory.mktemp("tree")
    outside, top = base / "outside", base / "top"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    made = make(top, tree, outside)
    del made[str(top)]
    assert {f"{top}/{entry.path}": kind_of(entry.status) for entry in entries_below(top)} == made
    remove_tree(top)
    assert not top.exists()
    assert (outside / "kept").read_text() == "kept"


@pytest.mark.parametrize("depth", [DEEP, BEYOND_PATHS])
def test_no_depth_is_too_deep_to_be_measured_and_removed(tmp_path: Path, depth: int) -> None:
    with nested(tmp_path / "top", depth) as top:
        found = list(entries_below(top))
        assert sum(stat.S_ISREG(entry.status.st_mode) for entry in found) == 1
        assert len(found) == depth + 1
        assert (found[-1].path is None) == (depth == BEYOND_PATHS)
        remove_tree(top)
        assert not top.exists()


def test_folders_that_cannot_be_looked_into_are_named(tmp_path: Path) -> None:
    (tmp_path / "top/gone").mkdir(parents=True)
    refused = list[tuple[str, int | None]]()
    entries = entries_below(tmp_path / "top", lambda path, error: refused.append((path, error.errno)))
    assert next(entries).path == "gone"
    (tmp_path / "top/gone").rmdir()
    assert not list(entries)
    assert not list(entries_below(tmp_path / "other", lambda path, error: refused.append((path, error.errno))))
    assert refused == [("gone", errno.ENOENT), ("", errno.ENOENT)]


def test_rights_that_were_taken_away_keep_nothing_from_being_removed(tmp_path: Path) -> None:
    with nested(tmp_path / "top", 3) as top:
        for folder in (top / "d/d", top / "d", top):
            folder.chmod(0)
        remove_tree(top)
        assert not top.exists()


def test_where_there_is_no_folder_there_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("absent", "file", "link"):
        assert list(entries_below(tmp_path / name)) == []
        with pytest.raises(OSError, match=name):
            remove_tree(tmp_path / name)


def test_a_folder_that_is_moved_away_meanwhile_does_not_lead_out_of_the_tree(tmp_path: Path) -> None:
    top, elsewhere = tmp_path / "top", tmp_path / "elsewhere"
    (top / "a").mkdir(parents=True)
    (top / "a" / "in").write_text("x")
    (top / "a" / "then").mkdir()
    (elsewhere / "secret").mkdir(parents=True)
    found = []
    for entry in entries_below(top):
        found.append(entry.path)
        if (entry.path or "").startswith("a/") and (top / "a").exists():
            (top / "a").rename(elsewhere / "a")
    assert not [path for path in found if "secret" in (path or "")]


def test_a_file_far_down_is_opened_with_few_descriptors(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with nested(tmp_path / "top", DEEP) as top:
        resource.setrlimit(resource.RLIMIT_NOFILE, (sum(1 for _ in Path("/proc/self/fd").iterdir()) + 64, hard))
        try:
            file = open_regular(top, "d/" * DEEP + "f")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert file is not None
        file.close()
