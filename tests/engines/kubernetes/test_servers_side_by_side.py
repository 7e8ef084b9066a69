"""Two servers that are not the same one, in one cluster: each counts what the other has, and touches none of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from foreign_pods import JOB, AdoptingBench, foreign_pod
from pod_bench import PodBench, eventually, start
from standin_cluster import NAMESPACE, StandinCluster

from millpond.model.events import Refused
from millpond.model.hardware.devices import DeviceHealth

POD = "train-abcde-1-0"


@pytest.fixture
def other(cluster: StandinCluster, tmp_path: Path) -> Iterator[PodBench]:
    (tmp_path / "other").mkdir()
    bench = PodBench(cluster, tmp_path / "other")
    bench.options = replace(bench.options, servers=("other-server",))
    with bench:
        yield bench


def free_cards(bench: PodBench) -> int:
    node = next(node for node in bench.engine.inventory().nodes if node.name == "n1")
    return sum(card.health is DeviceHealth.OK for card in node.devices)


def test_each_counts_what_pods_of_the_other_have_and_has_a_lease_of_its_own(
    cluster: StandinCluster, bench: PodBench, other: PodBench
) -> None:
    bench.started(cards=3)
    eventually(lambda: free_cards(other) == 5)
    assert free_cards(bench) == 8, "its own are the core's to count"
    other.started(job="other-abcde", cards=2)
    eventually(lambda: free_cards(bench) == 6)
    assert other.engine.inventory().tasks[0].job == "other-abcde"
    leases = sorted(cluster.names("leases.coordination.k8s.io"))
    assert leases == ["millpond-other-server", "millpond-this-server"]


@pytest.mark.parametrize("number", [1, 2])
def test_one_that_starts_anew_ends_nothing_of_the_other_and_takes_none_of_its_pods_for_its_own(
    cluster: StandinCluster, bench: PodBench, other: PodBench, number: int
) -> None:
    bench.started()
    other.close()
    other.open()
    other.engine.apply([start(number)])  # a job of the same id
    assert other.next(Refused).reason == f"there is another pod called {POD}"
    there = cluster.get("pods", POD)
    assert there is not None
    assert there["metadata"].get("deletionTimestamp") is None
    assert there["metadata"]["labels"]["millpond.io/server"] == "this-server"
    assert len(bench.engine.inventory().tasks) == 1


def test_a_pod_of_others_that_both_adopt_is_bound_once_and_the_second_is_told_where_it_is(
    cluster: StandinCluster, tmp_path: Path
) -> None:
    benches = []
    for name in ("this-server", "other-server"):
        (tmp_path / name).mkdir()
        bench = AdoptingBench(cluster, tmp_path / name)
        bench.server = name
        bench.open()
        benches.append(bench)
    foreign_pod(cluster, "theirs")
    for bench in benches:
        bench.stand_for(bench.gang().key)
    first, second = benches
    first.engine.apply([start(1, JOB)])
    first.bound("theirs")
    second.engine.apply([start(1, JOB, nodes=("n2",))])
    assert "theirs" in second.next(Refused).reason
    plain = cluster.get("pods", "theirs", NAMESPACE)
    assert plain is not None
    assert plain["spec"]["nodeName"] == "n1"
    for bench in benches:
        bench.close()
