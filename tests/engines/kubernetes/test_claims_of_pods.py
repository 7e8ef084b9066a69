"""Resource claims of pods that others made: what they ask for, how they are allocated, shared, changed and let go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from driver_cards import CLAIMS, DriverBench, card, start_on
from foreign_pods import JOB, OWNER, AdoptingBench, condition, foreign_pod, nodes_of
from pod_bench import eventually
from standin_cluster import NAMESPACE, StandinCluster, refusal

from millpond.engines.kubernetes.adoption.gangs import POD, GangKey
from millpond.engines.kubernetes.adoption.pod_objects import LET_GO_ANNOTATION
from millpond.engines.kubernetes.claims import claim_book
from millpond.model.events import Confirmed, Ended, Refused
from millpond.node.task.records import TaskId

CLAIM = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/mine"
A100 = "NVIDIA A100-SXM4-40GB"


@pytest.fixture
def driver(driver: DriverBench) -> DriverBench:
    driver.publish("n2", *(card(number, "n2", A100, architecture="Ampere", memory="40Gi") for number in range(4)))
    return driver


@pytest.fixture
def bench(driver: DriverBench, tmp_path: Path) -> Iterator[AdoptingBench]:
    with AdoptingBench(driver.cluster, tmp_path) as bench:
        yield bench


def claiming(cluster: StandinCluster, name: str, claim: str = "mine", **more: Any) -> None:
    """A pod with a resource claim, and no other request for cards."""
    containers = [{"name": "task", "resources": {"requests": {"cpu": "2"}, "claims": [{"name": "gpu"}]}}]
    named = more.pop("claims", [{"name": "gpu", "resourceClaimName": claim}])
    foreign_pod(cluster, name, containers=containers, resourceClaims=named, **more)


def of_template(driver: DriverBench, pod: str, claim: str, count: int = 1, **more: Any) -> None:
    """What Kubernetes' controller does for a pod that names a template."""
    driver.add_claim(claim, count, owner=pod)
    plain = driver.cluster.get("pods", pod)
    assert plain is not None
    plain["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": claim, **more}]
    driver.cluster.put("pods", pod, plain, NAMESPACE)


def bind(bench: AdoptingBench, pod: str, *cards: int, number: int = 1, node: str = "n1") -> None:
    bench.stand_for(bench.gang().key)
    bench.engine.apply([start_on(number, JOB, *cards, node=node)])
    bench.bound(pod)


