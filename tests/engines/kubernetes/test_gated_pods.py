"""Pods that a scheduling gate holds for Millpond: released for one node, to which another scheduler binds them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign_pods import JOB, OWNER, AdoptingBench, condition, events_of, foreign_pod
from pod_bench import eventually, start
from standin_cluster import NAMESPACE, StandinCluster, refusal
from starlette.responses import JSONResponse

from millpond.engines.kubernetes.adoption import gated_pods
from millpond.engines.kubernetes.adoption.gated_pods import pinned
from millpond.model.events import Confirmed, Ended, Refused
from millpond.model.states import Outcome
from millpond.node.task.records import TaskId

GATES = [{"name": "millpond.io/gate"}]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture
def bench(cluster: StandinCluster, tmp_path: Path) -> Iterator[AdoptingBench]:
    with AdoptingBench(cluster, tmp_path, gated=True) as bench:
        yield bench


def gated(cluster: StandinCluster, name: str, **more: Any) -> None:
    """A pod of kube-scheduler's that a gate holds."""
    labels = {"millpond.io/queue": "default", **more.pop("labels", {})}
    spec = {"schedulerName": "default-scheduler", "schedulingGates": GATES, **more}
    foreign_pod(cluster, name, labels=labels, **spec)


def bind(cluster: StandinCluster, name: str) -> str:
    """What kube-scheduler does with a pod that nothing holds; the node that it is bound to."""
    plain = eventually(lambda: released(cluster, name))
    ((term,),) = [plain["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]]
    (node,) = term["matchFields"][-1]["values"]
    spec = {**plain["spec"], "nodeName": node}
    cluster.put("pods", name, {**plain, "spec": spec}, NAMESPACE)
    return str(node)


def released(cluster: StandinCluster, name: str) -> dict[str, Any] | None:
    plain = cluster.get("pods", name)
    return plain if plain is not None and not plain["spec"]["schedulingGates"] else None


def release(cluster: StandinCluster, bench: AdoptingBench, name: str, node: str = "n1") -> None:
    bench.stand_for(bench.gang().key)
    bench.engine.apply([start(1, JOB, (node,))])
    eventually(lambda: released(cluster, name))


def test_a_pod_is_released_for_the_node_that_was_chosen_and_its_scheduler_binds_it(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    gated(cluster, "held")
    release(cluster, bench, "held")
    assert bind(cluster, "held") == "n1"
    assert not any(request.endswith("/binding") for request in cluster.requests)
    cluster.run("held")
    assert bench.next(Confirmed).decision == 1
    cluster.finish("held")
    assert bench.next(Ended).task == 0


def test_what_the_pod_asks_of_its_node_stays(cluster: StandinCluster, bench: AdoptingBench) -> None:
    asked = {"key": "disk", "operator": "In", "values": ["ssd"]}
    apart = {"podAntiAffinity": {REQUIRED: []}}
    wanted = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [asked]}]}}, **apart}
    cluster.add_node("n1", labels={"millpond.io/pool": "default", "disk": "ssd"})
    gated(cluster, "held", affinity=wanted)
    release(cluster, bench, "held")
    this = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    terms = [{"matchExpressions": [asked], "matchFields": [this]}]
    found = eventually(lambda: released(cluster, "held"))["spec"]["affinity"]
    assert found == {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}, **apart}


def test_an_alternative_that_matches_no_node_is_left_so() -> None:
    found = pinned({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}, "n1")
    assert found == {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}


def test_a_pod_that_waits_says_why_and_still_that_a_gate_holds_it(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    gated(cluster, "odd", annotations={"millpond.io/topolgy": "rack"})
    assert eventually(lambda: condition(cluster, "odd")).startswith("there is no annotation millpond.io/topolgy")
    (said,) = (cluster.get("pods", "odd") or {})["status"]["conditions"]
    assert said["reason"] == "SchedulingGated"


def test_pods_that_others_hold_too_or_nobody_holds_are_let_be(cluster: StandinCluster, bench: AdoptingBench) -> None:
    gated(cluster, "of-kueue", schedulingGates=[*GATES, {"name": "kueue.x-k8s.io/admission"}])
    gated(cluster, "free", schedulingGates=[])
    gated(cluster, "mine")
    assert bench.gang().key.name == "mine"


def test_a_held_pod_without_the_label_of_a_queue_is_told_that_it_will_not_be_found(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    foreign_pod(cluster, "lost", schedulerName="default-scheduler", schedulingGates=GATES)
    assert "it has no label millpond.io/queue" in eventually(lambda: condition(cluster, "lost"))
    eventually(lambda: len(events_of(cluster, "lost")) == 1)
    assert not bench.engine.gangs()


def test_a_pod_that_was_changed_meanwhile_is_released_as_it_is_now(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    gated(cluster, "held")
    changed: list[str] = []

    def refuses(request: str, body: Any) -> JSONResponse | None:
        if request.startswith("PATCH") and request.endswith("/pods/held") and not changed:
            changed.append(request)
            return refusal(409, "Conflict", "the object has been modified")
        return None

    cluster.refuses = refuses
    release(cluster, bench, "held")
    assert changed
    assert bind(cluster, "held") == "n1"


def test_a_missing_right_to_release_is_told_and_the_start_is_tried_again(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    gated(cluster, "held")
    bench.stand_for(bench.gang().key)
    words = "user millpond may not patch pods"
    cluster.refuses = lambda request, _: (
        refusal(403, "Forbidden", words) if request.startswith("PATCH") and request.endswith("/pods/held") else None
    )
    bench.engine.apply([start(1, JOB)])
    refused = bench.next(Refused)
    assert refused.reason == f"pod held cannot be bound to node n1: {words}"
    assert refused.device_fault, "it is not the job's fault, so it is tried again"
    eventually(lambda: f"FailedBinding: {refused.reason}" in events_of(cluster, "held"))
    cluster.refuses = lambda _request, _body: None
    bench.engine.apply([start(2, JOB)])
    assert bind(cluster, "held") == "n1"


def test_the_next_engine_knows_what_was_released_and_not_bound(cluster: StandinCluster, bench: AdoptingBench) -> None:
    gated(cluster, "held")
    release(cluster, bench, "held")
    bench.close()
    bench.open(expected=[TaskId(JOB, 1, 0)])
    assert not bench.engine.gangs()
    bind(cluster, "held")
    cluster.run("held")
    cluster.finish("held")
    assert bench.next(Ended).outcome is Outcome.SUCCESS


def test_a_released_pod_that_no_scheduler_binds_leaves_where_its_owner_makes_another(
    cluster: StandinCluster, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gated_pods, "BOUND_WITHIN_S", 0.05)
    replicas = {**OWNER, "apiVersion": "apps/v1", "kind": "ReplicaSet"}
    gated(cluster, "held", owner=replicas)
    release(cluster, bench, "held")
    eventually(lambda: cluster.get("pods", "held") is None)
    assert any("no scheduler has bound it to node n1" in each for each in events_of(cluster, "held"))


def test_one_without_an_owner_is_told_and_stays(
    cluster: StandinCluster, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gated_pods, "BOUND_WITHIN_S", 0.05)
    gated(cluster, "held")
    release(cluster, bench, "held")
    eventually(lambda: any("no scheduler has bound it" in each for each in events_of(cluster, "held")))
    assert released(cluster, "held") is not None
