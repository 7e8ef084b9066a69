"""Nodes whose cards NVIDIA's DRA driver publishes, and who has which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from driver_cards import CLAIMS, CLASSES, DRIVER, RULES, SLICES, DriverBench, card, device_of
from foreign_pods import foreign_pod
from pod_bench import PodBench, eventually
from standin_agent import CARDS, add_agent
from standin_cluster import refusal
from starlette.responses import JSONResponse

from millpond.engines.kubernetes.cluster import cluster_view
from millpond.engines.kubernetes.engine import KUBELET_CHOOSES
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.server.operations.cluster_check import check_cluster
from millpond.server.operations.findings import Grade
from millpond.specs.config.kubernetes import KubernetesFile

pytestmark = pytest.mark.usefixtures("driver")  # which is there before the engine


def devices(bench: PodBench, node: str = "n1") -> tuple[Device, ...]:
    return next(each.devices for each in bench.engine.inventory().nodes if each.name == node)


def states(bench: PodBench, node: str = "n1") -> list[str]:
    return [each.health.value for each in devices(bench, node)]


def test_cards_are_those_that_the_driver_publishes(bench: PodBench) -> None:
    found = devices(bench)
    assert [(each.uuid, each.index, each.model, each.memory_mib) for each in found] == [
        (device_of(number), number, "H100", 81559) for number in range(4)
    ]
    assert [each.switch for each in found] == [0, 0, 1, 1]
    assert devices(bench, "n2") == ()
    assert bench.engine.why_no_card_is_closed() == ""


def test_cards_come_and_go_with_the_slices_of_their_node(driver: DriverBench, bench: PodBench) -> None:
    driver.publish("n2", card(0, "n2"))
    assert eventually(lambda: states(bench, "n2")) == ["ok"]
    driver.cluster.remove(SLICES, "n2-gpu-0", "")
    eventually(lambda: not states(bench, "n2"))


def test_a_pool_counts_when_all_its_slices_are_there(driver: DriverBench, bench: PodBench) -> None:
    driver.publish("n1", card(0), generation=2, count=2, part=0)
    driver.publish("n2", card(0, "n2"))
    eventually(lambda: states(bench, "n2"))
    assert len(states(bench)) == 4  # as before, until the driver is done
    driver.publish("n1", card(7), generation=2, count=2, part=1)
    eventually(lambda: [each.index for each in devices(bench)] == [0, 7])


@pytest.mark.parametrize(
    ("more", "health", "said"),
    [
        ({"taints": [{"key": "xid", "value": "79", "effect": "NoExecute"}]}, DeviceHealth.FAULTY, "xid=79:NoExecute"),
        ({"taints": [{"key": "repair", "effect": "NoSchedule"}]}, DeviceHealth.BUSY_ELSEWHERE, "repair:NoSchedule"),
        ({"taints": [{"key": "note", "effect": "None"}]}, DeviceHealth.OK, ""),
        ({"allowMultipleAllocations": True}, DeviceHealth.BUSY_ELSEWHERE, "several claims"),
        ({"bindingConditions": ["ready"]}, DeviceHealth.BUSY_ELSEWHERE, "before a pod is bound"),
    ],
)
def test_what_the_driver_says_against_a_card_counts(
    driver: DriverBench, bench: PodBench, more: dict[str, Any], health: DeviceHealth, said: str
) -> None:
    driver.publish("n1", card(0, memory="80Gi", **more))
    (found,) = eventually(lambda: [each for each in devices(bench) if each.memory_mib == 80 * 1024])
    assert found.health is health
    assert said in found.health_detail


@pytest.mark.parametrize(
    ("selector", "tainted"),
    [
        ({"driver": DRIVER, "pool": "n1", "device": "gpu-2"}, [2]),
        ({"device": "gpu-3"}, [3]),
        ({"pool": "n1"}, [0, 1, 2, 3]),
        ({}, [0, 1, 2, 3]),
        ({"driver": "dra.net"}, []),
        ({"pool": "n2"}, []),
        (None, []),
    ],
)
def test_a_rule_of_an_admin_taints_the_cards_that_it_selects(
    driver: DriverBench, bench: PodBench, selector: dict[str, str] | None, tainted: list[int]
) -> None:
    driver.taint("broken", "repair=fan:NoSchedule", selector)
    driver.taint("seen-last", "seen:NoExecute", {"driver": DRIVER, "pool": "n2"})
    driver.publish("n2", card(0, "n2"))
    eventually(lambda: states(bench, "n2") == ["faulty"])  # so the first was seen too
    assert [each.index for each in devices(bench) if each.health is DeviceHealth.BUSY_ELSEWHERE] == tainted
    said = "the DeviceTaintRule broken has tainted it: repair=fan:NoSchedule"
    assert all(devices(bench)[number].health_detail == said for number in tainted)


def test_a_card_is_given_out_again_when_its_rule_says_so(driver: DriverBench, bench: PodBench) -> None:
    driver.taint("broken", "repair:NoExecute", {"device": "gpu-1"})
    eventually(lambda: states(bench) == ["ok", "faulty", "ok", "ok"])
    driver.taint("broken", "repair:NoSchedule", {"device": "gpu-1"})
    eventually(lambda: states(bench) == ["ok", "busy-elsewhere", "ok", "ok"])
    driver.taint("broken", "repair:None", {"device": "gpu-1"})
    eventually(lambda: states(bench) == ["ok"] * 4)
    driver.taint("broken", "repair:NoExecute", {"device": "gpu-1"})
    eventually(lambda: states(bench)[1] == "faulty")
    driver.cluster.remove(RULES, "broken", "")
    eventually(lambda: states(bench) == ["ok"] * 4)


def test_the_worst_of_several_taints_counts(driver: DriverBench, bench: PodBench) -> None:
    driver.publish("n1", card(0, taints=[{"key": "xid", "effect": "NoExecute"}]), card(1))
    driver.taint("broken", "repair:NoSchedule", {"pool": "n1"})
    eventually(lambda: states(bench) == ["faulty", "busy-elsewhere"])


@pytest.mark.parametrize(
    ("code", "said", "expected"),
    [
        (404, "", ["ok", "faulty", "ok", "ok"]),  # Kubernetes 1.36 has them in v1beta2
        (403, "this server may not look at devicetaintrules", ["ok"] * 4),
    ],
)
def test_rules_are_read_in_the_version_that_the_cluster_serves(
    driver: DriverBench,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    code: int,
    said: str,
    expected: list[str],
) -> None:
    driver.taint("broken", "repair:NoExecute", {"device": "gpu-1"})
    path = "GET /apis/resource.k8s.io/v1/devicetaintrules"
    driver.cluster.refuses = lambda request, _: refusal(code, "No", "no") if request == path else None
    bench = PodBench(driver.cluster, tmp_path)
    bench.open()
    try:
        assert states(bench) == expected
        assert said in caplog.text
    finally:
        bench.close()


def test_a_tainted_card_that_an_agent_gives_out_is_given_to_nobody(driver: DriverBench, tmp_path: Path) -> None:
    driver.publish("n1", *(card(number, uuid=f"GPU-{number}") for number in range(len(CARDS))))
    driver.taint("broken", "repair:NoSchedule", {"device": "gpu-1"})
    add_agent(driver.cluster)
    bench = PodBench(driver.cluster, tmp_path)
    bench.open()
    try:
        assert {each.uuid: each.health.value for each in devices(bench)} == {"GPU-0": "ok", "GPU-1": "busy-elsewhere"}
        driver.taint("broken", "repair:NoExecute", {"device": "gpu-1"})
        eventually(lambda: states(bench) == ["ok", "faulty"])
        assert "DeviceTaintRule broken has tainted it" in devices(bench)[1].health_detail
    finally:
        bench.close()


def test_what_any_claim_has_is_given_to_nobody_until_it_is_free(driver: DriverBench, bench: PodBench) -> None:
    driver.add_claim("theirs", 2)
    driver.allocate("theirs", 1, 2)
    eventually(lambda: states(bench) == ["ok", "busy-elsewhere", "busy-elsewhere", "ok"])
    assert devices(bench)[1].health_detail == "claim team/theirs has it"
    driver.deallocate("theirs")
    eventually(lambda: states(bench) == ["ok"] * 4)
    driver.allocate("theirs", 3)
    eventually(lambda: states(bench)[3] == "busy-elsewhere")
    driver.cluster.remove(CLAIMS, "theirs")
    eventually(lambda: states(bench) == ["ok"] * 4)


def test_a_part_of_a_card_that_others_have_keeps_the_whole_from_being_given_out(
    driver: DriverBench, bench: PodBench
) -> None:
    mig = card(1)
    part = {**mig, "name": "gpu-9", "attributes": {**mig["attributes"], "type": {"string": "mig"}}}
    part["attributes"] |= {"parentUUID": mig["attributes"]["uuid"], "uuid": {"string": "MIG-1"}}
    driver.publish("n1", card(0), mig, part)
    eventually(lambda: len(states(bench)) == 2)
    driver.add_claim("theirs")
    driver.allocate("theirs", 9)
    eventually(lambda: states(bench) == ["ok", "busy-elsewhere"])


def test_a_claim_that_only_watches_a_card_takes_nothing(driver: DriverBench, bench: PodBench) -> None:
    driver.add_claim("monitor")
    driver.allocate("monitor", 0)
    eventually(lambda: states(bench)[0] == "busy-elsewhere")
    status = driver.claim("monitor")["status"]
    status["allocation"]["devices"]["results"][0]["adminAccess"] = True
    driver.change("monitor", status)
    eventually(lambda: states(bench)[0] == "ok")


def test_a_pod_with_a_card_of_the_plugin_is_counted_once(driver: DriverBench, bench: PodBench) -> None:
    foreign_pod(driver.cluster, "plain", 1, schedulerName="default-scheduler", nodeName="n1")
    eventually(lambda: states(bench) == ["busy-elsewhere"] * 4)  # nobody says which card it has
    plain = driver.cluster.get("pods", "plain")
    assert plain is not None
    driver.add_claim("plain-extended")
    driver.allocate("plain-extended", 2)
    said = {"resourceClaimName": "plain-extended", "requestMappings": []}
    driver.cluster.remove("pods", "plain")
    plain["status"] = {"phase": "Running", "extendedResourceClaimStatus": said}
    driver.cluster.put("pods", "plain", plain, "team")
    eventually(lambda: states(bench) == ["ok", "ok", "busy-elsewhere", "ok"])


def test_a_cluster_that_does_not_let_claims_be_looked_at_has_no_cards_of_a_driver(
    driver: DriverBench, tmp_path: Path
) -> None:
    driver.cluster.refuses = lambda request, _: (
        refusal(403, "Forbidden", "no") if request.endswith("/resourceclaims") else None
    )
    bench = PodBench(driver.cluster, tmp_path)
    bench.open()
    try:
        assert devices(bench) == ()
        assert bench.engine.why_no_card_is_closed() == KUBELET_CHOOSES
    finally:
        bench.close()


@pytest.mark.parametrize("kind", ["resource claims", "resource slices", "device classes"])
def test_nothing_new_starts_on_cards_of_which_the_server_may_list_and_not_watch_who_has_them(
    driver: DriverBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(cluster_view, "BLIND_AFTER_S", 0.0)
    monkeypatch.setattr(cluster_view, "LOOK_AT_LEASE_EVERY_S", 0.01)
    driver.cluster.unwatched = {f"{kind.replace(' ', '')}.resource.k8s.io"}
    bench = PodBench(driver.cluster, tmp_path)
    bench.open()

    def closed() -> dict[str, str]:
        return {each.name: each.unschedulable_reason for each in bench.engine.inventory().nodes}

    said = eventually(lambda: words if (words := closed())["n1"] else None)
    assert said["n1"].startswith(f"the cluster does not tell the server of its {kind} (")
    assert said["n2"] == ""
    driver.cluster.unwatched.clear()
    eventually(lambda: closed() == {"n1": "", "n2": ""})
    bench.close()


@pytest.mark.parametrize(
    ("missing", "grade", "said"),
    [
        ("nothing", Grade.OK, "cards of gpu.nvidia.com are given out by claims"),
        (
            "devicetaintrules",
            Grade.LIMITED,
            f"this user may not list {RULES} of all namespaces, watch {RULES} of all namespaces",
        ),
        ("binding", Grade.LIMITED, "this user may not patch resourceclaims.resource.k8s.io/binding (team)"),
        ("the class", Grade.LIMITED, "there is no device class gpu.nvidia.com, so jobs get no cards by claims"),
    ],
)
def test_the_check_says_what_claims_lack(
    driver: DriverBench, tmp_path: Path, missing: str, grade: Grade, said: str
) -> None:
    def allow(request: str, body: dict[str, Any]) -> JSONResponse | None:
        asked = body.get("spec", {}).get("resourceAttributes", {})
        of_claims = asked.get("resource") in ("resourceclaims", "devicetaintrules")
        is_missing = of_claims and missing in asked.values()
        if request == f"GET /apis/resource.k8s.io/v1/deviceclasses/{DRIVER}":  # the roles let them be listed
            return refusal(403, "Forbidden", "no")
        is_asked = request.endswith("accessreviews")
        return JSONResponse({"status": {"allowed": not is_missing}}, 201) if is_asked else None

    driver.cluster.refuses = allow
    if missing == "the class":
        driver.cluster.remove(CLASSES, DRIVER, "")
    found = {each.what: each for each in check_cluster(settings_of(driver, tmp_path))}
    assert (found["resource claims"].grade, found["resource claims"].found) == (grade, said)
    assert found["cards"].found == "4 x gpu.nvidia.com"
    assert found["pods of others"].grade is (Grade.BROKEN if missing == "binding" else Grade.OK)


def test_the_check_of_a_cluster_without_claims_says_nothing_of_them(driver: DriverBench, tmp_path: Path) -> None:
    driver.cluster.serves_claims = False
    found = {each.what: each for each in check_cluster(settings_of(driver, tmp_path))}
    assert "resource claims" not in found
    assert "resourceclaims" not in found["pods of others"].found


@pytest.mark.parametrize("list_of", ["nodes", "resourceslices", "pods"])
def test_a_cluster_that_fails_while_it_is_checked_is_not_taken_for_one_without_rights(
    driver: DriverBench, tmp_path: Path, list_of: str
) -> None:
    def fail(request: str, _body: Any) -> JSONResponse | None:
        failed = request.startswith("GET ") and request.endswith(f"/{list_of}")
        return refusal(500, "InternalError", "etcd does not answer") if failed else None

    driver.cluster.refuses = fail
    (found,) = check_cluster(settings_of(driver, tmp_path))
    assert (found.grade, "answers 500" in found.found) == (Grade.BROKEN, True)


def test_the_check_says_which_nodes_are_closed(driver: DriverBench, tmp_path: Path) -> None:
    there = driver.cluster.names("nodes")
    for number, name in enumerate(there, 1):
        driver.cluster.add_node(name, taints=[{"key": "dedicated", "value": "x", "effect": "NoSchedule"}])
        settings = settings_of(driver, tmp_path)
        found = {each.what: each for each in check_cluster(settings)}["nodes"]
        assert f"; {number} of them closed, such as {there[0]}: it has the taint dedicated" in found.found
        assert found.grade is (Grade.LIMITED if number == len(there) else Grade.OK)
        assert ("kubernetes.tolerate" in found.remedy) is (number == len(there))
    tolerant = settings.model_copy(update={"tolerate": ["dedicated"]})
    found = {each.what: each for each in check_cluster(tolerant)}["nodes"]
    assert (found.grade, "closed" in found.found) == (Grade.OK, False)


def settings_of(driver: DriverBench, folder: Path) -> KubernetesFile:
    return KubernetesFile.model_validate({"kubeconfig": str(driver.cluster.kubeconfig(folder)), "adopt": True})
