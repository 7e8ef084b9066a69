"""Limits on open files: the server raises its own to the maximum, its tasks keep the usual one.

The usual soft limit of 1,024 is there for programs that use ``select``, which knows no more. Standard library only.
"""

from __future__ import annotations

import functools
import resource

_ENOUGH = 65_536
"""More would only make it take longer to look through them all, as some programs do."""


def raise_limit() -> None:
    """Raise this process's soft limit to the hard one; ``usual`` remembers what it was."""
    soft, hard = usual()
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int:
    """How many files this process may open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ENOUGH if soft == resource.RLIM_INFINITY else soft


@functools.cache
def usual() -> tuple[int, int]:
    """The soft and the hard limit that this process was started with."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)
