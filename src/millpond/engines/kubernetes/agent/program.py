"""Runs the agent in its pod: on the cluster's API, with the pod's own account."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lightkube.models.meta_v1 import OwnerReference

from millpond.engines.kubernetes.agent.agent_context import AgentPlaces, ClaimSide, ClusterSide
from millpond.engines.kubernetes.agent.allocations import PodKey
from millpond.engines.kubernetes.agent.metrics_listener import MetricsAddress, metrics_served
from millpond.engines.kubernetes.agent.node_agent import NodeAgent
from millpond.engines.kubernetes.agent.slice_publisher import SlicePublisher
from millpond.engines.kubernetes.cluster.access import api_channel
from millpond.engines.kubernetes.cluster.agent_report import (
    LOADS_ANNOTATION,
    REPORT_ANNOTATION,
    AgentReport,
    loads_text,
)
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_refusals import StatusError
from millpond.engines.kubernetes.cluster.kubeconfig import ClusterAccess, find_config
from millpond.engines.kubernetes.cluster.objects import PodObject
from millpond.engines.kubernetes.cluster.pod_evictions import refusal_to_evict
from millpond.engines.kubernetes.cluster.reflector import ObjectKind, Reflector
from millpond.engines.kubernetes.pods.suspension_order import ANSWERS_ANNOTATION, SuspensionAnswer, answers_text
from millpond.model.errors import InvalidInputError
from millpond.node.host.machine import describe_machine
from millpond.node.host.periodic_worker import PassTrouble

log = logging.getLogger(__name__)

NODE, NAMESPACE, POD = "MILLPOND_AGENT_NODE", "MILLPOND_AGENT_NAMESPACE", "MILLPOND_AGENT_POD"
"""Variables by which the agent knows where it is, which its pod fills by the downward API."""
_AGAIN_S: Final = 1.0
_REQUESTS_AT_ONCE: Final = 4
_WATCHES: Final = 2


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """Which pod on which node the agent is."""

    node: str
    namespace: str
    pod: str

    @staticmethod
    def of(env: Mapping[str, str]) -> AgentIdentity:
        """From the variables of its pod.

        Raises:
            InvalidInputError: one is missing.
        """
        missing = [name for name in (NODE, NAMESPACE, POD) if not env.get(name)]
        if missing:
            raise InvalidInputError(
                f"{missing[0]} is not set: the agent runs as a pod of a DaemonSet", "see deploy/kubernetes-agent"
            )
        return AgentIdentity(env[NODE], env[NAMESPACE], env[POD])


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """How an agent runs.

    Attributes:
        folder: absolute; for its files, at the same path on the node.
        swap_mib: host memory of the node for device memory of suspended pods.
        metrics: where a Prometheus reads what the cards do; None: nowhere.
    """

    folder: Path
    swap_mib: int = 0
    metrics: MetricsAddress | None = None


def run_agent(options: AgentOptions) -> None:
    """Run the agent until the process is ended.

    Raises:
        InvalidInputError: it does not run in a pod of its DaemonSet.
        UnavailableError: the way to the cluster is not known, or it cannot listen for a Prometheus.
    """
    asyncio.run(_run(AgentIdentity.of(os.environ), options))


async def _run(identity: AgentIdentity, options: AgentOptions) -> None:
    config = find_config(ClusterAccess())
    channel = api_channel(config, _REQUESTS_AT_ONCE + _WATCHES)
    async with aclosing(channel):
        api = ClusterApi(channel, identity.namespace, _always)
        requests = AgentRequests(api, identity)

        def owner() -> OwnerReference | None:
            own = pods.objects.get(f"{identity.namespace}/{identity.pod}")
            return None if own is None else OwnerReference("v1", "Pod", identity.pod, own.metadata.uid)

        slices = SlicePublisher(api, channel, identity.node, owner, lambda work: group.create_task(work))
        claims = ClaimSide(slices.publish, slices.withdraw, slices.read)
        cluster = ClusterSide(requests.report, requests.answer, requests.evict, requests.tell_loads, claims)
        places, swap_mib = AgentPlaces(options.folder), options.swap_mib
        agent = NodeAgent(places, lambda own: describe_machine(own=own, swap_mib=swap_mib), cluster)
        kind = ObjectKind("/api/v1/pods", PodObject, {"fieldSelector": f"spec.nodeName={identity.node}"})
        pods = Reflector(channel, kind, agent.pod_changed, agent.pod_deleted)
        async with AsyncExitStack() as stack:
            if options.metrics is not None:
                stack.enter_context(
                    metrics_served(options.metrics, lambda: agent.meter.page(identity.node, time.monotonic()))
                )
            group = await stack.enter_async_context(asyncio.TaskGroup())
            group.create_task(pods.run())
            await pods.ready.wait()
            agent.listed({pod.metadata.uid for pod in pods.objects.values()})
            group.create_task(agent.run())


async def _always() -> None:
    """An agent changes nothing that two could change: it takes no lease."""


class AgentRequests:
    """What the agent asks of the cluster; each request is repeated until it is answered."""

    def __init__(self, api: ClusterApi, identity: AgentIdentity) -> None:
        self._api, self._identity = api, identity
        self._trouble = PassTrouble("the agent's pod cannot be described, which is tried again", (StatusError,))

    async def report(self, report: AgentReport) -> bool:
        """Describe the cards of the node, on the agent's own pod; says whether the cluster took it."""
        is_said = await self._say(REPORT_ANNOTATION, report.text())
        if is_said:
            log.info("reported %d cards of node %s", len(report.devices), self._identity.node)
        return is_said

    async def tell_loads(self, loads: Mapping[str, int]) -> bool:
        """Say how busy the cards of the node are, on the agent's own pod; says whether the cluster took it."""
        return await self._say(LOADS_ANNOTATION, loads_text(loads))

    async def answer(self, answers: Mapping[str, SuspensionAnswer]) -> bool:
        """Say what became of what is wanted of pods, on the agent's own; says whether the cluster took it."""
        return await self._say(ANSWERS_ANNOTATION, answers_text(answers))

    async def _say(self, annotation: str, text: str) -> bool:
        path = f"/api/v1/namespaces/{self._identity.namespace}/pods/{self._identity.pod}"
        try:
            await self._api.ask("PATCH", path, {"metadata": {"annotations": {annotation: text}}}, patch="merge")
        except StatusError as error:
            self._trouble.note(error)
            return False
        self._trouble.over()
        return True

    async def evict(self, pod: PodKey, uid: str, reason: str) -> None:
        """Have a pod leave, however long its disruption budgets forbid it; another of its name stays."""
        namespace, name = pod
        log.warning("pod %s/%s is evicted: %s", namespace, name, reason)
        trouble = PassTrouble(f"pod {namespace}/{name} cannot be evicted, and is asked to leave again", (StatusError,))
        while (error := await refusal_to_evict(self._api, namespace, name, uid)) is not None:
            trouble.note(error)
            await asyncio.sleep(_AGAIN_S)
