"""What the engine does to a cluster: makes pods, binds them to nodes, deletes them.

Each call goes on until the cluster has answered: a server of the API that is away, or that asks for patience, is asked
again. That is safe, as everything has a name of its own: what exists already is found, and what is gone is gone.
Objects are written as lightkube's complete models; of answers only what matters is read, as servers of other versions
leave out, and add, what those models do not expect.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import httpx2
import msgspec
from lightkube.models.core_v1 import Binding, ObjectReference, Pod
from lightkube.models.meta_v1 import ObjectMeta as WrittenMeta

from millpond.engines.kubernetes.cluster.api_channel import PASSING, REQUEST_WITHIN_S, ApiAnswer, ApiChannel, status_of
from millpond.engines.kubernetes.cluster.cluster_refusals import (
    ClusterRefusedError,
    StatusError,
    by_limit_range,
    refused,
)
from millpond.engines.kubernetes.cluster.objects import (
    EventObject,
    EventsOfObject,
    MetaOnly,
    ObjectMeta,
    PodObject,
    StatusObject,
)
from millpond.engines.kubernetes.cluster.request_turns import (
    BINDING,
    CHANGE,
    WORDS,
    RequestTurn,
    RequestTurns,
    Urgency,
    making_for,
)
from millpond.engines.kubernetes.cluster.shared_objects import SharedObjects
from millpond.engines.kubernetes.pods.pod_marks import RUN_LABEL, TaskMark
from millpond.engines.task_ends import Refusal
from millpond.model.decisions import Start

log = logging.getLogger(__name__)

MOST_AT_ONCE: Final = 32
LOOK_EVERY_S: Final = 0.5
_SLOWER: Final = 10
"""So many times less often for what stays longer than it should."""
STAYS_AFTER_S: Final = 10.0
"""A pod that is to end at once and is there for so long is looked at, for what keeps it."""
REFUSED_AGAIN_S: Final = 10.0
"""A pod that the cluster does not let end is asked to after so long again."""
ERRORS_FOR_S: Final = 60.0
"""Errors of the API server itself for so long are its answer: some webhook may fail until a person mends it."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 3.0
LATE_ANSWERS: Final = 6
"""What is to be made, and is not answered in time so often in a row, is not made: a webhook may wait for something."""
_MOST_PATIENCE_S: Final = {Urgency.BINDING: 10.0, Urgency.CHANGE: 30.0, Urgency.MAKING: 30.0, Urgency.WORDS: 60.0}
"""Where the cluster names a time (`Retry-After`), a request waits for that long, up to this. It has no place in line
meanwhile, so others go on. Bindings hold cards that nobody else gets."""
_NOT_FOUND, _CONFLICT, _TOO_MANY, _ERROR = 404, 409, 429, 500
_NOT_COMING: Final = {
    "FailedMount": "its volumes do not come",
    "FailedAttachVolume": "its volumes do not come",
    "FailedPrepareDynamicResources": "its cards do not come",
    "FailedCreatePodSandBox": "its node cannot make a place and a network for it",
}
"""Why a pod waits, by the reasons of events."""
_PULLED: Final = "Pulled"
_ALL_CAME: Final = frozenset({"Pulling", _PULLED})
"""What comes after all of that."""
_LATE: Final = (
    f"it was not answered within {REQUEST_WITHIN_S:g} s, {LATE_ANSWERS} times in a row, though other requests are: "
    "an admission webhook may be waiting for something"
)
_JSON: Final = {"Content-Type": "application/json"}
_MAKING_PODS: Final = {
    **_JSON,
    "Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json",
}
"""Of a pod that is made nothing else is read, and an API server spends a fifth of its cost on writing the rest back.
https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches"""
_PATH: Final = re.compile(r"(/[A-Za-z0-9][A-Za-z0-9.:_~-]*)+")
"""What pods call their owners and volumes, their makers choose, ``../…`` too: it is not to lead this server to
objects of other namespaces."""
_NONE: Final[Mapping[str, str]] = {}


