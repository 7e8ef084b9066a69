"""A cluster that is full and runs: what that costs, how fast room is taken back, and what an outage does."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from control_plane import ADMIN

from benchmarks.kubernetes import fake_kubelets
from benchmarks.kubernetes.bench_cluster import CARDS, BenchCluster, batches
from benchmarks.kubernetes.binding_rows import LARGEST_ARRAY, job
from benchmarks.server.served import ServedPond

FILLER_PODS = "jfiller-"
"""What the names of the pods of ``fill`` begin with: those of an array's members are made of the job's id."""
QUEUES = [{"name": "borrower"}, {"name": "owner", "guarantee": CARDS}]
PATIENCE_S = 120.0


class KubeletProcess:
    """The fake kubelets, as a process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def end(self, prefix: str) -> None:
        """The programs of the pods whose names begin so end by themselves."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"end {prefix}\n".encode())
        self._process.stdin.flush()


@contextmanager
def kubelets(cluster: BenchCluster, status_every_s: float) -> Iterator[KubeletProcess]:
    """All nodes are alive for as long as this lasts."""
    arguments = [cluster.plane.url, ADMIN, cluster.way, cluster.log_port, status_every_s, cluster.nodes]
    order = [sys.executable, "-m", fake_kubelets.__name__, *map(str, arguments)]
    process = subprocess.Popen(order, stdin=subprocess.PIPE)
    try:
        yield KubeletProcess(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


def fill(cluster: BenchCluster, pond: ServedPond) -> float:
    """A borrowed job of one card on every card of the cluster; returns how many a second came to run."""
    cluster.ledger.forget()
    count, began = cluster.nodes * CARDS, time.monotonic()
    with pond.client() as client:
        for members in batches(count, LARGEST_ARRAY):
            client.submit(job(1, name="filler", queue="borrower", array=members))
    if not cluster.ledger.wait(lambda: cluster.ledger.phases["Running"] >= count, PATIENCE_S):
        raise SystemExit(f"of {count} pods only {cluster.ledger.phases} came about")
    return count / (time.monotonic() - began)


def idle_share(pond: ServedPond, seconds: float) -> float:
    """What of a core the server takes while nothing happens but heartbeats."""
    time.sleep(5.0)  # what the last pods began is over
    used, began = pond.cpu_s(), time.monotonic()
    time.sleep(seconds)
    return (pond.cpu_s() - used) / (time.monotonic() - began)


def reclaim(cluster: BenchCluster, pond: ServedPond) -> float:
    """Seconds from the submission of a job with a guarantee until it is bound in place of what was borrowed."""
    return first_bound_after(cluster, pond, job(CARDS, name="reclaims", queue="owner"), "reclaims", time.monotonic())


def first_bound_after(
    cluster: BenchCluster, pond: ServedPond, document: dict[str, object], prefix: str, began: float
) -> float:
    """Submit a job: seconds from an instant until its first pod is bound."""
    with pond.client() as client:
        client.submit(document)
    cluster.ledger.wait(lambda: bool(cluster.ledger.bound_between(prefix)), 60.0)
    return (cluster.ledger.bound_between(prefix) or [float("inf")])[0] - began


def outage(
    cluster: BenchCluster, pond: ServedPond, seconds: float, during: Sequence[dict[str, object]], prefix: str
) -> float:
    """The API server is away for a while, with work submitted meanwhile; seconds until the next binding.

    They count from when it says that it is ready; what was bound before that took none.
    """
    before = len(cluster.ledger.bound_between(prefix))
    cluster.plane.kill("kube-apiserver")
    with pond.client() as client:
        for document in during:
            client.submit(document)
    time.sleep(seconds)
    cluster.plane.start_api_server()
    began = time.monotonic()
    cluster.ledger.wait(lambda: len(cluster.ledger.bound_between(prefix)) > before, 60.0)
    times = cluster.ledger.bound_between(prefix)[before:]
    return max(times[0] - began, 0.0) if times else float("inf")
