"""Pods that ask for cards by number where a driver has them: Millpond answers by a claim, as kube-scheduler would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from driver_cards import CLAIMS, CLASSES, WHOLE_CARDS, DriverBench, card, start_on
from foreign_pods import JOB, AdoptingBench, condition, events_of, foreign_pod, nodes_of
from lightkube.models.core_v1 import PodStatus
from lightkube.models.resource_v1 import ResourceClaim
from pod_bench import eventually, start
from standin_agent import add_agent
from standin_cluster import NAMESPACE, StandinCluster, refusal

from millpond.engines.kubernetes.adoption.gangs import POD, GangKey
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.claims.claim_objects import ClassObject
from millpond.engines.kubernetes.claims.extended_resources import classes_by_resource, extended_request, special_name
from millpond.model.events import Confirmed, Ended, Refused
from millpond.node.task.records import TaskId

GPU = "nvidia.com/gpu"
MAKING = "POST /apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
TELLING = "PATCH /api/v1/namespaces/team/pods/theirs/status"
BINDING = "POST /api/v1/namespaces/team/pods/theirs/binding"


@pytest.fixture
def driver(driver: DriverBench) -> DriverBench:
    driver.add_class(extendedResourceName=GPU)
    driver.publish("n2", *(card(number, "n2") for number in range(4)))
    return driver


@pytest.fixture
def bench(driver: DriverBench, tmp_path: Path) -> Iterator[AdoptingBench]:
    with AdoptingBench(driver.cluster, tmp_path) as bench:
        yield bench


def pod_of(cluster: StandinCluster, name: str = "theirs") -> dict[str, Any]:
    plain = cluster.get("pods", name)
    assert plain is not None
    return plain


def claim_of(cluster: StandinCluster, name: str = "theirs") -> str:
    return special_name(msgspec.convert(pod_of(cluster, name), ScheduledPod))


def waits(bench: AdoptingBench, cards: int = 1, **more: Any) -> str:
    """A pod waits for cards, and has a job; returns the name of the claim that it is to get."""
    foreign_pod(bench.cluster, "theirs", cards, **more)
    bench.stand_for(bench.gang().key)
    return claim_of(bench.cluster)


def test_a_claim_with_the_cards_is_made_and_told_to_the_pod_before_it_is_bound(
    driver: DriverBench, bench: AdoptingBench
) -> None:
    foreign_pod(driver.cluster, "theirs", 2)
    gang = bench.gang()
    assert gang.roles[0].request.devices == 2
    assert nodes_of(bench, gang) == ["n1", "n2"]
    bench.stand_for(gang.key)
    bench.engine.apply([start_on(1, JOB, 1, 3)])
    bench.bound("theirs")
    (name,) = driver.cluster.names(CLAIMS)
    assert driver.devices_of(name) == [("n1", "gpu-1"), ("n1", "gpu-3")]
    assert driver.users_of(name) == ["theirs"]
    asked = driver.cluster.requests
    assert asked.index(MAKING) < asked.index(TELLING) < asked.index(BINDING)
    driver.cluster.run("theirs")
    assert bench.next(Confirmed).decision == 1
    driver.cluster.finish("theirs")
    driver.deallocate(name)
    assert bench.next(Ended).task == 0


def test_what_is_written_is_what_the_models_of_kubernetes_have(driver: DriverBench, bench: AdoptingBench) -> None:
    name = waits(bench)
    bench.engine.apply([start_on(1, JOB, 0)])
    bench.bound("theirs")
    plain = pod_of(driver.cluster)
    claim = ResourceClaim.from_dict(driver.claim(name))
    assert claim.metadata is not None
    assert claim.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
    (owner,) = claim.metadata.ownerReferences or ()
    assert (owner.kind, owner.uid, owner.controller) == ("Pod", plain["metadata"]["uid"], True)  # it goes with the pod
    assert claim.spec.devices is not None
    (request,) = claim.spec.devices.requests or ()
    assert request.exactly is not None
    assert (request.exactly.deviceClassName, request.exactly.count) == ("gpu.nvidia.com", 1)
    assert claim.status is not None
    assert claim.status.allocation is not None
    said = PodStatus.from_dict(plain["status"]).extendedResourceClaimStatus
    assert said is not None
    assert said.resourceClaimName == name
    (mapping,) = said.requestMappings
    assert (mapping.containerName, mapping.resourceName, mapping.requestName) == ("task", GPU, request.name)


def test_a_class_is_asked_for_by_its_own_name_too(driver: DriverBench, bench: AdoptingBench) -> None:
    amounts = {"cpu": "2", "deviceclass.resource.kubernetes.io/gpu.nvidia.com": "2"}
    name = waits(bench, containers=[{"name": "task", "resources": {"requests": amounts}}])
    gang = bench.gang()
    assert (gang.roles[0].request.devices, nodes_of(bench, gang)) == (2, ["n1", "n2"])
    bench.engine.apply([start_on(1, JOB, 0, 1)])
    bench.bound("theirs")
    assert driver.devices_of(name) == [("n1", "gpu-0"), ("n1", "gpu-1")]


def test_nodes_with_a_plugin_serve_it_without_a_claim(driver: DriverBench, bench: AdoptingBench) -> None:
    driver.cluster.add_node("n3", cards=4)
    waits(bench)
    assert nodes_of(bench, bench.gang()) == ["n1", "n2", "n3"]
    bench.engine.apply([start(1, JOB, ("n3",))])
    bench.bound("theirs")
    assert driver.cluster.names(CLAIMS) == []
    assert "extendedResourceClaimStatus" not in pod_of(driver.cluster)["status"]


@pytest.mark.parametrize("beside", ["a plugin", "an agent"])
def test_a_node_where_others_give_out_the_cards_too_answers_nothing_by_claims(
    driver: DriverBench, bench: AdoptingBench, beside: str
) -> None:
    if beside == "a plugin":
        driver.cluster.add_node("n1", cards=4)
    else:
        add_agent(driver.cluster, "n1")
    foreign_pod(driver.cluster, "theirs")
    eventually(lambda: nodes_of(bench, bench.gang()) == ["n2"])


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ({"gpu.nvidia.com": {}}, "or have an admin name nvidia.com/gpu in the class"),
        (
            {"big": {"expression": "device.driver == 'dra.net'", "extendedResourceName": GPU}},
            "its class big stands for nvidia.com/gpu, but does not mean all cards of any node",
        ),
        (
            {"odd": {"expression": "size(device.driver) > 2", "extendedResourceName": GPU}},
            "its class odd stands for nvidia.com/gpu, but does not mean all cards of any node",
        ),
    ],
)
def test_a_request_that_no_class_answers_is_told_why_until_one_does(
    driver: DriverBench, bench: AdoptingBench, classes: dict[str, dict[str, Any]], said: str
) -> None:
    driver.cluster.remove(CLASSES, "gpu.nvidia.com", "")
    for name, more in classes.items():
        driver.add_class(name, **more)
    foreign_pod(driver.cluster, "theirs")
    eventually(lambda: said in condition(driver.cluster, "theirs"))
    driver.add_class(since="2026-11-25T10:00:00Z", extendedResourceName=GPU)
    assert nodes_of(bench, bench.gang()) == ["n1", "n2"]


def test_pods_that_another_scheduler_binds_are_told_to_claim_their_cards(driver: DriverBench, tmp_path: Path) -> None:
    bench = AdoptingBench(driver.cluster, tmp_path, gated=True)
    bench.open()
    try:
        gated: dict[str, Any] = {
            "labels": {"millpond.io/queue": "default"},
            "schedulerName": "default-scheduler",
            "schedulingGates": [{"name": "millpond.io/gate"}],
        }
        foreign_pod(driver.cluster, "theirs", **gated)
        eventually(lambda: "kube-scheduler would choose them" in condition(driver.cluster, "theirs"))
        driver.cluster.add_node("n3", cards=4)
        assert nodes_of(bench, bench.gang()) == ["n3"]
    finally:
        bench.close()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"initContainers": [{"name": "s", "restartPolicy": "Always", "resources": {"requests": {GPU: "1"}}}]},
            "an init container that goes on asks for nvidia.com/gpu",
        ),
        (
            {"containers": [{"name": "task", "resources": {"requests": {GPU: "1", "millpond.io/gpu-milli": "500"}}}]},
            "cards of several kinds",
        ),
    ],
)
def test_what_cannot_be_asked_for_by_number_is_told(
    driver: DriverBench, bench: AdoptingBench, more: dict[str, Any], said: str
) -> None:
    foreign_pod(driver.cluster, "theirs", **more)
    eventually(lambda: said in condition(driver.cluster, "theirs"))


# ---- what happens in between ---------------------------------------------------------------------------------------


def test_a_start_that_fails_leaves_no_cards_to_the_claim_and_the_next_one_takes_it(
    driver: DriverBench, bench: AdoptingBench
) -> None:
    name = waits(bench)
    driver.cluster.refuses = lambda request, _: refusal(403, "Forbidden", "no") if request == BINDING else None
    bench.engine.apply([start_on(1, JOB, 1)])
    bench.next(Refused)
    assert (driver.devices_of(name), driver.users_of(name)) == ([], [])
    driver.cluster.refuses = lambda _request, _body: None
    bench.engine.apply([start_on(2, JOB, 3, attempt=2)])
    bench.bound("theirs")
    assert driver.devices_of(name) == [("n1", "gpu-3")]


def test_a_pod_that_goes_to_a_plugin_then_names_no_claim(driver: DriverBench, bench: AdoptingBench) -> None:
    driver.cluster.add_node("n3", cards=4)
    waits(bench)
    driver.cluster.refuses = lambda request, _: refusal(403, "Forbidden", "no") if request == BINDING else None
    bench.engine.apply([start_on(1, JOB, 1)])
    bench.next(Refused)
    assert pod_of(driver.cluster)["status"]["extendedResourceClaimStatus"]
    driver.cluster.refuses = lambda _request, _body: None
    eventually(lambda: "cannot be bound" in "".join(events_of(driver.cluster, "theirs")))
    bench.engine.apply([start(2, JOB, ("n3",), attempt=2)])
    bench.bound("theirs")
    assert "extendedResourceClaimStatus" not in pod_of(driver.cluster)["status"]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_restart_between_a_claim_and_its_binding_goes_on_or_takes_it_back(
    driver: DriverBench, tmp_path: Path, is_known: bool
) -> None:
    first = AdoptingBench(driver.cluster, tmp_path)
    first.open()
    name = waits(first)
    driver.cluster.refuses = lambda request, _: refusal(503, "Unavailable", "no") if request == BINDING else None
    first.engine.apply([start_on(1, JOB, 1)])
    eventually(lambda: BINDING in driver.cluster.requests)
    first.close()
    driver.cluster.refuses = lambda _request, _body: None
    second = AdoptingBench(driver.cluster, tmp_path)
    second.stands_for = {JOB: GangKey(NAMESPACE, POD, "theirs", pod_of(driver.cluster)["metadata"]["uid"])}
    try:
        if is_known:
            second.open([TaskId(JOB, 1, 0)], [start_on(1, JOB, 1)])
            second.bound("theirs")
            assert driver.devices_of(name) == [("n1", "gpu-1")]
        else:
            second.open()
            eventually(lambda: not driver.devices_of(name))
            second.engine.apply([start_on(2, JOB, 2, attempt=2)])
            second.bound("theirs")
            assert driver.devices_of(name) == [("n1", "gpu-2")]
        assert driver.cluster.names(CLAIMS) == [name]
    finally:
        second.close()


def test_a_claim_of_its_name_that_is_not_the_pods_own_is_left_alone(driver: DriverBench, bench: AdoptingBench) -> None:
    name = waits(bench)
    driver.add_claim(name)
    bench.engine.apply([start_on(1, JOB, 1)])
    said = f"there is another resource claim {name}: delete it"
    assert said in bench.next(Refused).reason
    assert driver.devices_of(name) == []
    eventually(lambda: said in "".join(events_of(driver.cluster, "theirs")))


@pytest.mark.parametrize("has_devices", [False, True])
def test_a_claim_that_was_made_while_another_class_stood_for_it_is_made_anew(
    driver: DriverBench, bench: AdoptingBench, has_devices: bool
) -> None:
    name = waits(bench)
    driver.cluster.refuses = lambda request, _: refusal(403, "Forbidden", "no") if request == BINDING else None
    bench.engine.apply([start_on(1, JOB, 1)])
    bench.next(Refused)
    driver.cluster.refuses = lambda _request, _body: None
    if has_devices:  # taking them back failed
        driver.allocate(name, 1, pod="theirs")
        status = driver.claim(name)["status"]
        status["reservedFor"][0]["uid"] = pod_of(driver.cluster)["metadata"]["uid"]
        driver.change(name, status)
    driver.add_class("later", WHOLE_CARDS, since="2026-11-26T10:00:00Z", extendedResourceName=GPU)
    seen = "deviceclass.resource.kubernetes.io/later"
    nodes = bench.engine.inventory
    eventually(lambda: any(seen in label for node in nodes().nodes for label, _ in node.labels))
    bench.engine.apply([start_on(2, JOB, 2, attempt=2)])
    assert f"its claim {name} asked for something else, and is made anew" in bench.next(Refused).reason
    assert driver.cluster.names(CLAIMS) == []
    bench.engine.apply([start_on(3, JOB, 2, attempt=3)])
    bench.bound("theirs")
    assert driver.devices_of(name) == [("n1", "gpu-2")]
    assert driver.claim(name)["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "later"


def test_a_claim_that_is_being_deleted_is_not_written(driver: DriverBench, bench: AdoptingBench) -> None:
    name = waits(bench)
    driver.cluster.refuses = lambda request, _: refusal(403, "Forbidden", "no") if request == BINDING else None
    bench.engine.apply([start_on(1, JOB, 1)])
    bench.next(Refused)
    driver.cluster.refuses = lambda _request, _body: None
    leaving = driver.claim(name)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-24T10:00:30Z"
    driver.cluster.put(CLAIMS, name, leaving, NAMESPACE)
    bench.engine.apply([start_on(2, JOB, 1, attempt=2)])
    assert f"its claim {name} is being deleted" in bench.next(Refused).reason
    driver.cluster.remove(CLAIMS, name)
    bench.engine.apply([start_on(3, JOB, 1, attempt=3)])
    bench.bound("theirs")
    assert driver.devices_of(name) == [("n1", "gpu-1")]


def test_a_class_that_is_deleted_meanwhile_refuses_the_start_and_is_told(
    driver: DriverBench, bench: AdoptingBench
) -> None:
    waits(bench)
    driver.cluster.remove(CLASSES, "gpu.nvidia.com", "")
    eventually(lambda: "have an admin name nvidia.com/gpu in the class" in condition(driver.cluster, "theirs"))
    bench.engine.apply([start_on(1, JOB, 1)])  # decided before that was seen
    assert "no device class stands any more for what it asks for by number" in bench.next(Refused).reason
    assert driver.cluster.names(CLAIMS) == []


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (MAKING, "the cluster does not take its resource claim: cannot"),
        (TELLING, "its claim cannot be written on it: cannot"),
        ("the feature", "this cluster keeps no claims for what pods ask for by number"),
    ],
)
def test_what_the_cluster_does_not_take_is_told(
    driver: DriverBench, bench: AdoptingBench, refused: str, said: str
) -> None:
    name = waits(bench)
    driver.cluster.keeps_extended = refused != "the feature"

    def refuse(request: str, body: dict[str, Any]) -> Any:
        is_words = "conditions" in body.get("status", {})
        return refusal(403, "Forbidden", "cannot") if request == refused and not is_words else None

    driver.cluster.refuses = refuse
    bench.engine.apply([start_on(1, JOB, 1)])
    assert said in bench.next(Refused).reason
    eventually(lambda: said in "".join(events_of(driver.cluster, "theirs")))
    assert not pod_of(driver.cluster)["spec"].get("nodeName")
    assert refused == MAKING or driver.devices_of(name) == []


# ---- lines and classes -----------------------------------------------------------------------------------------------


def pod_with(inits: dict[str, int], containers: dict[str, int], name: str = "theirs") -> ScheduledPod:
    def made(counts: dict[str, int]) -> list[dict[str, Any]]:
        asked = [(each, {"cpu": "1"} | ({GPU: str(count)} if count else {})) for each, count in counts.items()]
        return [{"name": each, "resources": {"requests": amounts}} for each, amounts in asked]

    spec = {"initContainers": made(inits), "containers": made(containers)}
    return msgspec.convert({"metadata": {"name": name, "uid": "0f5e-77"}, "spec": spec}, ScheduledPod)


@pytest.mark.parametrize(
    ("inits", "containers", "lines", "mappings"),
    [
        ({}, {"a": 2}, {"container-0-request-1": 2}, {"a": [0]}),
        ({}, {"a": 2, "b": 0, "c": 1}, {"container-0-request-1": 2, "container-2-request-1": 1}, {"a": [0], "c": [2]}),
        ({"i": 1}, {"a": 2, "b": 1}, {"container-1-request-1": 2, "container-2-request-1": 1}, {"i": [1]}),
        ({"i": 3}, {"a": 2, "b": 1}, {"container-1-request-1": 2, "container-2-request-1": 1}, {"i": [1, 2]}),
        ({"i": 5}, {"a": 2}, {"container-0-request-1": 3, "container-1-request-1": 2}, {"i": [0, 1], "a": [1]}),
        ({"i": 3, "j": 5}, {"a": 2}, {"container-1-request-1": 3, "container-2-request-1": 2}, {"i": [1, 2]}),
        ({"i": 4}, {"a": 0}, {"container-0-request-1": 4}, {"i": [0]}),
    ],
)
def test_containers_that_run_first_use_what_the_others_will_have(
    inits: dict[str, int], containers: dict[str, int], lines: dict[str, int], mappings: dict[str, list[int]]
) -> None:
    found = extended_request(pod_with(inits, containers), {GPU: "gpu.nvidia.com"})
    assert found is not None
    assert dict(found.lines) == lines
    names: dict[str, list[str]] = {}
    for each in found.mappings:
        names.setdefault(each.containerName, []).append(each.requestName)
    for container, numbers in mappings.items():
        assert sorted(names[container]) == [f"container-{number}-request-1" for number in numbers]


def test_a_pod_that_asks_for_nothing_that_a_class_stands_for_has_no_lines() -> None:
    assert extended_request(pod_with({}, {"a": 2}), {"google.com/tpu": "tpu"}) is None
    assert extended_request(pod_with({}, {"a": 0}), {GPU: "gpu.nvidia.com"}) is None


def test_of_classes_for_one_resource_the_latest_stands_for_it_then_the_first_by_name() -> None:
    def of(name: str, since: str, resource: str | None = GPU) -> ClassObject:
        meta = {"name": name, "creationTimestamp": since}
        return msgspec.convert({"metadata": meta, "spec": {"extendedResourceName": resource}}, ClassObject)

    early, late = "2026-11-24T10:00:00Z", "2026-11-25T10:00:00Z"
    assert classes_by_resource([of("c", late), of("b", late), of("a", early)])[GPU] == "b"
    assert classes_by_resource([of("a", early), of("z", late, None)]) == {
        GPU: "a",
        "deviceclass.resource.kubernetes.io/a": "a",
        "deviceclass.resource.kubernetes.io/z": "z",
    }


def test_the_name_of_a_claim_is_one_that_kubernetes_takes() -> None:
    long = special_name(pod_with({}, {"a": 1}, "a" * 230 + ".b-" + "c" * 20))
    assert len(long) <= 253
    assert special_name(pod_with({}, {"a": 1})) == "theirs-extended-resources-0f5e-77"
    assert special_name(pod_with({}, {"a": 1}, "a" * 225 + ".b")).startswith("a" * 225 + "-extended")
