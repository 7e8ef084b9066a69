"""The folder ``running`` of the state directory: a link to the record of each task that runs.

By these a restarted server finds whatever runs without reading the records of everything that ever ran. Standard
library only.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_FOLDER = "running"


def make_room(state_dir: Path) -> None:
    """Make the folder, if there is none."""
    (state_dir / _FOLDER).mkdir(exist_ok=True, mode=0o700)


def enter(record: Path) -> None:
    """Note that a task runs from now on."""
    with contextlib.suppress(FileExistsError):  # an earlier supervisor of it was killed
        os.symlink(record, _entry_of(record))  # noqa: PTH211 - the supervisor's, see ``node.host.files``


def leave(record: Path) -> None:
    """Note that a task runs no more."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_entry_of(record))  # noqa: PTH108


def entered(state_dir: Path) -> list[Path]:
    """The records of all that run, in a fixed order; of one that was killed, too.

    They are known by the names of the links, as links in a copy of a state directory lead into the original.
    """
    entries = (entry.name.split("@") for entry in sorted((state_dir / _FOLDER).glob("*@*@*")))
    known = (parts for parts in entries if len(parts) == 3)  # a task that is not kept apart may put anything there
    return [state_dir / "jobs" / job / attempt / f"{task}.json" for job, attempt, task in known]


def _entry_of(record: Path) -> str:
    state_dir, _jobs, job, attempt, task = str(record).rsplit("/", 4)
    return f"{state_dir}/{_FOLDER}/{job}@{attempt}@{task.removesuffix('.json')}"
