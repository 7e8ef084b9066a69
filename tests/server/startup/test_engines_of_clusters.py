"""Engines of several clusters: each is another one, and the way to each is known, before anything is done in any."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.engines.kubernetes.pods.carried_runs import CarriedRuns
from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.server.startup.kubernetes_engine import PodEngines
from millpond.specs.config.kubernetes import KubernetesFile, NamedCluster

sys.path.insert(0, str(Path(__file__).parents[2] / "engines" / "kubernetes"))
from standin_cluster import StandinCluster


@pytest.fixture
def east() -> Iterator[StandinCluster]:
    cluster = StandinCluster()
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def opening(tmp_path: Path) -> PodEngines:
    launcher: Any = SimpleNamespace(keys=SimpleNamespace(of=str), launch_of=None)
    launcher.in_cluster = lambda _way: launcher
    return PodEngines(tmp_path / "state", launcher, ("s1",), lambda: None, CarriedRuns())


def way_to(cluster: StandinCluster, folder: Path) -> KubernetesFile:
    folder.mkdir()
    return KubernetesFile(kubeconfig=str(cluster.kubeconfig(folder)))


def test_one_cluster_by_two_names_is_refused_by_both(east: StandinCluster, opening: PodEngines, tmp_path: Path) -> None:
    engine = opening.open_one_of_several("east", way_to(east, tmp_path / "east"), NamedCluster(), [])
    try:
        with pytest.raises(InvalidInputError, match="the clusters east and west are one"):
            opening.open_one_of_several("west", way_to(east, tmp_path / "west"), NamedCluster(), [])
    finally:
        engine.close()


def test_a_cluster_to_which_no_way_is_known_is_refused_and_not_waited_for(opening: PodEngines, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="the way to the Kubernetes cluster is not known"):
        opening.open_one_of_several("west", KubernetesFile(kubeconfig=str(tmp_path / "none")), NamedCluster(), [])
    assert opening.notes == []
