"""How fast pods are bound: by the API server with no thought at all, by kube-scheduler, and by Millpond."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.kubernetes.bench_cluster import CARDS, NAMESPACE, BenchCluster, batches, mixed
from benchmarks.server.served import ServedPond, cpu_s
from millpond.engines.kubernetes.cluster.cluster_lease import LeaseTimes

IDLE_S = 15.0
"""A scheduler that binds nothing for so long is through."""
LARGEST_ARRAY = 10_000
DECIDING_S = "millpond_scheduler_cycle_seconds_sum"


@dataclass(frozen=True, slots=True)
class Drain:
    """How a scheduler bound many pods.

    Attributes:
        rate: pods a second, from the beginning to the last one bound.
        cpu_ms: of the scheduler's process, per pod bound.
        cluster_ms: the same of the API server and etcd: what a scheduler asks of them, and they of the machine.
        judge_ms: the same of this process, which looks on.
        decided_rate: pods a second while the scheduler decides, and does nothing else; 0 where it does not tell.
    """

    bound: int
    rate: float
    cpu_ms: float
    cluster_ms: float
    judge_ms: float
    decided_rate: float = 0.0

    @property
    def allowed(self) -> float:
        """Pods a second that the machine's cores have the time for, whoever waits for whom."""
        return _allowed(self.cpu_ms + self.cluster_ms + self.judge_ms)

    @property
    def allowed_others(self) -> float:
        """The same for a scheduler that takes no CPU at all."""
        return _allowed(self.cluster_ms + self.judge_ms)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What the API server can do, in requests of one kind a second.

    Attributes:
        created_ms, bound_ms: CPU of the API server and etcd, per pod.
    """

    created: float
    bound: float
    created_ms: float
    bound_ms: float

    @property
    def both(self) -> float:
        """Pods made, then bound."""
        return 1 / (1 / self.created + 1 / self.bound)


def _allowed(each_ms: float) -> float:
    return 1e3 * len(os.sched_getaffinity(0)) / each_ms if each_ms else 0.0


def job(cards: int, **more: Any) -> dict[str, Any]:
    """A job file whose tasks are as the pods of ``pod_object``."""
    return {
        "name": f"cards-{cards}",
        "image": "none",
        "gpus": cards,
        "cpus": 4 * cards,
        "memory": f"{32 * cards}GiB",
        "command": ["work"],
        "checkpoint": {"grace": "1s"},
    } | more


def cluster_cpu_s(cluster: BenchCluster) -> float:
    """CPU seconds that the API server and etcd have used."""
    return sum(cpu_s(cluster.plane.pid(name)) for name in ("kube-apiserver", "etcd"))


def measure_ceiling(cluster: BenchCluster, pods: Sequence[dict[str, Any]]) -> Ceiling:
    """How many such pods a second can be made, and bound, where nobody chooses."""
    began, used = time.monotonic(), cluster_cpu_s(cluster)
    cluster.create(pods)
    made, used_by_then = time.monotonic(), cluster_cpu_s(cluster)
    cluster.bind(pods)
    bound_s, bound_cpu_s = time.monotonic() - made, cluster_cpu_s(cluster) - used_by_then
    cluster.clear()
    count = len(pods)
    per_pod = 1e3 / count
    return Ceiling(count / (made - began), count / bound_s, per_pod * (used_by_then - used), per_pod * bound_cpu_s)


def drained(cluster: BenchCluster, pid: int, pods: int, begin: Callable[[], object]) -> Drain:
    """Watch a scheduler until it has bound all, or binds nothing any more."""
    used, used_beside, used_here, began = cpu_s(pid), cluster_cpu_s(cluster), time.process_time(), time.monotonic()
    begin()
    cluster.ledger.wait(lambda: cluster.ledger.bound >= pods, IDLE_S)
    times = cluster.ledger.bound_between()
    if not times:
        return Drain(0, 0.0, 0.0, 0.0, 0.0)
    per_pod = 1e3 / len(times)
    cluster_ms, judge_ms = cluster_cpu_s(cluster) - used_beside, time.process_time() - used_here
    each_ms = (per_pod * spent_s for spent_s in (cpu_s(pid) - used, cluster_ms, judge_ms))
    return Drain(len(times), len(times) / (times[-1] - began), *each_ms)


def drain_by_kube_scheduler(cluster: BenchCluster, pods: int) -> Drain:
    """Pods are made first; then kube-scheduler starts."""
    cluster.store("peer", pods, "default-scheduler")
    cluster.plane.start_scheduler()
    try:
        return drained(cluster, cluster.plane.pid("kube-scheduler"), pods, lambda: None)
    finally:
        cluster.plane.kill("kube-scheduler")
        cluster.clear()


def drain_by_millpond(cluster: BenchCluster, pond: ServedPond, pods: int) -> Drain:
    """Jobs of the same mix are submitted as arrays; Millpond makes their pods and binds them."""
    counts = {cards: mixed(pods).count(cards) for cards in (1, 2, 8)}

    def submit() -> None:
        with pond.client() as client:
            for cards, count in counts.items():
                for members in batches(count, LARGEST_ARRAY):
                    client.submit(job(cards, array=members))

    return drained(cluster, pond.pid, pods, submit)


def drain_adopted_by_millpond(cluster: BenchCluster, pond: ServedPond, pods: int) -> Drain:
    """The pods that kube-scheduler had, made first while the server stands still; Millpond adopts and binds them.

    Raises:
        SystemExit: it stood still for so long that its lease ran out, and would have to get it again first.
    """
    began = time.monotonic()
    os.kill(pond.pid, signal.SIGSTOP)
    try:
        cluster.store("adopted", pods, "millpond")
    finally:
        os.kill(pond.pid, signal.SIGCONT)
    times = LeaseTimes()
    if (still_s := time.monotonic() - began) > times.holds_s - times.renewed_every_s:
        raise SystemExit(
            f"{pods} pods took {still_s:.1f} s, and the lease lasts {times.holds_s:g} s: take fewer --pods"
        )
    before = pond.metric(DECIDING_S)
    drain = drained(cluster, pond.pid, pods, lambda: None)
    deciding_s = pond.metric(DECIDING_S) - before
    return replace(drain, decided_rate=drain.bound / deciding_s if deciding_s else 0.0)


def pond_on(cluster: BenchCluster, folder: Path, **settings: Any) -> ServedPond:
    """A server of Millpond for the cluster, not started yet."""
    import yaml

    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "pond.yaml"
    kubernetes = {"kubeconfig": str(cluster.way), "namespace": NAMESPACE, "adopt": True}
    config.write_text(yaml.safe_dump({"kubernetes": kubernetes} | settings))
    return ServedPond(folder / "state", ["--config", str(config)])


def gang(cluster: BenchCluster, pond: ServedPond, tasks: int) -> float:
    """Seconds from the submission of a gang, a node for each task, until all of it is bound."""
    cluster.ledger.forget()
    began = time.monotonic()
    with pond.client() as client:
        client.submit(job(CARDS, name="gang", tasks=tasks))
    if not cluster.ledger.wait(lambda: cluster.ledger.bound >= tasks, 60.0):
        return float("inf")
    return cluster.ledger.bound_between()[-1] - began
