"""A cluster that is full and runs: what that costs, how fast room is taken back, and what outages and restarts do."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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
    return first_bound_after(cluster, pond, job(CARDS, name="reclaims", queue="owner"), "reclaims")


def first_bound_after(cluster: BenchCluster, pond: ServedPond, document: dict[str, object], prefix: str) -> float:
    """Seconds from the submission of a job until its first pod is bound."""
    began = time.monotonic()
    with pond.client() as client:
        client.submit(document)
    cluster.ledger.wait(lambda: bool(cluster.ledger.bound_between(prefix)), 60.0)
    return (cluster.ledger.bound_between(prefix) or [float("inf")])[0] - began


@dataclass(frozen=True, slots=True)
class Restart:
    """How the next server began.

    Attributes:
        first_s: from its start to the first pod that it bound.
        cpu_s: what it had used when that was seen.
        peak_mib: the most memory that it had by then.
    """

    first_s: float
    cpu_s: float
    peak_mib: float


def restart(cluster: BenchCluster, pond: ServedPond, next_job: dict[str, object], prefix: str) -> Restart:
    """Kill the server and start the next, which binds a pod."""
    pond.kill()
    began, peak = time.monotonic(), PeakMemory(pond)
    pond.up()
    peak.start()
    try:
        with pond.client() as client:
            client.submit(next_job)
        cluster.ledger.wait(lambda: bool(cluster.ledger.bound_between(prefix)), 60.0)
        first = (cluster.ledger.bound_between(prefix) or [float("inf")])[0]
        used_s = pond.cpu_s()
    finally:
        peak.stop()
    return Restart(first - began, used_s, peak.mib)


class PeakMemory(threading.Thread):
    """The most that a server's process has had by itself, from the kernel's own account."""

    def __init__(self, pond: ServedPond) -> None:
        super().__init__(daemon=True)
        self._pond = pond
        self._over = threading.Event()
        self.mib = 0.0

    def run(self) -> None:
        """Look until it is over."""
        while not self._over.wait(0.5):
            self._look()

    def stop(self) -> None:
        """Look once more, and end."""
        self._look()
        self._over.set()

    def _look(self) -> None:
        status = Path(f"/proc/{self._pond.pid}/status").read_text()
        self.mib = max(self.mib, int(status.split("VmHWM:")[1].split()[0]) / 1024)


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
