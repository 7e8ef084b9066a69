"""Where the paths that people name lead after all links."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from millpond.model.errors import InvalidInputError

_NOWHERE: Final = frozenset({errno.ELOOP, errno.ENAMETOOLONG})


def followed(path: str | Path, what: str) -> Path:
    """Where a path leads, which need not exist.

    What ``Path.resolve`` says of a circle of links depends on the release of Python: errors of two kinds, or none.

    Args:
        what: the path is, in words.

    Raises:
        InvalidInputError: it leads in a circle, has more letters than a path can have, or goes through a link that only
            the kernel may read (such as ``/proc/1/root``).
    """
    try:
        os.stat(path)  # noqa: PTH116 - its error is asked for, not what it finds
    except OSError as error:
        if error.errno in _NOWHERE:
            raise InvalidInputError(f"the {what} {path} leads nowhere", "check its links") from error
    try:
        return Path(os.path.realpath(path))
    except OSError as error:
        raise InvalidInputError(f"the {what} {path} cannot be followed: {error.strerror}", "check its links") from error
