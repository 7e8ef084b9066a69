"""What a task's supervisor makes ready before its command starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millpond.node.task import task_start
from millpond.node.task.identity import Identity
from nested_folders import nested


def test_all_of_a_folder_becomes_the_users_however_deep_it_is_nested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = set[int]()
    monkeypatch.setattr(os, "chown", lambda path, *_ids, **_more: given.add(Path(path).stat().st_ino))
    depth = 1_200
    with nested(tmp_path / "top", depth) as top:
        (top / "second").hardlink_to(make(tmp_path / "of-another"))
        (top / "link").symlink_to(tmp_path / "of-another")
        task_start._give_to(Identity(1_234, 1_234, ()), str(top))
        assert top.stat().st_ino in given
    assert (tmp_path / "of-another").stat().st_ino not in given
    assert len(given) == depth + 3, "the folder, those below it, a file and the link itself"


def make(file: Path) -> Path:
    file.write_text("kept")
    return file
