"""Small JSON files that are the old or the new one, never half of it. Imported by the supervisor, hence light."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_json(path: Path, value: Any, durable: bool = False) -> None:
    """Replace the file at once; readable by its owner alone.

    Args:
        durable: on disk before this returns, so that a power cut does not undo it.
    """
    fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(value, file)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)
    if durable:
        directory = os.open(path.parent, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in the file; None when there is no file.

    A file that is no JSON object counts as absent: only a power cut leaves one, and it ended all tasks as well.
    """
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return value if isinstance(value, dict) else None
