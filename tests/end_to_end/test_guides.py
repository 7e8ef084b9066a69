"""The commands of the guides run as they stand and print what the pages say."""

from __future__ import annotations

from pathlib import Path

from console_walk import walk
from real_pond import REPOSITORY, Pond


def test_the_commands_about_files_work_as_printed(running: Pond, tmp_path: Path) -> None:
    assert walk((REPOSITORY / "docs/files.md").read_text(), running, tmp_path) > 10
