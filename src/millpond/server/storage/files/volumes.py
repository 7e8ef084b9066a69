"""The folders that jobs of a queue may use in pods: those that lie in volumes of the configuration.

The same lists of queues hold as on one machine (``mounts``). Paths are compared by their words alone: what lies in a
volume only its nodes know, and the kubelet follows no link that leads out of one.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from millpond.model.errors import InvalidInputError
from millpond.node.host.identities import MachineAccount
from millpond.server.storage.files.mounts import MountRules, refused_folder
from millpond.specs.config.kubernetes import VolumeFile


@dataclass(frozen=True, slots=True)
class VolumePlace:
    """A folder in a volume; ``below`` is relative to the volume's own folder, empty for that itself."""

    name: str
    volume: VolumeFile
    path: str
    below: str


class VolumeRules:
    """The volumes of a cluster, by the lists of queues.

    Args:
        rules: have the lists.
        volumes: gives those of the configuration, by name.
    """

    def __init__(self, rules: MountRules, volumes: Callable[[], Mapping[str, VolumeFile]]) -> None:
        self._rules = rules
        self._volumes = volumes

    def readable(self, queue: str, path: str, identity: MachineAccount | None = None) -> Path:
        """The shortest name of a ``data`` path.

        Raises:
            InvalidInputError: it lies in no volume, or the queue's jobs may not read there.
        """
        return self._allowed(queue, path, "read", "data")

    def writable(self, queue: str, path: str, identity: MachineAccount | None = None) -> Path:
        """The shortest name of an ``output`` path.

        Raises:
            InvalidInputError: it lies in no volume, or the queue's jobs may not write there.
        """
        found = self._allowed(queue, path, "write", "output")
        place = self.place(path)
        if place is not None and place.volume.read_only:
            raise InvalidInputError(
                f"jobs may not write {path}: the volume {place.name} is read-only", "name a folder of another volume"
            )
        return found

    def is_listed(self, queue: str, path: Path) -> bool:
        """Whether the configuration names a folder for the output of a queue's jobs that a path lies in."""
        return self._rules.is_listed(queue, path)

    def place(self, path: str) -> VolumePlace | None:
        """The volume that a folder lies in, of several the innermost; None when it lies in none."""
        short = posixpath.normpath(path)
        found = [(name, each) for name, each in self._volumes().items() if Path(short).is_relative_to(each.folder)]
        if not found or not short.startswith("/"):
            return None
        name, volume = max(found, key=lambda each: len(each[1].folder))
        return VolumePlace(name, volume, short, short[len(volume.folder) :].removeprefix("/"))

    def _allowed(self, queue: str, path: str, verb: str, field: str) -> Path:
        place = self.place(path)
        if place is None:
            named = ", ".join(sorted(each.folder for each in self._volumes().values())) or "there are none"
            raise InvalidInputError(
                f"the {field} path {path} lies in no volume that pods are given",
                f"have an admin name it in kubernetes.volumes (by now: {named})",
            )
        allowed = self._rules.roots(queue, field)
        if allowed is not None and not any(Path(place.path).is_relative_to(root) for root in allowed):
            raise refused_folder(queue, path, verb, allowed)
        return Path(place.path)
