"""The commands of the README run as they stand and print what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from real_pond import REPOSITORY

README = (REPOSITORY / "README.md").read_text()


def console_steps(text: str) -> list[tuple[str, list[str]]]:
    """Every command of the console blocks with the lines that should follow it."""
    steps: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], []))
            else:
                steps[-1][1].append(line)
    return steps


def pattern(line: str) -> str:
    """A line of the README as a pattern: ids, ports and run-together blanks vary, and … stands for anything."""
    parts = re.split(r"(…|-[a-z2-7]{5}\b|:\d{4}\b|\s+)", line)
    kinds = {"…": ".*"}
    made = []
    for part in parts:
        if part in kinds:
            made.append(kinds[part])
        elif re.fullmatch(r"-[a-z2-7]{5}", part):
            made.append(r"-[a-z0-9]+")
        elif re.fullmatch(r":\d{4}", part):
            made.append(r":\d+")
        elif part.isspace():
            made.append(r"\s*" if part != " " else r"\s+")
        else:
            made.append(re.escape(part))
    return "".join(made)


def shown(expected: list[str], printed: list[str]) -> bool:
    """Whether the expected lines occur among the printed ones in this order."""
    rest = iter(printed)
    return all(any(re.fullmatch(pattern(line), candidate.rstrip()) for candidate in rest) for line in expected)


def test_the_walk_of_the_readme_works_as_printed(pond):
    steps = console_steps(README)
    assert len(steps) >= 8
    marker = "----- next -----"
    script = "\n".join(f"{command}\n__code=$?; echo '{marker}'; (exit $__code)" for command, _ in steps)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=REPOSITORY,
        env=pond.env | {"PATH": f"{Path(sys.executable).parent}:{pond.env['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    printed = done.stdout.split(f"{marker}\n")
    assert len(printed) == len(steps) + 1
    for (command, expected), text in zip(steps, printed, strict=False):
        assert "Traceback" not in text, f"{command}\n{text}"
        assert shown(expected, text.splitlines()), f"$ {command}\n{text}\nexpected\n" + "\n".join(expected)


def test_the_python_example_of_the_readme_works_as_it_stands(running):
    (program,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], env=running.env, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("trained\nsucceeded\n", "")


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w./-]+\.(?:md|yaml|py))`", README))))
def test_files_that_the_readme_names_exist(name):
    assert (REPOSITORY / name).exists()
