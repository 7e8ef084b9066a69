"""Whatever an API server does in between, each task is bound once, to the node that was decided, and ends once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pod_bench import PodBench, eventually, start
from standin_cluster import Plain, StandinCluster, refusal
from starlette.responses import JSONResponse

from millpond.engines.kubernetes.cluster.cluster_lease import LeaseTimes
from millpond.model.decisions import Start
from millpond.model.events import Confirmed, Ended
from millpond.model.states import Outcome
from millpond.node.task.records import TaskId

pytestmark = pytest.mark.long
STEPS = 25
NODES = ("n1", "n2")
_PASSING = ((429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable"), (504, "Timeout"))


def tasks_of(decision: Start) -> set[TaskId]:
    return {TaskId(decision.job, decision.attempt, placed.task) for placed in decision.placements}


@dataclass
class FaultyCluster:
    """Turns some of the requests away that change something, as an API server does that has too much to do."""

    cluster: StandinCluster
    chance: random.Random
    likely: float = 0.3

    def refuses(self, request: str, _body: Plain) -> JSONResponse | None:
        if request.startswith("GET") or self.chance.random() > self.likely:
            return None
        code, reason = self.chance.choice(_PASSING)
        return refusal(code, reason, "not now")


@dataclass
class KnownCore:
    """What a core would know: starts that were not answered, and tasks that run."""

    unanswered: dict[int, Start] = field(default_factory=dict)
    running: set[TaskId] = field(default_factory=set)
    ends: Counter[TaskId] = field(default_factory=Counter)

    def take(self, bench: PodBench) -> None:
        """Hear what the engine has to say."""
        for event in bench.engine.events():
            match event:
                case Confirmed() if event.decision in self.unanswered:
                    done = self.unanswered.pop(event.decision)
                    self.running |= tasks_of(done)
                case Ended():
                    assert event.outcome is Outcome.SUCCESS, event
                    self.ends[TaskId(event.job, event.attempt, event.task)] += 1
                    self.running.discard(TaskId(event.job, event.attempt, event.task))
                case _:
                    pass


@dataclass
class Kubelets:
    """Run what is bound and end it, and note that nothing is bound elsewhere later."""

    cluster: StandinCluster
    bound: dict[str, tuple[str, str]] = field(default_factory=dict)

    def work(self, chance: random.Random) -> None:
        for name in self.cluster.names("pods"):
            pod = self.cluster.get("pods", name)
            if pod is None or not pod["spec"].get("nodeName"):
                continue
            seen = self.bound.setdefault(name, (pod["metadata"]["uid"], pod["spec"]["nodeName"]))
            assert seen == (pod["metadata"]["uid"], pod["spec"]["nodeName"])
            if pod["status"]["phase"] == "Pending":
                self.cluster.run(name)
            elif pod["status"]["phase"] == "Running" and chance.random() < 0.3:
                self.cluster.finish(name)


def fault(chance: random.Random, cluster: StandinCluster, bench: PodBench, core: KnownCore) -> None:
    """One of the things that happen to a cluster, or to the server."""
    match chance.randrange(5):
        case 0:
            cluster.cut_watches()
        case 1:
            cluster.forget_history()
            cluster.cut_watches()
        case 2:
            cluster.stop()
            cluster.start()
        case 3:
            core.take(bench)
            bench.close()
            core.take(bench)
            starting = {
                TaskId(each.job, 1, placed.task) for each in core.unanswered.values() for placed in each.placements
            }
            bench.open(sorted(core.running | starting, key=str), list(core.unanswered.values()))
        case _:
            pass


@pytest.mark.parametrize("seed", range(4))
def test_each_task_is_bound_once_and_ends_once(cluster: StandinCluster, tmp_path: Path, seed: int) -> None:
    chance, core, kubelets = random.Random(seed), KnownCore(), Kubelets(cluster)
    cluster.refuses = FaultyCluster(cluster, chance).refuses
    bench = PodBench(cluster, tmp_path)
    bench.options = replace(bench.options, lease=LeaseTimes(lasts_s=0.6, holds_s=0.3, renewed_every_s=0.05))
    bench.open()
    asked: set[TaskId] = set()
    for number in range(1, STEPS + 1):
        decision = start(number, f"job-{number:05}", NODES[: chance.randint(1, 2)], cards=0)
        core.unanswered[number] = decision
        asked |= tasks_of(decision)
        bench.engine.apply([decision])
        fault(chance, cluster, bench, core)
        kubelets.work(chance)
        core.take(bench)

    def is_over() -> bool:
        kubelets.work(chance)
        core.take(bench)
        return not core.unanswered and not core.running and core.ends.keys() == asked

    eventually(is_over)
    bench.close()
    assert set(core.ends.values()) == {1}
    assert len(kubelets.bound) == len(asked)
