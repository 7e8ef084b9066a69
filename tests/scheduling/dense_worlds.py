"""Random worlds of few cards, in which all that the scheduler knows happens close together.

Two guaranteed queues and one of guests, on at most three nodes. Every world draws which rules its pool has; every step
is one request, one trouble of a machine, one change of the configuration, or time that passes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from twinned import TwinnedWorld
from worlds import asks, elastic, gang, machine, queue, single

from ledgers import check_everything
from millpond.model import events
from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.node_power import NodePowerState
from millpond.model.hardware.nodes import Cordon, Node, Pool
from millpond.model.reasons import Cause
from millpond.model.resources import Amount
from millpond.model.states import JobState, Outcome, TaskState
from millpond.model.tenancy.cells import CellCount
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.tenancy.tenants import Limit, Queue
from millpond.model.windows import Window
from millpond.model.workloads import Checkpoint, CheckpointMode, GangRule, Job, Kind, Priority
from millpond.scheduling.records import JobRecord
from millpond.scheduling.settings import Settings

TEAMS = ("vision", "speech")
HALF_HOURS = tuple(Window(minute, minute + 30) for minute in range(0, 1440, 60))
QUOTAS = (Cause.QUEUE_LIMIT, Cause.USER_LIMIT, Cause.GUARANTEE_OF_OTHERS, Cause.LENDING_OVER)
GONE = (NodePowerState.OFF, NodePowerState.BOOTING, NodePowerState.FAILED)


class DenseWorld:
    """One world and its random course."""

    def __init__(self, seed: int, share_of_twins: float) -> None:
        draws = self.draws = random.Random(seed)
        self.count = 0
        self.cards = draws.choice((2, 4))
        self.nodes = [self._node(number) for number in range(draws.choice((1, 2, 2, 3)))]
        self.half = max(1, len(self.nodes) * self.cards // 2)
        self.lost: list[Node] = []
        self.promises: list[str] = []
        packs = draws.random() < 0.2
        self.pool = Pool(
            suspends=not packs and draws.random() < 0.6,
            packs=packs,
            turn_s=draws.choice((0.0, 60.0)),
            lending=draws.choice(((), (), HALF_HOURS)),
            consolidates=draws.random() < 0.3,
            balances=draws.random() < 0.3,
            measured_growth=draws.random() < 0.3,
            memory_factor_milli=draws.choice((1_000, 1_500)),
        )
        cells = (CellCount("switch", 1),) if draws.random() < 0.3 and self.half > 1 else ()
        own = {team: draws.choice(("", "", "fifo", "edf")) for team in TEAMS}
        queues = [
            queue(team, guarantee=self.half, cells=cells, borrows=draws.random() < 0.85, ordering=own[team])
            for team in TEAMS
        ]
        queues = [self._queue(each) for each in queues]
        ordering = draws.choice(("default", "default", "fair", "fifo", "edf"))
        settings = Settings(ordering=ordering, preempt=draws.random() < 0.4)
        self.world = TwinnedWorld(
            *self.nodes, queues=(*queues, queue("guest", limit=draws.choice((None, 2)))), pools=(self.pool,),
            settings=settings,
        )  # fmt: skip
        self.world.share = share_of_twins
        self._steps: list[Callable[[], None]] = [
            *[self._submit] * 30, *[self._wait] * 12, *[self._reserve] * 5, *[self._ask_of_running] * 24,
            *[self._ask_of_any] * 10, *[self._trouble] * 10, *[self._configure] * 9,
        ]  # fmt: skip

    def _node(self, number: int) -> Node:
        draws, rack = self.draws, f"r{number % 2}"
        swap_mib = draws.choice((0, 500_000))
        return machine(f"n{number}", self.cards, swap_mib=swap_mib, remaps=draws.random() < 0.5, rack_name=rack)

    def _queue(self, team: Queue) -> Queue:
        """A team's queue as it is to be."""
        return team

    # ---- one step -----------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Something happens, and the scheduler comes to rest; what contradicts the state is refused."""
        with suppress(ConflictError, InvalidInputError, NotFoundError):
            self.draws.choice(self._steps)()
        self.world.settle()

    def check(self) -> None:
        """What holds in any world."""
        core = self.world.core
        check_everything(core)
        gone = {view.node.name for view in core.node_views() if view.power is not None and view.power.state in GONE}
        for record in self._living():
            held = {task.placement.node for task in record.holding_tasks() if task.placement is not None}
            assert not held & gone, f"{record.id} is on a node that is switched off"

    def ask_why(self) -> None:
        """A restart says the same of all jobs, and no start is foreseen that is past, or that a quota keeps off."""
        world = self.world
        twin = world.core.fork()
        leaving = [record.job for record in self._living() if any(t.state is TaskState.STOPPING for t in record.tasks)]
        counted = {each for job in leaving if not job.is_background for each in (job.queue, job.user)}
        for record in self._living():
            reason = world.why(record.id)
            assert twin.cause(record.id, world.now) == world.core.cause(record.id, world.now)
            if record.state is JobState.QUEUED and reason.start is not None and not reason.start.unknown:
                assert reason.start.earliest_at >= world.now
                if reason.cause in QUOTAS and counted.isdisjoint((record.queue, record.job.user)):
                    assert (reason.start.likely_at or 0.0) > world.now, f"{record.id}: {reason}"

    # ---- what users request -------------------------------------------------------------------------------------

    def _submit(self) -> None:
        draws = self.draws
        lasting = draws.choice((None, 100.0, 600.0, 3_000.0))
        self.world.submit(self._job(), lasting=lasting, known=draws.random() < 0.5)

    def _job(self) -> Job:
        draws, who = self.draws, self.draws.choice(("guest", *TEAMS))
        self.count += 1
        is_preemptible = who == "guest" or draws.random() < 0.8
        request, tasks = asks(draws.choice((0.5, 1, 1, 2))), draws.choice((0, 1, 1, 2))
        job = gang(f"j{self.count}", max(tasks, 1), request)
        if not tasks:
            least = draws.choice((1, 1, 2))
            job = elastic(job.id, (least, least + draws.choice((0, 1)), least + draws.choice((1, 2))), request)
        is_background = is_preemptible and draws.random() < 0.1
        priority = draws.choice((Priority.LOW, Priority.NORMAL, Priority.HIGH))
        mode = draws.choice((CheckpointMode.NONE, CheckpointMode.SIGNAL))
        return replace(
            job,
            queue=who,
            user=draws.choice(("ann", "bob", "")),
            name=draws.choice(("", "net", "bert")),
            kind=draws.choice((Kind.TRAIN, Kind.TRAIN, Kind.TRAIN, Kind.SERVICE)),
            priority=Priority.BACKGROUND if is_background else priority,
            preemptible=is_preemptible,
            rest_preemptible=not is_preemptible and not tasks and draws.random() < 0.8,
            checkpoint=Checkpoint(mode, grace_s=draws.choice((0.0, 30.0, 300.0))),
            minimum_run_s=0.0 if is_background else draws.choice((0.0, 0.0, 100.0)),
            windows=draws.choice(((), (), (), (), (Window(0, 20),), (Window(10, 40),))),
            flexible_s=draws.choice((0.0, 0.0, 0.0, 0.0, 900.0)),
            deadline_s=draws.choice((None, None, 1_500.0)),
            time_limit_s=draws.choice((None, None, 600.0)),
            gang_rule=draws.choice((GangRule.ALL, GangRule.ALL, GangRule.RESTART_TASK)),
            retries=draws.choice((0, 0, 2)),
            keep_s=draws.choice((0.0, 0.0, 300.0)),
        )

    def _wait(self) -> None:
        self.world.go_to(self.world.now + self.draws.choice((1.0, 50.0, 400.0, 1_000.0)))

    def _reserve(self) -> None:
        draws, world = self.draws, self.world
        if self.promises and draws.random() < 0.25:
            world.tell(events.ReservationCancelled(world.now, draws.choice(self.promises)))
            return
        begin, length_s = world.now + draws.choice((0.0, 400.0, 3_000.0)), draws.choice((500.0, 2_000.0))
        wanted = AdvanceReservation(
            f"r{len(self.promises)}", draws.choice(TEAMS), draws.randint(1, self.half), begin, begin + length_s,
            whole_nodes=draws.random() < 0.2, beyond_guarantee=draws.random() < 0.2,
        )  # fmt: skip
        world.tell(events.ReservationMade(world.now, wanted))
        self.promises.append(wanted.name)
        for _ in range(draws.choice((0, 1, wanted.cards))):
            self.count += 1
            world.submit(single(f"j{self.count}", queue=wanted.queue, reservation=wanted.name), lasting=600.0)

    def _ask_of_running(self) -> None:
        draws, world = self.draws, self.world
        running = [record for record in self._living() if record.state is JobState.RUNNING]
        if not running:
            return
        record = draws.choice(running)
        progress = events.ProgressMeasured(
            world.now, record.id, record.attempt, draws.choice((1.0, 3.0)), record.gpu_milli
        )
        outcome = draws.choice((Outcome.SUCCESS, Outcome.USER_ERROR, Outcome.OUT_OF_MEMORY, Outcome.DEVICE_LOST))
        draws.choice((
            lambda: world.tell(events.SuspendRequested(world.now, record.id, draws.random() < 0.5)),
            lambda: world.tell(events.MigrateRequested(world.now, record.id, (), draws.random() < 0.5)),
            lambda: world.tell(events.RequeueRequested(world.now, record.id)),
            lambda: world.tell(progress),
            lambda: world.end(record.id, outcome, draws.choice((-1, record.tasks[-1].number))),
            lambda: draws.choice((world.lingering, world.clinging, world.slow)).add(record.id),
        ))()  # fmt: skip

    def _ask_of_any(self) -> None:
        draws, world = self.draws, self.world
        if world.stopped and draws.random() < 0.3:
            world.leave(draws.choice(world.stopped))
            return
        living = self._living()
        if not living:
            return
        job = draws.choice(living).job
        draws.choice((
            lambda: world.tell(events.ResumeRequested(world.now, job.id)),
            lambda: world.tell(events.ResumeRequested(world.now, job.id)),
            lambda: world.tell(events.StopRequested(world.now, job.id)),
            lambda: world.tell(events.PriorityChanged(world.now, job.id, draws.choice((Priority.LOW, Priority.HIGH)))),
            lambda: world.tell(events.DesiredCountChanged(world.now, job.id, job.roles[0].name, draws.randint(0, 3))),
            lambda: world.tell(events.TimeLimitChanged(world.now, job.id, draws.choice((100.0, 2_000.0)))),
        ))()  # fmt: skip

    # ---- machines and configuration -----------------------------------------------------------------------------

    def _trouble(self) -> None:
        draws, world, node = self.draws, self.world, self.draws.choice(self.nodes)
        now, card = world.now, draws.choice(node.devices).uuid
        ahead_s = draws.choice((0.0, 300.0, 1_000.0))
        span = Cordon(now + ahead_s, now + ahead_s + 300.0, "works", drain=True, planned=ahead_s > 0)
        if node in self.lost:
            self.lost.remove(node)
            world.tell(events.NodeJoined(now, node))
            return
        draws.choice((
            lambda: world.tell(events.NodeClosed(now, node.name, span)),
            lambda: world.tell(events.NodeOpened(now, node.name, draws.random() < 0.5)),
            lambda: self._lose(node),
            lambda: world.tell(events.DeviceHealthChanged(now, node.name, card, draws.choice(list(DeviceHealth)), "")),
            lambda: world.tell(events.CardClosed(now, node.name, card, Cordon(now, None, "works"))),
            lambda: world.tell(events.CardOpened(now, node.name, card)),
            lambda: world.tell(events.NodePowerChanged(now, node.name, draws.choice(list(NodePowerState)))),
            lambda: world.tell(events.LoadSampled(now, node.name, draws.choice((100, 950)))),
        ))()  # fmt: skip

    def _lose(self, node: Node) -> None:
        if len(self.nodes) - len(self.lost) > 1:
            self.lost.append(node)
            self.world.tell(events.NodeLost(self.world.now, node.name))

    def _configure(self) -> None:
        draws, world, now = self.draws, self.world, self.world.now
        ordering = draws.choice(("default", "default", "fair", "fifo", "edf", "tiresias", "srtf"))
        team = next(each for each in world.core.queues() if each.name == draws.choice(TEAMS) or each.name == TEAMS[1])
        guarantee = team.guarantee if team.cells else Amount(1_000 * draws.randint(0, self.half))
        limit = Limit(draws.choice(("ann", "bob")), "", draws.choice((None, 1, 2)), draws.choice((None, 1_000, 4_000)))
        lends = draws.choice(((), HALF_HOURS))
        draws.choice((
            lambda: world.tell(events.PolicyChanged(now, ordering, "default", draws.random() < 0.4, reserve=True)),
            lambda: world.tell(events.QueueChanged(now, replace(team, guarantee=guarantee))),
            lambda: world.tell(events.LimitChanged(now, limit)),
            lambda: world.tell(events.PoolChanged(now, replace(self.pool, lending=lends))),
            lambda: world.tell(events.SchedulingPaused(now, Cause.DISK_FULL, "full")),
            lambda: world.tell(events.SchedulingResumed(now, Cause.DISK_FULL)),
            lambda: world.tell(events.SchedulingResumed(now, Cause.DISK_FULL)),
            lambda: self._jump(draws.choice((10.0, 400.0))),
        ))()  # fmt: skip

    def _jump(self, seconds: float) -> None:
        """The clock was set forward, unless anything has begun in those seconds: then they have passed."""
        running = self.world.core._state.running.values()
        if all(max(record.started_at or 0.0, record.suspended_at) <= self.world.now - seconds for record in running):
            self.world.tell(events.ClockJumped(self.world.now, seconds))

    def _living(self) -> list[JobRecord]:
        return [record for record in self.world.core.jobs.values() if not record.state.ended]
