"""Whatever arrives, work within a confirmed reservation starts at its time, and the guarantees of others hold.

Worlds of two guaranteed queues and one of guests: all sorts of preemptible work comes and goes, known lengths and
unknown, long graces and short; work that cannot be asked to leave comes within its queue's guarantee. Reservations are
asked for at random; what is refused binds nobody. Work that a queue hands in for its reservation runs when that begins,
on as many cards as were agreed. Where nodes fail, it does as far as the rest of the cluster has cards for it.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

import pytest
from worlds import World, asks, elastic, gang, machine, queue, single

from ledgers import check_everything
from millpond.model.errors import MillpondError
from millpond.model.events import (
    LimitChanged,
    NodeJoined,
    NodeLost,
    ReservationMade,
    ResumeRequested,
    SuspendRequested,
)
from millpond.model.hardware.nodes import Pool
from millpond.model.resources import CARD_MILLI
from millpond.model.states import JobState
from millpond.model.tenancy.cells import CellCount
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.tenancy.tenants import Limit
from millpond.model.windows import Window
from millpond.model.workloads import Checkpoint, CheckpointMode, Priority
from millpond.scheduling.nodes.cordon import MARGIN_S
from millpond.scheduling.settings import Settings
from seeds import few_then_many

CARDS = 4
TEAMS = ("vision", "speech")


@dataclass
class Promise:
    """A confirmed reservation, and the work that was handed in for it: one card each."""

    wanted: AdvanceReservation
    jobs: list[str]


class RandomReservations:
    """One world and its random course."""

    def __init__(self, seed: int) -> None:
        self.draws = random.Random(seed)
        self.nodes = self.draws.choice((2, 4, 6))
        ordering = self.draws.choice(("default", "default", "fair", "fifo", "edf"))
        half = self.nodes * CARDS // 2
        queues = (*(queue(name, guarantee=half) for name in TEAMS), queue("guest"))
        machines = [machine(f"n{number}", CARDS) for number in range(self.nodes)]
        self.world = World(*machines, queues=queues, settings=Settings(ordering=ordering))
        self.half = half
        self.promises: dict[str, Promise] = {}
        self.count = self.spare = 0

    def name(self) -> str:
        self.count += 1
        return f"j{self.count}"

    def arrive(self) -> None:
        """Work of somebody: guests all sorts, teams preemptible work and, within their guarantee, other."""
        draws, world = self.draws, self.world
        mode = draws.choice((CheckpointMode.NONE, CheckpointMode.SIGNAL))
        checkpoint = Checkpoint(mode, grace_s=draws.choice((0.0, 30.0, 300.0)))
        priority = draws.choice((Priority.LOW, Priority.NORMAL, Priority.HIGH))
        who = draws.choice(("guest", "guest", *TEAMS))
        fixed = who != "guest" and draws.random() < 0.2
        job = gang(
            self.name(), draws.choice((1, 1, 2)), asks(draws.choice((1, 1, 2, CARDS))), queue=who, priority=priority,
            preemptible=not fixed, checkpoint=checkpoint, time_limit_s=600.0 if fixed else None,
        )  # fmt: skip
        lasting = draws.choice((None, 100.0, 2_000.0, 20_000.0))
        world.submit(job, lasting=600.0 if fixed else lasting, known=not fixed and draws.random() < 0.5)

    def reserve(self) -> None:
        draws, world = self.draws, self.world
        begin = world.now + draws.choice((400.0, 1_000.0, 3_000.0))
        wanted = AdvanceReservation(
            f"r{len(self.promises)}", draws.choice(TEAMS), draws.randint(1, self.half), begin,
            begin + draws.choice((500.0, 2_000.0)),
        )  # fmt: skip
        try:
            world.tell(ReservationMade(world.now, wanted))
        except MillpondError:
            return
        jobs = [single(self.name(), queue=wanted.queue, reservation=wanted.name) for _ in range(wanted.cards)]
        self.promises[wanted.name] = Promise(wanted, [job.id for job in jobs])
        world.submit(*jobs)

    def fail(self) -> None:
        """A node is lost, at a quiet time, and another one joins in its place."""
        world = self.world
        if any(each.wanted.begin - 400.0 < world.now < each.wanted.until for each in self.promises.values()):
            return
        lost = self.draws.choice(sorted(view.node.name for view in world.core.node_views()))
        world.tell(NodeLost(world.now, lost))
        world.settle()
        self.spare += 1
        world.tell(NodeJoined(world.now, machine(f"spare{self.spare}", CARDS)))
        world.settle()

    def check(self) -> None:
        """What was promised holds now."""
        world = self.world
        check_everything(world.core)
        for promise in self.promises.values():
            if promise.wanted.covers(world.now):
                states = {job: world.state(job) for job in promise.jobs}
                assert all(state is JobState.RUNNING for state in states.values()), (world.now, promise.wanted, states)

    def ask_for_guarantees(self) -> None:
        """Each team asks for all that it is guaranteed, and has it when whoever is asked to leave has left.

        What is kept for it, and not used, is part of that, from when on nobody could leave in time any more. Cards that
        others have left for a reservation are missing in what these are guaranteed until it begins, soon. With ``fifo``
        whoever is first and finds no room keeps all others waiting, guaranteed or not.
        """
        world = self.world
        if world.core.settings.ordering == "fifo":
            return
        for team in TEAMS:
            world.submit(*(single(self.name(), queue=team, priority=Priority.LOW) for _ in range(self.half)))
        self.go_to(world.now + 700.0)
        for team in TEAMS:
            kept = [each for each in world.core.reservations() if each.reservation.queue == team]
            soon = world.now + MARGIN_S + Checkpoint().grace_s
            unused = sum(each.unused_milli for each in kept if each.reservation.overlaps(world.now, soon))
            emptied = CARD_MILLI * self._emptied_for_others(team, soon)
            used = world.core.queue_view(team).used_milli
            assert used + unused + emptied >= self.half * CARD_MILLI, (team, world.now)

    def _emptied_for_others(self, team: str, soon: float) -> int:
        """Cards of reservations of others that begin soon on which there is no work of teams: none, or of guests."""
        core = self.world.core
        of_teams = {
            grant.device
            for job in core.jobs.values()
            for task in job.tasks
            if task.placement is not None and task.holding is not None and job.queue in TEAMS
            for grant in task.placement.grants
        }
        kept = Counter[str]()
        for each in core.reservations():
            if each.reservation.queue != team and self.world.now < each.reservation.begin <= soon:
                kept.update(each.cards_on)
        nodes = {view.node.name: view.node for view in core.node_views()}
        return sum(
            min(cards, sum(device.uuid not in of_teams for device in nodes[name].devices))
            for name, cards in kept.items()
        )

    def go_to(self, instant: float) -> None:
        """Let time pass, with a look at each instant at which something promised begins."""
        begins = sorted(each.wanted.begin for each in self.promises.values())
        for at in [each for each in begins if self.world.now < each < instant] + [instant]:
            self.world.go_to(at)
            self.check()


class ReservationsBesideGangs(RandomReservations):
    """The same beside gangs of which a minimum stays for good, and which grow as far as there is room."""

    def arrive(self) -> None:
        if self.draws.random() < 0.7:
            super().arrive()
            return
        least = self.draws.choice((1, 2))
        bounds = least, least + 1, self.draws.choice((4, self.nodes * CARDS))
        of, grace_s = self.draws.choice(TEAMS), self.draws.choice((0.0, 300.0))
        fields = {"queue": of, "checkpoint": Checkpoint(CheckpointMode.SIGNAL, grace_s=grace_s)}
        job = elastic(self.name(), bounds, asks(1), preemptible=False, rest_preemptible=True, **fields)
        self.world.submit(job, lasting=self.draws.choice((None, 2_000.0)))


class ReservationsBesideBounds(ReservationsBesideGangs):
    """The same where queues have limits, may not borrow, or borrow in every other half hour alone."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        draws, half = random.Random(-seed), self.half
        bound = draws.choice(("limits", "none borrows", "hours"))
        limits = {name: half + draws.choice((0, 0, 1, half // 2)) for name in TEAMS} if bound == "limits" else {}
        teams = (
            queue(name, guarantee=half, limit=limits.get(name), borrows=bound != "none borrows" or name != TEAMS[0])
            for name in TEAMS
        )
        guest = queue("guest", limit=draws.choice((None, 2, half)) if bound == "limits" else None)
        hours = tuple(Window(minute, minute + 30) for minute in range(0, 24 * 60, 60))
        self.world = World(
            *(machine(f"n{number}", CARDS) for number in range(self.nodes)),
            queues=(*teams, guest),
            settings=self.world.core.settings,
            pools=(Pool(lending=hours, turn_s=0.0),) if bound == "hours" else (),
        )


class ReservationsBesideCells(ReservationsBesideGangs):
    """The same where one queue, or each of them, is owed some of its cards as whole nodes, or as pairs."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        draws, half = random.Random(-seed), self.half
        level = draws.choice(("node", "node", "switch"))
        most = half // CARDS if level == "node" else half // 2
        cells = {TEAMS[0]: draws.randint(1, most)}
        if draws.random() < 0.4:
            cells[TEAMS[1]] = draws.randint(1, most)
        teams = (
            queue(name, guarantee=half, cells=(CellCount(level, cells[name]),) if name in cells else ())
            for name in TEAMS
        )
        self.world = World(
            *(machine(f"n{number}", CARDS) for number in range(self.nodes)),
            queues=(*teams, queue("guest")),
            settings=self.world.core.settings,
        )


class ReservationsBesideGroups(ReservationsBesideGangs):
    """The same where groups have limits of cards, and work is suspended, by request or for others, and goes on."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        draws, half = random.Random(-seed), self.half
        self.world = World(
            *(machine(f"n{number}", CARDS, swap_mib=500_000, remaps=True) for number in range(self.nodes)),
            queues=(*(queue(name, guarantee=half) for name in TEAMS), queue("guest")),
            settings=self.world.core.settings,
            pools=(Pool(suspends=True, turn_s=draws.choice((0.0, 60.0))),),
        )
        for group in TEAMS:
            limit = CARD_MILLI * (half + draws.choice((0, 1, half // 2)))
            self.world.tell(LimitChanged(0.0, Limit("", group, gpu_milli=limit)))

    def arrive(self) -> None:
        super().arrive()
        found = [each.job for each in self.world.core.jobs.values()]
        jobs = sorted(each.id for each in found if not each.reservation)
        job, suspends = self.draws.choice(jobs or [""]), self.draws.random() < 0.5
        with suppress(MillpondError):
            event = SuspendRequested if suspends else ResumeRequested
            self.world.tell(event(self.world.now, job))


def course_of(
    seed: int, steps: int, *, fails: bool = False, kind: type[RandomReservations] = RandomReservations
) -> RandomReservations:
    course = kind(seed)
    draws, world = course.draws, course.world
    for _ in range(steps):
        step = draws.random()
        if step < 0.55:
            course.arrive()
        elif step < 0.65:
            course.reserve()
        elif fails and step < 0.7:
            course.fail()
        else:
            course.go_to(world.now + draws.choice((50.0, 400.0)))
        course.check()
    assert course.promises, "nothing was agreed upon"
    return course


@pytest.mark.parametrize("seed", few_then_many(range(1), range(1, 10)))
def test_work_within_a_confirmed_reservation_starts_at_its_time_whatever_arrives(seed: int) -> None:
    course_of(seed, 50).ask_for_guarantees()


@pytest.mark.parametrize("seed", few_then_many([200], range(201, 206)))
def test_it_does_beside_gangs_that_give_up_what_they_have_beyond_a_minimum(seed: int) -> None:
    course_of(seed, 50, kind=ReservationsBesideGangs)


@pytest.mark.parametrize("seed", few_then_many([100], range(101, 106)))
def test_a_node_that_fails_is_made_up_for_by_the_others(seed: int) -> None:
    course_of(seed, 50, fails=True)


@pytest.mark.parametrize("seed", few_then_many([3], [*range(3), *range(4, 14)], range(14, 300)))
def test_it_does_though_limits_and_hours_bound_its_queue(seed: int) -> None:
    course_of(seed, 120, kind=ReservationsBesideBounds)


@pytest.mark.parametrize("seed", few_then_many((), (*range(11), 30), (*range(11, 30), *range(31, 300))))
def test_it_does_though_groups_have_limits_and_suspended_work_wants_its_cards_back(seed: int) -> None:
    course_of(seed, 120, kind=ReservationsBesideGroups)


@pytest.mark.parametrize("seed", few_then_many((), range(12), range(12, 200)))
def test_it_does_though_cards_of_its_queue_or_of_others_are_owed_as_cells(seed: int) -> None:
    course_of(seed, 120, kind=ReservationsBesideCells)


@pytest.mark.parametrize(
    "seed", few_then_many((), range(1_080, 1_094), [*range(1_000, 1_080), *range(1_094, 1_120), *range(2_000, 2_200)])
)
def test_no_card_of_a_promise_is_missed_in_dense_worlds(seed: int) -> None:
    """Several reservations after one another and beside each other, and graces of minutes."""
    course_of(seed, 120).ask_for_guarantees()
