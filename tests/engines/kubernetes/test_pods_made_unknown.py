"""Pods from which others take the label or the annotation by which they are known: none runs beside its successor."""

from __future__ import annotations

import pytest
from pod_bench import PodBench, eventually, start
from standin_cluster import NAMESPACE, Plain, StandinCluster

from millpond.engines.kubernetes.pods import live_pods
from millpond.model.events import Ended, Refused
from millpond.model.states import Outcome
from millpond.node.task.records import TaskId

POD = "train-abcde-1-0"
TASK = TaskId("train-abcde", 1, 0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_pods, "LOG_PATIENCE_S", 0.05)


def take_off(cluster: StandinCluster, *parts: str) -> None:
    pod = cluster.get("pods", POD)
    assert pod is not None
    cluster.put("pods", POD, {**pod, "metadata": {**pod["metadata"], **{part: {} for part in parts}}}, NAMESPACE)


def is_leaving(cluster: StandinCluster) -> bool:
    return bool((cluster.get("pods", POD) or {"metadata": {}})["metadata"].get("deletionTimestamp"))


@pytest.mark.parametrize("taken_off", ["labels", "annotations"])
def test_a_pod_that_an_admission_webhook_makes_unknown_does_not_stay_and_its_start_says_why(
    cluster: StandinCluster, bench: PodBench, taken_off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_asked = cluster.put

    def admitted(kind: str, name: str, plain: Plain, namespace: str = "") -> None:
        as_asked(kind, name, {**plain, "metadata": {**plain["metadata"], taken_off: {"theirs": "x"}}}, namespace)

    monkeypatch.setattr(cluster, "put", admitted)
    bench.engine.apply([start(1)])
    refused = bench.next(Refused)
    assert "have its admission webhooks and policies leave these alone" in refused.reason
    assert refused.device_fault, "the job is not to blame"
    assert cluster.names("pods") == []
    monkeypatch.undo()
    bench.started(2)


@pytest.mark.parametrize("taken_off", ["labels", "annotations"])
def test_a_pod_whose_marks_are_taken_off_while_it_runs_is_followed_to_its_end(
    cluster: StandinCluster, bench: PodBench, taken_off: str
) -> None:
    bench.started()
    take_off(cluster, taken_off)
    cluster.finish(POD, 3)
    assert bench.next(Ended).exit_code == 3


def test_a_pod_whose_labels_are_taken_off_while_the_server_is_away_is_found_by_its_annotation(
    cluster: StandinCluster, bench: PodBench
) -> None:
    bench.started()
    bench.close()
    take_off(cluster, "labels")
    bench.open([TASK])
    assert [task.job for task in bench.engine.inventory().tasks] == [TASK.job]
    cluster.finish(POD, 3)
    ended = bench.next(Ended)
    assert (ended.exit_code, is_leaving(cluster)) == (3, False)


@pytest.mark.parametrize("parts", [("annotations",), ("annotations", "labels")])
def test_a_pod_without_its_annotation_ends_before_a_new_server_counts_its_task_as_lost(
    cluster: StandinCluster, bench: PodBench, parts: tuple[str, ...]
) -> None:
    bench.started()
    bench.close()
    take_off(cluster, *parts)
    bench.open([TASK])
    eventually(lambda: is_leaving(cluster))
    bench.started(2, job="other-abcde", nodes=("n2",))
    assert not any(isinstance(event, Ended) for event in [*bench.seen, *bench.engine.events()]), "it runs still"
    cluster.remove("pods", POD)
    ended = bench.next(Ended)
    assert (ended.job, ended.outcome) == (TASK.job, Outcome.NODE_LOST)
    assert "millpond.io/task" in ended.detail


def test_a_pod_of_others_that_has_the_name_of_a_lost_task_stays(cluster: StandinCluster, bench: PodBench) -> None:
    bench.started()
    bench.close()
    cluster.remove("pods", POD)
    theirs = {"spec": {"nodeName": "n1", "containers": [{"name": "web"}]}, "status": {"phase": "Running"}}
    cluster.put("pods", POD, theirs, NAMESPACE)
    bench.open([TASK])
    assert bench.next(Ended).outcome is Outcome.NODE_LOST
    bench.started(2, job="other-abcde", nodes=("n2",))
    assert not is_leaving(cluster)
