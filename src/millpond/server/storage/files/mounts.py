"""The folders of the machine that jobs of a queue may read and write, by the configuration.

What counts is where a path leads after all links, at submission and again when an attempt starts, as far as the account
that the job's tasks run as can follow it. The state directory
is no job's data, whatever the configuration says.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from millpond.model.errors import InvalidInputError
from millpond.model.tenancy.tenants import ROOT_QUEUE
from millpond.node.host.file_rights import with_rights_of
from millpond.node.host.identities import MachineAccount
from millpond.specs.config.queues import QueueRules
from millpond.specs.paths import followed

_Place = TypeVar("_Place")


class FolderRules(Protocol):
    """Says which folders the jobs of a queue may read and write, and where these are."""

    def readable(self, queue: str, path: str, identity: MachineAccount | None = None) -> Path:
        """Where a ``data`` path leads."""

    def writable(self, queue: str, path: str, identity: MachineAccount | None = None) -> Path:
        """Where an ``output`` path leads."""

    def is_listed(self, queue: str, path: Path) -> bool:
        """Whether the configuration names a folder for the output of a queue's jobs that a path lies in."""


class MountRules:
    """The allow-lists of all queues.

    Args:
        paths: gives those that are in force, by queue; a queue that is not among them may what its parent may, and the
            root may anything.
        state_dir: kept out of all mounts.
    """

    def __init__(self, paths: Callable[[], Mapping[str, QueueRules]], state_dir: Path) -> None:
        self._paths = paths
        self._state_dir = state_dir.resolve()

    def readable(self, queue: str, path: str, identity: MachineAccount | None = None) -> Path:
        """Where a ``data`` path leads.

        Args:
            identity: whom the job's tasks run as; what this account cannot reach is not there. None: as the server.

        Raises:
            InvalidInputError: the queue's jobs may not read there, or there is nothing.
        """
        found = self._allowed(queue, path, ("read", "data"), identity)
        if not with_rights_of(identity, lambda: os.path.exists(found)):  # noqa: PTH110 - Path's fails without rights
            raise InvalidInputError(
                f"there is nothing at the data path {path}", "check its spelling, and that your jobs may look there"
            )
        return found

    def writable(self, queue: str, path: str, identity: MachineAccount | None = None) -> Path:
        """Where an ``output`` path leads; it need not exist.

        Args:
            identity: as in ``readable``.

        Raises:
            InvalidInputError: the queue's jobs may not write there, or a file is in the way.
        """
        found = self._allowed(queue, path, ("write", "output"), identity)
        if with_rights_of(identity, lambda: os.path.exists(found) and not os.path.isdir(found)):  # noqa: PTH110, PTH112
            raise InvalidInputError(f"the output path {path} is a file", "name a folder")
        return found

    def _allowed(self, queue: str, path: str, purpose: tuple[str, str], identity: MachineAccount | None) -> Path:
        verb, field = purpose
        found = with_rights_of(identity, lambda: followed(path, f"{field} path"))
        if found.is_relative_to(self._state_dir) or self._state_dir.is_relative_to(found):
            raise InvalidInputError(f"the {field} path {path} holds the server's own state", "name another folder")
        allowed = self.roots(queue, field)
        if allowed is not None and not any(found.is_relative_to(os.path.realpath(root)) for root in allowed):
            raise refused_folder(queue, path, verb, allowed)
        return found

    def is_listed(self, queue: str, path: Path) -> bool:
        """Whether the configuration names a folder for the output of a queue's jobs that a path lies in."""
        roots = self.roots(queue, "output") or ()
        return any(path.is_relative_to(os.path.realpath(root)) for root in roots)

    def images(self, queue: str) -> tuple[str, ...] | None:
        """Registries and repositories that the queue's jobs may have images from; None: any."""
        return self._nearest(queue, lambda rule: rule.images)

    def roots(self, queue: str, field: str) -> tuple[Path, ...] | None:
        """The folders that the configuration names for ``data`` or ``output`` of a queue's jobs; None: any."""
        return self._nearest(queue, lambda rule: rule.data if field == "data" else rule.output)

    def _nearest(self, queue: str, of: Callable[[QueueRules], tuple[_Place, ...] | None]) -> tuple[_Place, ...] | None:
        """The nearest list on the way up; None: anything."""
        above, paths = queue, self._paths()
        while above != ROOT_QUEUE and above in paths:
            places = of(paths[above])
            if places is not None:
                return places
            above = paths[above].parent
        return None


def refused_folder(queue: str, path: str, verb: str, allowed: Sequence[Path]) -> InvalidInputError:
    """The error for a folder that a queue's jobs may not have."""
    named = ", ".join(map(str, allowed)) or "none"
    return InvalidInputError(f"jobs of queue {queue!r} may not {verb} {path}", f"it may {verb} below: {named}")
