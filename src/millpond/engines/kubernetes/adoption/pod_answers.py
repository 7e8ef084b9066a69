"""What pods of others are told: why they wait, as a condition and an event, and that they are to leave.

A condition is written when its text has changed and some time has passed, so that counts that change all the time do
not load the cluster; events come less often, one for a gang.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from millpond.engines.kubernetes.adoption.gangs import GangKey
from millpond.engines.kubernetes.adoption.grouping import GROUPS, SIGS, GroupKind, gang_of
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_refusals import StatusError
from millpond.engines.kubernetes.cluster.request_turns import CHANGE, WORDS, RequestTurn

log = logging.getLogger(__name__)

LEAST_S: Final = 10.0
"""Between two conditions of a gang."""
SETTLED_S: Final = 0.5
"""What is wrong with a gang is told when it has been so for so long: mostly its pods are still being made."""
LEAST_EVENT_S: Final = 60.0
"""Between two events of a gang, or of a pod that cannot be evicted."""
LONGEST_EVENT: Final = 1_000
_COMPONENT: Final = "millpond"
_FORBIDDEN: Final = 403
_ENDING: Final = "because it is being terminated"
"""What the API server says of a namespace that is being deleted."""
_MOST_KEPT: Final = 20_000


@dataclass(frozen=True, slots=True)
class _DueAnswer:
    """What a gang is to be told.

    Attributes:
        since: when it was first to be told anything.
        at: not before that.
        passes: it is forgotten if it holds no longer by then.
    """

    text: str
    since: float
    at: float
    passes: bool = False


@dataclass(slots=True)
class _LastAnswer:
    """What a gang was told last, and when."""

    text: str
    at: float
    event_at: float


class PodAnswers:
    """Writes to pods of others. Lives on the engine's loop.

    Args:
        waiting: the pods of a gang that wait.
    """

    def __init__(self, api: ClusterApi, waiting: Callable[[GangKey], Sequence[ScheduledPod]]) -> None:
        self._api = api
        self._waiting = waiting
        self._told: dict[GangKey, _LastAnswer] = {}
        self._due: dict[GangKey, _DueAnswer] = {}
        self._forbidden: set[str] = set()
        self._told_pods: dict[tuple[str, str], float] = {}

    def say(self, key: GangKey, text: str) -> None:
        """Why a gang waits; written at once or soon."""
        now = time.monotonic()
        self._due[key] = _DueAnswer(text, now, now)

    def say_if_it_stays(self, key: GangKey, text: str) -> None:
        """What is wrong with a gang, or nothing any more; written when that has stayed so for a moment.

        Each word costs a request for each pod, and gangs come pod by pod.
        """
        due, now = self._due.get(key), time.monotonic()
        if text:
            since = now if due is None else due.since
            self._due[key] = _DueAnswer(text, since, min(now + SETTLED_S, since + LEAST_S), passes=True)
        elif due is not None and due.passes:
            del self._due[key]

    def look_at(self, pod: ScheduledPod) -> None:
        """A pod is there, or has changed: one that came late is told what its gang was."""
        told = self._told.get(gang_of(pod)) if pod.waits else None
        if told is not None and _said(pod) != told.text:
            now = time.monotonic()
            self._due.setdefault(gang_of(pod), _DueAnswer(told.text, now, now))

    async def write_due(self) -> None:
        """Write what is due."""
        now = time.monotonic()
        for key in list(self._due):
            due, told = self._due.get(key), self._told.get(key)
            if due is None or now < due.at or (told is not None and now - told.at < LEAST_S):
                continue
            del self._due[key]
            waiting = self._waiting(key)
            if waiting:
                await self._write(key, due.text, waiting, now)
        if len(self._told) > _MOST_KEPT:
            self._told = {key: told for key, told in self._told.items() if now - told.at < LEAST_EVENT_S}

    async def _write(self, key: GangKey, text: str, waiting: Sequence[ScheduledPod], now: float) -> None:
        told = self._told.get(key)
        is_new = told is None or told.text != text
        tells = told is None or (is_new and now - told.event_at >= LEAST_EVENT_S)
        self._told[key] = _LastAnswer(text, now, now if tells or told is None else told.event_at)
        missing = [pod for pod in waiting if is_new or _said(pod) != text]
        await asyncio.gather(*(self._condition(pod, "PodScheduled", "False", _reason_of(pod), text) for pod in missing))
        if tells:
            await self._event(waiting[0], "FailedScheduling", text)
        if is_new and (group := GROUPS.get(key.kind)) is not None:
            await self._group(group, key, text)

    async def scheduled(self, key: GangKey) -> None:
        """A gang is bound."""
        self._told.pop(key, None)
        self._due.pop(key, None)
        if (group := GROUPS.get(key.kind)) is not None:
            await self._group(group, key, "")

    async def mark_disrupted(self, pod: ScheduledPod, why: str) -> None:
        """Say on a pod that it is to leave, before it is evicted."""
        await self._condition(pod, "DisruptionTarget", "True", "PreemptionByScheduler", f"Millpond: {why}", CHANGE)
        await self._event(pod, "Preempted", why)

    async def nominate(self, pod: ScheduledPod, node: str) -> None:
        """Say on a pod which node is being made free for it."""
        await self._patch(pod, {"status": {"nominatedNodeName": node}})

    async def tell(self, pod: ScheduledPod, reason: str, text: str) -> None:
        """An event on a pod, at most one a minute for the same reason."""
        now, key = time.monotonic(), (pod.metadata.uid, reason)
        if now - self._told_pods.get(key, -LEAST_EVENT_S) >= LEAST_EVENT_S:
            self._told_pods = {each: at for each, at in self._told_pods.items() if now - at < LEAST_EVENT_S}
            self._told_pods[key] = now
            await self._event(pod, reason, text)

    async def refuse(self, pod: ScheduledPod, text: str) -> None:
        """Say on a pod that it is not lined up at all, and why."""
        if _said(pod) != text:
            await self._condition(pod, "PodScheduled", "False", _reason_of(pod), text)
            await self._event(pod, "FailedScheduling", text)

    async def _condition(
        self, pod: ScheduledPod, kind: str, status: str, reason: str, text: str, turn: RequestTurn = WORDS
    ) -> None:
        condition = {"type": kind, "status": status, "reason": reason, "message": text, "lastTransitionTime": _now()}
        await self._patch(pod, {"status": {"conditions": [condition]}}, turn)

    async def _patch(self, pod: ScheduledPod, body: dict[str, Any], turn: RequestTurn = WORDS) -> None:
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/status"
        await self._quietly("PATCH", path, {**body, "metadata": {"uid": pod.metadata.uid}}, "strategic-merge", turn)

    async def _event(self, pod: ScheduledPod, reason: str, text: str) -> None:
        meta, now = pod.metadata, _now()
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{meta.name[:200]}.", "namespace": meta.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": meta.name,
                "namespace": meta.namespace,
                "uid": meta.uid,
            },
            "reason": reason,
            "message": text[:LONGEST_EVENT],
            "type": "Normal" if reason == "Scheduled" else "Warning",
            "source": {"component": _COMPONENT},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._quietly("POST", f"/api/v1/namespaces/{meta.namespace}/events", event)

    async def _group(self, kind: GroupKind, key: GangKey, text: str) -> None:
        """The state of a group; ``text``: why it waits, empty when all of it is bound."""
        path = kind.path(key.namespace, key.name)
        if kind is SIGS:
            phase = "Pending" if text else "Scheduled"
            await self._quietly("PATCH", f"{path}/status", {"status": {"phase": phase}}, "merge")
            return
        condition = {
            "type": "PodGroupInitiallyScheduled",
            "status": "False" if text else "True",
            "reason": "Unschedulable" if text else "Scheduled",
            "message": text,
            "lastTransitionTime": _now(),
        }
        try:
            plain = msgspec.json.decode(await self._api.ask("GET", path))
        except StatusError:
            return
        others = (plain.get("status") or {}).get("conditions") or []
        if any(each["type"] == condition["type"] and each["status"] == "True" for each in others):
            return  # it stays true for good
        kept = [each for each in others if each["type"] != condition["type"]]
        await self._quietly("PATCH", f"{path}/status", {"status": {"conditions": [*kept, condition]}}, "merge")

    async def _quietly(
        self, method: str, path: str, body: dict[str, Any], patch: str = "", turn: RequestTurn = WORDS
    ) -> None:
        """Words do no work: where they cannot be written (no right to, the pod is gone), the rest goes on."""
        try:
            await self._api.ask(method, path, body, patch=patch, turn=turn)
        except StatusError as error:
            what = path.rpartition("/")[2]
            if error.code == _FORBIDDEN and what not in self._forbidden and _ENDING not in str(error):
                self._forbidden.add(what)
                log.warning("pods of others are not told why they wait (deploy/kubernetes/adopt-roles.yaml): %s", error)


def _reason_of(pod: ScheduledPod) -> str:
    """Of its waiting: that of the API server where a gate holds it, by which clients know such pods."""
    return "SchedulingGated" if pod.spec.scheduling_gates else "Unschedulable"


def _said(pod: ScheduledPod) -> str:
    return next((each.message for each in pod.status.conditions if each.type == "PodScheduled"), "")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
