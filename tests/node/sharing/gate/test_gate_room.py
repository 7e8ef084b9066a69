"""What slices leave of the card goes to those who can use it: to programs whose launches keep their thread busy and the
card half idle, and to backfill beside online work."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import pytest
from gated import (
    FOR_EVER_MS,
    KERNEL_NS,
    GatedCard,
    Task,
    begin_at_once,
    last_launch_ns,
    shared_by,
    write_member,
)

from millpond.model.sharing import ShareClass

LAUNCH_NS = 80_000
PART = 0.95


@pytest.fixture
def card(timed_card: GatedCard) -> GatedCard:
    timed_card.driver.set("launch_ns", LAUNCH_NS)
    return timed_card


def used(card: GatedCard, tasks: Sequence[Task], kernels_ns: Sequence[int], seconds: float) -> list[float]:
    """Parts of the card's time that each had, when all launch without end."""
    for task, kernel_ns in zip(tasks, kernels_ns, strict=True):
        begin_at_once(task, "busy", kernel_ns, FOR_EVER_MS)
    card.until(lambda: all(task.region.usage().busy_ns for task in tasks))
    card.pass_time(0.2)
    before = card.busy_ns(tasks)
    card.pass_time(seconds)
    return [(now - then) / seconds / 1e9 for now, then in zip(card.busy_ns(tasks), before, strict=True)]


