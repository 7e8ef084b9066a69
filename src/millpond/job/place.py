"""Where this process stands: which job, which of its tasks, where its files are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from millpond.model.errors import NotFoundError


def inside() -> bool:
    """Whether this process runs in a job."""
    return bool(job_id())


def job_id() -> str:
    """The job's id; empty outside a job."""
    return os.environ.get("MILLPOND_JOB_ID", "")


def rank() -> int:
    """Its number among all processes that work together, from 0; a launcher's (torchrun) where one is in between."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """How many processes work together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_rank() -> int:
    """Its number among those on this machine that share devices; picks the device."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def task() -> int:
    """The number of the task within its job."""
    return int(os.environ.get("MILLPOND_TASK", "0"))


def attempt() -> int:
    """Which run of the job this is, from 1: above 1 there may be a checkpoint to go on from."""
    return int(os.environ.get("MILLPOND_ATTEMPT", "1"))


def array_index() -> int | None:
    """The number of this job in its array; None outside one."""
    text = os.environ.get("MILLPOND_ARRAY_INDEX", "")
    return int(text) if text else None


def parameters() -> dict[str, Any]:
    """The parameters of this trial of a sweep, by name; empty outside one."""
    found: dict[str, Any] = json.loads(os.environ.get("MILLPOND_PARAMETERS", "{}"))
    return found


def output_dir() -> Path:
    """Where to leave what is to be kept; the present directory outside a job."""
    return Path(os.environ.get("MILLPOND_OUTPUT", "."))


def data_dir(name: str) -> Path:
    """Where the data lies that the job file calls ``name``.

    Raises:
        NotFoundError: the job has no such data. On a laptop, set the variable that the message names.
    """
    variable = "MILLPOND_DATA_" + "".join(letter if letter.isalnum() else "_" for letter in name).upper()
    place = os.environ.get(variable)
    if not place:
        raise NotFoundError(f"no data {name!r} here", f"name it in the job file (data:), or set {variable}")
    return Path(place)
