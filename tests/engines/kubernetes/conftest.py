"""The bench that the tests of the engine for Kubernetes share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import httpcore2
import pytest
from driver_cards import DriverBench, with_driver
from pod_bench import PodBench
from standin_cluster import StandinCluster

from millpond.engines.kubernetes.adoption import pod_answers


@pytest.fixture(scope="session", autouse=True)
def _authorities_are_read_once() -> Iterator[None]:
    """The certificates of a machine's authorities, for each client anew, take five sixths of an engine's start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(autouse=True)
def _what_is_wrong_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_answers, "SETTLED_S", 0.0)


@pytest.fixture
def cluster() -> Iterator[StandinCluster]:
    cluster = StandinCluster()
    cluster.add_node("n1")
    cluster.add_node("n2")
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def driver(cluster: StandinCluster) -> DriverBench:
    """The cluster with the cards of a driver, for tests that ask for it."""
    return with_driver(cluster)


@pytest.fixture
def bench(cluster: StandinCluster, tmp_path: Path) -> Iterator[PodBench]:
    with PodBench(cluster, tmp_path) as bench:
        yield bench
