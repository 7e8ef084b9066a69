"""Starts that are undone while something keeps their pods: no job waits for that without a word, or for ever."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pod_bench import PodBench, eventually, start, stop
from standin_cluster import NAMESPACE, StandinCluster

from millpond.engines.kubernetes.cluster import cluster_api
from millpond.model.events import Confirmed, NodeLost, Noted, Refused

POD, OTHER = "train-abcde-1-0", "train-abcde-1-1"
KEPT = f"pod {POD} stays until its finalizers are taken off: example.org/audit, example.org/bill"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_api, "STAYS_AFTER_S", 0.0)
    monkeypatch.setattr(cluster_api, "LOOK_EVERY_S", 0.01)


@pytest.fixture
def on_silent_node(cluster: StandinCluster, tmp_path: Path) -> Iterator[PodBench]:
    """Nodes are lost as soon as they are silent."""
    bench = PodBench(cluster, tmp_path)
    bench.options = replace(bench.options, node_timeout_s=0.0)
    with bench:
        yield bench


def guard(cluster: StandinCluster, pod: str = POD) -> None:
    """Others have finalizers on a pod."""
    plain = cluster.get("pods", pod)
    assert plain is not None
    finalizers = ["example.org/audit", "example.org/bill"]
    cluster.put("pods", pod, {**plain, "metadata": {**plain["metadata"], "finalizers": finalizers}}, NAMESPACE)


def is_leaving(cluster: StandinCluster, pod: str = POD) -> bool:
    return bool((cluster.get("pods", pod) or {"metadata": {}})["metadata"].get("deletionTimestamp"))


def ended_by_kubelet(cluster: StandinCluster, pod: str = POD) -> None:
    """Nothing of it runs on its node any more."""
    plain = cluster.get("pods", pod)
    assert plain is not None
    meta = {**plain["metadata"], "deletionGracePeriodSeconds": 0}
    if meta.get("finalizers"):
        cluster.put("pods", pod, {**plain, "metadata": meta}, NAMESPACE)
    else:
        cluster.remove("pods", pod)


def test_a_start_is_undone_when_finalizers_of_others_alone_keep_its_pod_and_they_are_named(
    cluster: StandinCluster, bench: PodBench
) -> None:
    bench.engine.apply([start(1)])
    bench.bound(POD)
    guard(cluster)
    bench.engine.apply([stop(2)])
    eventually(lambda: is_leaving(cluster))
    told = bench.next(Noted).text
    assert told == (
        f"its pod {POD} is to end, and node n1 has not said that it has; its start is given up: "
        "it was stopped before it ran"
    )
    ended_by_kubelet(cluster)
    assert bench.next(Refused).reason == f"it was stopped before it ran; {KEPT}"
    assert bench.next(Confirmed).decision == 2
    bench.started(3, attempt=2)
    assert not any(isinstance(event, Noted) for event in bench.seen), "it was told once"


def test_a_gang_whose_other_pod_is_deleted_names_what_keeps_the_rest_of_it(
    cluster: StandinCluster, bench: PodBench
) -> None:
    bench.engine.apply([start(1, nodes=("n1", "n2"))])
    bench.bound(POD)
    bench.bound(OTHER)
    guard(cluster)
    cluster.remove("pods", OTHER)
    eventually(lambda: is_leaving(cluster))
    ended_by_kubelet(cluster)
    refused = bench.next(Refused)
    assert refused.reason == f"pod {OTHER} was deleted while it was being started; {KEPT}"
    assert refused.device_fault


def test_of_many_pods_that_are_kept_one_is_named(cluster: StandinCluster, bench: PodBench) -> None:
    bench.engine.apply([start(1, nodes=("n1", "n2", "n2"))])
    pods = [f"train-abcde-1-{task}" for task in range(3)]
    for pod in pods:
        bench.bound(pod)
        guard(cluster, pod)
    bench.engine.apply([stop(2)])
    for pod in pods:
        eventually(partial(is_leaving, cluster, pod))
        ended_by_kubelet(cluster, pod)
    assert re.fullmatch(
        r"it was stopped before it ran; pod train-abcde-1-\d stays until its finalizers are taken off: "
        "example.org/audit, example.org/bill, and 2 more pods of it",
        bench.next(Refused).reason,
    )


def test_a_job_that_started_on_a_node_which_falls_silent_starts_elsewhere_while_its_pod_stays(
    cluster: StandinCluster, on_silent_node: PodBench
) -> None:
    bench = on_silent_node
    bench.engine.apply([start(1)])
    bench.bound(POD)
    cluster.add_node("n1", ready=False)
    bench.next(NodeLost)
    bench.engine.apply([start(2, attempt=2, nodes=("n2",))])
    assert bench.bound("train-abcde-2-0")["spec"]["nodeName"] == "n2"
    assert is_leaving(cluster), "it ends when its node is back"


def test_a_start_that_is_being_undone_is_let_be_when_its_node_falls_silent(
    cluster: StandinCluster, on_silent_node: PodBench
) -> None:
    bench = on_silent_node
    bench.engine.apply([start(1)])
    bench.bound(POD)
    bench.engine.apply([stop(2)])
    eventually(lambda: is_leaving(cluster))
    assert not any(isinstance(event, Refused) for event in bench.engine.events())
    cluster.add_node("n1", ready=False)
    assert bench.next(Refused).reason == "it was stopped before it ran"
