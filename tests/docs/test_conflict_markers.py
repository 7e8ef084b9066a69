"""No file of the repository holds what git writes where a merge was left unresolved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import ROOT

MARKER = re.compile(rb"^(?:<{7}|>{7}|\|{7})(?: .*)?$", re.MULTILINE)
NOT_WRITTEN_BY_HAND = ("build", "dist", "__pycache__")


def files(folder: Path) -> Iterator[Path]:
    """Every file below a folder, without hidden folders and what programs make. git may be absent: it is not asked."""
    for path in folder.iterdir():
        if path.is_symlink() or path.name in NOT_WRITTEN_BY_HAND:
            continue
        if path.is_file():
            yield path
        elif path.is_dir() and not path.name.startswith("."):
            yield from files(path)


def test_no_file_holds_the_markers_of_a_merge_conflict():
    found = {
        str(path.relative_to(ROOT)): markers for path in files(ROOT) if (markers := MARKER.findall(path.read_bytes()))
    }

    assert found == {}


@pytest.mark.parametrize("line", ["<<<<<<< HEAD", ">>>>>>> 1a2b3c4 (Title)", "||||||| base", "<<<<<<<"])
def test_each_kind_of_marker_is_recognised(line):
    assert MARKER.search(f"before\n{line}\nafter\n".encode())