@pytest.mark.long
@pytest.mark.parametrize(("programs", "part"), [(1, 0.25), (2, 0.25), (3, 1 / 3), (4, 0.25), (8, 0.25)])
def test_launch_bound_programs_together_lose_nothing(card: GatedCard, programs: int, part: float) -> None:
    tasks = card.programs(*[{"cap_mib": 100, "guarantee_milli": 1000 // programs}] * programs)
    found = used(card, tasks, [round(LAUNCH_NS * part)] * programs, 0.3)
    assert sum(found) >= PART * min(1.0, programs * part)
    assert found == pytest.approx([min(part, 1 / programs)] * programs, abs=0.03)


@pytest.mark.long
def test_launch_bound_programs_that_are_alike_go_on_all_at_once(card: GatedCard) -> None:
    tasks = card.programs(*[{"guarantee_milli": 125}] * 8)
    used(card, tasks, [LAUNCH_NS // 3] * 8, 0.1)
    for _ in range(10):
        before = card.busy_ns(tasks)
        card.pass_time(0.02)
        found = [(now - then) / 20e6 for now, then in zip(card.busy_ns(tasks), before, strict=True)]
        assert found == pytest.approx([0.125] * 8, abs=0.075)  # of twenty, a slice of the driver's is one or two


@pytest.mark.long
@pytest.mark.parametrize("guarantees", [(100, 900), (300, 700)], ids=str)
def test_what_a_launch_bound_program_leaves_goes_to_one_with_a_small_guarantee(
    card: GatedCard, guarantees: tuple[int, int]
) -> None:
    tasks = card.programs(*[{"guarantee_milli": each} for each in guarantees])
    assert used(card, tasks, [round(0.6 * LAUNCH_NS)] * 2, 0.5) == pytest.approx([0.4, 0.6], abs=0.03)


@pytest.mark.long
def test_what_launches_took_before_does_not_count_for_shorter_ones(card: GatedCard) -> None:
    tasks = card.programs({"guarantee_milli": 100}, {"guarantee_milli": 900})
    for task in tasks:
        assert task.program is not None
        task.program.send("launch", LAUNCH_NS, 100)
    card.until(lambda: all(task.region.usage().launches == 100 for task in tasks))
    card.pass_time(0.05)
    assert used(card, tasks, [round(0.6 * LAUNCH_NS)] * 2, 0.5) == pytest.approx([0.4, 0.6], abs=0.03)


@pytest.mark.long
@pytest.mark.parametrize("guarantees", [(100, 900), (300, 700), (500, 500)], ids=str)
def test_a_launch_bound_program_that_could_use_more_keeps_to_its_share(
    card: GatedCard, guarantees: tuple[int, int]
) -> None:
    tasks = card.programs(*[{"guarantee_milli": each} for each in guarantees])
    wanted = [each / 1000 for each in guarantees]
    assert used(card, tasks, [round(0.6 * LAUNCH_NS), KERNEL_NS], 0.5) == pytest.approx(wanted, abs=0.03)


@pytest.mark.long
@pytest.mark.parametrize("guarantees", [(300, 700), (500, 500), (700, 300)], ids=str)
def test_a_launch_bound_program_and_one_that_takes_all_the_rest_use_the_whole_card(
    card: GatedCard, guarantees: tuple[int, int]
) -> None:
    tasks = card.programs(*[{"guarantee_milli": each} for each in guarantees])
    assert used(card, tasks, [LAUNCH_NS // 4, KERNEL_NS], 1) == pytest.approx([0.25, 0.75], abs=0.03)


@pytest.mark.long
def test_a_program_that_waits_for_each_launch_is_not_starved_by_long_kernels(card: GatedCard) -> None:
    [waits, other] = card.programs(*[{"guarantee_milli": 500}] * 2)
    assert waits.program is not None
    assert other.program is not None
    waits.program.send("serve", 200_000, FOR_EVER_MS)
    card.until(lambda: waits.region.usage().busy_ns > 0)
    [before] = card.busy_ns([waits])
    card.pass_time(0.5)
    alone = (card.busy_ns([waits])[0] - before) / 0.5e9
    other.program.send("busy", KERNEL_NS, FOR_EVER_MS)
    card.pass_time(0.2)
    earlier = card.busy_ns([waits, other])
    card.pass_time(1)
    beside, taken = ((now - then) / 1e9 for now, then in zip(card.busy_ns([waits, other]), earlier, strict=True))
    assert beside > 0.35 * alone  # each kernel of the other that is under way holds one launch up
    assert taken > 0.4


def test_from_one_turn_to_the_next_the_card_hardly_rests(timed_card: GatedCard) -> None:
    tasks = timed_card.programs(*[{"guarantee_milli": 500}] * 2)
    timed_card.driver.set("launch_ns", 4000)
    assert sum(used(timed_card, tasks, [KERNEL_NS] * 2, 0.5)) > 0.98


def test_the_card_never_rests_between_kernels_of_one_that_has_it_alone_however_long_they_are(
    timed_card: GatedCard,
) -> None:
    [alone, _] = timed_card.programs({}, {})
    timed_card.driver.set("launch_ns", 4000)
    [found] = used(timed_card, [alone], [6_000_000], 0.3)
    assert found > 0.99  # each is more than a turn takes, and the next is there before it is done


BACKFILL = {"share_class": ShareClass.BACKFILL, "in_flight_us": 500}


@pytest.mark.long
@pytest.mark.parametrize("kernel_ns", [10_000, 500_000])
@pytest.mark.parametrize("is_about", [False, True], ids=["never active", "active a moment ago"])
def test_backfill_beside_idle_online_work_loses_nothing(timed_card: GatedCard, kernel_ns: int, is_about: bool) -> None:
    [online, backfill] = timed_card.programs({"share_class": ShareClass.ONLINE}, BACKFILL)
    assert online.program is not None
    if is_about:
        online.program.send("launch", 10_000)
        timed_card.until(lambda: online.region.usage().busy_ns > 0)
    timed_card.driver.set("launch_ns", 4000)
    [found] = used(timed_card, [backfill], [kernel_ns], 0.2)
    assert found >= PART


@pytest.mark.long
@pytest.mark.parametrize(("kernel_ns", "most"), [(50_000, 1.05), (500_000, 1.3)])
def test_requests_beside_backfill_are_hardly_later(timed_card: GatedCard, kernel_ns: int, most: float) -> None:
    [online, backfill] = timed_card.programs({"share_class": ShareClass.ONLINE}, BACKFILL)
    alone = latencies(timed_card, online)
    assert backfill.program is not None
    backfill.program.send("busy", kernel_ns, FOR_EVER_MS)
    timed_card.until(lambda: backfill.region.usage().busy_ns > 0)
    beside = latencies(timed_card, online)
    assert [late / early <= most for late, early in zip(beside, alone, strict=True)] == [True, True]
    [gotten] = timed_card.busy_ns([backfill])
    assert gotten > 0


def test_backfill_has_the_card_soon_after_online_work_ends_in_the_middle_of_a_batch(timed_card: GatedCard) -> None:
    [online, backfill] = timed_card.programs({"share_class": ShareClass.ONLINE}, BACKFILL)
    timed_card.driver.set("launch_ns", 4000)
    used(timed_card, [backfill], [100_000], 0.05)
    gaps = [gap_after(timed_card, online, backfill) for _ in range(6)]
    assert median(gaps[1:]) < 2_800_000  # the rest of the batch, its end, half a millisecond; at first nothing is known


@pytest.mark.parametrize(
    ("is_about", "kernel_ns", "launches"),
    [(False, 7_000_000, 2), (False, 12_000_000, 1), (True, 600_000, 2), (True, 700_000, 1)],
)
def test_backfill_has_two_launches_in_flight_where_they_are_little_longer_than_it_may(
    timed_card: GatedCard, is_about: bool, kernel_ns: int, launches: int
) -> None:
    [online, backfill] = timed_card.programs({"share_class": ShareClass.ONLINE}, BACKFILL)
    assert online.program is not None
    assert backfill.program is not None
    if is_about:
        online.program.send("launch", 10_000)
        timed_card.until(lambda: online.region.usage().busy_ns > 0)
    used(timed_card, [backfill], [kernel_ns], 0.05)
    pending = []
    for _ in range(50):
        timed_card.pass_time(0.0005)
        pending.append(timed_card.driver.pending_ns_of(backfill.program.pid))
    assert (launches - 1) * kernel_ns < max(pending) <= launches * kernel_ns


@pytest.mark.parametrize(("between_ns", "goes"), [(400_000, False), (800_000, True)])
def test_backfill_goes_half_a_millisecond_after_the_last_launch_of_online_work(
    timed_card: GatedCard, between_ns: int, goes: bool
) -> None:
    [online, backfill] = timed_card.programs({"share_class": ShareClass.ONLINE}, BACKFILL)
    used(timed_card, [backfill], [20_000], 0.05)
    assert online.program is not None
    assert backfill.program is not None
    online.program.send("paced", 20_000, between_ns, 10_000)
    timed_card.until(lambda: online.region.usage().launches > 10)
    before = timed_card.driver.launches_of(backfill.program.pid)
    timed_card.pass_time(0.2)
    launches = timed_card.driver.launches_of(backfill.program.pid) - before
    assert launches > 200 if goes else launches == 0


def gap_after(card: GatedCard, online: Task, backfill: Task) -> int:
    """Between the last of some launches of the one, which are a batch and a half, and the next of the other."""
    assert online.program is not None
    done = online.region.usage().launches + 150
    online.program.send("launch", 10_000, 150)
    card.until(lambda: online.region.usage().launches == done)
    last_ns = last_launch_ns(online)
    card.until(lambda: last_launch_ns(backfill) > last_ns + 1_000_000)
    return last_launch_ns(backfill) - last_ns


def latencies(card: GatedCard, online: Task) -> list[int]:
    """The median and the 99th percentile of requests of 10 ms at random moments, that want a fifth of the card."""
    assert online.program is not None
    requests = 100
    before = online.region.usage().launches
    online.program.send("answer_requests", 2_000_000, 5, 50_000_000, requests)
    card.until(lambda: online.region.usage().launches == before + 5 * requests)
    card.pass_time(0.1)
    return online.program.answer()[1:]


def begin_with_short_ones(card: GatedCard, guarantees: Sequence[int], other_ns: int, short_ms: int = 150) -> list[Task]:
    """While there is room for all, one goes over from short kernels to long ones."""
    tasks = card.programs(*[{"guarantee_milli": each} for each in guarantees])
    changes, other = tasks
    assert changes.program is not None
    changes.program.send_all(("busy", LAUNCH_NS // 10, short_ms), ("busy", KERNEL_NS, FOR_EVER_MS))
    begin_at_once(other, "busy", other_ns, FOR_EVER_MS)
    card.pass_time(short_ms / 1000 + 0.05)
    return tasks


def test_kernels_that_become_longer_while_there_is_room_for_all_are_counted_for_what_they_take(card: GatedCard) -> None:
    [changes, other] = card.programs({"guarantee_milli": 500}, {"guarantee_milli": 500})
    assert changes.program is not None
    changes.program.send_all(("busy", LAUNCH_NS // 10, 150), ("busy", LAUNCH_NS // 2, FOR_EVER_MS))
    begin_at_once(other, "busy", LAUNCH_NS // 4, FOR_EVER_MS)
    card.pass_time(0.5)
    counted_ns = changes.region.usage().busy_ns
    [used_points] = card.busy_points([changes], 0.3)
    counted_points = (changes.region.usage().busy_ns - counted_ns) / 0.3 / 1e7
    assert used_points == pytest.approx(50, abs=1)
    assert counted_points > 0.5 * used_points  # a fifth, by what the shorter ones took


def test_a_program_whose_kernels_become_long_keeps_the_card_from_nobody(card: GatedCard) -> None:
    tasks = begin_with_short_ones(card, [500, 500], round(0.7 * LAUNCH_NS))
    assert min(card.busy_shares(tasks, 0.1)[1] for _ in range(3)) > 40


@pytest.mark.long
@pytest.mark.parametrize(
    ("guarantees", "other_ns", "wanted"),
    [
        ((500, 500), round(0.7 * LAUNCH_NS), [50, 50]),
        ((500, 500), KERNEL_NS, [50, 50]),
        ((100, 900), KERNEL_NS, [10, 90]),
    ],
)
def test_a_program_whose_kernels_become_long_has_its_share_after_what_it_had_queued(
    card: GatedCard, guarantees: tuple[int, int], other_ns: int, wanted: list[float]
) -> None:
    tasks = begin_with_short_ones(card, guarantees, other_ns)
    assert min(card.busy_shares(tasks, 0.2)[1] for _ in range(6)) > 33
    assert card.busy_shares(tasks, 0.5) == pytest.approx(wanted, abs=3)


@pytest.mark.long
def test_a_program_whose_kernels_became_long_has_a_turn_of_them_in_flight_after_what_it_had_queued(
    card: GatedCard,
) -> None:
    [changes, _] = begin_with_short_ones(card, [500, 500], KERNEL_NS)
    assert changes.program is not None
    pid = changes.program.pid
    card.until(lambda: card.driver.pending_ns_of(pid) < KERNEL_NS)
    pending_ns = []
    for _ in range(100):
        card.pass_time(0.002)
        pending_ns.append(card.driver.pending_ns_of(pid))
    assert max(pending_ns) <= 5 * KERNEL_NS


@pytest.mark.long
def test_what_others_want_is_known_soon_after_what_a_program_had_queued_is_done(card: GatedCard) -> None:
    tasks = begin_with_short_ones(card, [200, 800], round(0.7 * LAUNCH_NS), 500)
    assert tasks[0].program is not None
    pid = tasks[0].program.pid
    card.until(lambda: card.driver.pending_ns_of(pid) < 10 * KERNEL_NS)
    card.pass_time(0.3)
    [beside, uses] = card.busy_points(tasks, 0.5)
    assert uses == pytest.approx(68, abs=4)  # it wants 70
    assert beside + uses > 90  # nothing beside it, where it counts as one that wants the whole card


def test_what_a_program_wants_is_known_soon_after_its_launches_change_however_long_its_turn_is(card: GatedCard) -> None:
    tasks = card.programs(*[{"guarantee_milli": 500}] * 2)
    ahead, changes = tasks
    assert changes.program is not None
    changes.program.send_all(("busy", round(0.9 * LAUNCH_NS), 300), ("busy", round(0.4 * LAUNCH_NS), FOR_EVER_MS))
    begin_at_once(ahead, "busy", KERNEL_NS, FOR_EVER_MS)
    card.pass_time(0.25)
    write_member(card, 0, virtual_ns=shared_by(card).member[0].virtual_ns + 10_000_000_000)  # the place of the first
    card.pass_time(0.25)
    [beside, uses] = card.busy_points(tasks, 0.3)
    assert uses == pytest.approx(40, abs=4)
    assert beside > 30  # nothing, where it waits for the end of a turn of half a second of the card