class ClusterApi:
    """Writes to one namespace of a cluster. Lives on one event loop.

    Args:
        held: waits until this process may change the cluster.
        tell: is told, for the job of a pod, that the cluster does not let it end.
    """

    def __init__(
        self,
        client: ApiChannel,
        namespace: str,
        held: Callable[[], Awaitable[None]],
        tell: Callable[[str, str], None] = lambda _pod, _text: None,
    ) -> None:
        self._client = client
        self._held = held
        self._tell = tell
        self._namespace = namespace
        self._turns = RequestTurns(MOST_AT_ONCE)
        self.shared = SharedObjects(partial(self._asked, "POST"), self._delete)

    async def make_pod(self, pod: Pod, mark: TaskMark, is_own: Callable[[PodObject], bool], alike: int) -> ObjectMeta:
        """Make a pod that waits to be bound; the one that an earlier server made of the same decision is as good.

        The pod of an earlier start of the task, which is over by the core's account, makes room.

        Args:
            is_own: whether a pod is one of this server's.
            alike: how many pods of its gang ask for the same.

        Raises:
            ClusterRefusedError: the cluster does not take it.
        """
        while True:
            try:
                answer = await self._asked("POST", "pods", pod, turn=making_for(mark.job))
            except StatusError as error:
                if error.code != _CONFLICT:
                    what = f"the cluster does not take its pod{by_limit_range(error)}"
                    raise refused(what, error, alike) from error
                there = await self.find_pod(mark.pod)
                found = TaskMark.of(there.metadata.annotations) if there is not None and is_own(there) else None
                if there is not None and found == mark:
                    return there.metadata
                if there is not None and (found is None or found.id != mark.id or found.decision > mark.decision):
                    raise ClusterRefusedError(Refusal(f"there is another pod called {mark.pod}", True)) from error
                kept = await self.delete_and_wait(mark.pod, "" if there is None else there.metadata.uid)
                if kept:
                    raise ClusterRefusedError(Refusal(kept, True)) from error
            else:
                return msgspec.json.decode(answer, type=MetaOnly).metadata

    async def make_fetch(self, pod: Pod) -> None:
        """Make a pod that only pulls its image; it may exist.

        Raises:
            ClusterRefusedError: the cluster does not take it.
        """
        try:
            await self._asked("POST", "pods", pod)
        except StatusError as error:
            if error.code != _CONFLICT:
                raise refused("the cluster does not take a pod that pulls its image", error) from error

    async def bind(self, pod: str, node: str) -> None:
        """Bind a pod to a node; one that is bound there already is left alone.

        Raises:
            ClusterRefusedError: it is gone, or bound elsewhere.
        """
        target = ObjectReference(apiVersion="v1", kind="Node", name=node)
        binding = Binding(metadata=WrittenMeta(name=pod, namespace=self._namespace), target=target)
        try:
            await self._asked("POST", f"pods/{pod}/binding", binding, turn=BINDING)
        except StatusError as error:
            there = await self.find_pod(pod)
            if there is None:
                raise ClusterRefusedError(Refusal(f"pod {pod} was deleted before it was bound", True)) from error
            if there.spec.node_name != node:
                refusal = refused(f"pod {pod} cannot be bound to node {node}", error).refusal
                raise ClusterRefusedError(Refusal(refusal.reason, True)) from error

    async def annotate_pod(self, name: str, uid: str, annotations: Mapping[str, str]) -> None:
        """Write on a pod; another of its name is left alone.

        Raises:
            ClusterRefusedError: it is gone, or the server may not.
        """
        item = {"metadata": {"uid": uid, "annotations": annotations}}
        url = f"/api/v1/namespaces/{self._namespace}/pods/{name}"
        try:
            await self.ask("PATCH", url, item, patch="merge")
        except StatusError as error:
            raise refused(f"pod {name} cannot be told", error) from error

    async def hide_pod(self, name: str, uid: str) -> None:
        """Take a pod out of the service of its run: a successor has its host name, and others are to reach that one."""
        item = {"metadata": {"uid": uid, "labels": {RUN_LABEL: None}}}
        url = f"/api/v1/namespaces/{self._namespace}/pods/{name}"
        try:
            await self.ask("PATCH", url, item, patch="merge")
        except StatusError as error:
            if error.code not in (_NOT_FOUND, _CONFLICT):
                log.warning("others of its run may reach pod %s in place of its successor: %s", name, error)

    async def find_pod(self, name: str) -> PodObject | None:
        """A pod as it is at this moment; None where there is none.

        Raises:
            ClusterRefusedError: the server may not look.
        """
        try:
            return msgspec.json.decode(await self._asked("GET", f"pods/{name}"), type=PodObject)
        except StatusError as error:
            if error.code == _NOT_FOUND:
                return None
            raise refused(f"pod {name} cannot be looked at", error) from error

    async def wait_trouble(self, pod: str) -> str:
        """Why a pod does not come to run, in the cluster's words; empty where it does not say."""
        events = await self._events_of(pod)
        last = itertools.takewhile(lambda event: event.reason not in _ALL_CAME, reversed(events))
        found = (event for event in last if event.reason in _NOT_COMING)
        return next((f"{_NOT_COMING[event.reason]}: {event.message}" for event in found), "")

    async def said_of_pulls(self, pod: str) -> list[str]:
        """What was said of the images that were pulled for a pod, or were there."""
        return [event.message for event in await self._events_of(pod) if event.reason == _PULLED]

    async def _events_of(self, pod: str) -> list[EventObject]:
        """Those of a pod, the oldest first; none where the server may not look."""
        try:
            answer = await self._asked(
                "GET", "events", params={"fieldSelector": f"involvedObject.name={pod}"}, turn=WORDS
            )
        except StatusError:
            return []
        return msgspec.json.decode(answer, type=EventsOfObject).items

    async def delete_pod(self, name: str, grace_s: float, uid: str = "") -> bool:
        """Have a pod end; says whether it was there. Where the cluster refuses, that is told, and it is asked again.

        Args:
            uid: of the pod: another of its name is left alone; empty: whichever has the name.
        """
        told = ""
        while True:
            try:
                return await self.try_delete_pod(name, grace_s, uid)
            except StatusError as error:
                if told != (told := str(error)):
                    log.warning("pod %s cannot be ended: %s", name, told)
                    self._tell(name, f"the cluster does not let its pod {name} end, and is asked again: {told}")
            await asyncio.sleep(REFUSED_AGAIN_S)

    async def try_delete_pod(self, name: str, grace_s: float, uid: str) -> bool:
        """The same, but that it is asked once.

        Raises:
            StatusError: the cluster refuses.
        """
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": math.ceil(grace_s)}
        try:
            return await self._delete(f"pods/{name}", {**options, "preconditions": {"uid": uid}} if uid else options)
        except StatusError as error:
            if error.code != _CONFLICT or not uid:
                raise
            return False  # another has its name by now

    async def delete_and_wait(self, name: str, uid: str, is_left: Callable[[], bool] = lambda: False) -> str:
        """Have a pod end at once, and wait until nothing of it runs.

        Returns what keeps it there still; empty: it is gone, or waited for no more.

        Args:
            is_left: whether it is waited for no more.
        """
        loop = asyncio.get_running_loop()
        look_at, told = loop.time() + STAYS_AFTER_S, ""
        while await self.delete_pod(name, 1.0, uid) and not is_left():
            if loop.time() >= look_at:
                is_over, why = await self._what_keeps(name)
                if is_over:
                    return why
                if told != (told := why):
                    self._tell(name, told)
            await asyncio.sleep(LOOK_EVERY_S * (_SLOWER if told else 1))
        return ""

    async def _what_keeps(self, name: str) -> tuple[bool, str]:
        """Whether nothing of a pod runs that is to end, and what keeps it there."""
        try:
            there = await self.find_pod(name)
        except ClusterRefusedError as error:
            return False, str(error)
        if there is None:
            return False, ""
        if there.metadata.is_kept_by_finalizers:
            return True, f"pod {name} stays until its finalizers are taken off: {', '.join(there.metadata.finalizers)}"
        return False, not_ended(name, there.spec.node_name)

    async def find_made(self, name: str, decision: Start, is_own: Callable[[PodObject], bool]) -> str:
        """The uid of the pod that a start has made under a name; empty: there is none that it made.

        Args:
            is_own: whether a pod is one of this server's.
        """
        try:
            there = await self.find_pod(name)
        except ClusterRefusedError as error:
            log.warning("%s may be left over: %s", name, error)
            return ""
        mark = TaskMark.of(there.metadata.annotations) if there is not None and is_own(there) else None
        if there is None or mark is None or (mark.job, mark.decision) != (decision.job, decision.id):
            return ""
        return there.metadata.uid

    async def _delete(self, path: str, options: Any = None) -> bool:
        """Delete something; says whether it was there.

        Raises:
            StatusError: the cluster refuses.
        """
        try:
            await self._asked("DELETE", path, options)
        except StatusError as error:
            if error.code != _NOT_FOUND:
                raise
            return False
        return True

    async def _asked(
        self,
        method: str,
        path: str,
        item: Any = None,
        params: Mapping[str, str] = _NONE,
        turn: RequestTurn = CHANGE,
    ) -> bytes:
        """The answer of the cluster, once there is one.

        Raises:
            StatusError: it is a refusal that time does not mend.
        """
        return await self.ask(method, f"/api/v1/namespaces/{self._namespace}/{path}", item, params=params, turn=turn)

    async def ask(
        self,
        method: str,
        url: str,
        item: Any = None,
        *,
        params: Mapping[str, str] = _NONE,
        patch: str = "",
        turn: RequestTurn = CHANGE,
    ) -> bytes:
        """The answer of the cluster to any request, once there is one.

        Args:
            patch: how the item changes what is there: ``merge`` or ``strategic-merge``.
            turn: where it stands in line with other requests.

        Raises:
            StatusError: it is a refusal that time does not mend, or one of an eviction, which somebody wants to know;
                or nothing can be made for long, as the API server or a webhook of it fails.
        """
        if not _PATH.fullmatch(url):
            raise StatusError(StatusObject(_NOT_FOUND, "NotFound", "nothing can have such a name"))
        loop = asyncio.get_running_loop()
        give_up_at, late = math.inf, 0
        content = b"" if item is None else msgspec.json.encode(item)
        headers = _headers_of(method, url, patch)
        wait_s = _FIRST_WAIT_S
        while True:
            patience_s = 0.0
            try:
                await self._turns.take(turn)
                try:
                    if method != "GET":
                        await self._held()  # with nothing between it and the request
                    answer = await self._client.request(method, url, content=content, params=params, headers=headers)
                finally:
                    self._turns.give_back()
                if answer.is_success:
                    return answer.content
                late = 0
                fails = method == "POST" and answer.status_code == _ERROR
                give_up_at = min(give_up_at, loop.time() + ERRORS_FOR_S) if fails else math.inf
                if answer.status_code not in PASSING or _is_budget(url, answer) or loop.time() >= give_up_at:
                    raise StatusError(status_of(answer))
                patience_s = min(answer.retry_after_s, _MOST_PATIENCE_S[turn.urgency])
            except httpx2.ReadTimeout as error:
                late += method == "POST"
                if late >= LATE_ANSWERS:
                    raise StatusError(StatusObject(_ERROR, "Timeout", _LATE)) from error
            except httpx2.HTTPError:
                late = 0  # not reached: the reflectors say so in the log
            await asyncio.sleep(max(wait_s * random.uniform(0.5, 1.0), patience_s))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def not_ended(pod: str, node: str) -> str:
    """What keeps a pod that was asked to end, in words."""
    return f"its pod {pod} is to end, and node {node} has not said that it has"


def _headers_of(method: str, url: str, patch: str) -> Mapping[str, str]:
    if patch:
        return {"Content-Type": f"application/{patch}-patch+json"}
    return _MAKING_PODS if method == "POST" and url.endswith("/pods") else _JSON


def _is_budget(url: str, answer: ApiAnswer) -> bool:
    """Whether it may be a disruption budget that says no, which is told before it is asked again."""
    return url.endswith("/eviction") and answer.status_code == _TOO_MANY
