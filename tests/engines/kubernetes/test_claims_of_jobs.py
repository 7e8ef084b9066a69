"""Jobs of the server itself on cards of a driver: each task has a claim, with the cards of the decision."""

from __future__ import annotations

from pathlib import Path

import pytest
from driver_cards import CLAIMS, SLICES, DriverBench, card, device_of, start_on
from lightkube.models.resource_v1 import AllocationResult, ResourceClaimSpec
from pod_bench import PodBench, eventually
from standin_cluster import NAMESPACE, refusal

from millpond.engines.kubernetes.claims import claim_book
from millpond.engines.kubernetes.cluster.kubeconfig import ClusterAccess
from millpond.engines.kubernetes.engine import KubernetesEngine
from millpond.engines.kubernetes.pods import slow_starts
from millpond.model.events import Confirmed, Ended, Refused
from millpond.node.task.records import TaskId

JOB = "train-abcde"
POD, CLAIM = f"{JOB}-1-0", f"{JOB}-1-0-1"


pytestmark = pytest.mark.usefixtures("driver")  # which is there before the engine


def healths(bench: PodBench) -> list[str]:
    """Of the cards, as the core knows them by all that it was told."""
    nodes = {node.name: node for node in bench.engine.inventory().nodes}
    return [each.health.value for each in nodes["n1"].devices]


def test_an_engine_that_begins_knows_its_own_cards_before_it_goes_on(driver: DriverBench, tmp_path: Path) -> None:
    first = PodBench(driver.cluster, tmp_path)
    first.open()
    first.engine.apply([start_on(1, JOB, 2)])
    first.bound(POD)
    first.close()
    access = ClusterAccess(str(driver.cluster.kubeconfig(tmp_path)))
    second = KubernetesEngine(access, tmp_path / "state", lambda _job: first.launch, first.options)
    try:
        (node,) = (each for each in second.inventory().nodes if each.name == "n1")
        assert {each.health.value for each in node.devices} == {"ok"}
    finally:
        second.close()


def test_a_task_has_a_claim_with_its_cards_before_it_is_bound(driver: DriverBench, bench: PodBench) -> None:
    bench.engine.apply([start_on(1, JOB, 1, 3)])
    pod = bench.bound(POD)
    assert pod["spec"]["resourceClaims"][0]["resourceClaimName"] == CLAIM
    assert pod["spec"]["containers"][0]["resources"]["claims"] == [{"name": "cards"}]
    assert "gpu.nvidia.com" not in pod["spec"]["containers"][0]["resources"]["requests"]
    assert driver.devices_of(CLAIM) == [("n1", "gpu-1"), ("n1", "gpu-3")]
    assert driver.users_of(CLAIM) == [POD]
    claim = driver.claim(CLAIM)
    assert claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    asked = driver.cluster.requests
    assert asked.index(f"PATCH /apis/resource.k8s.io/v1/namespaces/team/resourceclaims/{CLAIM}/status") < asked.index(
        f"POST /api/v1/namespaces/team/pods/{POD}/binding"
    )
    driver.cluster.run(POD)
    assert bench.next(Confirmed).decision == 1
    assert healths(bench) == ["ok"] * 4  # what the core knows as its own


def test_what_is_written_is_what_the_models_of_kubernetes_have(driver: DriverBench, bench: PodBench) -> None:
    bench.engine.apply([start_on(1, JOB, 0)])
    bench.bound(POD)
    claim = driver.claim(CLAIM)
    allocation = AllocationResult.from_dict(claim["status"]["allocation"])
    assert allocation.devices is not None
    assert allocation.devices.config is not None
    assert allocation.devices.config[0].source == "FromClass"
    assert allocation.devices.config[0].opaque is not None
    assert allocation.nodeSelector is not None
    assert allocation.nodeSelector.nodeSelectorTerms[0].to_dict()["matchFields"][0]["values"] == ["n1"]
    spec = ResourceClaimSpec.from_dict(claim["spec"])
    assert spec.devices is not None
    assert spec.devices.requests is not None
    (request,) = spec.devices.requests
    assert request.exactly is not None
    assert (request.exactly.deviceClassName, request.exactly.count) == ("gpu.nvidia.com", 1)


def test_a_restarted_engine_finds_what_it_wrote_and_writes_nothing_twice(driver: DriverBench, tmp_path: Path) -> None:
    decision = start_on(1, JOB, 2)
    stuck = f"POST /api/v1/namespaces/team/pods/{POD}/binding"
    driver.cluster.refuses = lambda request, _: refusal(503, "Unavailable", "no") if request == stuck else None
    first = PodBench(driver.cluster, tmp_path)
    first.open()
    first.engine.apply([decision])
    eventually(lambda: stuck in driver.cluster.requests)
    first.close()
    driver.cluster.refuses = lambda _request, _body: None
    version = driver.claim(CLAIM)["metadata"]["resourceVersion"]
    second = PodBench(driver.cluster, tmp_path)
    second.open([TaskId(JOB, 1, 0)], [decision])
    try:
        second.bound(POD)
        driver.cluster.run(POD)
        second.next(Confirmed)
        assert healths(second) == ["ok"] * 4
        assert driver.claim(CLAIM)["metadata"]["resourceVersion"] == version
    finally:
        second.close()


def test_a_card_that_another_claim_has_by_then_refuses_the_start(driver: DriverBench, bench: PodBench) -> None:
    driver.add_claim("theirs")
    driver.allocate("theirs", 2)
    eventually(
        lambda: any(each.health.value != "ok" for node in bench.engine.inventory().nodes for each in node.devices)
    )
    bench.engine.apply([start_on(1, JOB, 2)])
    refused = bench.next(Refused)
    assert refused.device_fault
    assert f"claim team/theirs has the card {device_of(2)} by now" in refused.reason
    assert driver.cluster.get("pods", POD) is None


