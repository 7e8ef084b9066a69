"""A scheduler is killed at random points of bursty logs, and another one redoes the log behind its last snapshot.

One of the same version stands where the first one stood. One that would decide otherwise goes on from there: nothing is
lost, and nothing runs twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from bursts import FEW, KINDS, OTHERS, settings_of, world_of
from redone import essential, redo, stored
from worlds import machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Decision, Migrate, Start, Stop
from millpond.model.errors import ConflictError, NotFoundError
from millpond.model.events import (
    Confirmed,
    Event,
    JobSubmitted,
    MigrateRequested,
    NodeJoined,
    PolicyChanged,
    QueueChanged,
    ReservationMade,
    SuspendRequested,
)
from millpond.model.reasons import Cause
from millpond.model.resources import TaskRequest
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.workloads import Job, Priority, Role
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.ledger.holdings import Holding
from millpond.scheduling.migration import device_moves
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.results.history import history_of
from millpond.simulation.trace import TraceJob, Workload
from millpond.simulation.world.costs import Costs
from millpond.simulation.world.speeds import SpeedTable
from seeds import few_then_many


class Killed:
    """A scheduler that is killed now and then; what it wrote down goes on as the next one.

    Args:
        changed: what the next version makes of a snapshot.
    """

    def __init__(
        self, settings: Settings, seed: int, changed: Callable[[dict[str, Any]], dict[str, Any]] | None
    ) -> None:
        self.core = Scheduler(settings)
        self.kills = self.moves = self.pairs = 0
        self.starts: list[tuple[str, int]] = []
        self._changed = changed
        self._draws = random.Random(seed)
        self._snapshot = stored(self.core.snapshot())
        self._turn: list[Event] = []
        self._log: list[tuple[list[Event], float, list[Decision], Any]] = []

    def handle(self, event: Event) -> None:
        self.core.handle(event)
        self._turn.append(event)

    def decide(self, now: float) -> list[Decision]:
        decisions = self.core.decide(now)
        self.starts += [(each.job, each.attempt) for each in decisions if isinstance(each, Start) and not each.joins]
        self.pairs += sum(each.cause is Cause.SHARES for each in decisions if isinstance(each, Start))
        self.moves += sum(each.cause is Cause.CONSOLIDATED for each in decisions if isinstance(each, Stop))
        self._log.append((self._turn, now, decisions, self.core.changed_claims()))
        self._turn = []
        if self._draws.random() < 0.1:
            self._kill()
        if self._draws.random() < 0.02:
            self._snapshot, self._log = stored(self.core.snapshot()), []
        return decisions

    def next_wakeup(self, now: float) -> float | None:
        return self.core.next_wakeup(now)

    def forget(self, job_id: str) -> None:
        """It stays: so it does behind a snapshot."""

    def _kill(self) -> None:
        plain = self._snapshot if self._changed is None else self._changed(self._snapshot)
        core = Scheduler.restore(plain)
        for turn in self._log:
            redo(core, *turn)
        check_everything(core)
        assert essential(core) == essential(self.core)
        self.core = core
        self.kills += 1


def of_other_policies(plain: dict[str, Any]) -> dict[str, Any]:
    """What stands for a version that decides otherwise: on every draw it places and preempts by other rules."""
    settings = plain["settings"]
    placement = "random" if settings["placement"] != "random" else "best-fit"
    return {**plain, "settings": {**settings, "placement": placement, "preempt": not settings["preempt"]}}


def play(kind: str, seed: int, jobs: int, changed: Callable[[dict[str, Any]], dict[str, Any]] | None) -> int:
    killed = Killed(settings_of(kind), seed, changed)
    simulation = Simulation(world_of(kind, seed, jobs), killed)
    simulation.run()
    assert history_of(simulation).finished.all()
    assert len(killed.starts) == len(set(killed.starts))
    return killed.kills


@pytest.mark.parametrize("kind", few_then_many(FEW, OTHERS))
def test_the_next_scheduler_of_the_same_version_stands_where_the_killed_one_stood(kind: str) -> None:
    assert play(kind, 1, 40, None) > 3


@pytest.mark.parametrize(
    "kind",
    few_then_many(["default", "tiresias"], [kind for kind in KINDS if kind not in ("default", "tiresias", "gandiva")]),
)
def test_one_that_would_decide_otherwise_goes_on_where_the_killed_one_stood(kind: str) -> None:
    assert play(kind, 1, 40, of_other_policies) > 3


def killed_while_it_runs(world: World, settings: Settings) -> Killed:
    """A scheduler that was killed again and again while a world went by, in which all jobs ended and none ran twice."""
    killed = Killed(settings, 1, None)
    simulation = Simulation(world, killed)
    simulation.run()
    assert history_of(simulation).finished.all()
    assert len(killed.starts) == len(set(killed.starts))
    assert killed.kills > 20
    return killed


@pytest.mark.long
def test_moves_that_are_under_way_go_on_where_a_server_was_killed() -> None:
    draws = random.Random(3)
    sizes = [draws.choice(((1, 14_400.0), (2, 7_200.0), (3, 600.0), (3, 900.0), (4, 600.0))) for _ in range(60)]
    role = [Role.rigid(TaskRequest(0, 0, cards), 1) for cards, _ in sizes]
    jobs = [TraceJob(Job(f"j{n}", (role[n],)), 120.0 * n, lasting) for n, (_, lasting) in enumerate(sizes)]
    costs = Costs(start_s=20.0, grace_s=30.0)
    world = World(uniform_cluster("8x4:V100"), Workload(tuple(jobs), "drawn"), costs=costs, consolidates=True)
    assert killed_while_it_runs(world, Settings()).moves > 5


@pytest.mark.long
def test_pairs_on_the_same_cards_go_on_where_a_server_was_killed() -> None:
    draws = random.Random(5)
    kinds = [(f"k{number}", 1) for number in range(4)]
    alone = {("v100", name): ((1, 10.0), (4, 40.0)) for name, _ in kinds}
    pairs = {("v100", one, other): draws.choice((2.0, 7.0, 9.0)) for one in kinds for other in kinds}
    sizes = [draws.choice((1, 1, 1, 1, 4)) for _ in range(48)]
    jobs = tuple(
        TraceJob(
            Job(f"j{n}", (Role.rigid(TaskRequest(0, 0, cards), 1),), name=draws.choice(kinds)[0]),
            100.0 * n,
            draws.choice((300.0, 900.0, 3_000.0)),
        )
        for n, cards in enumerate(sizes)
    )
    costs = Costs(start_s=20.0, grace_s=30.0)
    speeds = SpeedTable(alone, pairs)
    world = World(uniform_cluster("2x4:V100"), Workload(jobs, "drawn"), costs=costs, packs=True, speeds=speeds)
    assert killed_while_it_runs(world, Settings(preempt=True)).pairs > 10


@pytest.mark.parametrize("preempts", [False, True])
def test_a_reservation_that_was_agreed_upon_or_refused_is_not_judged_again(preempts: bool) -> None:
    """The ordering keeps room for nobody where it preempts, as it plans all work anew."""
    core = Scheduler(Settings(ordering="tiresias", preempt=preempts))
    core.handle(QueueChanged(0.0, queue("vision", guarantee=4)))
    core.handle(NodeJoined(0.0, machine("n", 4)))
    core.decide(0.0)
    core.changed_claims()
    plain = stored(core.snapshot())
    follower = Scheduler.restore({**plain, "settings": {**plain["settings"], "preempt": not preempts}})
    turn = [
        JobSubmitted(1.0, single("before")),
        ReservationMade(1.0, AdvanceReservation("demo", "vision", 2, 1_000.0, 2_000.0)),
        JobSubmitted(1.0, single("behind")),
    ]
    for event in turn:
        with suppress(ConflictError):
            core.handle(event)
    redo(follower, turn, 1.0, core.decide(1.0), core.changed_claims())
    assert follower.jobs.keys() == core.jobs.keys() == {"before", "behind"}
    assert len(follower.reservations()) == len(core.reservations()) == (not preempts)
    with nullcontext() if preempts else pytest.raises(ConflictError):
        follower.handle(ReservationMade(2.0, AdvanceReservation("later", "vision", 2, 3_000.0, 4_000.0)))


def test_a_migration_goes_where_it_went_then_though_the_policies_changed_in_the_same_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = Scheduler()
    core.handle(NodeJoined(0.0, machine("n", 8, remaps=True, swap_mib=500_000)))
    core.handle(JobSubmitted(0.0, single("moves")))
    for decision in core.decide(0.0):
        core.handle(Confirmed(0.0, decision.id))
    core.decide(0.0)
    core.changed_claims()
    follower = Scheduler.restore(stored(core.snapshot()))
    turn: list[Event] = [PolicyChanged(1.0, "fifo", "default", False, True), MigrateRequested(1.0, "moves", ())]
    for event in turn:
        core.handle(event)
    decided = core.decide(1.0)
    assert isinstance(decided[0], Migrate)
    last = next(each for each in core.node_views()[0].node.devices if each.index == 7)
    assert decided[0].placement.grants[0].device != last.uuid

    def find_last(placer: Placer, holding: Holding) -> Holding:
        """As another version may search."""
        cluster = placer.cluster
        return cluster.holding(holding.node, holding.shape, [cluster.device_index[last.uuid]])

    monkeypatch.setattr(device_moves, "find_elsewhere", find_last)
    redo(follower, turn, 1.0, decided, core.changed_claims())
    assert essential(follower) == essential(core)


def test_a_job_ended_for_another_node_is_said_to_go_where_it_went_by_a_version_that_places_otherwise() -> None:
    core = Scheduler()
    for name, cards in (("a", 1), ("b", 4), ("c", 8)):
        core.handle(NodeJoined(0.0, machine(name, cards)))
    for job in (single("moves"), single("packed", 3)):
        core.handle(JobSubmitted(0.0, job))
    for decision in core.decide(0.0):
        core.handle(Confirmed(0.0, decision.id))
    core.decide(0.0)
    core.changed_claims()
    follower = Scheduler.restore(stored(core.snapshot()))
    follower.handle(PolicyChanged(0.0, "default", "spread", False, True))
    turn: list[Event] = [MigrateRequested(1.0, "moves", (), True)]
    for event in turn:
        core.handle(event)
    decided = core.decide(1.0)
    redo(follower, turn, 1.0, decided, core.changed_claims())
    for each in (core, follower):
        migration = each.jobs["moves"].migration
        assert migration is not None
        assert (migration.source, migration.target) == ("a/0", "b/3")
    assert essential(follower) == essential(core)


def test_claims_that_have_not_changed_are_not_written_to_the_log_again() -> None:
    core = Scheduler()
    core.handle(NodeJoined(0.0, machine("n", 8)))
    for number in range(8):
        core.handle(JobSubmitted(0.0, single(f"low{number}", priority=Priority.LOW)))
    for decision in core.decide(0.0):
        core.handle(Confirmed(0.0, decision.id))
    core.handle(JobSubmitted(1.0, single("wide", 8, priority=Priority.HIGH)))
    follower = Scheduler.restore(stored(core.snapshot()))
    written = []
    for now in (1.0, 2.0, 3.0):
        turn = [SuspendRequested(now, "unknown", False)] if now > 1.0 else []
        for event in turn:
            with suppress(NotFoundError):
                core.handle(event)
        decided, claims = core.decide(now), core.changed_claims()
        written.append([each for each in claims or () if isinstance(each, list)])
        redo(follower, turn, now, decided, claims)
        assert essential(follower) == essential(core)
    assert [len(each) for each in written] == [1, 0, 0]
    assert core.snapshot()["claims"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("seed", "jobs"), few_then_many((), [(2, 60)], [(2, 100), (3, 100), (4, 100)]))
def test_long_logs_are_redone_from_anywhere(kind: str, seed: int, jobs: int) -> None:
    changes = (None, of_other_policies) if kind != "gandiva" else (None,)
    assert sum(play(kind, seed, jobs, changed) for changed in changes) > 10
