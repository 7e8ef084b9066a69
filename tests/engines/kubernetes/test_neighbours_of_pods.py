"""Required affinities of pods to other pods: kept by the choice of nodes, never broken by a decision made too early."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign_pods import JOB, AdoptingBench, condition, foreign_pod
from pod_bench import eventually, start
from standin_cluster import NAMESPACE, StandinCluster

from millpond.engines.kubernetes.adoption.gangs import FoundGang
from millpond.model.events import Confirmed, Refused
from millpond.model.hardware.node_selection import selects
from millpond.model.task_spacing import SpacingKind, SpacingRule

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
WEB, DB = {"app": "web"}, {"app": "db"}


@pytest.fixture
def bench(cluster: StandinCluster, tmp_path: Path) -> Iterator[AdoptingBench]:
    for number, node in enumerate(("n1", "n2", "n3")):
        plain = cluster.get("nodes", node, "")
        if plain is None:
            cluster.add_node(node)
            plain = cluster.get("nodes", node, "")
        assert plain is not None
        labels = {**plain["metadata"]["labels"], HOST: node, ZONE: f"zone-{number // 2}"}
        cluster.put("nodes", node, {**plain, "metadata": {"labels": labels}})
    with AdoptingBench(cluster, tmp_path) as bench:
        yield bench


def term(labels: dict[str, str], key: str = HOST, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}, **more}


def apart(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def beside(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAffinity": {REQUIRED: list(terms)}}


def running(cluster: StandinCluster, name: str, node: str, labels: dict[str, str], **more: Any) -> None:
    """A pod of another scheduler, on a node."""
    foreign_pod(cluster, name, cards=0, labels=labels, schedulerName="theirs", nodeName=node, **more)
    cluster.run(name)


def allowed(bench: AdoptingBench, gang: FoundGang) -> set[str]:
    """The nodes that the core may choose for a gang."""
    return {node.name for node in bench.engine.inventory().nodes if selects(gang.terms.selection, node.labels)}


def ready(bench: AdoptingBench) -> dict[str, FoundGang]:
    return {gang.key.name: gang for gang in bench.engine.gangs() if not gang.trouble}


def bound(cluster: StandinCluster, bench: AdoptingBench, number: int, pod: str, node: str) -> None:
    """A job is submitted for a pod, started, and runs."""
    job = f"{pod}-abcde"
    bench.stand_for(eventually(lambda: ready(bench).get(pod)).key, job)
    bench.engine.apply([start(number, job, (node,))])
    bench.bound(pod)
    cluster.run(pod)
    assert bench.next(Confirmed).decision == number


def test_replicas_that_keep_apart_are_placed_one_after_another_each_on_a_node_of_its_own(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    for name in ("web-1", "web-2", "web-3"):
        foreign_pod(cluster, name, labels=WEB, affinity=apart(term(WEB)))
    left = {"n1", "n2", "n3"}
    for number, node in enumerate(("n2", "n1", "n3"), 1):
        found = eventually(lambda: ready(bench))
        ((pod, gang),) = found.items()
        eventually(lambda gang=gang, left=left: allowed(bench, gang) == left)
        bound(cluster, bench, number, pod, node)
        left -= {node}
    assert not bench.engine.gangs()


def test_those_that_wait_behind_their_like_are_told_and_the_server_is_woken_for_the_next(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    for name in ("web-1", "web-2"):
        foreign_pod(cluster, name, labels=WEB, affinity=apart(term(WEB)))
    (first,) = eventually(lambda: ready(bench))
    (other,) = {"web-1", "web-2"} - {first}
    assert "placed one after another" in eventually(lambda: condition(cluster, other))
    woken: list[int] = []
    bench.engine.when_found(lambda: woken.append(1))
    bound(cluster, bench, 1, first, "n1")
    eventually(lambda: woken)
    assert set(ready(bench)) == {other}


def test_a_decision_that_came_too_early_is_refused_and_binds_nothing(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    foreign_pod(cluster, "web-1", labels=WEB, affinity=apart(term(WEB, ZONE)))
    bench.stand_for(eventually(lambda: ready(bench).get("web-1")).key, "early-abcde")
    running(cluster, "theirs", "n1", WEB)
    eventually(lambda: allowed(bench, ready(bench)["web-1"]) == {"n3"})
    bench.engine.apply([start(1, "early-abcde", ("n2",))])
    refused = bench.next(Refused)
    assert "must not lie beside pods app=web of team, by topology.kubernetes.io/zone" in refused.reason
    assert refused.device_fault, "it is tried again"
    assert not any(request.endswith("/binding") for request in cluster.requests)


def test_a_node_is_open_again_when_the_pod_that_kept_others_off_is_gone(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    running(cluster, "theirs", "n1", WEB)
    foreign_pod(cluster, "alone", labels=DB, affinity=apart(term(WEB)))
    gang = bench.gang()
    eventually(lambda: allowed(bench, gang) == {"n2", "n3"})
    cluster.finish("theirs")
    eventually(lambda: allowed(bench, gang) == {"n1", "n2", "n3"})
    running(cluster, "more", "n3", WEB)
    eventually(lambda: allowed(bench, gang) == {"n1", "n2"})
    cluster.remove("pods", "more")
    eventually(lambda: allowed(bench, gang) == {"n1", "n2", "n3"})


def test_long_selectors_are_told_apart(cluster: StandinCluster, bench: AdoptingBench) -> None:
    long = {f"label-{number:02}": "x" * 60 for number in range(20)}
    running(cluster, "one", "n1", {**long, "app": "one"})
    running(cluster, "shy", "n2", DB, affinity=apart(term({**WEB, **long})))
    foreign_pod(cluster, "web", labels={**WEB, **long}, affinity=apart(term({**long, "z": "one"}), term(long)))
    eventually(lambda: allowed(bench, bench.gang()) == {"n3"})
    gang = bench.gang()
    keys = [requirement.key for term in gang.terms.selection for requirement in term]
    assert len(set(keys)) == 3
    assert max(map(len, keys)) < 400


def test_pods_that_belong_together_are_placed_beside_each_other(cluster: StandinCluster, bench: AdoptingBench) -> None:
    running(cluster, "db", "n1", DB)
    foreign_pod(cluster, "web", labels=WEB, affinity=beside(term(DB, ZONE)))
    gang = bench.gang()
    eventually(lambda: allowed(bench, gang) == {"n1", "n2"})


def test_the_first_of_pods_that_lie_beside_each_other_may_go_anywhere_and_the_next_follows(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    for name in ("web-1", "web-2"):
        foreign_pod(cluster, name, labels=WEB, affinity=beside(term(WEB, ZONE)))
    ((first, gang),) = eventually(lambda: ready(bench)).items()
    assert allowed(bench, gang) == {"n1", "n2", "n3"}
    bound(cluster, bench, 1, first, "n3")
    eventually(lambda: allowed(bench, bench.gang()) == {"n3"})


def test_a_pod_that_is_there_keeps_off_those_that_it_must_not_lie_beside(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    running(cluster, "shy", "n1", DB, affinity=apart(term(WEB, ZONE)))
    foreign_pod(cluster, "web", labels=WEB)
    foreign_pod(cluster, "other", labels={"app": "other"})
    eventually(lambda: len(ready(bench)) == 2)
    eventually(lambda: allowed(bench, ready(bench)["web"]) == {"n3"})
    assert allowed(bench, ready(bench)["other"]) == {"n1", "n2", "n3"}


def test_pods_of_other_namespaces_count_where_a_term_names_them(cluster: StandinCluster, bench: AdoptingBench) -> None:
    running(cluster, "here", "n1", WEB)
    foreign_pod(cluster, "there", cards=0, labels=WEB, schedulerName="theirs", nodeName="n2", namespace="other")
    foreign_pod(cluster, "own", labels=DB, affinity=apart(term(WEB)))
    foreign_pod(cluster, "named", labels=DB, affinity=apart(term(WEB, namespaces=["other"])))
    foreign_pod(cluster, "all", labels=DB, affinity=apart(term(WEB, namespaceSelector={})))
    gangs = eventually(lambda: found if len(found := ready(bench)) == 3 else None)
    expected = {"own": {"n2", "n3"}, "named": {"n1", "n3"}, "all": {"n3"}}
    eventually(lambda: {name: allowed(bench, gang) for name, gang in gangs.items()} == expected)


GANG = {"millpond.io/gang": "pair", "millpond.io/gang-size": "2"}


def pods(cluster: StandinCluster, affinity: dict[str, Any], *names: str, **more: Any) -> None:
    for name in names:
        foreign_pod(cluster, name, labels=more.get("labels", WEB), annotations=GANG, affinity=affinity)


@pytest.mark.parametrize("key", [HOST, ZONE, "example.org/row"])
def test_a_gang_whose_pods_must_all_lie_together_is_placed_within_one_such_place(
    cluster: StandinCluster, bench: AdoptingBench, key: str
) -> None:
    pods(cluster, beside(term(WEB, key)), "pair-1", "pair-2")
    assert bench.gang().terms.spacing == (SpacingRule(SpacingKind.TOGETHER, key, ("worker",)),)


def test_where_their_like_lies_already_each_pod_of_a_gang_lies_beside_it(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    running(cluster, "theirs", "n3", WEB)
    pods(cluster, beside(term(WEB, ZONE)), "pair-1", "pair-2")
    eventually(lambda: allowed(bench, bench.gang()) == {"n3"})
    assert bench.gang().terms.spacing == ()


def test_a_gang_whose_pods_must_lie_apart_is_bound_so_as_a_whole_or_not_at_all(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    pods(cluster, apart(term(WEB, ZONE)), "pair-1", "pair-2")
    gang = bench.gang()
    assert gang.terms.spacing == (SpacingRule(SpacingKind.APART, ZONE, ("worker",), ("worker",)),)
    bench.stand_for(gang.key)
    bench.engine.apply([start(1, JOB, ("n1", "n2"))])
    assert "another of its gang would" in bench.next(Refused).reason
    assert not any(request.endswith("/binding") for request in cluster.requests)
    bench.engine.apply([start(2, JOB, ("n2", "n3"))])
    assert [bench.bound(name)["spec"]["nodeName"] for name in ("pair-1", "pair-2")] == ["n2", "n3"]


def test_a_gang_that_would_not_lie_together_is_not_bound(cluster: StandinCluster, bench: AdoptingBench) -> None:
    pods(cluster, beside(term(WEB, ZONE)), "pair-1", "pair-2")
    bench.stand_for(bench.gang().key)
    bench.engine.apply([start(1, JOB, ("n1", "n3"))])
    assert "must lie beside pods" in bench.next(Refused).reason
    bench.engine.apply([start(2, JOB, ("n1", "n2"))])
    assert bench.bound("pair-2")


def test_pods_of_one_role_keep_off_those_of_another(cluster: StandinCluster, bench: AdoptingBench) -> None:
    role = "training.kubeflow.org/replica-type"
    for name, labels, affinity in (
        ("pair-1", {role: "master"}, apart(term({role: "worker"}))),
        ("pair-2", {role: "worker"}, beside(term({role: "master"}, ZONE))),
    ):
        foreign_pod(cluster, name, labels=labels, annotations=GANG, affinity=affinity)
    gang = bench.gang()
    first, second = (role.name for role in gang.roles)
    assert gang.terms.spacing == (
        SpacingRule(SpacingKind.APART, HOST, (first,), (second,)),
        SpacingRule(SpacingKind.TOGETHER, ZONE, (first, second)),
    )


def test_pods_of_a_role_that_ask_for_different_things_are_told(cluster: StandinCluster, bench: AdoptingBench) -> None:
    pods(cluster, apart(term(WEB)), "pair-1")
    pods(cluster, {}, "pair-2")
    assert "let all pods of a role ask for the same" in eventually(lambda: condition(cluster, "pair-1"))


def test_a_job_that_waits_is_told_of_other_nodes_when_the_first_of_its_like_lies_somewhere(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    foreign_pod(cluster, "web", labels=WEB, affinity=beside(term(WEB, ZONE)))
    bench.stand_for(bench.gang().key)
    assert allowed(bench, bench.gang()) == {"n1", "n2", "n3"}
    woken: list[int] = []
    bench.engine.when_found(lambda: woken.append(1))
    running(cluster, "theirs", "n3", WEB)
    eventually(lambda: woken)
    eventually(lambda: allowed(bench, bench.gang()) == {"n3"})


@pytest.mark.parametrize(
    ("affinity", "words"),
    [
        (beside(term(WEB), term(DB)), "one required pod affinity"),
        (beside(term(WEB, namespaceSelector={"matchLabels": {"a": "b"}})), "name them"),
        (beside({"topologyKey": HOST}), "no label selector"),
    ],
)
def test_affinities_that_cannot_be_kept_are_told(
    cluster: StandinCluster, bench: AdoptingBench, affinity: dict[str, Any], words: str
) -> None:
    foreign_pod(cluster, "odd", labels=WEB, affinity=affinity)
    assert words in eventually(lambda: condition(cluster, "odd"))
    assert cluster.get("pods", "odd", NAMESPACE) is not None


def with_port(*ports: int, protocol: str = "TCP") -> dict[str, Any]:
    """Containers that take ports of their node, and one that leads to none."""
    taken = [{"containerPort": 80, "hostPort": port, "protocol": protocol} for port in ports]
    return {"containers": [{"name": "task", "ports": [{"containerPort": 81}, *taken]}]}


def test_pods_that_take_the_same_port_of_their_node_lie_on_different_nodes(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    running(cluster, "theirs", "n1", DB, **with_port(80, 443))
    running(cluster, "other", "n2", DB, **with_port(443, protocol="UDP"))
    for name in ("web-1", "web-2"):
        foreign_pod(cluster, name, labels=WEB, **with_port(443))
    ((first, gang),) = eventually(lambda: ready(bench)).items()
    eventually(lambda: allowed(bench, gang) == {"n2", "n3"})
    bound(cluster, bench, 1, first, "n2")
    ((_, gang),) = eventually(lambda: ready(bench)).items()
    eventually(lambda: allowed(bench, gang) == {"n3"})
    cluster.remove("pods", "theirs")
    eventually(lambda: allowed(bench, gang) == {"n1", "n3"})


def test_a_sidecar_takes_a_port_of_its_node_and_what_runs_before_the_others_does_not(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    (container,) = with_port(443)["containers"]
    running(cluster, "theirs", "n1", DB, initContainers=[container | {"name": "proxy", "restartPolicy": "Always"}])
    running(cluster, "other", "n2", DB, initContainers=[container | {"name": "before"}])
    foreign_pod(cluster, "web", labels=WEB, **with_port(443))
    eventually(lambda: allowed(bench, bench.gang()) == {"n2", "n3"})


def test_a_pod_is_not_bound_where_its_port_was_taken_meanwhile(cluster: StandinCluster, bench: AdoptingBench) -> None:
    foreign_pod(cluster, "web", labels=WEB, **with_port(80))
    bench.stand_for(bench.gang().key)
    running(cluster, "theirs", "n1", DB, **with_port(80))
    eventually(lambda: allowed(bench, bench.gang()) == {"n2", "n3"})
    bench.engine.apply([start(1, JOB, ("n1",))])
    assert "must not lie beside pods with host port 80/TCP" in bench.next(Refused).reason
    bench.engine.apply([start(2, JOB, ("n2",))])
    assert bench.bound("web")["spec"]["nodeName"] == "n2"


def test_the_pods_of_a_gang_that_take_the_same_port_are_placed_on_different_nodes(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    for name in ("pair-1", "pair-2"):
        foreign_pod(cluster, name, annotations=GANG, **with_port(80))
    gang = bench.gang()
    assert gang.terms.spacing == (SpacingRule(SpacingKind.APART, "metadata.name", ("worker",), ("worker",)),)
    bench.stand_for(gang.key)
    bench.engine.apply([start(1, JOB, ("n1", "n1"))])
    assert "another of its gang would" in bench.next(Refused).reason
    bench.engine.apply([start(2, JOB, ("n1", "n3"))])
    assert {bench.bound(name)["spec"]["nodeName"] for name in ("pair-1", "pair-2")} == {"n1", "n3"}
