"""Replicas of a node that falls silent are replaced at once: their pods stay there, and end when the node is back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pod_bench import PodBench, eventually, start, stop
from standin_cluster import StandinCluster

from millpond.engines.kubernetes.pods.pod_marks import RUN_LABEL
from millpond.engines.kubernetes.pods.pod_template import SERVICE_PORT
from millpond.model.decisions import Start
from millpond.model.events import Confirmed, Ended, NodeJoined, NodeLost
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.states import Outcome
from millpond.node.task.records import TaskId

FIRST, SECOND = TaskId("train-abcde", 1, 0), TaskId("train-abcde", 1, 1)
POD, OTHER, REPLACEMENT = "train-abcde-1-0", "train-abcde-1-1", "train-abcde-1-0-2"
WITHIN_S = 60.0


def replacement(number: int = 2, node: str = "n2") -> Start:
    """A decision that starts the first replica anew beside the other."""
    return replace(start(number, nodes=(node,)), joins=True)


@pytest.fixture
def silenced(cluster: StandinCluster, tmp_path: Path) -> Iterator[PodBench]:
    """A service of two replicas, the first of which is on a node that is silent by now."""
    bench = PodBench(cluster, tmp_path)
    bench.options = replace(bench.options, node_timeout_s=0.0)
    bench.launch = replace(bench.launch, serves=True)
    bench.open()
    bench.started(nodes=("n1", "n2"))
    cluster.add_node("n1", ready=False)
    assert bench.next(NodeLost).node == "n1"
    yield bench
    bench.close()


@pytest.fixture
def replaced(silenced: PodBench, cluster: StandinCluster) -> PodBench:
    """The same, with another in its place."""
    silenced.engine.apply([replacement()])
    assert silenced.bound(REPLACEMENT)["spec"]["nodeName"] == "n2"
    cluster.run(REPLACEMENT)
    assert silenced.next(Confirmed).decision == 2
    return silenced


def test_a_replica_is_replaced_while_the_pod_of_the_silent_node_is_there_still(
    replaced: PodBench, cluster: StandinCluster
) -> None:
    left = cluster.get("pods", POD)
    assert left is not None
    assert left["metadata"]["deletionTimestamp"], "it ends when its node is back"
    assert set(cluster.names("pods")) == {POD, OTHER, REPLACEMENT}


def test_the_pod_of_the_silent_node_has_the_name_of_the_replacement_in_no_service(
    replaced: PodBench, cluster: StandinCluster
) -> None:
    runs = {
        name: (cluster.get("pods", name) or {})["metadata"]["labels"].get(RUN_LABEL) for name in cluster.names("pods")
    }
    assert runs == {POD: None, OTHER: "train-abcde-1", REPLACEMENT: "train-abcde-1"}
    selected = (cluster.get("services", "train-abcde-1") or {})["spec"]["selector"]
    assert selected == {RUN_LABEL: "train-abcde-1"}


def test_the_replacement_is_what_clients_reach(replaced: PodBench, cluster: StandinCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as program:
        cluster.ports[REPLACEMENT, SERVICE_PORT] = program.getsockname()[1]
        connection = asyncio.run(replaced.engine.access.connect(FIRST, SERVICE_PORT, WITHIN_S))
        connection.close()
        program.accept()[0].close()


def test_a_node_that_comes_back_has_its_cards_when_the_old_pod_has_ended(
    replaced: PodBench, cluster: StandinCluster
) -> None:
    cluster.add_node("n1")
    back = replaced.next(NodeJoined).node
    assert sum(device.health is DeviceHealth.OK for device in back.devices) == 7
    cluster.remove("pods", POD)
    free = replaced.next(NodeJoined).node
    assert (free.name, sum(device.health is DeviceHealth.OK for device in free.devices)) == ("n1", 8)
    assert not any(isinstance(event, Ended) for event in replaced.engine.events()), "the replacement goes on"


def test_a_replacement_ends_as_any_task_does(replaced: PodBench, cluster: StandinCluster) -> None:
    replaced.engine.apply([stop(3)])
    eventually(lambda: (cluster.get("pods", REPLACEMENT) or {})["metadata"].get("deletionTimestamp"))
    cluster.finish(REPLACEMENT, 143)
    ended = replaced.next(Ended)
    assert (ended.task, ended.outcome) == (0, Outcome.STOPPED)


def test_the_next_server_goes_on_with_the_replacement_and_not_with_what_the_silent_node_has(
    replaced: PodBench, cluster: StandinCluster
) -> None:
    replaced.close()
    replaced.options = replace(replaced.options, node_timeout_s=60.0)
    cluster.add_node("n1")
    replaced.open([FIRST, SECOND])
    there = {(task.task, task.node) for task in replaced.engine.inventory().tasks}
    assert there == {(0, "n2"), (1, "n2")}
    cluster.remove("pods", POD)
    cluster.finish(REPLACEMENT)
    ended = replaced.next(Ended)
    assert (ended.task, ended.outcome) == (0, Outcome.SUCCESS)


def test_a_replacement_that_a_server_had_begun_is_finished_by_the_next(
    silenced: PodBench, cluster: StandinCluster
) -> None:
    silenced.engine.apply([replacement()])
    silenced.bound(REPLACEMENT)
    silenced.close()
    silenced.open([FIRST, SECOND], [replacement()])
    cluster.run(REPLACEMENT)
    assert silenced.next(Confirmed).decision == 2
    assert set(cluster.names("pods")) == {POD, OTHER, REPLACEMENT}