def test_a_claim_is_allocated_and_reserved_before_its_pod_is_bound(driver: DriverBench, bench: AdoptingBench) -> None:
    driver.add_claim("mine", 2)
    claiming(driver.cluster, "theirs")
    gang = bench.gang()
    (role,) = gang.roles
    assert role.request.devices == 2
    assert nodes_of(bench, gang) == ["n1", "n2"]
    bind(bench, "theirs", 0, 2)
    assert driver.devices_of("mine") == [("n1", "gpu-0"), ("n1", "gpu-2")]
    assert driver.users_of("mine") == ["theirs"]
    assert driver.claim("mine")["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    driver.cluster.run("theirs")
    assert bench.next(Confirmed).decision == 1


def test_a_claim_of_a_template_is_waited_for(driver: DriverBench, bench: AdoptingBench) -> None:
    claiming(driver.cluster, "theirs", claims=[{"name": "gpu", "resourceClaimTemplateName": "one"}])
    eventually(lambda: "claim of the template one is not made yet" in condition(driver.cluster, "theirs"))
    of_template(driver, "theirs", "theirs-gpu-x7", 3)
    assert bench.gang().roles[0].request.devices == 3
    bind(bench, "theirs", 0, 1, 2)
    assert len(driver.devices_of("theirs-gpu-x7")) == 3


def test_a_gang_whose_pods_have_claims_of_their_own_is_bound_over_nodes(
    driver: DriverBench, bench: AdoptingBench
) -> None:
    driver.cluster.put("jobs.batch", "theirs", {"spec": {"parallelism": 2}}, NAMESPACE)
    for pod in ("theirs-0", "theirs-1"):
        claiming(driver.cluster, pod, claims=[{"name": "gpu", "resourceClaimTemplateName": "two"}], owner=OWNER)
        of_template(driver, pod, f"{pod}-gpu", 2)
    gang = bench.gang()
    assert [(role.request.devices, role.count) for role in gang.roles] == [(2, 2)]
    bench.stand_for(gang.key)
    one, other = start_on(1, JOB, 0, 1), start_on(1, JOB, 2, 3, node="n2", task=1)
    bench.engine.apply([replace(one, placements=one.placements + other.placements)])
    for pod in ("theirs-0", "theirs-1"):
        bench.bound(pod)
    assert driver.devices_of("theirs-0-gpu") == [("n1", "gpu-0"), ("n1", "gpu-1")]
    assert driver.devices_of("theirs-1-gpu") == [("n2", "gpu-2"), ("n2", "gpu-3")]


def test_the_cards_of_a_pod_are_divided_among_its_claims_and_their_lines(
    driver: DriverBench, bench: AdoptingBench
) -> None:
    lines = [{"name": name, "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1}} for name in ("big", "small")]
    driver.add_claim("lines", requests=lines)
    driver.add_claim("mine", 1)
    entries = [{"name": name, "resourceClaimName": name} for name in ("lines", "mine")]
    claiming(driver.cluster, "theirs", claims=entries)
    assert bench.gang().roles[0].request.devices == 3
    bind(bench, "theirs", 0, 1, 3)
    results = driver.claim("lines")["status"]["allocation"]["devices"]["results"]
    assert [(each["request"], each["device"]) for each in results] == [("big", "gpu-0"), ("small", "gpu-1")]
    assert driver.devices_of("mine") == [("n1", "gpu-3")]


def test_a_claim_that_was_made_for_an_earlier_pod_of_the_name_is_not_taken(
    driver: DriverBench, bench: AdoptingBench
) -> None:
    claiming(driver.cluster, "earlier", claims=[{"name": "gpu", "resourceClaimTemplateName": "one"}])
    of_template(driver, "earlier", "made")
    claiming(driver.cluster, "theirs", claims=[{"name": "gpu", "resourceClaimTemplateName": "one"}])
    plain = driver.cluster.get("pods", "theirs")
    assert plain is not None
    plain["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "made"}]
    driver.cluster.put("pods", "theirs", plain, NAMESPACE)
    eventually(lambda: "was made for another pod of its name" in condition(driver.cluster, "theirs"))


def test_a_pod_that_needed_no_claim_of_its_template_asks_for_no_cards(
    driver: DriverBench, bench: AdoptingBench
) -> None:
    claiming(driver.cluster, "theirs", claims=[{"name": "gpu", "resourceClaimTemplateName": "none"}])
    plain = driver.cluster.get("pods", "theirs")
    assert plain is not None
    plain["status"]["resourceClaimStatuses"] = [{"name": "gpu"}]
    plain["status"]["resourceClaimStatuses"][0]["resourceClaimName"] = None
    driver.cluster.put("pods", "theirs", plain, NAMESPACE)
    assert bench.gang().roles[0].request.devices == 0


@pytest.mark.parametrize(
    ("selector", "nodes"),
    [
        ("device.attributes['gpu.nvidia.com'].productName.matches('H100')", ["n1"]),
        ("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('60Gi')) < 0", ["n2"]),
        ("device.attributes['gpu.nvidia.com'].architecture in ['Ampere', 'Hopper']", ["n1", "n2"]),
    ],
)
def test_selectors_choose_the_nodes_that_have_such_cards(
    driver: DriverBench, bench: AdoptingBench, selector: str, nodes: list[str]
) -> None:
    driver.add_claim("mine", 1, selector)
    claiming(driver.cluster, "theirs")
    assert nodes_of(bench, bench.gang()) == nodes


def test_a_class_and_a_capacity_choose_too(driver: DriverBench, bench: AdoptingBench) -> None:
    driver.add_class("big", "device.attributes['gpu.nvidia.com'].architecture != 'Kepler'")
    driver.add_claim("mine", of_class="big", exactly={"capacity": {"requests": {"memory": "60Gi"}}})
    claiming(driver.cluster, "theirs")
    assert nodes_of(bench, bench.gang()) == ["n1"]


def test_a_node_whose_cards_differ_is_not_one_for_some_of_them(driver: DriverBench, bench: AdoptingBench) -> None:
    driver.publish("n1", card(0), card(1, product=A100), card(2), card(3))
    driver.add_claim("mine", 1, "device.attributes['gpu.nvidia.com'].productName.contains('H100')")
    claiming(driver.cluster, "theirs")
    eventually(lambda: "no node has only cards of gpu.nvidia.com" in condition(driver.cluster, "theirs"))
    driver.publish("n2", card(0, "n2"))
    assert nodes_of(bench, bench.gang()) == ["n2"]


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ({"of_class": "nics"}, "there is no device class nics: see kubectl get deviceclasses"),
        ({"of_class": "other"}, "no node has only cards of gpu.nvidia.com that its class other mean"),
        ({"exactly": {"allocationMode": "All"}}, "asks for All devices: name their number"),
        ({"exactly": {"adminAccess": True}}, "asks for adminAccess: leave such pods to kube-scheduler"),
        ({"count": 2, "constraints": [{"matchAttribute": "x/y"}]}, "leave `constraints` out"),
        ({"requests": [{"name": "gpu", "firstAvailable": [{"name": "a"}]}]}, "name one in `exactly`"),
        (
            {
                "exactly": {
                    "selectors": [{"cel": {"expression": "device.attributes['gpu.nvidia.com'].uuid == 'GPU-1'"}}]
                }
            },
            "'uuid' tells single cards apart, and Millpond chooses these itself: select by productName",
        ),
    ],
)
def test_what_a_claim_asks_that_cannot_be_done_is_told(
    driver: DriverBench, bench: AdoptingBench, claim: dict[str, Any], said: str
) -> None:
    driver.add_class("other", "device.driver == 'dra.net'")
    driver.add_claim("mine", **claim)
    claiming(driver.cluster, "theirs")
    eventually(lambda: said in condition(driver.cluster, "theirs"))
    assert condition(driver.cluster, "theirs").startswith("its claim mine")


def test_a_claim_that_is_not_there_is_told_until_it_is(driver: DriverBench, bench: AdoptingBench) -> None:
    claiming(driver.cluster, "theirs")
    eventually(lambda: condition(driver.cluster, "theirs") == "there is no resource claim mine: make it")
    driver.add_claim("mine")
    assert bench.gang().roles[0].request.devices == 1


def test_cards_of_two_ways_are_not_mixed_in_a_pod(driver: DriverBench, bench: AdoptingBench) -> None:
    driver.add_claim("mine")
    foreign_pod(driver.cluster, "theirs", resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    eventually(
        lambda: "cards of several kinds (nvidia.com/gpu, resource claims)" in condition(driver.cluster, "theirs")
    )


def test_cards_that_only_a_driver_gives_out_are_not_asked_for_by_number(
    driver: DriverBench, bench: AdoptingBench
) -> None:
    foreign_pod(driver.cluster, "theirs")
    said = "no node offers nvidia.com/gpu: gpu.nvidia.com has the cards, so ask for them by a resource claim"
    eventually(lambda: said in condition(driver.cluster, "theirs"))
    driver.cluster.add_node("n3", cards=2)
    assert nodes_of(bench, bench.gang()) == ["n3"]


def test_where_no_claims_are_served_that_is_told(cluster: StandinCluster, tmp_path: Path) -> None:
    claiming(cluster, "theirs")
    bench = AdoptingBench(cluster, tmp_path)
    bench.open()
    try:
        eventually(lambda: "of which this server sees nothing" in condition(cluster, "theirs"))
    finally:
        bench.close()


# ---- shared claims, and claims of others -------------------------------------------------------------------------


def test_pods_that_share_a_claim_follow_the_first_to_its_node(driver: DriverBench, bench: AdoptingBench) -> None:
    driver.add_claim("mine", 1)
    claiming(driver.cluster, "first")
    key = bench.gang().key
    claiming(driver.cluster, "second")
    eventually(lambda: "is shared, and Pod team/first goes first" in condition(driver.cluster, "second"))
    bench.stand_for(key)
    bench.engine.apply([start_on(1, JOB, 2, node="n2")])
    bench.bound("first")
    gang = bench.gang()
    assert (gang.key.name, gang.roles[0].request.devices) == ("second", 0)
    assert nodes_of(bench, gang) == ["n2"]
    bench.stand_for(gang.key, "other-abcde")
    bench.engine.apply([start_on(2, "other-abcde", node="n2")])
    bench.bound("second")
    assert driver.users_of("mine") == ["first", "second"]
    assert driver.devices_of("mine") == [("n2", "gpu-2")]


def test_pods_that_start_together_do_not_share_a_claim_without_devices(
    driver: DriverBench, bench: AdoptingBench
) -> None:
    driver.cluster.put("jobs.batch", "theirs", {"spec": {"parallelism": 2}}, NAMESPACE)
    driver.add_claim("mine")
    claiming(driver.cluster, "theirs-0", owner=OWNER)
    claiming(driver.cluster, "theirs-1", owner=OWNER)
    eventually(lambda: "pods that start together share the claim mine" in condition(driver.cluster, "theirs-1"))
    driver.allocate("mine", 0)
    assert [role.request.devices for role in bench.gang().roles] == [0]


def test_a_claim_that_another_scheduler_has_allocated_leads_to_its_node(
    driver: DriverBench, bench: AdoptingBench
) -> None:
    driver.add_claim("mine")
    driver.allocate("mine", 3, node="n2")
    claiming(driver.cluster, "theirs")
    gang = bench.gang()
    assert nodes_of(bench, gang) == ["n2"]
    bench.stand_for(gang.key)
    bench.engine.apply([start_on(1, JOB, node="n1")])  # decided before that was seen
    assert "has devices of n2 by now" in bench.next(Refused).reason
    bench.engine.apply([start_on(2, JOB, node="n2", attempt=2)])
    bench.bound("theirs")
    assert driver.users_of("mine") == ["other", "theirs"]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_pod_whose_claim_another_scheduler_allocates_is_not_placed_with_a_card_that_it_does_not_use(
    driver: DriverBench, bench: AdoptingBench, is_late: bool
) -> None:
    driver.add_claim("mine")
    claiming(driver.cluster, "theirs")
    bench.stand_for(bench.gang().key)

    def allocate(request: str, body: dict[str, Any]) -> None:
        if request.startswith("PATCH") and request.endswith("mine/status"):
            driver.cluster.refuses = lambda _request, _body: None
            driver.allocate("mine", 3)

    if is_late:
        driver.cluster.refuses = allocate
    else:
        driver.allocate("mine", 3)
        eventually(lambda: bench.gang().roles[0].request.devices == 0)
    bench.engine.apply([start_on(1, JOB, 1)])
    assert "given devices by another scheduler meanwhile" in bench.next(Refused).reason
    assert driver.users_of("mine") == ["other"]


# ---- changes in between --------------------------------------------------------------------------------------------


def test_a_claim_that_is_changed_between_is_looked_at_anew(driver: DriverBench, bench: AdoptingBench) -> None:
    driver.add_claim("mine")
    claiming(driver.cluster, "theirs")
    bench.stand_for(bench.gang().key)
    changes = iter(range(2))

    def change(request: str, body: dict[str, Any]) -> None:
        if request.startswith("PATCH") and "/resourceclaims/mine" in request and next(changes, None) is not None:
            plain = driver.claim("mine")
            plain["metadata"]["labels"] = {"seen": body["metadata"]["resourceVersion"]}
            driver.cluster.put(CLAIMS, "mine", plain, NAMESPACE)

    driver.cluster.refuses = change
    bench.engine.apply([start_on(1, JOB, 1)])
    bench.bound("theirs")
    assert driver.devices_of("mine") == [("n1", "gpu-1")]


@pytest.mark.parametrize("again", [False, True])
def test_a_claim_that_is_deleted_between_refuses_the_start(
    driver: DriverBench, bench: AdoptingBench, again: bool
) -> None:
    driver.add_claim("mine")
    claiming(driver.cluster, "theirs")
    bench.stand_for(bench.gang().key)

    def remove(request: str, body: dict[str, Any]) -> None:
        if request.startswith("PATCH") and driver.cluster.get(CLAIMS, "mine") is not None:
            driver.cluster.refuses = lambda _request, _body: None
            driver.cluster.remove(CLAIMS, "mine")
            if again:
                driver.add_claim("mine")

    driver.cluster.refuses = remove
    bench.engine.apply([start_on(1, JOB, 1)])
    said = "was deleted, and another made by this name" if again else "its claim mine is gone"
    assert said in bench.next(Refused).reason
    assert not (driver.cluster.get("pods", "theirs") or {})["spec"].get("nodeName")


def test_a_binding_that_fails_takes_back_what_the_claim_has(driver: DriverBench, bench: AdoptingBench) -> None:
    driver.add_claim("mine")
    claiming(driver.cluster, "theirs")
    bench.stand_for(bench.gang().key)
    driver.cluster.refuses = lambda request, _: refusal(403, "Forbidden", "no") if "binding" in request else None
    bench.engine.apply([start_on(1, JOB, 1)])
    bench.next(Refused)
    assert driver.devices_of("mine") == []
    assert driver.users_of("mine") == []
    driver.cluster.refuses = lambda _request, _body: None
    bench.engine.apply([start_on(2, JOB, 3, attempt=2)])
    bench.bound("theirs")
    assert driver.devices_of("mine") == [("n1", "gpu-3")]


@pytest.mark.parametrize("at", ["mine/status", "theirs/binding"])
def test_a_pod_that_another_server_has_bound_meanwhile_keeps_the_devices_of_its_claim(
    driver: DriverBench, bench: AdoptingBench, at: str
) -> None:
    driver.add_claim("mine")
    claiming(driver.cluster, "theirs")
    bench.stand_for(bench.gang().key)

    def taken_first(request: str, body: Any) -> None:
        if request.endswith(at):
            driver.cluster.refuses = lambda _request, _body: None
            driver.allocate("mine", 3, pod="theirs")
            plain = driver.cluster.get("pods", "theirs") or {}
            driver.cluster.put("pods", "theirs", {**plain, "spec": {**plain["spec"], "nodeName": "n1"}}, NAMESPACE)

    driver.cluster.refuses = taken_first
    bench.engine.apply([start_on(1, JOB, 1)])
    bench.next(Refused)
    assert driver.devices_of("mine") == [("n1", "gpu-3")]
    assert driver.users_of("mine") == ["theirs"]


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_pod_whose_claim_another_server_takes_before_it_is_bound_is_not_bound_without_it(
    driver: DriverBench, bench: AdoptingBench, is_taken: bool
) -> None:
    driver.add_claim("mine")
    claiming(driver.cluster, "theirs")
    bench.stand_for(bench.gang().key)

    def changed_first(request: str, body: Any) -> None:
        if request.endswith("theirs/binding"):
            driver.cluster.refuses = lambda _request, _body: None
            plain = driver.cluster.get("pods", "theirs") or {}
            mark = {LET_GO_ANNOTATION: "of another server"} if is_taken else {"of": "somebody"}
            driver.cluster.put(
                "pods", "theirs", plain | {"metadata": {**plain["metadata"], "annotations": mark}}, NAMESPACE
            )

    driver.cluster.refuses = changed_first
    bench.engine.apply([start_on(1, JOB, 1)])
    if is_taken:
        bench.next(Refused)
        bench.engine.apply([start_on(2, JOB, 3, attempt=2)])
    bench.bound("theirs")
    assert driver.devices_of("mine") == [("n1", "gpu-3" if is_taken else "gpu-1")]


def test_a_claim_lets_go_only_after_earlier_bindings_of_its_pod_can_no_longer_come(
    driver: DriverBench, bench: AdoptingBench
) -> None:
    driver.add_claim("mine")
    claiming(driver.cluster, "theirs")
    driver.allocate("mine", 3, pod="theirs")
    bench.close()
    bench.open()  # it lists what the claim has
    bench.stand_for(bench.gang().key)
    bench.engine.apply([start_on(1, JOB, 1)])
    pod = bench.bound("theirs")
    assert pod["metadata"]["annotations"][LET_GO_ANNOTATION]
    told, let_go = "PATCH /api/v1/namespaces/team/pods/theirs/status", f"PATCH {CLAIM}/status"
    assert driver.cluster.requests.index(told) < driver.cluster.requests.index(let_go)
    assert driver.devices_of("mine") == [("n1", "gpu-1")]


def test_a_missing_right_is_named(driver: DriverBench, bench: AdoptingBench) -> None:
    driver.add_claim("mine")
    claiming(driver.cluster, "theirs")
    bench.stand_for(bench.gang().key)
    words = "cannot patch resourceclaims/binding"
    driver.cluster.refuses = lambda request, _: (
        refusal(403, "Forbidden", words) if request.endswith("mine/status") else None
    )
    bench.engine.apply([start_on(1, JOB, 1)])
    assert f"its claim mine cannot be allocated: {words}" in bench.next(Refused).reason


def test_a_claim_that_may_not_be_looked_at_is_not_told_as_gone(driver: DriverBench, bench: AdoptingBench) -> None:
    driver.add_claim("mine")
    claiming(driver.cluster, "theirs")
    bench.stand_for(bench.gang().key)
    answers = {"PATCH": refusal(409, "Conflict", "changed"), "GET": refusal(403, "Forbidden", "cannot get it")}
    driver.cluster.refuses = lambda request, _: (
        answers.get(request.partition(" ")[0]) if "/resourceclaims/mine" in request else None
    )
    bench.engine.apply([start_on(1, JOB, 1)])
    assert "its claim mine cannot be looked at: cannot get it" in bench.next(Refused).reason


def test_a_claim_that_another_was_made_for_by_the_same_name_keeps_its_devices(
    driver: DriverBench, bench: AdoptingBench
) -> None:
    driver.add_claim("mine")
    claiming(driver.cluster, "theirs")
    bench.stand_for(bench.gang().key)

    def refuses(request: str, body: Any) -> Any:
        if request.endswith("/binding"):
            return refusal(403, "Forbidden", "cannot bind")
        takes_back = body.get("status", {}).get("allocation", "kept") is None
        if "/resourceclaims/mine" in request and takes_back and not again:
            again.append(driver.cluster.remove(CLAIMS, "mine"))
            driver.add_claim("mine")
            driver.allocate("mine", 2)
            driver.change("mine", {**driver.claim("mine")["status"], "reservedFor": []})
        return None

    again: list[None] = []
    driver.cluster.refuses = refuses
    bench.engine.apply([start_on(1, JOB, 1)])
    assert "cannot bind" in bench.next(Refused).reason
    assert again
    assert driver.devices_of("mine") == [("n1", "gpu-2")]


def cut_off(driver: DriverBench, tmp_path: Path) -> None:
    """A server allocates a claim, and is killed before it binds the pod."""
    stuck = "POST /api/v1/namespaces/team/pods/theirs/binding"
    driver.cluster.refuses = lambda request, _: refusal(503, "Unavailable", "no") if request == stuck else None
    bench = AdoptingBench(driver.cluster, tmp_path)
    bench.open()
    bench.stand_for(bench.gang().key)
    bench.engine.apply([start_on(1, JOB, 1)])
    eventually(lambda: stuck in driver.cluster.requests)
    bench.close()
    assert driver.devices_of("mine") == [("n1", "gpu-1")]
    driver.cluster.refuses = lambda _request, _body: None


@pytest.mark.parametrize("is_known", [True, False])
def test_a_restart_between_a_claim_and_its_binding_goes_on_or_takes_it_back(
    driver: DriverBench, tmp_path: Path, is_known: bool
) -> None:
    driver.add_claim("mine")
    claiming(driver.cluster, "theirs")
    cut_off(driver, tmp_path)
    uid = (driver.cluster.get("pods", "theirs") or {})["metadata"]["uid"]
    bench = AdoptingBench(driver.cluster, tmp_path)
    bench.stands_for = {JOB: GangKey(NAMESPACE, POD, "theirs", uid)}
    try:
        if is_known:
            bench.open([TaskId(JOB, 1, 0)], [start_on(1, JOB, 1)])
            bench.bound("theirs")
            assert driver.devices_of("mine") == [("n1", "gpu-1")]
        else:
            bench.open()
            eventually(lambda: not driver.devices_of("mine"))
            assert bench.gang().roles[0].request.devices == 1
    finally:
        bench.close()


def test_what_an_earlier_start_left_is_given_back_before_the_pod_starts_again(
    driver: DriverBench, tmp_path: Path
) -> None:
    driver.add_claim("mine")
    claiming(driver.cluster, "theirs")
    cut_off(driver, tmp_path)
    uid = (driver.cluster.get("pods", "theirs") or {})["metadata"]["uid"]
    bench = AdoptingBench(driver.cluster, tmp_path)
    bench.stands_for = {JOB: GangKey(NAMESPACE, POD, "theirs", uid)}
    giving_back = "PATCH /apis/resource.k8s.io/v1/namespaces/team/resourceclaims/mine/status"
    driver.cluster.refuses = lambda request, _: refusal(503, "Unavailable", "no") if request == giving_back else None
    asked = driver.cluster.requests
    try:
        bench.open()
        tried = asked.count(giving_back)
        bench.engine.apply([start_on(2, JOB, 1, attempt=2)])
        eventually(lambda: asked.count(giving_back) >= tried + 2)
        assert not (driver.cluster.get("pods", "theirs") or {})["spec"].get("nodeName")
        driver.cluster.refuses = lambda _request, _body: None
        bench.bound("theirs")
        assert driver.devices_of("mine") == [("n1", "gpu-1")]
    finally:
        bench.close()


def test_what_a_pod_had_is_free_when_its_claim_has_let_go(
    driver: DriverBench, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy() -> list[int]:
        nodes = bench.engine.inventory().nodes
        return [each.index for node in nodes for each in node.devices if each.health.value != "ok"]

    monkeypatch.setattr(claim_book, "PATIENCE_S", 0.0)
    driver.add_claim("mine", 2)
    claiming(driver.cluster, "theirs")
    bind(bench, "theirs", 0, 1)
    driver.cluster.run("theirs")
    bench.next(Confirmed)
    assert not busy()
    driver.cluster.finish("theirs")
    eventually(lambda: busy() == [0, 1])
    bench.next(Ended)
    driver.deallocate("mine")
    eventually(lambda: not busy())


def test_a_pod_has_ended_when_its_claim_has_let_go(driver: DriverBench, bench: AdoptingBench) -> None:
    driver.add_claim("mine")
    claiming(driver.cluster, "theirs")
    bind(bench, "theirs", 0)
    driver.cluster.run("theirs")
    bench.next(Confirmed)
    driver.cluster.remove("pods", "theirs")
    driver.add_claim("later")
    driver.allocate("later", 3)
    nodes = bench.engine.inventory
    eventually(lambda: any(each.health.value != "ok" for node in nodes().nodes for each in node.devices))
    assert not any(isinstance(event, Ended) for event in [*bench.seen, *bench.engine.events()])
    driver.deallocate("mine")
    bench.next(Ended)
