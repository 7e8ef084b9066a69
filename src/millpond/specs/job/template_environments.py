"""Environments that templates bring along: packages that are installed on the machine where the job runs.

A small job makes the environment in the home of its user there, unless it is there already, and the template's own job
waits for it. Its name follows from the packages, so templates with the same ones share it.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import shlex
from collections.abc import Sequence
from typing import Any, Final

from millpond.specs.job.job_spec import JobSpec, check_job

_FOLDER: Final = ".cache/millpond/environments"
"""Below the home of the user on the machine."""


def making_job(template: str, packages: Sequence[str]) -> JobSpec:
    """The job that makes an environment where there is none yet; it has to reach a package index."""
    script = importlib.resources.files("millpond.job").joinpath("environment.py").read_text(encoding="utf-8")
    return check_job(
        {
            "name": f"{template}-environment",
            "memory": "2GiB",
            "network": "host",
            "command": ["python3", "-c", script, _folder_of(packages), *packages],
        }
    )


def command_in(command: str | Sequence[str], packages: Sequence[str]) -> str:
    """A command, as a shell line, with the programs of an environment before all others."""
    line = command if isinstance(command, str) else f"exec {shlex.join(command)}"
    return (
        f'ENVIRONMENT="$HOME/{_folder_of(packages)}"; [ -e "$ENVIRONMENT/complete" ] || '
        '{ echo "millpond: this machine does not have $ENVIRONMENT; submit the template again" >&2; exit 1; }; '
        f'export PATH="$ENVIRONMENT/bin:$PATH" VIRTUAL_ENV="$ENVIRONMENT"; {line}'
    )


def waiting_for(document: dict[str, Any], job: str) -> dict[str, Any]:
    """A job file whose job starts after another one has succeeded, besides those that it names itself."""
    after = document.get("after", [])
    if isinstance(after, dict):
        return {**document, "after": {**after, "ok": [*after.get("ok", ()), job]}}
    return {**document, "after": [*([after] if isinstance(after, str) else after), job]}


def _folder_of(packages: Sequence[str]) -> str:
    return f"{_FOLDER}/{hashlib.sha256(' '.join(sorted(packages)).encode()).hexdigest()[:16]}"
