"""Stand-ins for clusters, as the tests of the engine have them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "engines" / "kubernetes"))
from standin_cluster import StandinCluster


def standin_cluster() -> Iterator[StandinCluster]:
    cluster = StandinCluster()
    cluster.add_node("n1")
    cluster.start()
    yield cluster
    cluster.stop()


cluster = pytest.fixture(scope="module")(standin_cluster)
own_cluster = pytest.fixture(standin_cluster)
