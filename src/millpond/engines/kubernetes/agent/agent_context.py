"""What the agent of a node has around it: places of the node, and what it does to the cluster."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.engines.kubernetes.agent.allocations import PodKey
from millpond.engines.kubernetes.agent.claim_plugin import NamedClaim
from millpond.engines.kubernetes.agent.device_plugin import KUBELET_SOCKET
from millpond.engines.kubernetes.claims.claim_objects import ClaimObject
from millpond.engines.kubernetes.cluster.agent_report import AgentReport
from millpond.engines.kubernetes.pods.suspension_order import SuspensionAnswer
from millpond.model.hardware.devices import Device


@dataclass(frozen=True, slots=True)
class AgentPlaces:
    """Where the agent finds and keeps things, at the same paths as on the node.

    Attributes:
        folder: its own, which outlives it.
        plugins: with the kubelet's socket for device plugins.
        resources: the kubelet's socket that tells what pods have.
        registry: where the kubelet looks for drivers of claims; there is no such folder where it does not.
        drivers: for the sockets of these.
        cdi: where the container runtime looks for what devices come to.
    """

    folder: Path
    plugins: Path = Path("/var/lib/kubelet/device-plugins")
    resources: Path = Path("/var/lib/kubelet/pod-resources") / KUBELET_SOCKET
    registry: Path = Path("/var/lib/kubelet/plugins_registry")
    drivers: Path = Path("/var/lib/kubelet/plugins")
    cdi: Path = Path("/var/run/cdi")


@dataclass(frozen=True, slots=True)
class ClaimSide:
    """What the agent does to the cluster where that has claims.

    Attributes:
        publish: the cards, as devices of claims; False where the cluster does not account for shares of devices.
        withdraw: publish them no more.
        read: a claim; None where there is none of its name.
    """

    publish: Callable[[Sequence[Device]], Coroutine[Any, Any, bool]]
    withdraw: Callable[[], Coroutine[Any, Any, None]]
    read: Callable[[NamedClaim], Coroutine[Any, Any, ClaimObject | None]]


@dataclass(frozen=True, slots=True)
class ClusterSide:
    """What the agent does to the cluster.

    Attributes:
        report: describe the cards; False where the cluster refuses that, which is to be tried again.
        answer: say what became of what is wanted of pods; the same.
        evict: have a pod leave, by its namespace and name and its uid, and why.
        tell_loads: say how busy the cards are; False where the cluster refuses that.
        claims: as a driver of these.
    """

    report: Callable[[AgentReport], Coroutine[Any, Any, bool]]
    answer: Callable[[Mapping[str, SuspensionAnswer]], Coroutine[Any, Any, bool]]
    evict: Callable[[PodKey, str, str], Coroutine[Any, Any, None]]
    tell_loads: Callable[[Mapping[str, int]], Coroutine[Any, Any, bool]]
    claims: ClaimSide
