"""The agent of one node: it finds the cards, reports them to the server, and gives pods what their orders say.

It never chooses. All that it does to the cluster is to describe itself, and to have pods leave that have what is not
theirs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from grpclib.exceptions import GRPCError, StreamTerminatedError

from millpond.engines.kubernetes.agent.agent_context import AgentPlaces, ClusterSide
from millpond.engines.kubernetes.agent.allocations import Allocation, Allocations, BoundPod, PodKey, device_names
from millpond.engines.kubernetes.agent.card_meter import CardMeter
from millpond.engines.kubernetes.agent.claim_plugin import ClaimPlugin
from millpond.engines.kubernetes.agent.device_plugin import (
    ContainerGifts,
    DevicePlugin,
    pods_with_devices,
)
from millpond.engines.kubernetes.agent.load_reporter import LoadReporter
from millpond.engines.kubernetes.agent.pod_processes import pids_by_pod
from millpond.engines.kubernetes.agent.pod_residency import HeldPods, PodResidency
from millpond.engines.kubernetes.agent.pod_slices import PodSlices
from millpond.engines.kubernetes.agent.prepared_claims import PreparedClaims
from millpond.engines.kubernetes.agent.suspensions import Suspensions
from millpond.engines.kubernetes.claims.card_shares import differs
from millpond.engines.kubernetes.claims.claim_objects import AllocatedDevice
from millpond.engines.kubernetes.cluster.agent_report import AgentReport
from millpond.engines.kubernetes.cluster.cluster_nodes import MILLI, VENDORS
from millpond.engines.kubernetes.cluster.objects import PodObject
from millpond.engines.kubernetes.pods.slice_order import SliceOrder
from millpond.engines.kubernetes.pods.suspension_order import SuspensionOrder
from millpond.model.errors import MillpondError, UnavailableError
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.node.devices.nvidia import NvidiaVendor
from millpond.node.devices.vendor import OwnProcesses
from millpond.node.host.machine import Machine
from millpond.node.sharing.escapes import LOOK_EVERY_S, Escape, EscapeHistory, WatchedSlice, driver_mib

log = logging.getLogger(__name__)

DISCOVER_EVERY_S: Final = 10.0
NOT_LISTED: Final = "the driver does not list it any more"
WAITS_S: Final = 10.0
"""The pod that the kubelet asks for is waited for so long: the kubelet may hear of it first."""
REGISTERED_WITHIN_S: Final = 30.0
"""A kubelet that has not taken the agent as a driver by then takes device plugins alone."""
_AGAIN_S: Final = 0.1
_RESOURCE_OF_VENDOR: Final = next(name for name, vendor in VENDORS.items() if vendor == NvidiaVendor.name)
_UNANSWERED: Final = (OSError, GRPCError, StreamTerminatedError, TimeoutError)


class NodeAgent:
    """Lives on one event loop.

    Args:
        look: at the machine and its cards; blocks.

    Attributes:
        allocations: what pods have of the cards.
        meter: what the cards and their slices did at the last looks.
    """

    def __init__(self, places: AgentPlaces, look: Callable[[OwnProcesses], Machine], cluster: ClusterSide) -> None:
        self._places, self._look, self._cluster = places, look, cluster
        self._slices = PodSlices(places.folder)
        self.allocations = Allocations(self._slices.found())
        self.meter = CardMeter(lambda: list(self.allocations.made.values()))
        self._plugin = DevicePlugin(places.plugins, self.allocate)
        self._prepared = PreparedClaims(places.cdi, cluster.claims.read, self.allocate_claim)
        self._claim_plugin = ClaimPlugin(
            places.registry, places.drivers, self._prepared.prepare, self._prepared.unprepare
        )
        self._by_claims = False
        self._machine: Machine | None = None
        self._devices: dict[str, Device] = {}
        self._driver_away = ""
        self._reported: AgentReport | None = None
        self._shown: Mapping[PodKey, Mapping[str, frozenset[str]]] = {}
        self._live: dict[str, PodKey] = {}
        self._ending: set[str] = set()
        self._residency: PodResidency | None = None
        self._suspensions = Suspensions(self.allocations, cluster.answer)
        self._one_at_a_time = asyncio.Lock()
        self._escapes = EscapeHistory()
        self._loads = LoadReporter()
        self._untold: Mapping[str, int] | None = None
        self._looked = asyncio.Event()

    async def run(self) -> None:
        """Look after the node for ever."""
        unsliced = await asyncio.to_thread(self._slices.why_nothing_is_held)
        await self._look_around()
        async with asyncio.TaskGroup() as self._work:
            residency = self._residency = await self._recovered()
            try:
                self._work.create_task(self._keep_looking(unsliced))
                self._work.create_task(self._serve(unsliced))
                self._work.create_task(self._keep_watching())
                await self._suspensions.run(residency)
            finally:
                residency.close()

    async def _serve(self, unsliced: str) -> None:
        self._by_claims = await self._serve_claims()
        self._work.create_task(self._keep_describing(unsliced))
        if not self._by_claims:
            await self._plugin.run()

    async def _serve_claims(self) -> bool:
        """Give cards out by claims from now on, if the cluster and the kubelet can; else by the device plugin."""
        if not self._places.registry.is_dir() or not await self._cluster.claims.publish(tuple(self._devices.values())):
            return False
        self._prepared.keep({uid for made in self.allocations.made.values() for uid in made.ids})
        serving = self._work.create_task(self._claim_plugin.run())
        try:
            async with asyncio.timeout(REGISTERED_WITHIN_S):
                await self._claim_plugin.registered.wait()
        except TimeoutError:
            log.warning("the kubelet does not take drivers of claims: cards are given out by the device plugin")
            serving.cancel()
            await self._cluster.claims.withdraw()
            return False
        return True

    async def _recovered(self) -> PodResidency:
        """What takes pods off their cards, once it is known where those of an earlier agent are."""
        assert self._machine is not None
        loop = asyncio.get_running_loop()

        def lose(uid: str, reason: str) -> None:
            loop.call_soon_threadsafe(self._lost, uid, reason)

        pods = HeldPods(self.allocations.made.get, self._ending.__contains__, lose)
        residency = PodResidency(self._places.folder, self._machine, self._slices, pods)
        made = list(self.allocations.made.values())
        await asyncio.to_thread(residency.recover, made)
        for each in made:
            self.allocations.now(each.pod.uid, residency.desired_of(each))
            if each.pod.uid in self._ending:
                await asyncio.to_thread(residency.let_end, each)
        return residency

    def _lost(self, uid: str, reason: str) -> None:
        made = self.allocations.made.get(uid)
        if made is not None:
            self._evict(made.pod.key, uid, f"it cannot go on: {reason}")

    # ---- pods -----------------------------------------------------------------------------------------------------

    def pod_changed(self, pod: PodObject) -> None:
        """A pod of this node is there, or has changed."""
        if pod.is_over:
            self.pod_deleted(pod)
            return
        meta = pod.metadata
        self._live[meta.uid] = (meta.namespace, meta.name)
        order = SliceOrder.of(meta.annotations)
        if order is not None:
            self.allocations.bound(BoundPod(meta.uid, (meta.namespace, meta.name), order))
        wanted = SuspensionOrder.of(meta.annotations)
        if wanted is not None:
            self._suspensions.want(meta.uid, wanted)
        if meta.deletion_timestamp is not None and meta.uid not in self._ending:
            self._ending.add(meta.uid)
            self._let_end(meta.uid)

    def _let_end(self, uid: str) -> None:
        """A pod that was asked to end hears of it, wherever its memory is."""
        made = self.allocations.made.get(uid)
        if made is not None and self._residency is not None:
            self._work.create_task(asyncio.to_thread(self._residency.let_end, made))

    def pod_deleted(self, pod: PodObject) -> None:
        """A pod has ended, or is gone."""
        self._live.pop(pod.metadata.uid, None)
        self._over(pod.metadata.uid)

    def _over(self, uid: str) -> None:
        self._suspensions.over(uid)
        self._ending.discard(uid)
        made = self.allocations.over(uid)
        if made is not None:
            self._release(made)

    def _release(self, made: Allocation) -> None:
        if self._residency is not None:
            self._residency.release(made)
        self._slices.release(made)

    def listed(self, uids: set[str]) -> None:
        """All pods of this node were listed: what the agent still knows of others is over."""
        for uid in [uid for uid in self.allocations.made if uid not in uids]:
            self._over(uid)

    # ---- what the kubelet asks ------------------------------------------------------------------------------------

    async def allocate(self, ids: Sequence[str]) -> ContainerGifts:
        """What the container of the pod gets that the kubelet is about to start.

        Raises:
            MillpondError: none waits for so much, or its order cannot be carried out.
        """
        async with self._one_at_a_time:
            pod = await self._asking(
                lambda: self.allocations.next_of(len(ids)),
                f"Millpond has bound no pod to this node that asks for {len(ids)} {MILLI}",
            )
            return await self._given(self.allocations.give(pod, ids))

    async def allocate_claim(
        self, users: Collection[str], claim: str, has: Sequence[AllocatedDevice], is_prepared: bool
    ) -> ContainerGifts | None:
        """What the container of the pod gets that may use a claim, as ``PreparedClaims`` asks for it.

        Raises:
            MillpondError: no such pod waits, the claim says something else than its order, or that cannot be done.
        """
        async with self._one_at_a_time:
            made = next((each for each in self.allocations.made.values() if claim in each.ids), None)
            if made is not None and is_prepared:
                return None  # its containers may run: nothing of theirs is touched
            if made is None:
                missing = f"Millpond has bound no pod to this node that may use claim {claim}"
                pod = await self._asking(lambda: self.allocations.waiting_of(users), missing)
                if differs(has, pod.order.grants, self._devices):
                    said = f"the claim of pod {pod.key[1]} has something else than Millpond has decided"
                    raise UnavailableError(said, "have Millpond allocate it")
                made = self.allocations.give(pod, [claim], confirmed=True)
            try:
                return await self._given(made)
            except MillpondError:
                if made.pod.uid in self._live:
                    self.allocations.bound(made.pod)  # the kubelet asks again
                raise

    async def _given(self, made: Allocation) -> ContainerGifts:
        """What a container gets of what its pod was given, which is taken back where that cannot be prepared."""
        assert self._machine is not None
        assert self._residency is not None
        self._residency.arrived(made)
        try:
            gifts = await asyncio.to_thread(self._slices.prepare, made, self._machine, dict(self._devices))
        except (MillpondError, OSError) as error:
            self.allocations.over(made.pod.uid)
            self._release(made)
            if isinstance(error, OSError):
                raise UnavailableError(f"the node cannot prepare it: {error}", "see the agent's log") from error
            raise
        if made.pod.uid not in self.allocations.made:
            self._release(made)  # what was prepared after the release of its end
            raise UnavailableError(f"pod {made.pod.key[1]} has ended meanwhile", "nothing waits for it any more")
        return gifts

    async def _asking(self, find: Callable[[], BoundPod | None], missing: str) -> BoundPod:
        """The pod that is meant, as soon as it is known and has room.

        Args:
            missing: what is said where there is none.
        """
        give_up_at = time.monotonic() + WAITS_S
        while True:
            await self._compare()
            pod = find()
            lacking = "" if pod is None else self.allocations.lacking(pod, self._devices)
            if pod is not None and not lacking:
                return pod
            if time.monotonic() >= give_up_at:
                if lacking:
                    raise UnavailableError(lacking, "it is tried elsewhere")
                raise UnavailableError(missing, "name it as the pod's scheduler: schedulerName: millpond")
            await asyncio.sleep(_AGAIN_S)

    async def _compare(self) -> None:
        """Hold what was given against what the kubelet shows."""
        try:
            self._shown = await pods_with_devices(self._places.resources)
        except _UNANSWERED as error:
            log.debug("the kubelet does not say what pods have: %s", error)
            return
        live = {key: uid for uid, key in self._live.items()}
        have = {key: shown[MILLI] for key, shown in self._shown.items() if MILLI in shown and key in live}
        for made, holder in self.allocations.compare(have):
            log.warning("pod %s/%s has taken what was pod %s/%s's", *holder, *made.pod.key)
            self._release(made)
            self.allocations.take_back(made)
            self._evict(holder, live[holder], f"it has the part of a card that is for pod {made.pod.key[1]}")

    def _evict(self, pod: PodKey, uid: str, reason: str) -> None:
        """Have a pod leave; nothing waits for that, as a disruption budget may forbid it for long."""
        self._work.create_task(self._cluster.evict(pod, uid, reason))

    # ---- what it looks at -----------------------------------------------------------------------------------------

    async def _keep_looking(self, unsliced: str) -> None:
        while True:
            await asyncio.sleep(DISCOVER_EVERY_S)
            await self._look_around()
            self.meter.report = self._report(unsliced)
            await self._measure_loads()
            self._looked.set()

    async def _keep_describing(self, unsliced: str) -> None:
        """Apart from the looks: a cluster that does not answer is waited for, and the node is looked at meanwhile."""
        while True:
            await self._describe(unsliced)
            await self._looked.wait()
            self._looked.clear()
            if self._untold is not None:
                loads, self._untold = self._untold, None
                if not await self._cluster.tell_loads(loads) and self._untold is None:
                    self._untold = loads

    async def _measure_loads(self) -> None:
        vendor = None if self._machine is None else self._machine.vendors.get(NvidiaVendor.name)
        if vendor is None or self._driver_away:
            return
        try:
            samples = await asyncio.to_thread(vendor.sample)
        except (MillpondError, OSError) as error:
            log.warning("the load of the cards is not measured: %s", error)
            return
        now = time.monotonic()
        self.meter.sampled(samples, now)
        loads = self._loads.look(samples, now)
        self._untold = self._untold if loads is None else loads

    async def _look_around(self) -> None:
        own = await asyncio.to_thread(self._own_processes)
        machine = await asyncio.to_thread(self._look, own)
        if self._machine is not None and self._devices and NvidiaVendor.name not in machine.vendors:
            # Where all cards are lost none is listed. Where the driver is away, that ends nothing that runs on them.
            vendor = self._machine.vendors[NvidiaVendor.name]
            availability = await asyncio.to_thread(vendor.available)
            self._driver_away = "" if availability.usable else availability.reason
            if self._driver_away:
                return
            machine = replace(machine, vendors={**machine.vendors, vendor.name: vendor})
        self._machine, self._driver_away = machine, ""
        if self._residency is not None:
            self._residency.looked_at(machine)
        (node,) = machine.nodes
        # A pod keeps the cards that it was given, so nothing comes back on others.
        devices = (replace(each, remaps=False) for each in node.devices if each.vendor == NvidiaVendor.name)
        gone = {
            uuid: replace(each, health=DeviceHealth.FAULTY, health_detail=NOT_LISTED)
            for uuid, each in self._devices.items()
        }
        self._devices = gone | {each.uuid: each for each in devices}

    async def _describe(self, unsliced: str) -> None:
        await self._compare()
        report = self.meter.report = self._report(unsliced)
        if report != self._reported:
            if self._driver_away:
                log.warning("the cards cannot be looked at: %s", self._driver_away)
            if await self._cluster.report(report):
                self._reported = report
        if self._by_claims:
            await self._cluster.claims.publish(report.devices)
        else:
            await self._plugin.offer(device_names(report.devices, self.allocations.resting_milli))

    def _report(self, unsliced: str) -> AgentReport:
        assert self._machine is not None
        (node,), devices = self._machine.nodes, tuple(self._devices.values())
        others, away = self._held_by_others(), self._driver_away
        return AgentReport(devices, node.link_map, unsliced, others, node.swap_mib, away, self._by_claims)

    def _held_by_others(self) -> dict[str, str]:
        """The cards that the vendor's own plugin has given to pods, where it knows them by UUID too."""
        return {
            uuid: "/".join(key)
            for key, shown in self._shown.items()
            for uuid in shown.get(_RESOURCE_OF_VENDOR, ())
            if uuid in self._devices
        }

    def _own_processes(self) -> OwnProcesses:
        pids = pids_by_pod()
        mine = self.allocations.made.values()
        devices = frozenset(grant.device for made in mine for grant in made.pod.order.grants)
        return OwnProcesses(frozenset(pid for made in mine for pid in pids.get(made.pod.uid, ())), devices)

    async def _keep_watching(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if not self.allocations.all_confirmed:
                await self._compare()
            made = list(self.allocations.made.values())
            try:
                escapes = await asyncio.to_thread(self._escaped, made)
            except (MillpondError, OSError) as error:
                log.warning("slices are not looked at: %s", error)
                continue
            for allocation, escape in escapes:
                log.warning("pod %s/%s: %s", *allocation.pod.key, escape.text)
                if allocation.pod.order.evicts:
                    self._evict(allocation.pod.key, allocation.pod.uid, escape.text)

    def _escaped(self, made: Sequence[Allocation]) -> list[tuple[Allocation, Escape]]:
        """Pods that are beyond their slices; each is found once."""
        usages = [(each, usage) for each in made if (usage := self._slices.usage(each)) is not None]
        self.meter.counted(usages, time.monotonic())
        vendor = None if self._machine is None else self._machine.vendors.get(NvidiaVendor.name)
        if not usages or vendor is None:  # where the agent has begun while the driver was away
            return []
        pids = pids_by_pod()
        held = [
            WatchedSlice(each.pod.task, grant, frozenset(pids.get(each.pod.uid, ())), usage, each.pod.order.share_class)
            for each, usage in usages
            for grant in each.pod.order.grants
        ]
        samples = vendor.sample()
        now = time.monotonic()
        self.meter.sampled(samples, now)
        by_task = {each.pod.task: each for each, _ in usages}
        for watched, mib in driver_mib(samples, held):
            self._slices.match_driver(by_task[watched.task], mib, watched.usage)
        return [(by_task[each.task], each) for each in self._escapes.look(samples, held, now)]
