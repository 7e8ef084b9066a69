"""Nodes whose agents give cards out by claims: what agents publish, and what the server writes for pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from driver_cards import CLAIMS, SLICES, DriverBench
from foreign_pods import JOB, AdoptingBench, condition, foreign_pod
from lightkube.models.core_v1 import PodStatus
from lightkube.models.meta_v1 import OwnerReference
from lightkube.models.resource_v1 import DeviceCapacity
from lightkube.resources.resource_v1 import ResourceClaim, ResourceSlice
from pod_bench import PodBench, eventually
from standin_agent import CARDS, add_agent, add_claiming_agent
from standin_cluster import StandinCluster, refusal

from millpond.engines.kubernetes.agent.claim_plugin import NamedClaim
from millpond.engines.kubernetes.agent.slice_publisher import SlicePublisher
from millpond.engines.kubernetes.claims.card_shares import differs, share_name, slice_name
from millpond.engines.kubernetes.claims.claim_objects import AllocatedDevice
from millpond.engines.kubernetes.cluster.access import api_channel
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_nodes import AGENT_DRIVER, MILLI
from millpond.engines.kubernetes.cluster.kubeconfig import ClusterAccess, find_config
from millpond.model.decisions import Grant, Placement, Start
from millpond.model.errors import UnavailableError
from millpond.model.events import Confirmed, Ended, NodeJoined, Refused
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.node_selection import selects
from millpond.model.hardware.nodes import Node
from millpond.model.reasons import Cause
from millpond.server.operations.cluster_check import check_cluster
from millpond.server.operations.findings import Grade
from millpond.specs.config.kubernetes import KubernetesFile

TRAIN = "train-abcde"
POD, CLAIM = f"{TRAIN}-1-0", f"{TRAIN}-1-0-1"
WHOLE = tuple(Grant(card.uuid, 1000, 1000, 0) for card in CARDS)
TELLING = "PATCH /api/v1/namespaces/team/pods/theirs/status"
BINDING = "POST /api/v1/namespaces/team/pods/theirs/binding"


@pytest.fixture
def agents(cluster: StandinCluster) -> DriverBench:
    add_claiming_agent(cluster)
    return DriverBench(cluster)


@pytest.fixture
def bench(agents: DriverBench, tmp_path: Path) -> Iterator[PodBench]:
    with PodBench(agents.cluster, tmp_path) as bench:
        yield bench


@pytest.fixture
def adopting(agents: DriverBench, tmp_path: Path) -> Iterator[AdoptingBench]:
    with AdoptingBench(agents.cluster, tmp_path) as bench:
        yield bench


def starts(number: int, job: str, *grants: Grant, attempt: int = 1) -> Start:
    return Start(number, job, attempt, Cause.FITS, (Placement(0, "worker", "n1", grants),))


def part(card: int = 0, milli: int = 250) -> Grant:
    return Grant(f"GPU-{card}", milli, milli, 4096)


def node_of(bench: PodBench) -> Node:
    return next(node for node in bench.engine.inventory().nodes if node.name == "n1")


def results_of(agents: DriverBench, claim: str) -> list[dict[str, Any]]:
    return list(agents.claim(claim)["status"]["allocation"]["devices"]["results"])


def shares_of(agents: DriverBench, claim: str) -> list[tuple[str, str, dict[str, str]]]:
    found = results_of(agents, claim)
    assert {each["driver"] for each in found} == {AGENT_DRIVER}
    return [(each["pool"], each["device"], each["consumedCapacity"]) for each in found]


# ---- what the server writes ----------------------------------------------------------------------------------------


def test_a_part_of_a_card_is_a_share_of_a_claim_that_the_pod_names(bench: PodBench, agents: DriverBench) -> None:
    assert node_of(bench).devices == CARDS
    bench.engine.apply([starts(1, TRAIN, part(1))])
    pod = bench.bound(POD)
    (container,) = pod["spec"]["containers"]
    assert MILLI not in container["resources"]["requests"]
    assert container["resources"]["claims"] == [{"name": "cards"}]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]  # until the claim says other ones
    assert pod["spec"]["resourceClaims"][0]["resourceClaimName"] == CLAIM
    assert "millpond.io/grants" in pod["metadata"]["annotations"]  # for the gate
    assert shares_of(agents, CLAIM) == [("n1", "card-gpu-1", {"memory": "4096Mi", "milli": "250"})]
    assert agents.users_of(CLAIM) == [POD]
    agents.cluster.run(POD)
    assert bench.next(Confirmed).decision == 1
    agents.cluster.finish(POD)
    assert bench.next(Ended).task == 0


def test_what_is_written_of_shares_is_what_the_models_of_kubernetes_have(bench: PodBench, agents: DriverBench) -> None:
    bench.engine.apply([starts(1, TRAIN, part(1)), starts(2, "other-abcde", part(1, 500))])
    bench.bound(POD)
    bench.bound("other-abcde-1-0")
    claim, other = (ResourceClaim.from_dict(agents.claim(name)) for name in (CLAIM, "other-abcde-1-0-2"))
    assert claim.spec.devices is not None
    (request,) = claim.spec.devices.requests or ()
    assert request.exactly is not None
    assert request.exactly.capacity is not None
    assert (request.exactly.deviceClassName, request.exactly.count) == (AGENT_DRIVER, 1)
    assert request.exactly.capacity.requests == {"memory": "4096Mi", "milli": "250"}
    shares = []
    for each in (claim, other):
        assert each.status is not None
        assert each.status.allocation is not None
        assert each.status.allocation.devices is not None
        (result,) = each.status.allocation.devices.results or ()
        shares.append(result.shareID)
    assert len({*shares, None}) == 3  # each has its own


def test_whole_cards_take_all_that_they_have(bench: PodBench, agents: DriverBench) -> None:
    bench.engine.apply([starts(1, TRAIN, *WHOLE)])
    bench.bound(POD)
    all_of_it = {"memory": "16384Mi", "milli": "1000"}
    assert shares_of(agents, CLAIM) == [("n1", "card-gpu-0", all_of_it), ("n1", "card-gpu-1", all_of_it)]
    assert agents.claim(CLAIM)["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2


def test_pods_with_claims_are_bound_without_waiting_for_one_another(bench: PodBench) -> None:
    bench.engine.apply([starts(1, "one-aaaaa", part()), starts(2, "two-bbbbb", part())])
    bench.bound("one-aaaaa-1-0")
    bench.bound("two-bbbbb-1-0")


def test_an_agent_whose_cards_are_published_no_more_is_silent(bench: PodBench, agents: DriverBench) -> None:
    agents.cluster.remove(SLICES, slice_name("n1"), "")  # as the kubelet does
    said = bench.next(NodeJoined).node
    assert {each.health for each in said.devices} == {DeviceHealth.BUSY_ELSEWHERE}
    eventually(lambda: "does not answer the kubelet" in str(agents.cluster.get("nodes", "n1", "")))
    add_claiming_agent(agents.cluster)
    assert {each.health for each in bench.next(NodeJoined).node.devices} == {DeviceHealth.OK}


def test_a_node_whose_agent_is_a_device_plugin_again_is_asked_as_one(bench: PodBench, agents: DriverBench) -> None:
    agents.cluster.remove(SLICES, slice_name("n1"), "")
    bench.next(NodeJoined)
    add_agent(agents.cluster)
    eventually(lambda: all(each.health is DeviceHealth.OK for each in node_of(bench).devices))
    bench.engine.apply([starts(1, TRAIN, part(1))])
    pod = bench.bound(POD)
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {MILLI: "250"}
    assert "resourceClaims" not in pod["spec"] or not pod["spec"]["resourceClaims"]
    assert agents.cluster.names(CLAIMS) == []


def test_a_claim_that_the_cluster_does_not_take_refuses_the_start(bench: PodBench, agents: DriverBench) -> None:
    making = "POST /apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
    agents.cluster.refuses = lambda request, _: refusal(403, "Forbidden", "no") if request == making else None
    bench.engine.apply([starts(1, TRAIN, part(1))])
    assert "does not take its resource claim: no" in bench.next(Refused).reason
    assert agents.cluster.get("pods", POD) is None


def test_the_check_counts_cards_and_agents_that_serve_claims(agents: DriverBench, tmp_path: Path) -> None:
    agents.cluster.remove("nodes", "n2", "")
    settings = KubernetesFile.model_validate({"kubeconfig": str(agents.cluster.kubeconfig(tmp_path))})
    found = {each.what: each for each in check_cluster(settings)}
    assert found["cards"].found == f"2 x {AGENT_DRIVER}"
    assert (found["agents"].grade, found["agents"].found) == (
        Grade.OK,
        "on 1 of 1 nodes, cards are given out in parts",
    )
    agents.cluster.remove(SLICES, slice_name("n1"), "")
    found = {each.what: each for each in check_cluster(settings)}
    assert "does not serve its kubelet" in found["agents"].found


# ---- pods of others ------------------------------------------------------------------------------------------------


def sharing(cluster: StandinCluster, milli: int = 250, **more: Any) -> None:
    amounts = {"cpu": "2", MILLI: str(milli)}
    foreign_pod(cluster, "theirs", containers=[{"name": "task", "resources": {"requests": amounts}}], **more)


def places_of(bench: AdoptingBench) -> list[str]:
    selection = bench.gang().terms.selection
    return [each.name for each in bench.engine.inventory().nodes if selects(selection, each.labels)]


def test_a_pod_of_others_that_asks_for_thousandths_gets_a_claim_and_is_told(
    adopting: AdoptingBench, agents: DriverBench
) -> None:
    sharing(agents.cluster)
    gang = adopting.gang()
    assert places_of(adopting) == ["n1"]
    assert gang.roles[0].request.slice.compute_milli == 250
    adopting.stand_for(gang.key)
    adopting.engine.apply([starts(1, JOB, part(0))])
    adopting.bound("theirs")
    (name,) = agents.cluster.names(CLAIMS)
    assert shares_of(agents, name) == [("n1", "card-gpu-0", {"memory": "4096Mi", "milli": "250"})]
    plain = agents.cluster.get("pods", "theirs") or {}
    said = PodStatus.from_dict(plain["status"]).extendedResourceClaimStatus
    assert said is not None
    (mapping,) = said.requestMappings
    assert (said.resourceClaimName, mapping.resourceName) == (name, MILLI)
    assert mapping.requestName == results_of(agents, name)[0]["request"]
    asked = agents.cluster.requests
    assert asked.index(TELLING) < asked.index(BINDING)


def test_a_start_with_another_share_makes_its_claim_anew(adopting: AdoptingBench, agents: DriverBench) -> None:
    sharing(agents.cluster)
    adopting.stand_for(adopting.gang().key)
    agents.cluster.refuses = lambda request, _: refusal(403, "Forbidden", "no") if request == BINDING else None
    adopting.engine.apply([starts(1, JOB, part(0))])
    adopting.next(Refused)
    agents.cluster.refuses = lambda _request, _body: None
    more = replace(part(0), memory_mib=8192)
    adopting.engine.apply([starts(2, JOB, more, attempt=2)])
    assert "asked for something else, and is made anew" in adopting.next(Refused).reason
    adopting.engine.apply([starts(3, JOB, more, attempt=3)])
    adopting.bound("theirs")
    (name,) = agents.cluster.names(CLAIMS)
    assert shares_of(agents, name) == [("n1", "card-gpu-0", {"memory": "8192Mi", "milli": "250"})]


def test_pods_that_another_scheduler_binds_go_to_agents_that_are_device_plugins(
    agents: DriverBench, tmp_path: Path
) -> None:
    bench = AdoptingBench(agents.cluster, tmp_path, gated=True)
    bench.open()
    try:
        gates = [{"name": "millpond.io/gate"}]
        labels = {"millpond.io/queue": "default"}
        sharing(agents.cluster, labels=labels, schedulerName="default-scheduler", schedulingGates=gates)
        assert places_of(bench) == []
        add_agent(agents.cluster, "n2")
        chosen = lambda: [  # noqa: E731
            each.name for each in bench.engine.inventory().nodes if selects(bench.gang().terms.selection, each.labels)
        ]
        eventually(lambda: chosen() == ["n2"])
        assert condition(agents.cluster, "theirs") == ""
    finally:
        bench.close()


# ---- what agents publish -------------------------------------------------------------------------------------------


def published(
    cluster: StandinCluster, folder: Path, act: Callable[[SlicePublisher], Coroutine[Any, Any, None]]
) -> list[ResourceSlice]:
    """What the cluster has of an agent's cards, after something was done with them."""

    async def run() -> None:
        channel = api_channel(find_config(ClusterAccess(str(cluster.kubeconfig(folder)))), 2)
        following: list[asyncio.Task[None]] = []

        async def always() -> None:
            pass

        def begin(work: Coroutine[Any, Any, None]) -> None:
            following.append(asyncio.get_running_loop().create_task(work))

        owner = OwnerReference("v1", "Pod", "agent", "uid-of-agent")
        try:
            async with asyncio.timeout(60):
                await act(SlicePublisher(ClusterApi(channel, "team", always), channel, "n1", lambda: owner, begin))
        finally:
            for each in following:
                each.cancel()
            await channel.aclose()

    asyncio.run(run())
    return [ResourceSlice.from_dict(cluster.get(SLICES, name, "") or {}) for name in cluster.names(SLICES)]


