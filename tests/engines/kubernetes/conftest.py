"""The bench that the tests of the engine for Kubernetes share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pod_bench import PodBench
from standin_cluster import StandinCluster


@pytest.fixture
def cluster() -> Iterator[StandinCluster]:
    cluster = StandinCluster()
    cluster.add_node("n1")
    cluster.add_node("n2")
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def bench(cluster: StandinCluster, tmp_path: Path) -> Iterator[PodBench]:
    bench = PodBench(cluster, tmp_path)
    bench.open()
    yield bench
    bench.close()
