"""Work moves off cards that are busy for long, in pools that balance, where that is worth it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from worlds import World, asks, gang, machine, restarted, single

from ledgers import check_everything
from millpond.model.decisions import Decision, Migrate, Stop
from millpond.model.events import CardLoad, LoadSampled, PoolChanged
from millpond.model.hardware.nodes import Pool
from millpond.model.reasons import Cause
from millpond.model.workloads import Checkpoint, CheckpointMode
from millpond.scheduling.migration.hot_spots import HOT_MILLI, LEAST_GAP_MILLI, MOST_A_DAY, PAUSE_S
from millpond.scheduling.migration.recent_moves import COOL_DOWN_S, LOOK_EVERY_S
from millpond.server.monitoring.load_watch import LoadMeter

SAVES: dict[str, Any] = {"checkpoint": Checkpoint(CheckpointMode.SIGNAL)}
BALANCES = Pool(balances=True)


def skewed(*cards: int, remaps: bool = False, balances: bool = True, share: float = 0.2, **fields: Any) -> World:
    """Nodes of so many cards with all work, four jobs, on the first card."""
    here = World(*(machine(f"n{number}", count, remaps=remaps, swap_mib=400_000) for number, count in enumerate(cards)))
    here.submit(*(single(f"j{number}", share, **{**SAVES, **fields}) for number in range(4)))
    assert set(cards_of(here).values()) == {"n0-0"}
    if balances:
        here.tell(PoolChanged(here.now, BALANCES))
    return here


def cards_of(here: World) -> dict[str, str]:
    found = {}
    for job, record in here.core.jobs.items():
        (place,) = (task.placement for task in record.tasks)
        if place is not None:
            found[job] = place.grants[0].device
    return found


def measure(here: World, loads: Mapping[str, int]) -> None:
    """What all cards are used to, each node in an event."""
    for node, held in here.core.held_cards().items():
        cards = tuple(CardLoad(card, loads.get(card, 0), milli) for card, milli in held.items())
        here.tell(LoadSampled(here.now, node, 0, cards))
    here.go_to(here.now + LOOK_EVERY_S)


def moves(here: World) -> list[Decision]:
    return [each for each in here.decisions if each.cause is Cause.BALANCED and isinstance(each, (Migrate, Stop))]


def test_one_job_moves_live_to_the_least_used_card_of_its_node() -> None:
    here = skewed(3, remaps=True, checkpoint=Checkpoint())
    measure(here, {"n0-0": 900, "n0-1": 200})
    assert sorted(cards_of(here).values()) == ["n0-0", "n0-0", "n0-0", "n0-2"]
    (move,) = moves(here)
    assert isinstance(move, Migrate)
    assert here.why(move.job).summary.endswith("live-migrated from n0/0 (load 90 %) to n0/2 (load 0 %)")
    check_everything(here.core)


def test_one_that_saves_itself_moves_to_another_node_by_an_end_and_a_start() -> None:
    here = skewed(1, 2)
    measure(here, {"n0-0": 900, "n1-0": 300})
    (move,) = moves(here)
    assert isinstance(move, Stop)
    assert cards_of(here)[move.job] == "n1-1"
    record = here.core.jobs[move.job]
    assert (record.preemptions, record.failures) == (0, 0)
    assert "restart-migrated from n0/0 (load 90 %) to n1/1 (load 0 %)" in here.why(move.job).summary
    check_everything(here.core)


@pytest.mark.parametrize(
    ("balances", "fields"),
    [(False, {}), (True, {"checkpoint": Checkpoint()}), (True, {"preemptible": False})],
    ids=["a pool that does not balance", "work that does not save itself", "work that stays"],
)
def test_nothing_moves_that_may_not(balances: bool, fields: dict[str, Any]) -> None:
    here = skewed(1, 2, balances=balances, **fields)
    measure(here, {"n0-0": 900})
    here.go_to(here.now + 500.0)
    assert not moves(here)


@pytest.mark.parametrize(
    "loads",
    [
        {"n0-0": HOT_MILLI - 1},
        {"n0-0": 900, "n1-0": 900 - LEAST_GAP_MILLI - 200, "n1-1": 900 - LEAST_GAP_MILLI - 200},
    ],
    ids=["no hot spot", "no card that is used so much less"],
)
def test_nothing_moves_where_that_levels_too_little(loads: Mapping[str, int]) -> None:
    here = skewed(1, 2)
    measure(here, loads)
    here.go_to(here.now + 500.0)
    assert not moves(here)


def test_a_card_that_was_not_measured_is_no_hot_spot_whatever_is_held_of_it() -> None:
    here = skewed(1, 2, share=0.25)
    here.go_to(here.now + 500.0)
    assert not moves(here)


def test_a_card_that_foreign_work_keeps_busy_wakes_nobody_each_minute() -> None:
    here = skewed(1, 2)
    for job in here.running():
        here.end(job)
    measure(here, {"n0-0": 900})
    assert here.core.next_wakeup(here.now) is None
    here.submit(single("again", 0.2, **SAVES))
    measure(here, dict.fromkeys(cards_of(here).values(), 900))
    assert here.core.next_wakeup(here.now) is not None


def test_work_alone_on_its_card_a_gang_and_work_of_whole_cards_stay() -> None:
    here = World(machine("n0", 4), machine("n1", 8))
    here.submit(single("alone", 0.3, **SAVES), single("whole", 1, **SAVES), gang("gang", 2, asks(0.8), **SAVES))
    here.tell(PoolChanged(here.now, BALANCES))
    measure(here, dict.fromkeys((card for card in here.core.held_cards()["n0"]), 950))
    here.go_to(here.now + 500.0)
    assert not moves(here)


def test_a_job_that_has_moved_rests() -> None:
    here = skewed(2, remaps=True)
    measure(here, {"n0-0": 900})
    here.go_to(here.now + LOOK_EVERY_S)
    (first,) = moves(here)
    target = cards_of(here)[first.job]
    for other in ("j0", "j1", "j2", "j3"):
        if other != first.job:
            here.end(other)
    here.submit(*(single(f"k{number}", 0.2) for number in range(2)))
    measure(here, {target: 900})
    here.go_to(here.now + COOL_DOWN_S - 3 * LOOK_EVERY_S)
    assert moves(here) == [first]


def test_off_a_card_only_so_many_jobs_move_in_a_day() -> None:
    here = skewed(2, remaps=True, share=0.05)
    here.submit(*(single(f"more{number}", 0.05, **SAVES) for number in range(12)))
    for _ in range(60):
        measure(here, {"n0-0": 1_000, "n0-1": 0})
    off_first = [move for move in moves(here) if isinstance(move, Migrate)]
    assert len(off_first) == MOST_A_DAY
    here.go_to(here.now + 86_400.0)
    measure(here, {"n0-0": 1_000, "n0-1": 0})
    assert len(moves(here)) > MOST_A_DAY


def test_a_skewed_pool_is_level_within_ten_minutes() -> None:
    """Half of the cards idle and half with four jobs that need a third of a card each: level is 67 % of every card."""
    here = World(machine("n0", 8, remaps=True, swap_mib=400_000))
    here.submit(*(single(f"j{number}", 0.25, **SAVES) for number in range(16)))
    here.tell(PoolChanged(here.now, BALANCES))
    assert len(set(cards_of(here).values())) == 4
    meter, begin = LoadMeter(), here.now

    def demand() -> dict[str, float]:
        found = dict.fromkeys(here.core.held_cards()["n0"], 0.0)
        for card in cards_of(here).values():
            found[card] += 333.0
        return found

    assert max(demand().values()) > 1_300.0
    while here.now < begin + 600.0:
        uses = {card: min(use, 1_000.0) for card, use in demand().items()}
        for event in meter.look(here.core.held_cards(), uses, {}, here.now):
            here.tell(event)
        here.go_to(here.now + 10.0)
    assert max(demand().values()) <= 1_000.0
    assert len(moves(here)) <= 8
    check_everything(here.core)


def test_moves_are_the_same_after_a_restart_and_when_a_log_is_followed() -> None:
    here = skewed(1, 4)
    measure(here, {"n0-0": 900})
    twins = [here.core.fork(), restarted(here.core)]
    assert [twin.snapshot() for twin in twins] == [here.core.snapshot()] * 2
    here.now += PAUSE_S + LOOK_EVERY_S
    for core in (here.core, *twins):
        for node, held in here.core.held_cards().items():
            cards = tuple(CardLoad(card, 900 if card == "n0-0" else 0, milli) for card, milli in held.items())
            core.handle(LoadSampled(here.now, node, 0, cards))
    decided = here.tick()
    assert decided
    assert [twin.decide(here.now) for twin in twins] == [decided, decided]


def test_what_is_true_and_was_not_measured_decides_nothing() -> None:
    ends = []
    for truth in (100, 900):
        here = skewed(1, 3)
        measure(here, {"n0-0": HOT_MILLI - 50})
        here.go_to(here.now + 300.0)
        ends.append([*map(repr, here.decisions)])
        measure(here, {"n0-0": truth})
        here.go_to(here.now + 300.0)
        assert bool(moves(here)) == (truth == 900)
    assert ends[0] == ends[1]