def test_cards_are_published_as_devices_that_many_claims_may_have(cluster: StandinCluster, tmp_path: Path) -> None:
    cluster.serves_claims = True
    failed = replace(CARDS[1], health=DeviceHealth.FAULTY)

    async def act(publisher: SlicePublisher) -> None:
        assert await publisher.publish([failed, CARDS[0]])

    (found,) = published(cluster, tmp_path, act)
    assert (found.spec.driver, found.spec.nodeName, found.spec.pool.name) == (AGENT_DRIVER, "n1", "n1")
    first, second = found.spec.devices or ()
    assert (first.name, first.allowMultipleAllocations) == ("card-gpu-0", True)
    capacity = {name: DeviceCapacity.from_dict(each) for name, each in (first.capacity or {}).items()}
    assert {name: each.value for name, each in capacity.items()} == {"memory": "16384Mi", "milli": "1000"}
    assert all(each.requestPolicy is None for each in capacity.values())  # any amount may be taken
    assert (first.attributes or {})["uuid"] == {"string": "GPU-0"}
    assert first.taints is None
    assert [each.effect for each in second.taints or ()] == ["NoSchedule"]
    assert found.metadata is not None
    assert [each.uid for each in found.metadata.ownerReferences or ()] == ["uid-of-agent"]


