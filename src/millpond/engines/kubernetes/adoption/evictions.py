"""How pods that others made are asked to leave: their owner is paused where it can be, else they are evicted.

An eviction keeps to disruption budgets; while one of those says no, it is asked again and told on the pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from millpond.engines.kubernetes.adoption.gangs import GangKey
from millpond.engines.kubernetes.adoption.owner_table import OWNERS, OwnerKind, value_at
from millpond.engines.kubernetes.adoption.pod_answers import PodAnswers
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_refusals import StatusError
from millpond.engines.kubernetes.cluster.pod_evictions import TOO_MANY, refusal_to_evict

PAUSED_BY: Final = "millpond.io/paused-by"
"""On an owner that Millpond has paused: the job that stands for its pods."""
AGAIN_S: Final = 5.0
_KUEUE: Final = "kueue.x-k8s.io/queue-name"
"""On owners that Kueue pauses and lets go on by the same field."""
_BY_KIND: Final = {(kind.kind, kind.api.partition("/")[0]): kind for kind in OWNERS}


class Evictions:
    """Ends pods. Lives on the engine's loop."""

    def __init__(self, api: ClusterApi, answers: PodAnswers) -> None:
        self._api = api
        self._answers = answers

    async def pause(self, key: GangKey, job: str) -> bool:
        """Have the owner of a gang end all of it, until it is resumed; false where it has no such thing."""
        found = await self._topmost(key)
        if found is None:
            return False
        kind, plain = found
        if value_at(plain, kind.suspend):
            return True  # it is paused, perhaps by us before a crash
        return await self._set_paused(kind, plain["metadata"], job)

    async def resume(self, key: GangKey, job: str) -> bool:
        """Have the owner make its pods again, if it was Millpond that paused it; says whether it was."""
        found = await self._topmost(key)
        if found is None:
            return False
        kind, plain = found
        if (plain["metadata"].get("annotations") or {}).get(PAUSED_BY) != job:
            return False
        return await self._set_paused(kind, plain["metadata"], None)

    async def is_paused_for(self, key: GangKey, job: str) -> bool:
        """Whether Millpond has paused the owner of a job's pods."""
        found = await self._topmost(key)
        return found is not None and (found[1]["metadata"].get("annotations") or {}).get(PAUSED_BY) == job

    async def evict(self, pod: ScheduledPod, grace_s: float, why: str) -> None:
        """Have a pod end, however long its disruption budgets forbid it; returns when that is on its way."""
        await self._answers.mark_disrupted(pod, why)
        meta = pod.metadata
        while (error := await refusal_to_evict(self._api, meta.namespace, meta.name, meta.uid, grace_s)) is not None:
            if error.code == TOO_MANY:
                await self._answers.tell(pod, "EvictionRefused", f"it is to leave ({why}), and cannot yet: {error}")
            else:
                await self._answers.tell(pod, "EvictionFailed", f"it is to leave ({why}): {error}")
            await asyncio.sleep(AGAIN_S)

    async def _set_paused(self, kind: OwnerKind, meta: Mapping[str, Any], job: str | None) -> bool:
        body: dict[str, Any] = {"metadata": {"uid": meta["uid"], "annotations": {PAUSED_BY: job}}}
        inner = body
        *outer, last = kind.suspend.split(".")
        for word in outer:
            inner = inner.setdefault(word, {})
        inner[last] = job is not None
        try:
            answer = await self._api.ask("PATCH", kind.path(meta["namespace"], meta["name"]), body, patch="merge")
        except StatusError:
            return False  # no right to, or it is gone: its pods are evicted
        # Servers that do not know the field yet leave it out of what they take.
        return bool(value_at(msgspec.json.decode(answer), kind.suspend)) is (job is not None)

    async def _topmost(self, key: GangKey) -> tuple[OwnerKind, Any] | None:
        """The outermost owner of a gang that can be paused, and not by Kueue; None where there is none."""
        kind = next((each for each in OWNERS if each.kind == key.kind), None)
        name, uid, found = key.name, key.uid, None
        passed: set[str] = set()  # users may make owners of each other
        while kind is not None:
            try:
                plain = msgspec.json.decode(await self._api.ask("GET", kind.path(key.namespace, name)))
            except StatusError:
                break
            meta = plain["metadata"]
            if (uid and meta["uid"] != uid) or meta["uid"] in passed:
                break  # it was deleted, and another made by its name
            passed.add(meta["uid"])
            if _KUEUE in (meta.get("labels") or {}):
                return None
            if kind.suspend:
                found = kind, plain
            owner = next((each for each in meta.get("ownerReferences") or () if each.get("controller")), None)
            group = "" if owner is None else owner["apiVersion"].partition("/")[0]
            kind = None if owner is None else _BY_KIND.get((owner["kind"], group))
            name, uid = ("", "") if owner is None else (owner["name"], owner["uid"])
        return found
