"""What Millpond does on a cluster of many nodes: pods bound a second beside kube-scheduler and the API server's own
ceiling, gangs, taking back, restarts, outages. A real control plane, nodes that are status alone.

    python -m benchmarks.kubernetes.run --nodes 100 --pods 400
    python -m benchmarks.kubernetes.run --nodes 5000 --pods 10000 --only binding

It takes the programs of Kubernetes (`make kubernetes`, once, as root). All of it shares this machine: the API server,
etcd, kubelets and whoever schedules. So figures beside each other say more than a figure alone.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.calibration import calibration_rate
from benchmarks.kubernetes.bench_cluster import CARDS, BenchCluster, mixed_pods, require_programs
from benchmarks.kubernetes.binding_rows import (
    drain_adopted_by_millpond,
    drain_by_kube_scheduler,
    drain_by_millpond,
    gang,
    job,
    measure_ceiling,
    pond_on,
)
from benchmarks.kubernetes.faults import FaultWalk
from benchmarks.kubernetes.standing_rows import (
    FILLER_PODS,
    QUEUES,
    fill,
    first_bound_after,
    idle_share,
    kubelets,
    outage,
    reclaim,
)
from benchmarks.reporting import Row, command_line, emit, note, program, table_of
from benchmarks.server.served import ServedPond
from millpond.model.errors import UnavailableError
from millpond.server.runtime.kernel_compilation import WORTHWHILE_NODES

NO_CLUSTER = os.EX_UNAVAILABLE
LARGEST_GANG = 512
OWN_PODS = 1000


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything.

    Attributes:
        standing: pods in the cluster when the server is restarted.
    """

    nodes: int
    pods: int
    standing: int
    status_every_s: float
    idle_s: float
    outage_s: float
    faults: int
    seed: int


@program
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = command_line(__doc__)
    parser.add_argument("--nodes", type=int, default=500, help="of eight cards each [500]")
    parser.add_argument("--pods", type=int, default=1000, help="to be bound [1000]")
    parser.add_argument("--standing", type=int, help="pods there when the server is restarted [20 a node]")
    parser.add_argument("--status-every", type=float, default=300.0, metavar="S", help="status of a node [300]")
    parser.add_argument("--idle", type=float, default=30.0, metavar="S", help="how long standing is watched [30]")
    parser.add_argument("--outage", type=float, default=60.0, metavar="S", help="how long the API server is away [60]")
    parser.add_argument("--faults", type=int, default=100, help="random faults under load [100]")
    parser.add_argument("--seed", type=int, default=1, help="of the faults [1]")
    parser.add_argument("--only", choices=list(MEASUREMENTS), action="append", help="only this; may be repeated")
    options = parser.parse_args(arguments)
    try:
        require_programs()
    except UnavailableError as error:
        sys.stderr.write(f"{error}\n")
        return NO_CLUSTER
    standing = options.standing if options.standing is not None else 20 * options.nodes
    spans = (options.status_every, options.idle, options.outage)
    scale = Scale(options.nodes, options.pods, standing, *spans, options.faults, options.seed)
    logging.getLogger("millpond").addHandler(logging.NullHandler())  # the judge's own cut watches are no news
    rows: list[Row] = []
    for name in options.only or MEASUREMENTS:
        note(f"measuring: {name}")
        with tempfile.TemporaryDirectory(prefix="millpond-kubernetes-") as folder:
            rows += MEASUREMENTS[name](Path(folder), scale)
    load = f"load of the machine {os.getloadavg()[0]:.1f}, calibration {calibration_rate() / 1e6:.0f} million a second"
    emit({"scale": asdict(scale), "rows": [row.plain for row in rows]}, options.json, [table_of(rows), load])
    return 0


@contextmanager
def cluster_of(folder: Path, scale: Scale) -> Iterator[BenchCluster]:
    """A control plane with its nodes; what it was caught at is said at the end."""
    from control_plane import free_port

    with BenchCluster(folder / "cluster", scale.nodes, free_port()) as cluster:
        yield cluster
        for wrong in cluster.ledger.wrongs[:20]:
            sys.stdout.write(f"WRONG: {wrong}\n")