@pytest.mark.parametrize(
    ("refuses", "said", "device_fault"),
    [
        ("POST /apis/resource.k8s.io/v1/namespaces/team/resourceclaims", "does not take its resource claim: no", False),
        ("GET nothing", "there is no device class gpu.nvidia.com", False),
    ],
)
def test_what_the_cluster_lacks_is_named(
    driver: DriverBench, tmp_path: Path, refuses: str, said: str, device_fault: bool
) -> None:
    driver.cluster.refuses = lambda request, _: refusal(403, "Forbidden", "no") if request == refuses else None
    if "device class" in said:
        driver.cluster.remove("deviceclasses.resource.k8s.io", "gpu.nvidia.com", "")
    bench = PodBench(driver.cluster, tmp_path)
    bench.open()
    try:
        bench.engine.apply([start_on(1, JOB, 0)])
        refused = bench.next(Refused)
        assert said in refused.reason
        assert refused.device_fault is device_fault
    finally:
        bench.close()


def test_a_claim_that_no_driver_prepares_is_given_up_with_the_words_of_the_kubelet(
    driver: DriverBench, bench: PodBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_starts, "SHARED_AGAIN_S", 0.0)
    monkeypatch.setattr(slow_starts, "TOLD_AFTER_S", 0.0)
    monkeypatch.setattr(slow_starts, "WAIT_PATIENCE_S", 0.05)
    bench.engine.apply([start_on(1, JOB, 0)])
    bench.bound(POD)
    said = {"reason": "FailedPrepareDynamicResources", "message": "the driver is not there"}
    driver.cluster.put("events", "event-1", {**said, "involvedObject": {"name": POD}}, NAMESPACE)
    eventually(lambda: "deletionTimestamp" in (driver.cluster.get("pods", POD) or {})["metadata"])
    driver.cluster.remove("pods", POD)
    refused = bench.next(Refused)
    assert refused.reason == "its cards do not come: the driver is not there"
    assert refused.device_fault


def test_a_pod_that_fetches_its_image_is_not_given_up_for_what_was_before(
    driver: DriverBench, bench: PodBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_starts, "SHARED_AGAIN_S", 0.0)
    monkeypatch.setattr(slow_starts, "TOLD_AFTER_S", 0.0)
    monkeypatch.setattr(slow_starts, "WAIT_PATIENCE_S", 0.01)
    looking = "GET /api/v1/namespaces/team/events"
    for number, reason in enumerate(("FailedPrepareDynamicResources", "Pulling")):
        said = {"reason": reason, "message": "it was not there", "involvedObject": {"name": POD}}
        driver.cluster.put("events", f"event-{number}", said, NAMESPACE)
    bench.engine.apply([start_on(1, JOB, 0)])
    bench.bound(POD)
    eventually(lambda: driver.cluster.requests.count(looking) >= 3)
    driver.cluster.run(POD)
    assert bench.next(Confirmed).decision == 1


def test_a_claim_of_an_earlier_pod_of_the_name_is_not_taken(driver: DriverBench, bench: PodBench) -> None:
    driver.add_claim(CLAIM)
    bench.engine.apply([start_on(1, JOB, 0)])
    assert f"there is another resource claim {CLAIM}" in bench.next(Refused).reason
    assert driver.devices_of(CLAIM) == []
    assert driver.cluster.get("pods", POD) is None


def test_a_task_keeps_its_card_while_the_driver_is_replaced(driver: DriverBench, bench: PodBench) -> None:
    bench.engine.apply([start_on(1, JOB, 2)])
    bench.bound(POD)
    driver.cluster.run(POD)
    bench.next(Confirmed)
    driver.cluster.remove(SLICES, "n1-gpu-0", "")
    eventually(lambda: healths(bench) == ["busy-elsewhere"])
    driver.publish("n1", *(card(number) for number in range(4)))
    eventually(lambda: healths(bench) == ["ok"] * 4)
    driver.cluster.remove(SLICES, "n1-gpu-0", "")
    driver.cluster.finish(POD)
    bench.next(Ended)
    eventually(lambda: healths(bench) == [])


def test_a_task_has_ended_when_its_claim_has_let_go_of_its_cards(driver: DriverBench, bench: PodBench) -> None:
    bench.engine.apply([start_on(1, JOB, 0, 1)])
    bench.bound(POD)
    driver.cluster.run(POD)
    bench.next(Confirmed)
    driver.cluster.finish(POD)
    driver.add_claim("later")
    driver.allocate("later", 3)
    eventually(lambda: healths(bench)[3] == "busy-elsewhere")  # so the end of the pod was seen too
    assert not any(isinstance(event, Ended) for event in [*bench.seen, *bench.engine.events()])
    driver.deallocate(CLAIM)
    bench.next(Ended)
    assert healths(bench) == ["ok", "ok", "ok", "busy-elsewhere"]


def test_the_cards_of_a_claim_that_does_not_let_go_are_given_to_nobody(
    driver: DriverBench, bench: PodBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_book, "PATIENCE_S", 0.0)

    def busy() -> list[int]:
        nodes = bench.engine.inventory().nodes
        return [each.index for node in nodes for each in node.devices if each.health.value != "ok"]

    bench.engine.apply([start_on(1, JOB, 0, 1)])
    bench.bound(POD)
    driver.cluster.run(POD)
    driver.cluster.finish(POD)
    eventually(lambda: busy() == [0, 1])
    driver.deallocate(CLAIM)
    eventually(lambda: not busy())
    assert driver.cluster.names(CLAIMS) == [CLAIM]
