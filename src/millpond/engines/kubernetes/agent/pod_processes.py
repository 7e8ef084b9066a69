"""The processes of pods, as their control groups name them, and how much memory those let them have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.model.units import MIB
from millpond.node.host import cgroups
from millpond.node.host.files import read_json, write_json
from millpond.node.sharing.trees import ChildrenByParent

CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")
_POD: Final = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f_-]{27})")
_DEEPEST: Final = 4
"""A pod's group lies so far below the hierarchy's root at the most: the controller, all pods, their class, the pod."""


def pids_by_pod() -> dict[str, list[int]]:
    """The processes of each pod of this node, by its uid."""
    found: dict[str, list[int]] = {}
    for uid, pid in _of_pods():
        found.setdefault(uid, []).append(pid)
    return found


@dataclass(frozen=True, slots=True)
class PodProcesses:
    """Those of one pod (``node.sharing.trees.TaskProcesses``).

    They are halted one by one, as those of other containers: a runtime does not expect that its groups are frozen.

    Attributes:
        limits: the file that remembers how much memory each of its groups let it have at first.
        root: of the node's control groups.
    """

    uid: str
    limits: Path
    root: Path = CONTROL_GROUPS

    @property
    def groups(self) -> Sequence[str]:
        """See ``TaskProcesses``."""
        return ()

    @property
    def is_halted_by_group(self) -> bool:
        """See ``TaskProcesses``."""
        return False

    def let_have(self, mib: int) -> None:
        """See ``TaskProcesses``."""
        limits: dict[str, int] = read_json(self.limits) or {}
        for folder in self._bounded():
            limit = cgroups.memory_limit(str(folder))
            if limit is not None:
                limits.setdefault(str(folder), limit)
        if limits:
            write_json(self.limits, limits, durable=True)  # before anything is changed: it is what there was at first
        for name, limit in limits.items():
            cgroups.bound([name], limit + mib * MIB)

    def pids(self, by_parent: ChildrenByParent | None = None) -> list[int]:
        """See ``TaskProcesses``."""
        return [pid for uid, pid in _of_pods() if uid == self.uid]

    def _bounded(self) -> Iterator[Path]:
        """The pod's group, and those of its containers, in every hierarchy."""
        for name in (self.uid, self.uid.replace("-", "_")):
            for depth in range(_DEEPEST):
                for pod in self.root.glob("*/" * depth + f"*pod{name}*"):
                    yield pod
                    yield from (each for each in pod.iterdir() if each.is_dir())


def _of_pods() -> Iterator[tuple[str, int]]:
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            named = _POD.search(path.read_text())
        except OSError:
            continue  # it has ended
        if named is not None:
            yield named[1].replace("_", "-"), int(path.parent.name)
