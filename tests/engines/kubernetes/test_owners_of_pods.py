"""What the table of owners says: whose pods are one gang, how many those are, and who is paused for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from foreign_pods import JOB, OWNER, AdoptingBench, condition, foreign_pod
from pod_bench import eventually, start, stop
from standin_cluster import NAMESPACE, StandinCluster

from millpond.engines.kubernetes.adoption.gangs import GangKey
from millpond.engines.kubernetes.adoption.grouping import OWNERS_BY_KIND, gang_of, place_of, role_of
from millpond.engines.kubernetes.adoption.owner_table import OwnerSize, size_of
from millpond.engines.kubernetes.adoption.pod_objects import OwnerReference, PodMeta, ScheduledPod
from millpond.model.events import Confirmed, Ended


@pytest.fixture
def bench(cluster: StandinCluster, tmp_path: Path) -> Iterator[AdoptingBench]:
    with AdoptingBench(cluster, tmp_path) as bench:
        yield bench


def replicas(**counts: int) -> dict[str, Any]:
    return {name: {"replicas": count} for name, count in counts.items()}


@pytest.mark.parametrize(
    ("kind", "spec", "size"),
    [
        ("Job", {"parallelism": 4}, 4),
        ("Job", {"parallelism": 4, "completions": 3}, 3),
        ("Job", {}, 1),
        (
            "JobSet",
            {
                "replicatedJobs": [
                    {"replicas": 2, "template": {"spec": {"parallelism": 3}}},
                    {"template": {"spec": {"parallelism": 1}}},
                ]
            },
            7,
        ),
        ("LeaderWorkerSet", {"replicas": 3, "leaderWorkerTemplate": {"size": 4}}, 4),
        ("PyTorchJob", {"pytorchReplicaSpecs": replicas(Master=1, Worker=3)}, 4),
        ("MPIJob", {"mpiReplicaSpecs": replicas(Launcher=1, Worker=2)}, 2),
        ("RayCluster", {"workerGroupSpecs": [{"replicas": 2}, {"replicas": 1, "numOfHosts": 2}]}, 5),
    ],
)
def test_owners_say_how_many_pods_start_together(kind: str, spec: dict[str, Any], size: int) -> None:
    assert size_of(OWNERS_BY_KIND[kind], {"spec": spec}) == OwnerSize(size)


def part(name: str, pods: int, *behind: str) -> dict[str, Any]:
    waits = {"dependsOn": [{"name": each, "status": "Complete"} for each in behind]} if behind else {}
    return {"name": name, "template": {"spec": {"parallelism": pods}}, **waits}


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        ({"replicatedJobs": [part("data", 1), part("node", 2, "data")]}, OwnerSize(1, {"node": 2})),
        (
            {
                "replicatedJobs": [part("data", 1), part("node", 2)],
                "startupPolicy": {"startupPolicyOrder": "InOrder"},
            },
            OwnerSize(1, {"node": 2}),
        ),
        (
            {
                "replicatedJobs": [part("data", 1), part("node", 2)],
                "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
            },
            OwnerSize(3),
        ),
    ],
)
def test_a_job_set_makes_some_of_its_pods_behind_others(spec: dict[str, Any], size: OwnerSize) -> None:
    assert size_of(OWNERS_BY_KIND["JobSet"], {"spec": spec}) == size


def test_pods_that_are_made_behind_others_start_together_when_they_are_there(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    spec = {"replicatedJobs": [part("data", 1), part("node", 2, "data")]}
    cluster.put("jobsets.jobset.x-k8s.io", "set", {"spec": spec}, NAMESPACE)

    def make(name: str, role: str) -> None:
        labels = {"jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/replicatedjob-name": role}
        foreign_pod(cluster, name, labels=labels)

    make("data-0", "data")
    bench.stand_for(bench.gang().key)
    begun = start(1, JOB)
    bench.engine.apply([replace(begun, placements=(replace(begun.placements[0], role="data"),))])
    bench.bound("data-0")
    cluster.run("data-0")
    bench.next(Confirmed)
    cluster.finish("data-0")
    bench.next(Ended)
    make("node-0", "node")
    told = eventually(lambda: condition(cluster, "node-0"))
    assert told == "2 of the 3 pods of JobSet team/set are there; they start together, when all are"
    make("node-1", "node")
    (role,) = bench.gang().roles
    assert (role.name, role.count, role.least) == ("node", 2, 2)


def pod(labels: dict[str, str], api: str = "", kind: str = "", name: str = "x") -> ScheduledPod:
    owners = [OwnerReference(kind, name, "u", api, True)] if kind else []
    return ScheduledPod(PodMeta(name="p-0", namespace="team", uid="pu", labels=labels, owner_references=owners))


@pytest.mark.parametrize(
    ("found", "key"),
    [
        (pod({}, "batch/v1", "Job"), GangKey("team", "Job", "x", "u")),
        (
            pod({"jobset.sigs.k8s.io/jobset-name": "set"}, "batch/v1", "Job", "set-workers-0"),
            GangKey("team", "JobSet", "set"),
        ),
        (
            pod({"leaderworkerset.sigs.k8s.io/name": "lws", "leaderworkerset.sigs.k8s.io/group-index": "2"}),
            GangKey("team", "LeaderWorkerSet", "lws", "", "2"),
        ),
        (pod({"ray.io/cluster": "ray"}), GangKey("team", "RayCluster", "ray")),
        (pod({}, "kubeflow.org/v1", "PyTorchJob"), GangKey("team", "PyTorchJob", "x", "u")),
        (pod({}, "kubeflow.org/v2beta1", "MPIJob"), GangKey("team", "MPIJob", "x", "u")),
        (pod({}, "apps/v1", "StatefulSet"), GangKey("team", "Pod", "p-0", "pu")),
        (pod({}, "argoproj.io/v1alpha1", "Workflow"), GangKey("team", "Pod", "p-0", "pu")),
        (pod({}, "elsewhere.io/v1", "Job"), GangKey("team", "Pod", "p-0", "pu")),
    ],
)
def test_pods_belong_to_the_gang_of_their_owner(found: ScheduledPod, key: GangKey) -> None:
    assert gang_of(found) == key


def test_roles_and_ranks_come_from_labels() -> None:
    third = pod({"training.kubeflow.org/replica-type": "Worker_A", "training.kubeflow.org/replica-index": "2"})
    tenth = pod({"training.kubeflow.org/replica-type": "Worker_A", "training.kubeflow.org/replica-index": "10"})
    assert role_of(third) == "worker-a"
    assert place_of(third) < place_of(tenth) < place_of(pod({}))


def chain(cluster: StandinCluster, *owners: tuple[str, str, str], labels: dict[str, str] | None = None) -> None:
    """Owners of one another, the innermost first, each of a kind, an API and a resource."""
    for place, (kind, _, resource) in enumerate(owners):
        above = owners[place + 1 : place + 2]
        references = [
            {"kind": k, "apiVersion": api, "name": k.lower(), "uid": f"uid-of-{k}", "controller": True}
            for k, api, _ in above
        ]
        meta = {"uid": f"uid-of-{kind}", "ownerReferences": references, "labels": labels or {}}
        spec = {"workerGroupSpecs": [], "parallelism": 1}
        cluster.put(resource, kind.lower(), {"metadata": meta, "spec": spec}, NAMESPACE)


def run_and_stop(cluster: StandinCluster, bench: AdoptingBench) -> None:
    bench.stand_for(bench.gang().key)
    bench.engine.apply([start(1, JOB)])
    bench.bound("p")
    cluster.run("p")
    bench.next(Confirmed)
    bench.engine.apply([stop(2, JOB)])


def test_of_owners_of_owners_the_outermost_is_paused(cluster: StandinCluster, bench: AdoptingBench) -> None:
    ray = ("RayCluster", "ray.io/v1", "rayclusters.ray.io"), ("RayJob", "ray.io/v1", "rayjobs.ray.io")
    chain(cluster, *ray)
    foreign_pod(cluster, "p", labels={"ray.io/cluster": "raycluster"})
    run_and_stop(cluster, bench)
    eventually(lambda: cluster.get("rayjobs.ray.io", "rayjob")["spec"].get("suspend"))  # type: ignore[index]
    assert "suspend" not in cluster.get("rayclusters.ray.io", "raycluster")["spec"]  # type: ignore[index]


def test_owners_that_kueue_pauses_are_left_to_it(cluster: StandinCluster, bench: AdoptingBench) -> None:
    chain(cluster, ("Job", "batch/v1", "jobs.batch"), labels={"kueue.x-k8s.io/queue-name": "q"})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "uid-of-Job", "controller": True}
    foreign_pod(cluster, "p", owner=owner)
    run_and_stop(cluster, bench)
    eventually(lambda: cluster.get("pods", "p")["metadata"].get("deletionTimestamp"))  # type: ignore[index]
    assert "suspend" not in cluster.get("jobs.batch", "job")["spec"]  # type: ignore[index]


def test_an_owner_that_was_made_anew_by_the_same_name_is_not_paused_for_the_pods_of_the_one_before(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    chain(cluster, ("Job", "batch/v1", "jobs.batch"))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "uid-of-Job", "controller": True}
    foreign_pod(cluster, "p", owner=owner)
    bench.gang()
    cluster.put("jobs.batch", "job", {"metadata": {"uid": "uid-of-another"}, "spec": {"parallelism": 1}}, NAMESPACE)
    run_and_stop(cluster, bench)
    eventually(lambda: cluster.get("pods", "p")["metadata"].get("deletionTimestamp"))  # type: ignore[index]
    assert "suspend" not in cluster.get("jobs.batch", "job")["spec"]  # type: ignore[index]


def test_owners_of_each_other_are_looked_at_once(cluster: StandinCluster, bench: AdoptingBench) -> None:
    chain(cluster, ("Job", "batch/v1", "jobs.batch"), ("Job", "batch/v1", "jobs.batch"))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "uid-of-Job", "controller": True}
    job = cluster.get("jobs.batch", "job")
    assert job is not None
    cluster.put("jobs.batch", "job", {**job, "metadata": {**job["metadata"], "ownerReferences": [owner]}}, NAMESPACE)
    foreign_pod(cluster, "p", owner=owner)
    run_and_stop(cluster, bench)
    eventually(lambda: cluster.get("jobs.batch", "job")["spec"].get("suspend"))  # type: ignore[index]


@pytest.mark.parametrize("name", ["../../elsewhere/jobs/theirs", "theirs?x=", "theirs#", "..", "%2e%2e/jobs/theirs"])
def test_what_a_pod_calls_its_owner_leads_to_nothing_else(
    cluster: StandinCluster, bench: AdoptingBench, name: str
) -> None:
    for namespace in ("elsewhere", NAMESPACE):
        meta = {"uid": "uid-of-theirs"}
        cluster.put("jobs.batch", "theirs", {"metadata": meta, "spec": {"parallelism": 2}}, namespace)
    foreign_pod(cluster, "p", owner={**OWNER, "name": name})
    words = f"there is no Job {NAMESPACE}/{name} (nothing can have such a name)"
    assert eventually(lambda: condition(cluster, "p")) == words


def test_what_a_pod_calls_its_volumes_leads_to_nothing_else(cluster: StandinCluster, bench: AdoptingBench) -> None:
    claim = "../../elsewhere/persistentvolumeclaims/theirs"
    foreign_pod(cluster, "p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])
    words = f"its claim {claim} cannot be looked at: nothing can have such a name"
    assert eventually(lambda: condition(cluster, "p")) == words
