"""Whatever becomes of a slice that shares a card, its neighbours go on."""

from __future__ import annotations

import ctypes
import os
import signal
from functools import partial
from pathlib import Path

import pytest
from gated import GatedCard, Task, keep_busy, last_launch_ns, shared_by, until, write_member, write_slot

from fake_driver.program import Program
from millpond.model.sharing import ShareClass
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


def test_a_process_that_is_killed_in_its_turn_holds_up_nobody_for_long(timed_card: GatedCard) -> None:
    tasks = timed_card.programs({}, {}, {})
    for each in tasks:
        keep_busy(each)
    timed_card.until(lambda: all(each.region.usage().launches > 10 for each in tasks))
    killed, *others = tasks
    timed_card.until(lambda: _turn(timed_card).holder == 1)  # the number in the card's file of the slice made first
    assert killed.program is not None
    timed_card.pass_time(0.001)
    timed_card.driver.kill(killed.program)
    before = timed_card.busy_ns(others)
    timed_card.pass_time(0.5)
    assert sum(timed_card.busy_ns(others)) - sum(before) > 400_000_000
    killed.start()
    keep_busy(killed)
    timed_card.pass_time(0.2)
    assert timed_card.busy_shares(tasks, 0.5) == pytest.approx([33, 33, 33], abs=5)


@pytest.mark.parametrize("was", ["waiting", "in its turn"])
def test_who_was_killed_a_while_ago_is_not_waited_for_by_several_others(timed_card: GatedCard, was: str) -> None:
    timed_card.slice()
    others = timed_card.programs({}, {})
    for task in others:
        keep_busy(task)
    timed_card.until(lambda: all(task.region.usage().launches > 10 for task in others))
    gone = _without_a_process(timed_card)
    if was == "waiting":
        write_member(timed_card, gone, virtual_ns=1, waiting_ns=_now(timed_card))  # it has had least
    else:
        write_member(timed_card, gone, active_ns=1, active_until_ns=1)
        _give_turn(timed_card, gone)
    launches = [task.region.usage().launches for task in others]
    timed_card.pass_time(0.5)
    for task, before in zip(others, launches, strict=True):
        assert task.region.usage().launches > before + 80


def test_one_that_keeps_the_turn_without_end_holds_others_up_for_a_while_only(timed_card: GatedCard) -> None:
    timed_card.slice()
    other = timed_card.slice()
    other.start()
    keep_busy(other)
    timed_card.until(lambda: other.region.usage().launches > 10)
    keeps, launches = _without_a_process(timed_card), other.region.usage().launches
    for _ in range(250):
        now = _now(timed_card)
        write_member(timed_card, keeps, active_ns=now, active_until_ns=now + 20_000_000)
        _give_turn(timed_card, keeps)
        timed_card.pass_time(0.01)
    assert other.region.usage().launches > launches + 100
    assert other.region.usage().turn_timeouts > 0


@pytest.mark.parametrize("away_ns", [2**50, -(2**50)], ids=["ahead", "behind"])
def test_a_virtual_time_that_no_slice_can_have_says_nothing_of_where_one_comes_back(
    timed_card: GatedCard, away_ns: int
) -> None:
    timed_card.slice()
    tasks = timed_card.programs({}, {})
    for task in tasks:
        assert task.program is not None
        task.program.send("launch", 1_000_000, 20)
    timed_card.until(lambda: all(task.region.usage().launches == 20 for task in tasks))
    stays, comes_back = tasks
    keep_busy(stays)
    timed_card.pass_time(0.1)
    now, virtual_ns = _now(timed_card), max(member.virtual_ns for member in shared_by(timed_card).member)
    write_member(
        timed_card,
        _without_a_process(timed_card),
        guarantee_milli=1000,
        virtual_ns=(virtual_ns + away_ns) % 2**64,
        active_ns=now + 2_000_000_000,
        active_until_ns=now + 1_900_000_000,
    )
    timed_card.pass_time(0.02)  # in which it is the only one beside whom the other is at work
    keep_busy(comes_back)
    timed_card.pass_time(0.2)
    assert timed_card.busy_shares(tasks, 0.5) == pytest.approx([50, 50], abs=5)


