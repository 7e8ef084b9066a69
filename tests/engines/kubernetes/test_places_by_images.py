"""A job on a Kubernetes cluster goes where its image is: kubelets, engine and scheduler together."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytest
from pod_bench import PodBench, eventually
from standin_cluster import StandinCluster

from millpond.model.events import JobSubmitted, NodeContents, NodeJoined
from millpond.scheduling.scheduler import Scheduler
from millpond.specs.job.job_spec import check_job

GB = 10**9
TORCH = "nvcr.io/nvidia/pytorch:24.05-py3"


def node(cluster: StandinCluster, name: str, *images: str, size: int = 9 * GB) -> None:
    cluster.add_node(name, images=[{"names": [image], "sizeBytes": size} for image in images])


def nodes_of(bench: PodBench, told: Iterable[str], **job: Any) -> set[str]:
    """The nodes of a job's pods, when the core has heard of these nodes what they hold."""
    core, left = Scheduler(), set(told)
    for each in bench.engine.inventory().nodes:
        core.handle(NodeJoined(time.time(), each))

    def heard() -> bool:
        for event in bench.engine.events():
            core.handle(event)
            if isinstance(event, NodeContents) and event.contents:
                left.discard(event.node)
        return not left

    eventually(heard)
    document = {"command": "true", "gpus": 1, **job}
    core.handle(JobSubmitted(time.time(), check_job(document).to_job("train-abcde", "ada")))
    decisions = core.decide(time.time())
    bench.engine.apply(decisions)
    tasks = check_job(document).job.roles[0].desired
    return {bench.bound(f"train-abcde-1-{task}")["spec"]["nodeName"] for task in range(tasks)}


@pytest.mark.parametrize(("image", "place"), [(TORCH, "n2"), ("registry.example/other:1", "n1")])
def test_a_job_goes_to_the_node_that_holds_its_image(
    cluster: StandinCluster, bench: PodBench, image: str, place: str
) -> None:
    node(cluster, "n2", TORCH)
    assert nodes_of(bench, ["n2"], image=image) == {place}


def test_a_gang_goes_where_all_of_it_has_its_image_though_others_have_more_room(
    cluster: StandinCluster, bench: PodBench
) -> None:
    for name in ("n3", "n4"):
        node(cluster, name, TORCH)
    assert nodes_of(bench, ["n3", "n4"], image=TORCH, gpus=8, tasks=2) == {"n3", "n4"}


def test_a_job_goes_elsewhere_where_the_node_with_its_image_has_no_room(
    cluster: StandinCluster, bench: PodBench
) -> None:
    cluster.add_node("n2", unschedulable=True, images=[{"names": [TORCH], "sizeBytes": 9 * GB}])
    assert nodes_of(bench, ["n2"], image=TORCH) == {"n1"}