def test_a_slice_that_goes_with_the_earlier_agent_in_that_moment_is_published_anew(
    cluster: StandinCluster, tmp_path: Path
) -> None:
    cluster.serves_claims = True

    def collected(request: str, _body: Any) -> Any:
        if request.startswith("PATCH"):
            cluster.remove(SLICES, slice_name("n1"), "")
        return None

    async def act(publisher: SlicePublisher) -> None:
        assert await publisher.publish(CARDS)
        cluster.refuses = collected
        assert await publisher.publish(CARDS[:1])

    (found,) = published(cluster, tmp_path, act)
    assert [each.name for each in found.spec.devices or ()] == ["card-gpu-0"]


def test_what_changes_or_is_removed_is_published_again_and_nothing_else(
    cluster: StandinCluster, tmp_path: Path
) -> None:
    cluster.serves_claims = True

    def writes() -> int:
        return sum(each.split()[0] in ("POST", "PATCH") and "resourceslices" in each for each in cluster.requests)

    async def act(publisher: SlicePublisher) -> None:
        assert await publisher.publish(CARDS[:1])
        assert await publisher.publish(CARDS[:1])
        assert writes() == 1
        assert await publisher.publish(CARDS)
        before = writes()
        await asyncio.sleep(0)
        cluster.remove(SLICES, slice_name("n1"), "")  # the kubelet did not find the driver for a while
        while writes() == before:
            assert await publisher.publish(CARDS)
            await asyncio.sleep(0.005)

    (found,) = published(cluster, tmp_path, act)
    assert [each.name for each in found.spec.devices or ()] == ["card-gpu-0", "card-gpu-1"]


