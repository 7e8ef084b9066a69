"""A node pulls the image of a job that is to start there, by a pod that does nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from pod_bench import PodBench, eventually
from standin_cluster import StandinCluster, refusal

from millpond.model.contents import Content
from millpond.model.decisions import Prefetch
from millpond.model.events import Confirmed, NodeJoined, Refused
from millpond.model.reasons import Cause
from millpond.specs.job.images import image_content

IMAGE = "registry.example/train:1"
"""What the jobs of a bench run in."""
NEEDED = (Content(image_content(IMAGE)),)
GONE = "pod that pulled its image was deleted"


def fetch(number: int, node: str = "n1", contents: tuple[Content, ...] = NEEDED) -> Prefetch:
    return Prefetch(number, "train-abcde", 1, Cause.PREFETCHED, node, contents)


def end(number: int, node: str = "n1") -> Prefetch:
    return Prefetch(number, "train-abcde", 1, Cause.PREFETCH_OVER, node)


def fetching_pods(cluster: StandinCluster) -> list[str]:
    return [name for name in cluster.names("pods") if name.startswith("millpond-fetch-")]


def begun(cluster: StandinCluster, bench: PodBench, number: int = 1, node: str = "n1") -> str:
    """The pod of a fetch that was decided."""
    before = set(fetching_pods(cluster))
    bench.engine.apply([fetch(number, node)])
    (name,) = eventually(lambda: set(fetching_pods(cluster)) - before)
    return str(name)


def waiting(cluster: StandinCluster, pod: str, reason: str) -> None:
    cluster.set_state(pod, "Pending", {"waiting": {"reason": reason, "message": "no such tag"}})


@pytest.mark.parametrize("reason", ["Completed", "StartError"])
def test_a_node_pulls_an_image_by_a_pod_that_asks_for_nothing_and_is_deleted_once_it_is_there(
    cluster: StandinCluster, bench: PodBench, reason: str
) -> None:
    pod = begun(cluster, bench)
    plain: dict[str, Any] = cluster.get("pods", pod) or {}
    spec = plain["spec"]
    (container,) = spec["containers"]
    assert (spec["nodeName"], container["image"], container["imagePullPolicy"]) == ("n1", IMAGE, "IfNotPresent")
    nothing = {"cpu": "0", "memory": "0"}  # said, as a LimitRange puts its own amounts where none are
    assert container["resources"] == {"requests": nothing, "limits": nothing}
    assert spec["activeDeadlineSeconds"] > 0
    cluster.finish(pod, code=0 if reason == "Completed" else 128, reason=reason)
    assert bench.next(Confirmed).decision == 1
    eventually(lambda: not fetching_pods(cluster))
    assert not [event for event in bench.seen if isinstance(event, NodeJoined)], "it takes no room from tasks"


def test_an_image_that_cannot_be_pulled_is_left_to_the_start_of_the_job(
    cluster: StandinCluster, bench: PodBench
) -> None:
    pod = begun(cluster, bench)
    waiting(cluster, pod, "ContainerCreating")
    waiting(cluster, pod, "ErrImagePull")
    assert "its image cannot be pulled (no such tag)" in bench.next(Refused).reason
    eventually(lambda: not fetching_pods(cluster))
    bench.started(2)


def test_the_node_pulls_no_more_once_it_is_told_so(cluster: StandinCluster, bench: PodBench) -> None:
    begun(cluster, bench)
    kept = begun(cluster, bench, 2, "n2")
    bench.engine.apply([end(3)])
    assert bench.next(Confirmed).decision == 3
    eventually(lambda: fetching_pods(cluster) == [kept])
    bench.engine.apply([end(4)])
    assert bench.next(Confirmed).decision == 4


def test_a_start_does_not_wait_for_the_pull(cluster: StandinCluster, bench: PodBench) -> None:
    pod = begun(cluster, bench)
    bench.started(2)
    cluster.finish(pod)
    assert bench.next(Confirmed).decision == 1


def test_a_pod_that_somebody_deletes_or_the_cluster_does_not_take_is_answered(
    cluster: StandinCluster, bench: PodBench
) -> None:
    cluster.remove("pods", begun(cluster, bench))
    assert GONE in bench.next(Refused).reason
    cluster.refuses = lambda request, _: (
        refusal(403, "Forbidden", "must specify requests.cpu") if request.startswith("POST") else None
    )
    bench.engine.apply([fetch(2)])
    refused = bench.next(Refused)
    assert (refused.decision, "must specify requests.cpu" in refused.reason) == (2, True)


@pytest.mark.parametrize(
    ("node", "contents", "reason"),
    [
        ("n1", (Content("data:faces@3"),), "a cluster fetches images alone"),
        ("elsewhere", NEEDED, "the node takes no pod"),
    ],
)
def test_what_no_pod_can_fetch_is_refused(
    cluster: StandinCluster, bench: PodBench, node: str, contents: tuple[Content, ...], reason: str
) -> None:
    bench.engine.apply([fetch(1, node, contents)])
    assert reason in bench.next(Refused).reason
    assert fetching_pods(cluster) == []


def test_a_node_with_one_place_left_for_a_pod_keeps_it_for_tasks(cluster: StandinCluster, bench: PodBench) -> None:
    cluster.add_node("n1", others={"pods": "1", "cpu": "31"})
    while bench.next(NodeJoined).node.cpu_milli != 31_000:
        pass
    bench.engine.apply([fetch(1)])
    assert "the node takes no pod" in bench.next(Refused).reason


def test_an_engine_that_begins_anew_goes_on_with_the_pods_that_are_waited_for_and_deletes_others(
    cluster: StandinCluster, bench: PodBench
) -> None:
    pod = begun(cluster, bench)
    begun(cluster, bench, 2, "n2")
    bench.close()
    cluster.finish(pod)
    bench.seen.clear()
    bench.open(unanswered=[fetch(1)])
    assert bench.next(Confirmed).decision == 1
    eventually(lambda: not fetching_pods(cluster))
