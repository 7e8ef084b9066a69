"""Pods that have, or come to have, the name of one of Millpond's: none is taken for another."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from pod_bench import PodBench, eventually, start, stop
from standin_cluster import NAMESPACE, StandinCluster, refusal

from millpond.engines.kubernetes.cluster import cluster_api
from millpond.engines.kubernetes.pods import live_pods
from millpond.model.events import Ended, Refused

POD = "train-abcde-1-0"
PATH = f"DELETE /api/v1/namespaces/{NAMESPACE}/pods/{POD}"


def test_a_pod_of_others_that_has_the_name_of_a_task_stays_when_its_start_is_refused(
    cluster: StandinCluster, bench: PodBench
) -> None:
    cluster.put("pods", POD, {"spec": {"containers": []}, "status": {"phase": "Pending"}}, NAMESPACE)
    bench.engine.apply([start(1, nodes=["n1", "n2"])])
    assert bench.next(Refused).reason == f"there is another pod called {POD}"
    assert cluster.names("pods") == [POD], "that of the other task is gone"


def test_a_pod_that_came_to_have_the_name_of_one_that_is_to_end_stays(
    cluster: StandinCluster, bench: PodBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_api, "REFUSED_AGAIN_S", 0.01)
    bench.started()
    cluster.refuses = lambda request, _: refusal(403, "No", "no") if request == PATH else None
    bench.engine.apply([stop(2)])
    eventually(lambda: PATH in cluster.requests)
    plain = cluster.get("pods", POD)
    assert plain is not None
    cluster.remove("pods", POD)
    bench.next(Ended)
    other = copy.deepcopy(plain)
    del other["metadata"]["uid"]
    other["metadata"]["annotations"] = {}
    cluster.put("pods", POD, other, NAMESPACE)
    cluster.refuses = lambda _request, _body: None
    asked = cluster.requests.count(PATH)
    eventually(lambda: cluster.requests.count(PATH) > asked)
    bench.started(3, job="other-abcde")
    there: Any = cluster.get("pods", POD)
    assert there["metadata"].get("deletionTimestamp") is None


def test_ended_pods_that_the_cluster_does_not_let_be_deleted_hold_up_no_others(
    cluster: StandinCluster, bench: PodBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_pods, "KEEP_ENDED_S", 0.0)
    kept = re.compile("DELETE .*/pods/kept-")
    cluster.refuses = lambda request, _: refusal(403, "No", "no") if kept.match(request) else None
    for number, job in enumerate(("kept-abcde", "train-abcde"), 1):
        bench.started(number, job=job)
        cluster.finish(f"{job}-1-0")
        bench.next(Ended)
    eventually(lambda: cluster.names("pods") == ["kept-abcde-1-0"])
    cluster.refuses = lambda _request, _body: None
    eventually(lambda: cluster.names("pods") == [])
