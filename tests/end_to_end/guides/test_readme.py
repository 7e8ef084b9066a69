"""The commands of the README run as they stand and print what the README says."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from console_walk import walk
from real_pond import PATIENCE_S, REPOSITORY

pytestmark = pytest.mark.long

README = (REPOSITORY / "README.md").read_text()


def test_the_walk_of_the_readme_works_as_printed(pond):
    assert walk(README, pond, REPOSITORY) >= 8


def test_the_python_example_of_the_readme_works_as_it_stands(running):
    (program,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program], env=running.env, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.stdout, done.stderr) == ("trained\nsucceeded\n", "")
