"""What each of many pods takes of the cluster is bounded; and long-lived servers renew their credentials."""

from __future__ import annotations

from pathlib import Path

import pytest
from pod_bench import PodBench, eventually
from standin_cluster import StandinCluster

from millpond.engines.kubernetes.pods import log_copies
from millpond.model.events import Ended
from millpond.node.task.records import TaskFiles, TaskId

JOBS = ("a-abcde", "b-abcde", "c-abcde", "d-abcde")


def log_of(bench: PodBench, job: str) -> Path:
    return TaskFiles.of(bench.folder / "state", TaskId(job, 1, 0)).log


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_output_of_pods_beyond_those_that_are_followed_comes_in_turns_and_all_of_it_at_their_ends(
    cluster: StandinCluster, bench: PodBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_copies, "FOLLOWED", 1)
    monkeypatch.setattr(log_copies, "EACH_EVERY_S", 0.0)
    monkeypatch.setattr(log_copies, "READS_A_SECOND", 1000)
    for number, job in enumerate(JOBS, 1):
        cluster.logs[f"{job}-1-0"] = ["2026-11-24T10:00:01Z begun\n"]
        bench.started(number, job=job)
    for job in JOBS:
        eventually(lambda job=job: text_of(log_of(bench, job)) == "begun\n")
    for job in reversed(JOBS):
        cluster.logs[f"{job}-1-0"].append("2026-11-24T10:00:02Z ended\n")
        cluster.finish(f"{job}-1-0")
        assert bench.next(Ended).job == job
        assert text_of(log_of(bench, job)) == "begun\nended\n"


@pytest.mark.long
def test_more_pods_run_than_a_client_has_connections(cluster: StandinCluster, bench: PodBench) -> None:
    cluster.keeps_logs_open = True
    for number in range(1, 121):
        bench.started(number, job=f"many-{number:05}", nodes=("n1",), cards=0)
    assert len([each for each in cluster.requests if each.endswith("/binding")]) == 120


@pytest.mark.parametrize("constant", ["SILENT_FOR_S", "ENDS_WITHIN_S"])
def test_output_behind_a_proxy_that_has_forgotten_the_connection_is_copied(
    cluster: StandinCluster, bench: PodBench, monkeypatch: pytest.MonkeyPatch, constant: str
) -> None:
    monkeypatch.setattr(log_copies, constant, 0.05)
    cluster.keeps_logs_open = True
    cluster.logs[f"{JOBS[0]}-1-0"] = ["2026-11-24T10:00:01Z before\n"]
    bench.started(job=JOBS[0])
    eventually(lambda: text_of(log_of(bench, JOBS[0])) == "before\n")
    cluster.logs[f"{JOBS[0]}-1-0"].append("2026-11-24T10:00:02Z after\n")
    if constant == "ENDS_WITHIN_S":
        cluster.finish(f"{JOBS[0]}-1-0")
        bench.next(Ended)
    eventually(lambda: text_of(log_of(bench, JOBS[0])) == "before\nafter\n")