@pytest.mark.parametrize(
    ("lacks", "devices"), [("the API", CARDS), ("the right", CARDS), ("the feature", CARDS), ("nothing", ())]
)
def test_where_shares_cannot_be_accounted_for_nothing_is_published(
    cluster: StandinCluster, tmp_path: Path, lacks: str, devices: Sequence[Device]
) -> None:
    cluster.serves_claims = lacks != "the API"
    cluster.accounts_for_shares = lacks != "the feature"
    if lacks == "the right":
        cluster.refuses = lambda request, _: refusal(403, "Forbidden", "no") if request.startswith("POST") else None

    async def act(publisher: SlicePublisher) -> None:
        assert not await publisher.publish(devices)

    assert published(cluster, tmp_path, act) == []


def test_claims_are_read_as_they_are_and_a_missing_right_is_named(agents: DriverBench, tmp_path: Path) -> None:
    agents.add_claim("mine")
    looking = "GET /apis/resource.k8s.io/v1/namespaces/team/resourceclaims/mine"

    async def act(publisher: SlicePublisher) -> None:
        assert await publisher.read(NamedClaim("team", "", "none")) is None
        found = await publisher.read(NamedClaim("team", "", "mine"))
        assert found is not None
        assert found.metadata.uid == agents.claim("mine")["metadata"]["uid"]
        agents.cluster.refuses = lambda request, _: refusal(403, "Forbidden", "no") if request == looking else None
        with pytest.raises(UnavailableError, match="may not look at claim mine"):
            await publisher.read(NamedClaim("team", "", "mine"))

    published(agents.cluster, tmp_path, act)


@pytest.mark.parametrize(
    ("consumed", "is_other"),
    [
        ({"milli": "250", "memory": "4Gi"}, False),  # the same, as others may write it
        ({"milli": "251", "memory": "4Gi"}, True),
        ({"milli": "250", "memory": "5Gi"}, True),
        ({}, True),
    ],
)
def test_a_claim_is_held_against_what_was_granted(consumed: dict[str, str], is_other: bool) -> None:
    has = AllocatedDevice(AGENT_DRIVER, "n1", share_name("GPU-0"), consumed_capacity=consumed)
    assert differs([has], [part(0)], {card.uuid: card for card in CARDS}) is is_other