def test_a_virtual_time_that_no_slice_can_have_is_not_taken_over_where_nobody_else_is_at_work(
    timed_card: GatedCard,
) -> None:
    timed_card.slice()
    tasks = timed_card.programs({}, {})
    for task in tasks:
        assert task.program is not None
        task.program.send("launch", 1_000_000, 20)
    timed_card.until(lambda: all(task.region.usage().launches == 20 for task in tasks))
    timed_card.pass_time(0.1)
    gone, virtual_ns = _without_a_process(timed_card), max(each.virtual_ns for each in shared_by(timed_card).member)
    write_member(timed_card, gone, virtual_ns=virtual_ns + 2**50)
    keep_busy(tasks[0])
    timed_card.pass_time(0.2)
    times = [each.virtual_ns for index, each in enumerate(shared_by(timed_card).member) if index != gone]
    assert max(times) < virtual_ns + 10_000_000_000


def test_what_one_had_too_much_is_paid_back_for_half_a_second_at_most(timed_card: GatedCard) -> None:
    tasks = timed_card.programs({}, {})
    for task in tasks:
        keep_busy(task)
    timed_card.until(lambda: all(task.region.usage().launches > 10 for task in tasks))
    place = next(index for index, member in enumerate(shared_by(timed_card).member) if member.present)
    write_member(timed_card, place, virtual_ns=shared_by(timed_card).member[place].virtual_ns + 10_000_000_000)
    assert min(timed_card.busy_shares(tasks, 0.4)) < 10
    timed_card.pass_time(0.2)
    assert timed_card.busy_shares(tasks, 0.5) == pytest.approx([50, 50], abs=5)


def test_a_turn_is_not_longer_for_every_process_of_its_slice_that_launches_in_it(timed_card: GatedCard) -> None:
    [task, other] = timed_card.programs({}, {})
    with Program(task.env) as second:
        assert second("start") == [0]
        for each in (task, other):
            keep_busy(each)
        timed_card.until(lambda: all(each.region.usage().launches > 10 for each in (task, other)))
        first = 1  # the number in the card's file of the slice made first
        timed_card.until(lambda: _turn(timed_card).holder != first)
        timed_card.until(lambda: _turn(timed_card).holder == first)
        timed_card.pass_time(0.001)
        turn = _turn(timed_card)
        second.send("launch", 1000, 1)
        timed_card.until(second.has_answered)
        now = _turn(timed_card)
        assert (now.holder, now.until_ns) == (first, turn.until_ns)


def test_work_of_a_process_that_was_killed_holds_up_its_slice_and_others_for_a_moment(timed_card: GatedCard) -> None:
    [task, other] = timed_card.programs({}, {})
    keep_busy(task)
    keep_busy(other)
    timed_card.until(lambda: all(each.region.usage().launches > 10 for each in (task, other)))
    write_slot(task, 1, in_flight=3, outstanding_ns=1_900_000_000, due_ns=last_launch_ns(task) + 1_900_000_000)
    before = timed_card.busy_ns([task, other])
    timed_card.pass_time(0.8)
    after = timed_card.busy_ns([task, other])
    assert [now - then > 200_000_000 for now, then in zip(after, before, strict=True)] == [True, True]


def _leave_with_the_turn(card: GatedCard, *, announced_ns: int) -> None:
    """What a process of the other slice leaves in the file, killed in its turn with so much work on the card."""
    gone, now = _without_a_process(card), _now(card)
    write_member(card, gone, active_ns=now, active_until_ns=now + announced_ns)
    _give_turn(card, gone)


def _say_that_nothing_is_wanted(card: GatedCard, *, guarantee_milli: int) -> None:
    """Write so for all slices of that guarantee, which any of them may."""
    now = _now(card)
    for number, member in enumerate(shared_by(card).member):
        if member.present and member.guarantee_milli == guarantee_milli:
            write_member(card, number, demand_milli=0, demand_until_ns=now + 1_000_000_000)


def _turn(card: GatedCard) -> layout.Turn:
    """Whose turn it is among those of no class of their own, and until when."""
    return shared_by(card).turn[ShareClass.NORMAL.rank]


def _now(card: GatedCard) -> int:
    """When a slice last launched or waited."""
    return max(max(member.active_ns, member.waiting_ns) for member in shared_by(card).member)


def _without_a_process(card: GatedCard) -> int:
    """The place of the slice that has launched nothing."""
    [number] = [index for index, each in enumerate(shared_by(card).member) if each.present and not each.active_ns]
    return number


def _give_turn(card: GatedCard, member: int) -> None:
    place = shared_by(card).member[member].present - 1
    with (card.card_folder / "card").open("r+b") as file:
        at = layout.Card.turn.offset + place * ctypes.sizeof(layout.Turn) + layout.Turn.holder.offset
        os.pwrite(file.fileno(), (member + 1).to_bytes(4, "little"), at)


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
