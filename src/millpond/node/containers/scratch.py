"""Folders for what a runtime writes for a moment, such as the layers that it fetches.

They are removed with what needed them: podman that gets a signal leaves its own. A link in the state directory names
each, so that the next server finds what one that was killed has left.
"""

from __future__ import annotations

import secrets
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from millpond.node.containers.container import state_mark
from millpond.node.host import procfs

_LINK_PREFIX: Final = "scratch-"
_VARIABLE: Final = "TMPDIR"
_ENDS_WITHIN_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.1


@contextmanager
def scratch_folder(above: Path | None, state_dir: Path) -> Iterator[dict[str, str]]:
    """The variables by which a program finds the folder, while this lasts.

    Args:
        above: where it is made; None: nowhere, and the program does as it likes.
    """
    if above is None:
        yield {}
        return
    folder = above / f"{_names_begin(state_dir)}{secrets.token_hex(8)}"
    link = state_dir / f"{_LINK_PREFIX}{folder.name}"
    link.symlink_to(folder)
    try:
        folder.mkdir(mode=0o700)
        yield {_VARIABLE: str(folder)}
    finally:
        _remove(link, folder)


def left_folders(state_dir: Path) -> list[Path]:
    """The links to folders of this state directory, not those of one that it is a copy of."""
    return [*state_dir.glob(f"{_LINK_PREFIX}{_names_begin(state_dir)}*")]


def remove_left(link: Path) -> None:
    """Remove what a server that was killed has left, and end programs that still write there."""
    folder, until = link.readlink(), time.monotonic() + _ENDS_WITHIN_S
    while (writing := procfs.with_variable(_VARIABLE, str(folder))) and time.monotonic() < until:
        procfs.send(writing, signal.SIGTERM)
        time.sleep(_LOOK_AGAIN_S)
    _remove(link, folder)


def _names_begin(state_dir: Path) -> str:
    return f"millpond-{state_mark(state_dir)}-"


def _remove(link: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    link.unlink(missing_ok=True)
