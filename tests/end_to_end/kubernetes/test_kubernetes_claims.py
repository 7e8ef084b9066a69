"""The real server and command line on a stand-in for a cluster whose cards NVIDIA's DRA driver gives out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from driver_cards import with_driver
from foreign_pods import foreign_pod
from real_pond import Pond, until
from standin_cluster import StandinCluster

pytestmark = pytest.mark.long


@pytest.fixture
def cluster() -> Iterator[StandinCluster]:
    cluster = StandinCluster()
    cluster.start()
    yield cluster
    cluster.stop()


def bound(cluster: StandinCluster, pod: str) -> bool:
    return bool((cluster.get("pods", pod) or {"spec": {}})["spec"].get("nodeName"))


def test_jobs_and_pods_of_others_share_the_cards_of_a_driver(cluster: StandinCluster, tmp_path: Path) -> None:
    driver = with_driver(cluster)
    config = tmp_path / "pond.yaml"
    config.write_text(
        f"kubernetes: {{kubeconfig: {cluster.kubeconfig(tmp_path)}, image: 'registry.example/train:1', adopt: true}}\n"
    )
    pond = Pond(tmp_path / "state")
    pond.printed("up", "--detach", "--config", str(config))
    try:
        job = pond.printed("run", "--detach", "--gpus", "2", "--", "python", "train.py")
        until(lambda: bound(cluster, f"{job}-1-0"))
        driver.add_claim("theirs", 1, "device.attributes['gpu.nvidia.com'].productName.matches('H100')")
        containers = [{"name": "task", "resources": {"requests": {"cpu": "1"}}}]
        foreign_pod(
            cluster, "theirs", containers=containers, resourceClaims=[{"name": "gpu", "resourceClaimName": "theirs"}]
        )
        until(lambda: bound(cluster, "theirs"))
        cluster.run(f"{job}-1-0")
        cluster.run("theirs")
        given = driver.devices_of("theirs") + driver.devices_of(f"{job}-1-0-1")
        assert len(set(given)) == 3
        driver.add_claim("kubes")
        (left,) = {0, 1, 2, 3} - {int(name.removeprefix("gpu-")) for _, name in given}
        driver.allocate("kubes", left)
        until(lambda: "claim team/kubes has it" in pond.printed("top"))
    finally:
        pond.printed("down", "--keep-jobs")
