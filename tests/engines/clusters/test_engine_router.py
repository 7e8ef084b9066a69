"""Several engines as one: what goes where, and what is made of nodes that are called alike or away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from millpond.engines.clusters import late_engine
from millpond.engines.clusters.engine_router import EngineRouter
from millpond.engines.clusters.late_engine import ClusterEngine, LateEngine
from millpond.engines.clusters.routed_access import NoAccess
from millpond.engines.kubernetes.adoption.gangs import FoundGang, GangKey, GangTerms
from millpond.engines.task_access import TaskAccess
from millpond.model.decisions import Decision, Placement, Prefetch, Start, Stop
from millpond.model.engine import Inventory, Observed
from millpond.model.errors import UnavailableError
from millpond.model.events import Confirmed, DeviceHealthChanged, Ended, Event, NodeJoined, NodeLost, Noted, Refused
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement, selects
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.telemetry import SliceReading
from millpond.model.reasons import Cause
from millpond.model.states import Outcome
from millpond.node.task.records import RunRecord, TaskId


@dataclass
class RecordingEngine:
    """Keeps what it is asked, and says what a test has it say."""

    nodes: list[Node]
    tasks: tuple[Observed, ...] = ()
    applied: list[Decision] = field(default_factory=list)
    adopted: tuple[Mapping[TaskId, str], Sequence[Decision]] | None = None
    says: list[Event] = field(default_factory=list)
    not_shared: str = ""
    not_shared_in: dict[str, str] = field(default_factory=dict)
    access: TaskAccess = field(default_factory=lambda: NoAccess("asked"))
    running: tuple[RunRecord, ...] = ()
    is_closed: bool = False
    waiting: list[FoundGang] = field(default_factory=list)
    stands_for: dict[str, GangKey] = field(default_factory=dict)
    answers: dict[GangKey, str] = field(default_factory=dict)
    found: Callable[[], None] = field(default=lambda: None)

    def inventory(self) -> Inventory:
        return Inventory(tuple(self.nodes), self.tasks)

    def adopt(self, expected: Mapping[TaskId, str], unanswered: Sequence[Decision]) -> None:
        self.adopted = expected, unanswered

    def apply(self, decisions: Sequence[Decision]) -> None:
        self.applied += decisions

    def events(self) -> list[Event]:
        said, self.says = self.says, []
        return said

    def slice_readings(self) -> Iterable[SliceReading]:
        return ()

    def card_loads(self) -> Mapping[str, int]:
        return {node.name: 1 for node in self.nodes}

    def why_nothing_is_shared(self, pool: str = "") -> str:
        return self.not_shared or self.not_shared_in.get(pool, "")

    def why_nothing_is_halted(self) -> str:
        return self.not_shared

    why_no_card_is_closed = why_nothing_is_halted

    def when_found(self, call: Callable[[], None]) -> None:
        self.found = call

    def gangs(self) -> Sequence[FoundGang]:
        return self.waiting

    def entrust(self, jobs: Mapping[str, GangKey]) -> None:
        self.stands_for |= jobs

    def withdraw(self, job: str) -> None:
        self.stands_for.pop(job, None)

    def answer(self, key: GangKey, text: str) -> None:
        self.answers[key] = text

    def close(self) -> None:
        self.is_closed = True


def node(name: str, **more: Any) -> Node:
    return Node(name, 8_000, 1_024, **more)


def start(number: int, job: str, *nodes: str, attempt: int = 1, joins: bool = False, first: int = 0) -> Start:
    placed = tuple(Placement(task, "worker", name) for task, name in enumerate(nodes, first))
    return Start(number, job, attempt, Cause.FITS, placed, joins)


def stop(number: int, job: str, attempt: int = 1) -> Stop:
    return Stop(number, job, attempt, Cause.STOP_REQUESTED)


@dataclass
class Bench:
    east: RecordingEngine
    west: RecordingEngine
    router: EngineRouter
    woken: list[None]

    def begin(self, expected: Mapping[TaskId, str] | None = None, unanswered: Sequence[Decision] = ()) -> Inventory:
        found = self.router.inventory()
        self.router.adopt(expected or {}, unanswered)
        return found


@pytest.fixture
def bench() -> Bench:
    woken: list[None] = []
    east, west = RecordingEngine([node("e1"), node("e2")]), RecordingEngine([node("w1", zone_name="z")])
    engines = {"east": east, "west": west}
    return Bench(east, west, EngineRouter(engines, lambda: woken.append(None), engines), woken)


def test_nodes_say_their_cluster_and_zones_lie_within_clusters(bench: Bench) -> None:
    bench.west.nodes[0] = node("w1", zone_name="z", labels=(("a", "b"),))
    found = {each.name: each for each in bench.begin().nodes}
    assert {name: (each.cluster, each.zone_name) for name, each in found.items()} == {
        "e1": ("east", "east"),
        "e2": ("east", "east"),
        "w1": ("west", "west/z"),
    }
    assert dict(found["w1"].labels)["a"] == "b"


def test_decisions_go_to_the_cluster_of_their_nodes_and_what_follows_to_that_of_the_run(bench: Bench) -> None:
    bench.begin()
    bench.router.apply([start(1, "a", "e1", "e2"), start(2, "b", "w1")])
    bench.router.apply([stop(3, "b"), stop(4, "a")])
    bench.router.apply([Prefetch(5, "c", 1, Cause.PREFETCHED, "w1"), Prefetch(6, "b", 1, Cause.PREFETCHED, "e2")])
    assert [each.id for each in bench.east.applied] == [1, 4, 6]
    assert [each.id for each in bench.west.applied] == [2, 3, 5]
    noted = [event for event in bench.router.events() if isinstance(event, Noted)]
    assert {event.job: event.text for event in noted} == {
        "a": "goes to cluster east, which has room for it",
        "b": "goes to cluster west, which has room for it",
    }


def test_the_next_run_of_a_job_may_lie_in_another_cluster(bench: Bench) -> None:
    bench.begin()
    bench.router.apply([start(1, "a", "e1")])
    bench.east.says = [Confirmed(1.0, 1), Ended(2.0, "a", 1, Outcome.NODE_LOST)]
    bench.router.events()
    bench.router.apply([start(2, "a", "w1", attempt=2), stop(3, "a", attempt=2)])
    assert [each.id for each in bench.west.applied] == [2, 3]
    bench.east.says = [Ended(3.0, "a", 1, Outcome.NODE_LOST)]  # late, of the run before
    bench.router.events()
    bench.router.apply([stop(4, "a", attempt=2)])
    assert bench.west.applied[-1].id == 4


@pytest.mark.parametrize(
    "over",
    [
        [Refused(1.0, 1, "no image")],
        [Confirmed(1.0, 1), NodeLost(2.0, "w1")],
        [Confirmed(1.0, 1), Ended(2.0, "a", 1, Outcome.SUCCESS)],
        [Confirmed(1.0, 1), Ended(2.0, "a", 1, Outcome.SUCCESS, 0)],
    ],
)
def test_a_run_of_which_nothing_is_left_lies_nowhere(bench: Bench, over: list[Event]) -> None:
    bench.begin()
    bench.router.apply([start(1, "a", "w1")])
    bench.west.says = over
    bench.router.events()
    with pytest.raises(UnavailableError, match="the task is over"):
        asyncio.run(bench.router.access.open_session(TaskId("a", 1, 0)))
    bench.router.apply([stop(2, "a")])
    assert [each.id for each in (*bench.east.applied, *bench.west.applied)] == [2, 1]


def test_a_start_in_two_clusters_is_refused_and_never_begun(bench: Bench) -> None:
    bench.begin()
    bench.router.apply([start(1, "a", "e1", "w1"), start(2, "b", "e1")])
    bench.router.apply([start(3, "b", "w1", joins=True, first=1)])
    assert [each.id for each in bench.east.applied] == [2]
    assert not bench.west.applied
    refused = [event for event in bench.router.events() if isinstance(event, Refused)]
    assert [event.decision for event in refused] == [1, 3]
    assert "submit it again" in refused[0].reason
    assert len(bench.woken) == 2


def test_each_engine_goes_on_with_its_own_tasks_and_decisions(bench: Bench) -> None:
    running, growing = TaskId("a", 1, 0), start(7, "a", "w1", joins=True, first=1)
    unanswered = [start(6, "b", "e2"), growing, stop(8, "b")]
    bench.begin({running: "w1", TaskId("c", 2, 0): "e1"}, unanswered)
    assert bench.east.adopted == ({TaskId("c", 2, 0): "e1"}, [unanswered[0], unanswered[2]])
    assert bench.west.adopted == ({running: "w1"}, [growing])


def test_of_two_nodes_with_one_name_that_of_the_first_cluster_counts_until_it_is_gone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.west.nodes.append(node("e1", pool="theirs"))
    bench.west.tasks = (Observed("x", 1, 0, "e1"),)
    found = bench.begin()
    assert [each.name for each in found.nodes] == ["e1", "e2", "w1"]
    assert not found.tasks
    assert bench.router.notes() == (
        "warning: node e1 of cluster west gets no work, as cluster east has a node of that name",
    )
    bench.west.says = [NodeJoined(1.0, node("e1", pool="theirs")), NodeLost(2.0, "e1")]
    assert bench.router.events() == []
    assert caplog.text.count("node e1 of cluster west gets no work") == 1
    bench.west.says = [NodeJoined(3.0, node("e1", pool="theirs"))]
    assert bench.router.events() == []
    bench.east.says = [NodeLost(4.0, "e1")]
    lost, joined = bench.router.events()
    assert lost == NodeLost(4.0, "e1")
    assert isinstance(joined, NodeJoined)
    assert (joined.node.cluster, joined.node.pool) == ("west", "theirs")
    bench.router.apply([start(1, "a", "e1")])
    assert [each.id for each in bench.west.applied] == [1]


def test_what_failed_on_a_node_whose_name_another_had_is_said_once_it_counts(bench: Bench) -> None:
    bench.west.nodes.append(node("e1"))
    bench.begin()
    failed = DeviceHealthChanged(1.0, "e1", "GPU-1", DeviceHealth.FAULTY, "XID 79", needs_person=True)
    well = DeviceHealthChanged(1.0, "e1", "GPU-2", DeviceHealth.FAULTY)
    bench.west.says = [failed, well, replace(well, health=DeviceHealth.OK)]
    assert bench.router.events() == []
    bench.east.says = [NodeLost(4.0, "e1")]
    _, joined, *changes = bench.router.events()
    assert isinstance(joined, NodeJoined)
    assert changes == [replace(failed, at=4.0), replace(well, at=4.0, health=DeviceHealth.OK)]


def test_what_one_cluster_can_do_is_offered_and_what_one_cannot_is_said(bench: Bench) -> None:
    bench.west.not_shared = "no agent"
    assert bench.router.why_nothing_is_shared() == ""
    assert bench.router.why_nothing_is_halted() == "no agent"
    assert bench.router.why_no_card_is_closed() == "no agent"
    bench.east.not_shared_in["theirs"] = "none there"
    assert bench.router.why_nothing_is_shared() == ""
    assert bench.router.why_nothing_is_shared("theirs") == "none there"
    bench.east.not_shared = "no driver"
    assert bench.router.why_nothing_is_shared() == "no driver"
    assert bench.router.card_loads() == {"e1": 1, "e2": 1, "w1": 1}
    bench.router.close()
    assert bench.east.is_closed
    assert bench.west.is_closed


# ---- a cluster that is away ------------------------------------------------------------------------------------------


@dataclass
class AwayBench:
    """A cluster that may be away.

    Attributes:
        comes: what is found of it; None: it is away.
    """

    monkeypatch: pytest.MonkeyPatch
    woken: list[None] = field(default_factory=list)
    comes: RecordingEngine | None = None

    def open(self) -> ClusterEngine:
        if self.comes is None:
            raise UnavailableError("west does not answer", "wait")
        return self.comes

    def late(self, *known: Node) -> LateEngine:
        return LateEngine("west", self.open, known, lambda: self.woken.append(None))


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> AwayBench:
    monkeypatch.setattr(late_engine.PeriodicWorker, "start", lambda *_: None)
    return AwayBench(monkeypatch)


def tried(late: LateEngine) -> Callable[[], object]:
    return late._try


def test_nodes_of_a_cluster_that_is_away_take_nothing_new_and_keep_what_they_have(away: AwayBench) -> None:
    late = away.late(node("w1"))
    (found,) = late.inventory().nodes
    assert not found.schedulable
    assert found.unschedulable_reason == (
        "cluster west has not answered since the server started: what runs there goes on, and nothing new starts"
    )
    late.adopt({TaskId("a", 1, 0): "w1"}, [])
    with pytest.raises(UnavailableError, match="west does not answer"):
        tried(late)()
    assert late.events() == []
    with pytest.raises(UnavailableError, match="cluster west has not answered"):
        asyncio.run(late.access.open_session(TaskId("a", 1, 0)))
    assert late.why_nothing_is_halted()
    late.close()


def test_a_cluster_that_has_come_goes_on_with_its_tasks_and_does_what_was_decided_meanwhile(away: AwayBench) -> None:
    late = away.late(node("w1"), node("w2"))
    stays, gone = TaskId("a", 1, 0), TaskId("b", 1, 0)
    late.adopt({stays: "w1", gone: "w2"}, [start(5, "c", "w2"), start(6, "d", "w1")])
    late.apply([stop(7, "a")])
    away.comes = engine = RecordingEngine([node("w1"), node("w3")], says=[Confirmed(9.0, 6)])
    tried(late)()
    assert engine.adopted == ({stays: "w1"}, [start(6, "d", "w1")])
    assert engine.applied == [stop(7, "a")]
    assert away.woken == [None]
    said = late.events()
    assert [event.node for event in said if isinstance(event, NodeLost)] == ["w2"]
    assert [event.node for event in said if isinstance(event, NodeJoined)] == [node("w1"), node("w3")]
    assert said[-1] == Confirmed(9.0, 6)
    late.apply([stop(8, "d")])
    assert engine.applied[-1].id == 8
    assert late.access is engine.access
    late.close()
    assert engine.is_closed


def test_a_cluster_that_comes_when_the_server_ends_is_let_go(away: AwayBench) -> None:
    late = away.late(node("w1"))
    late.adopt({}, [])
    late.close()
    away.comes = RecordingEngine([node("w1")])
    tried(late)()
    assert away.comes.is_closed
    assert away.comes.adopted is None


def test_of_a_cluster_that_is_away_again_before_it_has_named_its_nodes_no_engine_is_left_over(
    away: AwayBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = away.late(node("w1"))
    late.adopt({}, [])
    away.comes = first = RecordingEngine([node("w1")])

    def lose() -> Inventory:
        raise UnavailableError("west does not answer", "wait")

    monkeypatch.setattr(first, "inventory", lose)
    with pytest.raises(UnavailableError):
        tried(late)()
    assert first.is_closed
    away.comes = second = RecordingEngine([node("w1")])
    tried(late)()
    assert second.adopted == ({}, [])
    assert not second.is_closed


def gang_called(name: str, *nodes: NodeRequirement) -> FoundGang:
    return FoundGang(GangKey("team-a", "Job", name, "uid-1"), GangTerms(selection=(nodes,) if nodes else ()))


def test_gangs_that_are_called_alike_in_two_clusters_are_two_and_each_may_have_nodes_of_its_own(bench: Bench) -> None:
    a100 = NodeRequirement("card", NodeOperator.IN, ("a100",))
    bench.east.waiting, bench.west.waiting = [gang_called("trio")], [gang_called("trio", a100)]
    east, west = bench.router.adoption.gangs()
    assert (east.key.text, west.key.text) == (
        "Job team-a/trio of cluster east",
        "Job team-a/trio of cluster west",
    )
    nodes = {each.name: each for each in bench.begin().nodes}
    assert [name for name, each in nodes.items() if selects(east.terms.selection, each.labels)] == ["e1", "e2"]
    assert not any(selects(west.terms.selection, each.labels) for each in nodes.values())  # none has that card
    labels = (*nodes["w1"].labels, ("card", "a100"))
    assert selects(west.terms.selection, labels)


def test_the_engine_of_a_gang_hears_of_its_job_and_no_other_does(bench: Bench) -> None:
    woken: list[None] = []
    adoption = bench.router.adoption
    adoption.when_found(lambda: woken.append(None))
    bench.west.found()
    assert woken == [None]
    bench.west.waiting = [gang_called("trio")]
    (found,) = adoption.gangs()
    adoption.entrust({"trio-1": found.key})
    adoption.answer(found.key, "no room")
    assert (bench.west.stands_for, bench.east.stands_for) == ({"trio-1": gang_called("trio").key}, {})
    assert (bench.west.answers, bench.east.answers) == ({gang_called("trio").key: "no room"}, {})
    adoption.withdraw("trio-1")
    assert bench.west.stands_for == {}


def test_pods_of_others_in_a_cluster_that_is_away_are_lined_up_when_it_has_come(away: AwayBench) -> None:
    woken: list[None] = []
    late = away.late()
    late.when_found(lambda: woken.append(None))
    assert late.gangs() == ()
    late.withdraw("ended-meanwhile")
    away.comes = RecordingEngine([], waiting=[gang_called("trio")], stands_for={"ended-meanwhile": GangKey("", "", "")})
    tried(late)()
    assert (woken, away.comes.stands_for) == ([None], {})
    assert late.gangs() == [gang_called("trio")]
    late.entrust({"trio-1": gang_called("trio").key})
    late.answer(gang_called("trio").key, "no room")
    assert away.comes.stands_for.keys() == {"trio-1"}
    assert away.comes.answers == {gang_called("trio").key: "no room"}
    away.comes.found()
    assert len(woken) == 2
    late.close()
