"""Extended resources of the cluster besides cards, such as RDMA adapters: counted, asked for, shared with others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from foreign_pods import AdoptingBench, foreign_pod
from pod_bench import eventually, start
from standin_cluster import StandinCluster

from millpond.engines.kubernetes.pods.pod_template import RoleNeeds

ADAPTER, LICENCE = "rdma/hca_shared_devices_a", "example.com/licence"


@pytest.fixture
def bench(cluster: StandinCluster, tmp_path: Path) -> Iterator[AdoptingBench]:
    """Two nodes, of which one has adapters."""
    cluster.add_node("n1", others={ADAPTER: "8", "example.com/not-named": "3"})
    bench = AdoptingBench(cluster, tmp_path)
    bench.extras = {"rdma": ADAPTER, "licence": LICENCE}
    with bench:
        yield bench


def extras_of(bench: AdoptingBench, name: str) -> dict[str, int]:
    return next(dict(node.extras) for node in bench.engine.inventory().nodes if node.name == name)


def using(amounts: dict[str, str]) -> list[dict[str, object]]:
    return [{"name": "task", "resources": {"requests": {"cpu": "1", **amounts}}}]


def test_nodes_have_them_under_the_names_that_jobs_use(bench: AdoptingBench) -> None:
    assert extras_of(bench, "n1") == {"rdma": 8, "licence": 0}
    assert extras_of(bench, "n2") == {"rdma": 0, "licence": 0}


def test_what_pods_of_other_schedulers_have_is_not_there_for_jobs(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    foreign_pod(cluster, "theirs", containers=using({ADAPTER: "3"}), schedulerName="other", nodeName="n1")
    assert eventually(lambda: extras_of(bench, "n1")["rdma"] == 5)
    cluster.remove("pods", "theirs")
    assert eventually(lambda: extras_of(bench, "n1")["rdma"] == 8)


def test_pods_of_a_job_ask_for_them_and_do_not_count_as_others(bench: AdoptingBench) -> None:
    needs = RoleNeeds(("python", "train.py"), 4000, 1024, extras={ADAPTER: 2})
    bench.launch = replace(bench.launch, roles={"worker": needs})
    bench.engine.apply([start(1)])
    (container,) = bench.bound("train-abcde-1-0")["spec"]["containers"]
    assert container["resources"]["requests"][ADAPTER] == container["resources"]["limits"][ADAPTER] == "2"
    assert extras_of(bench, "n1")["rdma"] == 8, "the scheduler itself counts what its jobs have"


def test_pods_of_others_that_millpond_schedules_are_jobs_that_ask_for_them(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    foreign_pod(cluster, "theirs", containers=using({ADAPTER: "1", LICENCE: "2", "nvidia.com/gpu": "4"}))
    (role,) = bench.gang().roles
    assert (role.request.devices, role.request.extras) == (4, (("licence", 2), ("rdma", 1)))
