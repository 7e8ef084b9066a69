"""The user that a task runs as, and how its supervisor's processes become that user. Standard library only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """Numbers of a user and its groups, as which a process runs."""

    uid: int
    gid: int
    groups: tuple[int, ...]


@contextlib.contextmanager
def acting_as(identity: Identity | None) -> Iterator[None]:
    """Touch files with a user's rights only. The process must have one thread only.

    Args:
        identity: whose; None: our own.
    """
    if identity is None:
        yield
        return
    groups = os.getgroups()
    os.setgroups(identity.groups)
    os.setegid(identity.gid)
    os.seteuid(identity.uid)
    try:
        yield
    finally:
        os.seteuid(os.getuid())
        os.setegid(os.getgid())
        os.setgroups(groups)


def become_for_good(identity: Identity | None) -> None:
    """Become another user, without a way back."""
    if identity is not None:
        os.setgroups(identity.groups)
        os.setresgid(identity.gid, identity.gid, identity.gid)
        os.setresuid(identity.uid, identity.uid, identity.uid)
