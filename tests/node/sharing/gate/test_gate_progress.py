"""Whatever becomes of a slice that shares a card, its neighbours go on."""

from __future__ import annotations

import mmap
import os
import signal
from functools import partial
from pathlib import Path

import pytest
from gated import GatedCard, Task, keep_busy, until

from millpond.node.sharing.gate import layout
from millpond.node.sharing.gate.region import GateRegion


def test_a_stopped_holder_of_the_turn_does_not_hold_up_the_others(card: GatedCard) -> None:
    [stopped, other] = card.programs({}, {})
    keep_busy(stopped)
    keep_busy(other)
    until(lambda: other.region.usage().busy_ns > 0 and stopped.region.usage().busy_ns > 0)
    assert stopped.program is not None
    assert other.program is not None
    os.kill(stopped.program.pid, signal.SIGSTOP)
    launches = card.driver.launches_of(other.program.pid)
    until(lambda: card.driver.launches_of(other.program.pid) > launches + 100)  # type: ignore[union-attr]


def has_launched(task: Task, launches: int) -> bool:
    return task.region.usage().launches > launches


@pytest.mark.parametrize("damage", ["garbage", "cut short"])
def test_a_damaged_card_file_costs_fairness_and_never_progress(card: GatedCard, damage: str) -> None:
    [one, other] = card.programs({}, {})
    keep_busy(one)
    keep_busy(other)
    until(lambda: one.region.usage().busy_ns > 0 and other.region.usage().busy_ns > 0)
    with (card.card_folder / "card").open("r+b") as file:
        if damage == "garbage":
            file.write(b"\xff" * 4096)
        else:
            file.truncate(0)
    for task in (one, other):
        launches = task.region.usage().launches
        until(partial(has_launched, task, launches + 20))


def test_slices_whose_card_file_was_cut_short_have_their_shares_again_once_agents_have_seen_to_it(
    timed_card: GatedCard,
) -> None:
    tasks = timed_card.programs({"guarantee_milli": 100}, {"guarantee_milli": 900})
    for task in tasks:
        keep_busy(task)
    timed_card.until(lambda: all(task.region.usage().busy_ns for task in tasks))
    for _ in range(2):
        os.truncate(timed_card.card_folder / "card", 0)
        timed_card.pass_time(0.05)
        assert [task.region.verify_card() for task in tasks] == [False, False]
        timed_card.pass_time(0.5)
        assert timed_card.busy_shares(tasks, 1) == pytest.approx([10, 90], abs=3)
        assert all(task.region.verify_card() for task in tasks)


def test_a_slice_without_a_share_that_is_said_to_want_nothing_of_the_card_goes_on(timed_card: GatedCard) -> None:
    [little, other] = timed_card.programs({"guarantee_milli": 0}, {"guarantee_milli": 1000})
    keep_busy(other)
    timed_card.until(lambda: other.region.usage().busy_ns > 0)
    assert little.program is not None
    for launches in range(10):
        _say_that_nothing_is_wanted(timed_card, guarantee_milli=0)
        little.program.send("launch", 1000, 1)
        timed_card.until(partial(has_launched, little, launches))
        assert little.program.answer() == [0]


def test_a_holder_of_the_turn_that_was_killed_is_not_waited_for_until_its_work_would_have_ended(
    timed_card: GatedCard,
) -> None:
    timed_card.slice()
    other = timed_card.slice()
    other.start()
    keep_busy(other)
    timed_card.until(lambda: other.region.usage().launches > 10)
    _leave_with_the_turn(timed_card, announced_ns=1_900_000_000)
    launches = other.region.usage().launches
    timed_card.pass_time(0.5)
    assert other.region.usage().launches > launches + 10


def _leave_with_the_turn(card: GatedCard, *, announced_ns: int) -> None:
    """What a process of the other slice leaves in the file, killed in its turn with so much work on the card."""
    with (card.card_folder / "card").open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as file:
        shared = layout.Card.from_buffer(file)
        now = max(member.active_ns for member in shared.member)
        [(number, member)] = [each for each in enumerate(shared.member) if each[1].present and not each[1].active_ns]
        member.active_ns, member.active_until_ns = now, now + announced_ns
        shared.turn[member.present - 1].holder = number + 1
        del shared, member


def _say_that_nothing_is_wanted(card: GatedCard, *, guarantee_milli: int) -> None:
    """Write so for all slices of that guarantee, which any of them may."""
    with (card.card_folder / "card").open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as file:
        members = layout.Card.from_buffer(file).member
        now = max(member.active_ns for member in members)
        for member in members:
            if member.present and member.guarantee_milli == guarantee_milli:
                member.demand_milli, member.demand_until_ns = 0, now + 1_000_000_000
        del members, member


def test_a_capture_gets_no_events_of_the_gate(card: GatedCard) -> None:
    [task] = card.programs({})
    assert task.program is not None
    task.program("launch", 1_000_000, 20)
    assert task.program("graph", 1000, 7) == [0, 0, 7]
    assert task.program("replay", 0, 5) == [0]
    assert task.program("sync") == [0]


def test_a_slice_that_was_moved_takes_turns_with_its_new_neighbours(card: GatedCard) -> None:
    [task] = card.programs({})
    keep_busy(task)
    until(lambda: _is_active(card.card_folder))
    elsewhere = card.folder / "card-1"
    task.region.set(paused=True)
    task.region.move(elsewhere, "GPU-of-card-1")
    task.region.set(paused=False)
    until(lambda: _is_active(elsewhere))
    assert not _is_active(card.card_folder)  # its place there is free
    found = GateRegion.open(task.region.folder, card.folder)
    assert found is not None
    assert found.settings.uuid == "GPU-of-card-1"
    found.detach()


def _is_active(card_folder: Path) -> bool:
    """Whether some slice of the card has said that it has work there."""
    file = layout.Card.from_buffer_copy((card_folder / "card").read_bytes())
    return any(member.present and member.active_until_ns for member in file.member)
