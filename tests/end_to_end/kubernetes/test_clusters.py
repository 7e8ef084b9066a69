"""The real server and command line on several clusters: stand-ins for two of Kubernetes, and this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign_pods import condition, foreign_pod
from real_pond import FAKE_GPUS, Pond, until
from standin_cluster import StandinCluster

pytestmark = pytest.mark.long


def two_clusters() -> Iterator[dict[str, StandinCluster]]:
    """East has a node of four cards, west two."""
    clusters = {"east": StandinCluster(), "west": StandinCluster()}
    clusters["east"].add_node("e1", 4)
    clusters["west"].add_node("w1", 4)
    clusters["west"].add_node("w2", 4)
    for cluster in clusters.values():
        cluster.start()
    yield clusters
    for cluster in clusters.values():
        cluster.stop()


clusters = pytest.fixture(two_clusters)
shared_clusters = pytest.fixture(scope="module")(two_clusters)


def config_of(clusters: dict[str, StandinCluster], folder: Path, **more: object) -> Path:
    ways = {}
    for name, cluster in clusters.items():
        (folder / name).mkdir()
        ways[name] = {"kubeconfig": str(cluster.kubeconfig(folder / name))}
    config = folder / "pond.yaml"
    config.write_text(json.dumps({"kubernetes": {"clusters": ways, "machine": "here", "image": "train:1", **more}}))
    return config


@pytest.fixture
def config(clusters: dict[str, StandinCluster], tmp_path: Path) -> Path:
    return config_of(clusters, tmp_path)


def server_of(config: Path) -> Iterator[Pond]:
    pond = Pond(config.parent / "state")
    up(pond, config)
    yield pond
    pond.printed("down", "--keep-jobs")


@pytest.fixture
def pond(config: Path) -> Iterator[Pond]:
    yield from server_of(config)


@pytest.fixture(scope="module")
def shared(shared_clusters: dict[str, StandinCluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    """For tests that ask nothing of a cluster which another one has filled."""
    yield from server_of(config_of(shared_clusters, tmp_path_factory.mktemp("shared")))


def up(pond: Pond, config: Path) -> None:
    pond.printed("up", "--detach", "--config", str(config), "--fake-gpus", FAKE_GPUS)


def submit(pond: Pond, *arguments: str) -> str:
    return pond.printed("run", "--detach", *arguments)


def home(clusters: dict[str, StandinCluster], job: str) -> str:
    """The cluster in which all tasks of a job have been bound; empty while they have not."""
    found = {
        name: [pod for pod in cluster.names("pods") if pod.startswith(f"{job}-")] for name, cluster in clusters.items()
    }
    having = [name for name, pods in found.items() if pods]
    assert len(having) <= 1, f"{job} is in {having}"
    pods = [clusters[name].get("pods", pod) for name in having for pod in found[name]]
    return having[0] if pods and all(pod and pod["spec"].get("nodeName") for pod in pods) else ""


def nodes(pond: Pond) -> dict[str, Any]:
    return {node["name"]: node for node in json.loads(pond.printed("nodes", "-o", "json"))["nodes"]}


def run(clusters: dict[str, StandinCluster], pond: Pond, job: str, where: str) -> None:
    until(lambda: home(clusters, job) == where)
    for pod in clusters[where].names("pods"):
        if pod.startswith(f"{job}-"):
            clusters[where].run(pod)
    until(lambda: pond.job(job)["state"] == "running")


def test_jobs_go_to_the_cluster_in_which_they_start_first_and_gangs_lie_in_one(
    shared: Pond, shared_clusters: dict[str, StandinCluster]
) -> None:
    pond, clusters = shared, shared_clusters
    assert {name: node["zone"] for name, node in nodes(pond).items() if name in ("e1", "w1")} == {
        "e1": "east",
        "w1": "west",
    }
    gang = submit(pond, "--tasks", "2", "--gpus", "4", "--", "train")
    run(clusters, pond, gang, "west")
    first = submit(pond, "--gpus", "4", "--", "train")
    run(clusters, pond, first, "east")
    second = submit(pond, "--gpus", "4", "--", "train")
    clusters["east"].finish(f"{first}-1-0")
    run(clusters, pond, second, "east")
    wide = pond("run", "--detach", "--tasks", "3", "--gpus", "4", "--", "train")
    assert wide.returncode == 2
    assert "lie in one cluster" in wide.stderr
    named = submit(pond, "--set", "cluster=west", "--gpus", "1", "--", "train")
    until(lambda: pond.job(named)["state"] == "queued")
    clusters["west"].finish(f"{gang}-1-0")
    clusters["west"].finish(f"{gang}-1-1")
    until(lambda: home(clusters, named) == "west")
    unknown = pond("run", "--detach", "--set", "cluster=wets", "--", "train")
    assert unknown.returncode == 2
    assert "there is no cluster wets" in unknown.stderr
    assert "west" in unknown.stderr


def test_jobs_of_the_machines_pool_are_its_processes(shared: Pond, shared_clusters: dict[str, StandinCluster]) -> None:
    job = submit(shared, "--set", "pool=here", "--gpus", "1", "--", "sh", "-c", "echo from here")
    until(lambda: shared.job(job)["state"] == "succeeded")
    assert shared.printed("logs", job) == "from here"
    assert home(shared_clusters, job) == ""


def test_a_cluster_that_is_away_when_the_server_starts_anew_costs_its_jobs_nothing(
    pond: Pond, clusters: dict[str, StandinCluster], config: Path
) -> None:
    gang = submit(pond, "--tasks", "2", "--gpus", "4", "--", "train")
    run(clusters, pond, gang, "west")
    stays = submit(pond, "--set", "pool=here", "--", "sleep", "600")
    until(lambda: pond.job(stays)["state"] == "running")
    pond.kill_server()
    clusters["west"].stop()
    up(pond, config)
    assert "warning: cluster west is waited for" in (pond.state_dir / "server.log").read_text()
    other = submit(pond, "--gpus", "4", "--", "train")
    run(clusters, pond, other, "east")
    assert pond.job(gang)["state"] == "running"
    assert not nodes(pond)["w1"]["schedulable"]
    assert "cluster west has not answered" in nodes(pond)["w1"]["unschedulable_reason"]
    assert pond("exec", gang, "--", "true").returncode != 0
    waiting = submit(pond, "--gpus", "4", "--", "train")
    clusters["west"].start()
    until(lambda: nodes(pond)["w1"]["schedulable"])
    assert pond.job(gang)["attempt"] == 1
    for task in range(2):
        clusters["west"].finish(f"{gang}-1-{task}")
    until(lambda: pond.job(gang)["state"] == "succeeded")
    until(lambda: home(clusters, waiting) == "west")
    assert pond.job(stays)["state"] == "running"
    assert pond.job(other)["attempt"] == 1
    pond.printed("stop", stays)


def test_a_cluster_that_goes_away_takes_nothing_new_and_keeps_what_it_has(
    pond: Pond, clusters: dict[str, StandinCluster]
) -> None:
    stays = submit(pond, "--set", "cluster=west", "--gpus", "1", "--", "train")
    run(clusters, pond, stays, "west")
    clusters["west"].stop()
    until(lambda: not nodes(pond)["w2"]["schedulable"])
    first, second = (submit(pond, "--gpus", "4", "--", "train") for _ in range(2))
    run(clusters, pond, first, "east")
    assert "0 GPUs are free in cluster west" in pond.printed("why", second)
    assert pond.job(stays)["state"] == "running"
    pod = clusters["west"].get("pods", f"{stays}-1-0")
    assert pod is not None
    assert f"{pod['spec']['nodeName']} of west" in pond.printed("ps")
    clusters["west"].start()
    run(clusters, pond, second, "west")
    clusters["west"].finish(f"{stays}-1-0")
    until(lambda: pond.job(stays)["state"] == "succeeded")
    assert pond.job(stays)["attempt"] == 1
    assert "goes to cluster west, which has room for it" in pond.printed("events", second)


@pytest.mark.long
def test_pods_of_a_cluster_have_what_it_says_for_itself(clusters: dict[str, StandinCluster], tmp_path: Path) -> None:
    clusters["east"].add_node("e1", 4, others={"rdma/hca": "2"})
    clusters["west"].add_node("w1", 4, others={"nvidia.com/roce": "2"})
    words, extras = {"words": {"claim": "words", "path": "/datasets/words"}}, {"rdma": "rdma/hca"}
    config = config_of(clusters, tmp_path, volumes=words, extras=extras)
    document = json.loads(config.read_text())
    own = {"pull_secrets": ["mirror"], "service_account": "ml", "claims": {"words": "words-west"}}
    own |= {"image": "west/train:1", "helper_image": "west/python:3", "extras": {"rdma": "nvidia.com/roce"}}
    document["kubernetes"]["clusters"]["west"] |= {**own, "server_url": "https://pond.west.example.org"}
    config.write_text(json.dumps(document))
    pond = Pond(tmp_path / "state")
    up(pond, config)
    try:
        found = {}
        for name in clusters:
            data = ("--data", "words=/datasets/words")
            job = submit(
                pond, "--set", f"cluster={name}", "--gpus", "1", *data, "--set", "extras.rdma=1", "--", "train"
            )
            run(clusters, pond, job, name)
            spec = (clusters[name].get("pods", f"{job}-1-0") or {})["spec"]
            claims = [
                each["persistentVolumeClaim"]["claimName"]
                for each in spec["volumes"]
                if len(each) > 1 and "words" in each["name"]
            ]
            images = [each["image"] for each in spec["containers"]]
            had = set(spec["containers"][0]["resources"]["limits"])
            found[name] = claims, spec.get("serviceAccountName"), spec.get("imagePullSecrets"), images, had
        card = "nvidia.com/gpu"
        assert found == {
            "east": (["words"], None, None, ["train:1"], {card, "rdma/hca"}),
            "west": (
                ["words-west"],
                "ml",
                [{"name": "mirror"}],
                ["west/train:1", "west/python:3"],
                {card, "nvidia.com/roce"},
            ),
        }
    finally:
        pond.printed("down", "--keep-jobs")


def node_of(cluster: StandinCluster, pod: str) -> str:
    """The node that a pod of others was bound to; empty while it waits."""
    return str((cluster.get("pods", pod) or {"spec": {}})["spec"].get("nodeName", ""))


def test_pods_of_others_are_bound_in_their_own_cluster_and_found_again(
    clusters: dict[str, StandinCluster], tmp_path: Path
) -> None:
    config = config_of(clusters, tmp_path, adopt=True)
    pond = Pond(tmp_path / "state")
    up(pond, config)
    try:
        for cluster in clusters.values():
            foreign_pod(cluster, "same", cards=4)
        until(lambda: [node_of(cluster, "same")[:1] for cluster in clusters.values()] == ["e", "w"])
        foreign_pod(clusters["east"], "next", cards=4)  # west has room, where this pod is not
        until(lambda: condition(clusters["east"], "next"))
        jobs = {job["id"]: job for job in json.loads(pond.printed("ps", "-o", "json"))["jobs"]}
        assert sorted(job["name"] for job in jobs.values()) == ["next", "same", "same"]
        pond.kill_server()
        up(pond, config)
        again = {job["id"]: job for job in json.loads(pond.printed("ps", "-o", "json"))["jobs"]}
        assert {job: each["attempt"] for job, each in again.items()} == {
            job: each["attempt"] for job, each in jobs.items()
        }
        clusters["east"].finish("same")
        until(lambda: node_of(clusters["east"], "next") == "e1")
        pond.kill_server()
        clusters_now = {"east": clusters["east"]}
        (tmp_path / "fewer").mkdir()
        fewer = config_of(clusters_now, tmp_path / "fewer", adopt=True)
        refused = pond("up", "--detach", "--config", str(fewer), "--fake-gpus", FAKE_GPUS)
        assert refused.returncode != 0
        assert "stands for the pods of Pod team/same of cluster west" in refused.stderr
        up(pond, config)
    finally:
        pond.printed("down", "--keep-jobs")


def test_the_check_looks_at_each_cluster_and_joining_one_names_it(
    clusters: dict[str, StandinCluster], config: Path, tmp_path: Path
) -> None:
    pond = Pond(tmp_path / "state")
    clusters["west"].stop()
    found = {
        each["what"]: each for each in json.loads(pond("kube", "check", "--config", str(config), "-o", "json").stdout)
    }
    clusters["west"].start()
    assert found["east: way to the cluster"]["grade"] == "ok"
    assert found["west: way to the cluster"]["grade"] == "broken"
    unnamed = pond("nodes", "join", "--config", str(config))
    assert "the configuration names several clusters" in unnamed.stderr
    assert "say --cluster with one of east, west" in unnamed.stderr
    unknown = pond("nodes", "join", "--config", str(config), "--cluster", "north")
    assert "names no cluster north" in unknown.stderr
