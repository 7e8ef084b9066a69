"""The core is told which images the nodes of a cluster hold, as their kubelets say."""

from __future__ import annotations

from typing import Any

import pytest
from pod_bench import PodBench, eventually
from standin_cluster import StandinCluster

from millpond.engines.kubernetes.cluster.cluster_nodes import FETCH_RATE
from millpond.model.contents import Content
from millpond.model.events import NodeContents, NodeJoined, NodeLost
from millpond.specs.job.images import image_content
from millpond.specs.job.job_spec import check_job

GB = 10**9
IMAGE = "registry.example/train:1"
"""What the jobs of a bench run in."""
DIGEST = f"sha256:{'ab' * 32}"


def image(*names: str, size: int = GB) -> dict[str, Any]:
    return {"names": list(names), "sizeBytes": size}


def told_of(bench: PodBench, node: str) -> NodeContents:
    while (event := bench.next(NodeContents)).node != node:
        pass
    return event


def test_the_core_hears_of_each_node_once_and_again_when_its_images_change(
    cluster: StandinCluster, bench: PodBench
) -> None:
    first = {event.node: event.contents for event in (bench.next(NodeContents), bench.next(NodeContents))}
    assert first == {"n1": (), "n2": ()}
    torch = image(f"nvcr.io/nvidia/pytorch@{DIGEST}", "nvcr.io/nvidia/pytorch:24.05-py3", size=9 * GB)
    cluster.add_node("n1", images=[torch])
    event = bench.next(NodeContents)
    assert (event.node, event.fetch_rate) == ("n1", FETCH_RATE)
    assert event.contents == (
        Content("image:nvcr.io/nvidia/pytorch:24.05-py3", 9 * GB),
        Content(f"image:nvcr.io/nvidia/pytorch@{DIGEST}", 9 * GB),
    )
    cluster.add_node("n1", unschedulable=True, images=[torch])
    cluster.add_node("n2", images=[torch])
    assert bench.next(NodeContents).node == "n2", "what n1 holds is as it was"


def test_what_is_small_or_has_no_name_is_not_told(cluster: StandinCluster, bench: PodBench) -> None:
    cluster.add_node(
        "n3",
        images=[
            image("docker.io/library/busybox:1", size=FETCH_RATE - 1),
            image("<none>@<none>", "<none>:<none>"),
            {"sizeBytes": GB},
            {"names": None, "sizeBytes": GB},
            image("docker.io/library/python:3.12", size=FETCH_RATE),
        ],
    )
    assert told_of(bench, "n3").contents == (Content("image:docker.io/library/python:3.12", FETCH_RATE),)


def test_what_a_node_holds_is_told_after_it_has_joined_and_anew_when_it_comes_back(
    cluster: StandinCluster, bench: PodBench
) -> None:
    for _ in range(2):
        cluster.add_node("n3", images=[image("docker.io/library/python:3.12")])
        assert bench.next(NodeJoined).node.name == "n3"
        assert told_of(bench, "n3").contents[0].bytes == GB
        cluster.remove("nodes", "n3", "")
        assert bench.next(NodeLost).node == "n3"


def test_an_engine_that_begins_anew_tells_of_all_nodes(cluster: StandinCluster, bench: PodBench) -> None:
    cluster.add_node("n1", images=[image("docker.io/library/python:3.12")])
    bench.close()
    bench.seen.clear()
    bench.open()
    assert told_of(bench, "n1").contents == (Content("image:docker.io/library/python:3.12", GB),)


def pulled(cluster: StandinCluster, pod: str, text: str, image: str = IMAGE) -> None:
    """A kubelet says that an image came for a pod."""
    said = {"reason": "Pulled", "message": f'Successfully pulled image "{image}" in {text}'}
    cluster.put("events", f"{pod}-{len(cluster.names('events'))}", {**said, "involvedObject": {"name": pod}}, "team")


def rate_told(bench: PodBench, node: str, other_than: int) -> int:
    while (event := told_of(bench, node)).fetch_rate == other_than:
        pass
    return event.fetch_rate


def test_how_fast_a_node_fetches_is_measured_by_the_pulls_of_its_pods_and_supposed_of_others_until_theirs(
    cluster: StandinCluster, bench: PodBench
) -> None:
    cluster.add_node("n1", images=[])
    bench.started(1)
    pulled(cluster, "train-abcde-1-0", "1m30s (1m40.5s including waiting). Image size: 9 bytes.")
    cluster.add_node("n1", images=[image(IMAGE, size=9 * GB)])
    assert rate_told(bench, "n1", FETCH_RATE) == GB // 10
    assert rate_told(bench, "n2", FETCH_RATE) == GB // 10, "by all that is known of the cluster"
    cluster.add_node("n3")
    assert told_of(bench, "n3").fetch_rate == GB // 10
    cluster.add_node("n2", images=[])
    bench.started(2, job="train-other", nodes=("n2",))
    pulled(cluster, "train-other-1-0", "450s")
    cluster.add_node("n2", images=[image(IMAGE, size=9 * GB)])
    assert rate_told(bench, "n2", GB // 10) == GB // 50
    assert rate_told(bench, "n3", GB // 10) == (GB // 10 + GB // 50) // 2
    assert not [event for event in bench.seen if isinstance(event, NodeContents) and event.node == "n1"]


@pytest.mark.parametrize("text", ["850ms", "0s", "quickly", "", "-5s", "1.2.3s", f"{9**400}h"])
def test_what_came_at_once_or_is_not_understood_says_nothing_of_the_speed(
    cluster: StandinCluster, bench: PodBench, text: str
) -> None:
    cluster.add_node("n1", images=[])
    bench.started(1)
    pulled(cluster, "train-abcde-1-0", text)
    pulled(cluster, "train-abcde-1-0", "1s", "registry.example/other:1")
    cluster.add_node("n1", images=[image(IMAGE, size=9 * GB)])
    eventually(lambda: "GET /api/v1/namespaces/team/events" in cluster.requests)
    cluster.add_node("n3")
    assert told_of(bench, "n3").fetch_rate == FETCH_RATE


def test_of_an_image_that_no_pod_of_this_server_names_nobody_is_asked(cluster: StandinCluster, bench: PodBench) -> None:
    cluster.add_node("n1", images=[])
    bench.started(1)
    cluster.add_node("n1", images=[image("docker.io/library/python:3.12")])
    while not told_of(bench, "n1").contents:
        pass
    assert "GET /api/v1/namespaces/team/events" not in cluster.requests


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("python:3.12", "image:docker.io/library/python:3.12"),
        ("python", "image:docker.io/library/python:latest"),
        ("nvcr.io/nvidia/pytorch:24.05-py3", "image:nvcr.io/nvidia/pytorch:24.05-py3"),
        (f"registry.example:5000/a/b:1@{DIGEST}", f"image:registry.example:5000/a/b@{DIGEST}"),
        (f"nvcr.io/a/b@{DIGEST}", f"image:nvcr.io/a/b@{DIGEST}"),
    ],
)
def test_a_job_names_its_image_as_kubelets_do(written: str, named: str) -> None:
    assert check_job({"command": "true", "image": written}).job.contents == (Content(named),)
    assert image_content(named.removeprefix("image:")) == named


def test_a_job_without_an_image_needs_no_contents() -> None:
    assert check_job({"command": "true"}).job.contents == ()
