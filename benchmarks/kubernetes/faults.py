"""Whatever dies, stands still or is taken away, every task is done once: random faults in a cluster under load.

Between the faults there is always one that is being mended, and work goes on: jobs of one task and gangs are submitted,
and what runs is ended by its kubelets at random.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.kubernetes.bench_cluster import NAMESPACE, BenchCluster
from benchmarks.kubernetes.binding_rows import job
from benchmarks.kubernetes.standing_rows import KubeletProcess
from benchmarks.server.served import ServedPond
from millpond.model.errors import MillpondError

SHORT_S, LONG_S = (0.2, 2.0), (11.0, 14.0)
"""How long a fault lasts; one in five of those of the server is long enough for its lease to run out."""
SETTLED_WITHIN_S = 180.0
ALONE = "alone-"
"""What the names of jobs of one task begin with."""


@dataclass
class FaultWalk:
    """One cluster, one server, and what was done to them.

    Attributes:
        submitted: tasks of all jobs that were accepted.
        done: how often each fault was made.
    """

    cluster: BenchCluster
    pond: ServedPond
    kubelets: KubeletProcess
    chance: random.Random
    submitted: int = 0
    done: Counter[str] = field(default_factory=Counter)

    def run(self, faults: int) -> None:
        """Make so many faults, under load, and let everything come to its end."""
        kinds: list[Callable[[], None]] = [
            self.api_server_dies,
            self.etcd_dies,
            self.server_dies,
            self.server_stands_still,
            self.pods_are_deleted,
        ]
        for number in range(faults):
            self.submit(number)
            self.end_some()
            fault = self.chance.choice(kinds)
            self.done[fault.__name__] += 1
            fault()
        self.settle()

    def submit(self, number: int) -> None:
        """A little work; what is refused, as the server is not there, counts for nothing."""
        documents = [(job(1, name=f"{ALONE}{number}"), 1), (job(2, name=f"gang-{number}", tasks=3), 3)]
        with contextlib.suppress(MillpondError, OSError), self.pond.client(timeout_s=10.0) as client:
            for document, tasks in documents:
                client.submit(document)
                self.submitted += tasks

    def end_some(self) -> None:
        """A part of what runs comes to its end."""
        for name in self.cluster.ledger.names("Running"):
            if self.chance.random() < 0.3:
                self.kubelets.end(name)

    def api_server_dies(self) -> None:
        """And is back after a moment."""
        self.cluster.plane.kill("kube-apiserver")
        self._wait()
        self.cluster.plane.start_api_server()

    def etcd_dies(self) -> None:
        """Under the API server, which goes on without it for a moment."""
        self.cluster.plane.kill("etcd")
        self._wait()
        self.cluster.plane.start_etcd()

    def server_dies(self) -> None:
        """By SIGKILL; the next one finds what it left."""
        self.pond.kill()
        self._wait()
        self.pond.up()

    def server_stands_still(self) -> None:
        """And goes on, sometimes after its lease has run out."""
        os.kill(self.pond.pid, signal.SIGSTOP)
        self._wait(LONG_S if self.chance.random() < 0.2 else SHORT_S)
        os.kill(self.pond.pid, signal.SIGCONT)

    def pods_are_deleted(self) -> None:
        """By somebody else."""
        for name in self.chance.sample(running := self.cluster.ledger.names("Running"), min(2, len(running))):
            self.cluster.api.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}?gracePeriodSeconds=0")

    def settle(self) -> None:
        """No more faults: everything comes to its end."""
        give_up_at = time.monotonic() + SETTLED_WITHIN_S
        while time.monotonic() < give_up_at and not self.is_settled:
            for name in self.cluster.ledger.names("Running"):
                self.kubelets.end(name)
            time.sleep(1.0)

    @property
    def is_settled(self) -> bool:
        """Whether the server knows of nothing that is not over."""
        with contextlib.suppress(MillpondError, OSError), self.pond.client() as client:
            return not client.jobs(limit=1).jobs
        return False

    @property
    def twice(self) -> int:
        """Jobs of one task that were done in several runs. (A gang begins anew when it loses a task.)"""
        return sum(len(runs) > 1 for (name, _), runs in self.cluster.ledger.done.items() if name.startswith(ALONE))

    def states(self) -> dict[str, int]:
        """How many jobs there are in which state."""
        with self.pond.client() as client:
            return dict(client.server().jobs)

    def _wait(self, span: tuple[float, float] = SHORT_S) -> None:
        time.sleep(self.chance.uniform(*span))
