"""The commands of the guides run as they stand and print what the pages say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from console_walk import walk
from real_pond import PATIENCE_S, REPOSITORY, Pond

pytestmark = pytest.mark.long


def test_the_commands_about_files_work_as_printed(running: Pond, tmp_path: Path) -> None:
    assert walk((REPOSITORY / "docs/files.md").read_text(), running, tmp_path) > 10


def test_the_commands_about_jobs_after_jobs_work_as_printed(running: Pond, tmp_path: Path) -> None:
    assert walk((REPOSITORY / "docs/command-line.md").read_text(), running, tmp_path) > 5


def test_the_commands_about_arrays_and_sweeps_work_as_printed(running: Pond, tmp_path: Path) -> None:
    assert walk((REPOSITORY / "docs/arrays.md").read_text(), running, tmp_path) > 10


def test_the_commands_of_the_first_day_work_as_printed(running: Pond, tmp_path: Path) -> None:
    assert walk((REPOSITORY / "docs/operating.md").read_text(), running, tmp_path) == 5


def test_the_commands_about_parts_of_cards_work_as_printed(running: Pond, tmp_path: Path) -> None:
    assert walk((REPOSITORY / "docs/sharing.md").read_text(), running, tmp_path) > 4


def test_the_programs_about_functions_print_what_the_page_says(running: Pond, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/functions.md").read_text()
    programs = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(programs) == page.count("```python")
    for number, (program, printed) in enumerate(programs):
        file = tmp_path / f"program{number}.py"
        file.write_text(program)
        done = subprocess.run(
            [sys.executable, file], env=running.env, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert (done.stdout, done.stderr) == (printed, "")