@contextmanager
def served(cluster: BenchCluster, folder: Path, **settings: object) -> Iterator[ServedPond]:
    """A server that is up and has its kernels compiled."""
    pond = pond_on(cluster, folder, **settings)
    pond.up()
    try:
        if cluster.nodes >= WORTHWHILE_NODES:
            pond.await_kernels()
        yield pond
    finally:
        pond.abandon()


def binding(folder: Path, scale: Scale) -> list[Row]:
    """Pods in a mix of one, two and eight cards, and a gang."""
    with cluster_of(folder, scale) as cluster:
        ceiling = measure_ceiling(cluster, list(mixed_pods("ceiling", scale.pods, "nobody")))
        peer = drain_by_kube_scheduler(cluster, scale.pods)
        size = min(LARGEST_GANG, scale.nodes)
        with served(cluster, folder / "gang") as pond:
            gang_s = gang(cluster, pond, size)
        cluster.clear()
        with served(cluster, folder / "drain") as pond:
            own = drain_by_millpond(cluster, pond, scale.pods)
        same = cluster.bare_copies()
        cluster.clear()
        ceiling_of_own = measure_ceiling(cluster, same)
        with served(cluster, folder / "adopting") as pond:
            adopted = drain_adopted_by_millpond(cluster, pond, scale.pods)
        return [
            Row("API server alone: pods made", ceiling.created, "1/s"),
            Row("API server alone: pods bound", ceiling.bound, "1/s"),
            Row("API server alone: pods made, then bound", ceiling.both, "1/s"),
            Row("  CPU of it and etcd per pod made", ceiling.created_ms, "ms"),
            Row("  CPU of it and etcd per pod bound", ceiling.bound_ms, "ms"),
            Row("kube-scheduler: bound", peer.rate, "1/s"),
            Row("  never placed", scale.pods - peer.bound, "pods"),
            Row("  CPU per bound pod", peer.cpu_ms, "ms"),
            Row("  CPU of the API server and etcd beside it", peer.cluster_ms, "ms"),
            Row("Millpond: pods of others, made before: bound", adopted.rate, "1/s", 0.5 * ceiling.bound, least=True),
            Row("  beside kube-scheduler", adopted.rate / peer.rate, "times", 5.0, least=True),
            Row("  never placed", scale.pods - adopted.bound, "pods", 0.0),
            Row("  CPU per bound pod", adopted.cpu_ms, "ms", 2.0),
            Row("  CPU of the API server and etcd beside it", adopted.cluster_ms, "ms"),
            Row("  CPU of the judge", adopted.judge_ms, "ms"),
            Row("  what the cores allow at that", adopted.allowed, "1/s"),
            Row("  what they would if Millpond took none", adopted.allowed_others, "1/s"),
            Row("  decided, while it decides", adopted.decided_rate, "1/s", 5000.0, least=True),
            Row("Millpond: jobs made into pods and bound", own.rate, "1/s", 0.5 * ceiling.both, least=True),
            Row("  beside kube-scheduler, which makes none", own.rate / peer.rate, "times"),
            Row("  never placed", scale.pods - own.bound, "pods", 0.0),
            Row("  CPU per bound pod, from job to binding", own.cpu_ms, "ms", 2.0),
            Row("  CPU of the API server and etcd beside it", own.cluster_ms, "ms"),
            Row("  CPU of the judge", own.judge_ms, "ms"),
            Row("  what the cores allow at that", own.allowed, "1/s"),
            Row("  what they would if Millpond took none", own.allowed_others, "1/s"),
            Row("  API server alone: the same pods made, then bound", ceiling_of_own.both, "1/s"),
            Row("  CPU of it and etcd per such pod", ceiling_of_own.created_ms + ceiling_of_own.bound_ms, "ms"),
            Row(f"gang of {size}: submitted to all bound", gang_s, "s", 1.5 * size / ceiling.both),
            Row("  API server alone: as many of Millpond's pods made, then bound", size / ceiling_of_own.both, "s"),
        ]


