"""How many pods of a gang start together: asked of the group or owner that the pods name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from millpond.engines.kubernetes.adoption.gangs import POD, GangKey
from millpond.engines.kubernetes.adoption.grouping import ANNOTATED, GROUPS, OWNERS_BY_KIND, SIZE_ANNOTATION, role_of
from millpond.engines.kubernetes.adoption.owner_table import size_of, value_at
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_refusals import StatusError

_FORBIDDEN: Final = 403
LARGEST: Final = 100_000
_MOST_DIGITS: Final = 20
_SHOWN: Final = 40
"""Characters of an annotation."""
_NAMED: Final = 3
"""Of those that disagree."""


@dataclass(frozen=True, slots=True)
class GangSize:
    """How many pods start together.

    Attributes:
        trouble: why that is not known; empty when it is.
        with_ended: pods that have ended well are of that number.
        later: by role, how many more once pods of it are there.
    """

    count: int = 1
    trouble: str = ""
    with_ended: bool = True
    later: Mapping[str, int] = field(default_factory=dict)

    def with_roles(self, pods: Iterable[ScheduledPod]) -> int:
        """How many start together, or beside those that run, when these are there."""
        if not self.later:
            return self.count
        return self.count + sum(self.later.get(role, 0) for role in set(map(role_of, pods)))


@dataclass(frozen=True, slots=True)
class _Said:
    """What annotations say about the size; None: nothing."""

    count: int | None = None
    trouble: str = ""


async def read_size(api: ClusterApi, key: GangKey, pods: Collection[ScheduledPod]) -> GangSize:
    """The size of a gang.

    Args:
        pods: those of its that are there.
    """
    said = _said_by(pods)
    if said.trouble:
        return GangSize(trouble=said.trouble)
    if key.kind == ANNOTATED:
        if said.count is None:
            return GangSize(trouble=f"its pods name the gang {key.name} and not its size: annotate {SIZE_ANNOTATION}")
        return GangSize(said.count)
    if key.kind == POD or (said.count is not None and key.kind in OWNERS_BY_KIND):
        return GangSize(said.count or 1)
    found = await _asked(api, key)
    if said.count is not None and not found.trouble and said.count != found.count:
        words = f"its pods say {said.count} ({SIZE_ANNOTATION}), and {key.text} says {found.count}"
        return GangSize(trouble=f"the gang disagrees about its size: {words}; make them the same")
    return found


def _said_by(pods: Collection[ScheduledPod]) -> _Said:
    texts = sorted({text for pod in pods if (text := pod.metadata.annotations.get(SIZE_ANNOTATION)) is not None})
    if len(texts) > 1:
        words = " and ".join(text[:_SHOWN] for text in texts[:_NAMED]) + (" and others" if len(texts) > _NAMED else "")
        return _Said(trouble=f"the gang disagrees about its size: its pods say {words} ({SIZE_ANNOTATION})")
    if not texts:
        return _Said()
    if len(texts[0]) > _MOST_DIGITS or not texts[0].isdecimal() or not 1 <= int(texts[0]) <= LARGEST:
        shown = texts[0][:_SHOWN]
        return _Said(trouble=f"the annotation {SIZE_ANNOTATION} is {shown!r}; write a number from 1 to {LARGEST}")
    return _Said(int(texts[0]))


async def _asked(api: ClusterApi, key: GangKey) -> GangSize:
    group, owner = GROUPS.get(key.kind), OWNERS_BY_KIND.get(key.kind)
    kind = group or owner
    assert kind is not None, "pods, annotated gangs and these are all kinds"
    try:
        plain: Any = msgspec.json.decode(await api.ask("GET", kind.path(key.namespace, key.name)))
    except StatusError as error:
        if error.code == _FORBIDDEN:
            words = f"Millpond may not get {kind.right} in namespace {key.namespace}"
            return GangSize(trouble=f"{words}: grant it that (deploy/kubernetes/adopt-roles.yaml)")
        return GangSize(trouble=f"there is no {key.text} ({error})")
    if owner is not None:
        size = size_of(owner, plain)
        return GangSize(size.first, with_ended=not owner.done, later=size.later)
    assert group is not None
    least = value_at(plain, group.least)
    return GangSize(least if isinstance(least, int) and least >= 1 else 1)
