"""Console blocks of the documentation, run as they stand and compared with what the page says they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from real_pond import PATIENCE_S, Pond


def console_steps(text: str) -> list[tuple[str, list[str]]]:
    """Every command of the console blocks, what goes on behind ``>`` included, with the lines that should follow it."""
    steps: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], []))
            elif line.startswith("> "):
                steps[-1] = (f"{steps[-1][0]}\n{line[2:]}", [])
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


def walk(text: str, pond: Pond, cwd: Path) -> int:
    """Run all commands of a page in one shell; returns how many there were."""
    steps = console_steps(text)
    marker = "----- next -----"
    script = "\n".join(f"{command}\n__code=$?; echo '{marker}'; (exit $__code)" for command, _ in steps)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=cwd,
        env=pond.env | {"PATH": f"{Path(sys.executable).parent}:{pond.env['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=5 * PATIENCE_S,
    )
    printed = done.stdout.split(f"{marker}\n")
    assert len(printed) == len(steps) + 1
    for (command, expected), output in zip(steps, printed, strict=False):
        assert "Traceback" not in output, f"{command}\n{output}"
        assert shown(expected, output.splitlines()), f"$ {command}\n{output}\nexpected\n" + "\n".join(expected)
    return len(steps)
