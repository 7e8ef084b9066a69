"""An engine on a stand-in cluster, and what tests do with both."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from standin_cluster import StandinCluster

from millpond.engines.kubernetes.cluster.kubeconfig import ClusterAccess
from millpond.engines.kubernetes.engine import KubernetesEngine, KubernetesOptions
from millpond.engines.kubernetes.pods.pod_template import PodLaunch, RoleNeeds
from millpond.model.decisions import Grant, Placement, Start, Stop
from millpond.model.events import Confirmed, Event
from millpond.model.reasons import Cause

E = TypeVar("E", bound=Event)
WITHIN_S = 60.0


def eventually(holds: Callable[[], Any]) -> Any:
    """What a condition comes to, as soon as it holds."""
    give_up_at = time.monotonic() + WITHIN_S
    while not (found := holds()):
        assert time.monotonic() < give_up_at, "it did not come to that"
        time.sleep(0.005)
    return found


def start(
    number: int, job: str = "train-abcde", nodes: Sequence[str] = ("n1",), cards: int = 1, attempt: int = 1
) -> Start:
    """A decision that starts a task on each of these nodes."""
    placements = tuple(
        Placement(
            task, "worker", node, tuple(Grant(f"{node}/nvidia.com/gpu/{card}", 1000, 1000, 0) for card in range(cards))
        )
        for task, node in enumerate(nodes)
    )
    return Start(number, job, attempt, Cause.FITS, placements)


def stop(number: int, job: str = "train-abcde", grace_s: float = 20.0, attempt: int = 1) -> Stop:
    return Stop(number, job, attempt, Cause.STOP_REQUESTED, grace_s=grace_s)


@dataclass
class PodBench:
    """An engine, and all that it has said.

    Attributes:
        launch: what every job runs.
    """

    cluster: StandinCluster
    folder: Path
    launch: PodLaunch = field(
        default_factory=lambda: PodLaunch(
            "registry.example/train:1", {"worker": RoleNeeds(("python", "train.py"), 4000, 1024)}, grace_s=20.0
        )
    )
    options: KubernetesOptions = field(default_factory=lambda: KubernetesOptions(servers=("this-server",)))
    seen: list[Event] = field(default_factory=list)
    engine: KubernetesEngine = field(init=False)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, expected: Sequence[Any] = (), unanswered: Sequence[Any] = ()) -> None:
        access = ClusterAccess(str(self.cluster.kubeconfig(self.folder)))
        self.engine = KubernetesEngine(access, self.folder / "state", lambda _job: self.launch, self.options)
        self.engine.adopt(expected, unanswered)

    def close(self) -> None:
        self.engine.close()

    def next(self, kind: type[E]) -> E:
        """The next event of a kind, as soon as there is one; it and those before it are forgotten."""

        def found() -> E | None:
            self.seen += self.engine.events()
            for place, event in enumerate(self.seen):
                if isinstance(event, kind):
                    del self.seen[: place + 1]
                    return event
            return None

        event = eventually(found)
        assert isinstance(event, kind)
        return event

    def bound(self, pod: str) -> dict[str, Any]:
        """A pod, as soon as it is bound."""

        def found() -> Any:
            plain = self.cluster.get("pods", pod)
            return plain if plain is not None and plain["spec"].get("nodeName") else None

        return dict(eventually(found))

    def started(self, number: int = 1, **more: Any) -> None:
        """A job of one task runs."""
        decision = start(number, **more)
        self.engine.apply([decision])
        for task in range(len(decision.placements)):
            pod = f"{decision.job}-{decision.attempt}-{task}"
            self.bound(pod)
            self.cluster.run(pod)
        assert self.next(Confirmed).decision == number
