"""An agent between a kubelet and a cluster that the tests stand for, with the real gate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_kubelet import FakeKubelet, until

from millpond.engines.kubernetes.agent import claim_plugin, device_plugin, node_agent
from millpond.engines.kubernetes.agent.agent_context import AgentPlaces, ClaimSide, ClusterSide
from millpond.engines.kubernetes.agent.claim_plugin import NamedClaim
from millpond.engines.kubernetes.agent.node_agent import NodeAgent
from millpond.engines.kubernetes.claims.claim_objects import ClaimObject
from millpond.engines.kubernetes.cluster.agent_report import AgentReport
from millpond.engines.kubernetes.cluster.objects import ObjectMeta, PodObject, PodSpec, PodStatus
from millpond.engines.kubernetes.pods.slice_order import SliceOrder
from millpond.engines.kubernetes.pods.suspension_order import SuspensionAnswer
from millpond.model.decisions import Grant
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.devices.vendor import NO_PROCESSES, Availability, DeviceVendor, OwnProcesses
from millpond.node.host.machine import Machine

CARDS = tuple(Device(f"GPU-{n}", n, "nvidia", "H200", 16_384, context_mib=512) for n in range(2))


class Cards(DeviceVendor):
    """NVIDIA cards, as far as the agent asks."""

    name = "nvidia"
    title = "NVIDIA"
    experimental = False
    sample_every_s = 1.0
    away = ""
    use_milli: int | None = None

    def available(self) -> Availability:
        return Availability(not self.away, self.away)

    def discover(self, own: OwnProcesses = NO_PROCESSES) -> tuple[Device, ...]:
        return CARDS

    def sample(self) -> tuple[DeviceSample, ...]:
        return tuple(DeviceSample(card.uuid, self.use_milli) for card in CARDS)

    def environment(self, devices: Any) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": ",".join(each.uuid for each in devices)}


@dataclass
class AgentBench:
    """A kubelet, an agent, and what the agent did to the cluster."""

    folder: Path
    kubelet: FakeKubelet = field(init=False)
    cards: tuple[Device, ...] = CARDS
    reports: list[AgentReport] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    refuses: bool = False
    loads: list[dict[str, int]] = field(default_factory=list)
    answers: Mapping[str, SuspensionAnswer] = field(default_factory=dict)
    vendor: Cards = field(default_factory=Cards)
    swap_mib: int = 0
    by_claims: bool = False
    accounts: bool = True
    published: list[tuple[Device, ...]] = field(default_factory=list)
    claims: dict[str, ClaimObject] = field(default_factory=dict)
    agent: NodeAgent = field(init=False)

    def __post_init__(self) -> None:
        self.kubelet = FakeKubelet(self.folder / "kubelet")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """An agent that is registered with the kubelet, until the end of the block."""
        places = AgentPlaces(
            self.folder / "millpond",
            self.kubelet.plugins,
            self.kubelet.resources,
            self.kubelet.registry,
            self.kubelet.drivers,
            self.folder / "cdi",
        )
        claims = ClaimSide(self._publish, self._withdraw, self._read)
        self.agent = NodeAgent(
            places, self._look, ClusterSide(self._report, self._answer, self._evict, self._tell_loads, claims)
        )
        if not (self.kubelet.plugins / "kubelet.sock").exists():
            await self.kubelet.start()
        before = len(self.kubelet.registered)
        work = asyncio.create_task(self.agent.run())
        try:
            if self.by_claims:
                await self.kubelet.register_driver()
                await until(lambda: self.reports)
            else:
                await until(lambda: len(self.kubelet.registered) > before and self.reports)
            yield
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    def _look(self, own: OwnProcesses) -> Machine:
        vendors = {"nvidia": self.vendor} if self.cards else {}
        return Machine((Node("n1", 1000, 1024, self.cards, swap_mib=self.swap_mib),), vendors)

    async def _publish(self, devices: Sequence[Device]) -> bool:
        if self.accounts:
            self.published.append(tuple(devices))
        return self.accounts

    async def _withdraw(self) -> None:
        self.published.append(())

    async def _read(self, claim: NamedClaim) -> ClaimObject | None:
        return self.claims.get(claim.name)

    async def _report(self, report: AgentReport) -> bool:
        if not self.refuses:
            self.reports.append(report)
        return not self.refuses

    async def _answer(self, answers: Mapping[str, SuspensionAnswer]) -> bool:
        if not self.refuses:
            self.answers = answers
        return not self.refuses

    async def _tell_loads(self, loads: Mapping[str, int]) -> bool:
        if not self.refuses:
            self.loads.append(dict(loads))
        return not self.refuses

    async def _evict(self, pod: tuple[str, str], uid: str, reason: str) -> None:
        self.evicted.append(uid)

    def bound(self, name: str, *grants: Grant, **more: Any) -> PodObject:
        """A pod of the server's is bound to the node."""
        meta = ObjectMeta(name, "team", f"uid-{name}", annotations=SliceOrder(grants, **more).annotation())
        pod = PodObject(meta, PodSpec("n1"), PodStatus())
        self.agent.pod_changed(pod)
        return pod

    def annotate(self, pod: PodObject, annotations: Mapping[str, str]) -> PodObject:
        """Something is written on a pod."""
        meta = pod.metadata
        both = {**meta.annotations, **annotations}
        changed = PodObject(ObjectMeta(meta.name, meta.namespace, meta.uid, annotations=both), pod.spec, pod.status)
        self.agent.pod_changed(changed)
        return changed

    def stranger(self, name: str) -> None:
        """A pod that is none of the server's is bound to the node."""
        self.agent.pod_changed(PodObject(ObjectMeta(name, "team", f"uid-{name}"), PodSpec("n1"), PodStatus()))

    async def admitted(self, name: str, milli: int, first: int = 0) -> tuple[dict[str, str], dict[str, bool]]:
        """What the kubelet gets for a pod."""
        return await self.kubelet.allocate(("team", name), [f"0-{first + each}" for each in range(milli)])


def hurry(folder: Path, gate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent looks often and waits for little, and the gate was built already."""
    monkeypatch.setattr(node_agent, "WAITS_S", 0.3)
    monkeypatch.setattr(node_agent, "DISCOVER_EVERY_S", 0.05)
    monkeypatch.setattr(device_plugin, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(claim_plugin, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(node_agent, "REGISTERED_WITHIN_S", 0.5)
    (folder / "millpond").mkdir()
    (folder / "millpond" / "gate").symlink_to(gate)


def run(bench: AgentBench, *tests: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Each with an agent of its own, one after the other on the same node."""

    async def all_of_it() -> None:
        try:
            for test in tests:
                async with asyncio.timeout(180), bench.running():
                    await test()
        finally:
            bench.kubelet.stop()

    asyncio.run(all_of_it())


def part(card: int, milli: int = 250, memory_mib: int = 4096) -> Grant:
    return Grant(f"GPU-{card}", milli, milli, memory_mib)