def standing(folder: Path, scale: Scale) -> list[Row]:
    """A full cluster whose pods run, with heartbeats; then one job with a guarantee; then an outage."""
    with cluster_of(folder, scale) as cluster, kubelets(cluster, scale.status_every_s) as nodes:
        with served(cluster, folder, queues=QUEUES) as pond:
            filled = fill(cluster, pond)
            idle = idle_share(pond, scale.idle_s)
            reclaimed_s = reclaim(cluster, pond)
            nodes.end(FILLER_PODS)
            cluster.ledger.wait(lambda: cluster.ledger.phases["Succeeded"] > 0, 30.0)
            away = [job(1, name=f"away-{number}") for number in range(20)]
            resumed_s = outage(cluster, pond, scale.outage_s, away, "away")
            cluster.ledger.wait(lambda: len(cluster.ledger.bound_between("away")) >= len(away), 60.0)
            lost = len(away) - len(cluster.ledger.bound_between("away"))
        return [
            Row("one-card jobs from submission to running, all cards", filled, "1/s"),
            Row(f"{cluster.nodes * CARDS} pods run: CPU of the server", 100 * idle, "% of a core", 10.0),
            Row("reclaim on a full cluster: submitted to bound", reclaimed_s, "s", 1.0),
            Row(f"API server away for {scale.outage_s:g} s: back to the next binding", resumed_s, "s", 5.0),
            Row("  of 20 jobs submitted meanwhile never bound", lost, "jobs", 0.0),
            Row("rules of the cluster broken", len(cluster.ledger.wrongs), "times", 0.0),
        ]


def restarts(folder: Path, scale: Scale) -> list[Row]:
    """The server is killed and starts again in a cluster with many pods of others, and some of its own."""
    with cluster_of(folder, scale) as cluster, served(cluster, folder) as pond:
        own = min(OWN_PODS, cluster.nodes * CARDS // 2)
        with pond.client() as client:
            client.submit(job(1, name="own", array=own))
        cluster.ledger.wait(lambda: cluster.ledger.bound >= own, 60.0)
        cluster.store_bound("theirs", scale.standing - own)
        pond.kill()
        began = time.monotonic()
        pond.up()
        first_s = first_bound_after(cluster, pond, job(1, name="next"), "next", began)
        used_s, peak_mib = pond.cpu_s(), pond.peak_mib()
        settled = first_bound_after(cluster, pond, job(1, name="later"), "later", time.monotonic())
        return [
            Row(f"restart at {scale.standing} pods: to the first binding", first_s, "s", 30.0),
            Row("  CPU of the server until then", used_s, "s"),
            Row("  most memory", peak_mib, "MiB", 1536.0),
            Row("  then a job of one card: submitted to bound", settled, "s"),
            Row("rules of the cluster broken", len(cluster.ledger.wrongs), "times", 0.0),
        ]


def faults(folder: Path, scale: Scale) -> list[Row]:
    """Random faults under load."""
    with (
        cluster_of(folder, scale) as cluster,
        kubelets(cluster, scale.status_every_s) as nodes,
        served(cluster, folder) as pond,
    ):
        walk = FaultWalk(cluster, pond, nodes, random.Random(scale.seed))
        walk.run(scale.faults)
        states = walk.states()
    others = sum(count for state, count in states.items() if state != "succeeded")
    return [
        Row("random faults under load", sum(walk.done.values()), "faults"),
        *(Row(f"  {name.replace('_', ' ')}", count, "times") for name, count in sorted(walk.done.items())),
        Row("tasks of jobs that were accepted", walk.submitted, "tasks"),
        Row("  of which not done", walk.submitted - len(cluster.ledger.done), "tasks", 0.0),
        Row("  of which done twice", walk.twice, "jobs", 0.0),
        Row("  jobs that did not succeed", others, "jobs", 0.0),
        Row("rules of the cluster broken", len(cluster.ledger.wrongs), "times", 0.0),
    ]


MEASUREMENTS: dict[str, Callable[[Path, Scale], list[Row]]] = {
    "binding": binding,
    "standing": standing,
    "restarts": restarts,
    "faults": faults,
}


if __name__ == "__main__":
    raise SystemExit(main())
