"""Slices of one card get the device time that their guarantees, limits and classes say, by the card's own count.

The time is the test's own: it stands still while a program computes, so that no figure depends on what else the machine
does.
"""

from __future__ import annotations

import pytest
from gated import FOR_EVER_MS, KERNEL_NS, GatedCard, Task, keep_busy

from fake_driver.driver import MIB
from fake_driver.program import Program
from millpond.model.sharing import ShareClass

SETTLING_S = 0.3
POINTS = 3.0


@pytest.fixture
def card(timed_card: GatedCard) -> GatedCard:
    return timed_card


def shares(card: GatedCard, guarantees: list[int], window_s: float, graphs: bool) -> list[float]:
    tasks = card.programs(*[{"cap_mib": 100, "guarantee_milli": each} for each in guarantees])
    for task in tasks:
        keep_busy(task, graphs)
    card.until(lambda: all(task.region.usage().busy_ns for task in tasks))
    card.pass_time(SETTLING_S)
    found = card.busy_shares(tasks, window_s)
    assert all(task.region.usage().turn_timeouts == 0 for task in tasks)
    return found


@pytest.mark.parametrize(("guarantees", "graphs"), [([100, 900], False), ([300, 700], True)])
def test_two_that_both_want_the_card_get_their_guarantees(card: GatedCard, guarantees: list[int], graphs: bool) -> None:
    found = shares(card, guarantees, 1.2, graphs)
    assert found == pytest.approx([each / 10 for each in guarantees], abs=POINTS)


@pytest.mark.long
@pytest.mark.parametrize("graphs", [False, True], ids=["kernels", "graphs"])
@pytest.mark.parametrize("guarantees", [[100, 900], [300, 700], [500, 500], [100, 200, 300, 400]])
def test_shares_over_ten_seconds(card: GatedCard, guarantees: list[int], graphs: bool) -> None:
    found = shares(card, guarantees, 10, graphs)
    assert found == pytest.approx([each / 10 for each in guarantees], abs=POINTS)


@pytest.mark.long
def test_kernels_of_any_length_come_to_the_same_time(card: GatedCard) -> None:
    [short, long] = card.programs({}, {})
    for task, kernel_ns in ((short, 200_000), (long, 20_000_000)):
        assert task.program is not None
        task.program.send("busy", kernel_ns, FOR_EVER_MS)
    card.until(lambda: bool(short.region.usage().busy_ns and long.region.usage().busy_ns))
    assert card.busy_shares([short, long], 3) == pytest.approx([50, 50], abs=POINTS)


@pytest.mark.parametrize("kernels", [3, 30])
def test_kernels_between_graphs_count_for_what_they_take(card: GatedCard, kernels: int) -> None:
    [mixed, other] = card.programs({}, {})
    assert mixed.program is not None
    _, graph, _ = mixed.program("graph", KERNEL_NS // 4, 4)
    mixed.program.send("mixed", 20_000, kernels, graph, FOR_EVER_MS)
    keep_busy(other)
    card.until(lambda: bool(mixed.region.usage().busy_ns and other.region.usage().busy_ns))
    card.pass_time(SETTLING_S)
    assert card.busy_shares([mixed, other], 1) == pytest.approx([50, 50], abs=POINTS)


@pytest.mark.long
def test_two_processes_of_one_task_have_one_share(card: GatedCard) -> None:
    [double, single] = card.programs({}, {})
    keep_busy(double)
    keep_busy(single)
    with Program(double.env) as second:
        assert second("start") == [0]
        second.send("busy", KERNEL_NS, FOR_EVER_MS)
        card.until(lambda: card.driver.busy_ns_of(second.pid, card.driver.cards[0]) > 0)
        card.pass_time(SETTLING_S)
        together = [double, single, Task(double.region, double.env, second)]
        one, other, two = card.busy_shares(together, 3)
    assert [one + two, other] == pytest.approx([50, 50], abs=POINTS)


@pytest.mark.long
def test_a_limit_is_reached_beside_one_that_wants_all_the_rest(card: GatedCard) -> None:
    [limited, other] = card.programs({"limit_milli": 300}, {})
    keep_busy(limited)
    keep_busy(other)
    card.until(lambda: limited.region.usage().busy_ns > 0 and other.region.usage().busy_ns > 0)
    assert duty(card, limited, 3) == pytest.approx(30, abs=POINTS)
    assert duty(card, other, 1) > 55


def test_a_limit_holds_while_others_are_idle_and_can_be_changed(card: GatedCard) -> None:
    [task, idle] = card.programs({"limit_milli": 300}, {})
    keep_busy(task)
    card.until(lambda: task.region.usage().busy_ns > 0)
    assert duty(card, task, 1.0) == pytest.approx(30, abs=POINTS)
    task.region.set(limit_milli=1000)
    assert duty(card, task, 0.6) > 60
    assert idle.region.usage().busy_ns == 0


def test_what_was_used_by_a_lower_limit_is_soon_paid_by_one_that_is_raised(card: GatedCard) -> None:
    [task] = card.programs({"limit_milli": 10})
    assert task.program is not None
    task.program.send("busy", 10 * KERNEL_NS, FOR_EVER_MS)
    card.until(lambda: task.region.usage().busy_ns > 0)  # 2 s of the lower limit, and of the higher one 0.04
    task.region.set(limit_milli=500)
    card.pass_time(SETTLING_S)
    assert duty(card, task, 1.0) == pytest.approx(50, abs=POINTS)


def duty(card: GatedCard, task: Task, window_s: float) -> float:
    """Points of the time for which the card was busy with the task."""
    assert task.program is not None
    busy = card.driver.busy_ns_of(task.program.pid, card.driver.cards[0])
    card.pass_time(window_s)
    busy = card.driver.busy_ns_of(task.program.pid, card.driver.cards[0]) - busy
    return busy / window_s / 1e7


def test_what_a_slice_measures_as_its_time_is_what_the_card_spent_on_it(card: GatedCard) -> None:
    [task] = card.programs({})
    assert task.program is not None
    task.program.send("launch", 500_000, 400)
    card.until(lambda: task.region.usage().launches == 400)
    card.until(lambda: [process.in_flight for process in task.region.usage().processes.values()] == [0])
    assert task.region.usage().busy_ns == pytest.approx(200_000_000, rel=0.1)


def test_a_paused_slice_launches_nothing_until_it_is_resumed(card: GatedCard) -> None:
    [task] = card.programs({})
    assert task.program is not None
    pid = task.program.pid
    task.program.send("busy", 100_000, FOR_EVER_MS)
    card.until(lambda: card.driver.launches_of(pid) > 10)
    task.region.set(paused=True)
    card.pass_time(0.05)  # many times what it may take
    launches = card.driver.launches_of(pid)
    card.pass_time(0.1)
    assert card.driver.launches_of(pid) == launches
    task.region.set(paused=False)
    card.until(lambda: card.driver.launches_of(pid) > launches)


def test_backfill_leaves_the_card_to_online_work_but_for_its_floor(card: GatedCard) -> None:
    [online, backfill] = card.programs(
        {"share_class": ShareClass.ONLINE},
        {"share_class": ShareClass.BACKFILL, "in_flight_us": 500, "floor_milli": 100},
    )
    keep_busy(backfill)
    card.until(lambda: backfill.region.usage().busy_ns > 0)
    assert duty(card, backfill, 0.4) > 50
    assert online.program is not None
    keep_busy(online)
    card.until(lambda: online.region.usage().busy_ns > 0)
    assert duty(card, backfill, 1.0) == pytest.approx(10, abs=POINTS + 1)  # the others never stop
    assert backfill.program is not None
    assert card.driver.pending_ns_of(backfill.program.pid) <= 2 * KERNEL_NS


def test_backfill_uses_what_the_limit_of_online_work_leaves_and_is_gone_when_that_returns(card: GatedCard) -> None:
    [online, backfill] = card.programs(
        {"share_class": ShareClass.ONLINE, "limit_milli": 300},
        {"share_class": ShareClass.BACKFILL, "in_flight_us": 500, "floor_milli": 50},
    )
    assert backfill.program is not None
    backfill.program.send("busy", KERNEL_NS // 4, FOR_EVER_MS)
    keep_busy(online)
    card.until(lambda: online.region.usage().busy_ns > 0 and backfill.region.usage().busy_ns > 0)
    card.pass_time(SETTLING_S)
    gotten = card.busy_ns([online, backfill])
    card.pass_time(1.0)
    online_s, backfill_s = (
        (now - then) / 1e9 for now, then in zip(card.busy_ns([online, backfill]), gotten, strict=True)
    )
    assert online_s == pytest.approx(0.30, abs=0.04)
    assert backfill_s > 0.35  # its floor would be 0.05


@pytest.mark.long
def test_backfill_of_which_nothing_is_known_yet_uses_what_the_limit_of_online_work_leaves(card: GatedCard) -> None:
    [online, backfill] = card.programs(
        {"share_class": ShareClass.ONLINE, "limit_milli": 300},
        {"share_class": ShareClass.BACKFILL, "in_flight_us": 500},
    )
    assert online.program is not None
    assert backfill.program is not None
    online.program.send("serve", KERNEL_NS, FOR_EVER_MS)
    card.until(lambda: online.region.usage().busy_ns > 0)
    card.pass_time(SETTLING_S)
    backfill.program.send("busy", KERNEL_NS // 4, FOR_EVER_MS)
    card.pass_time(SETTLING_S)
    assert duty(card, backfill, 1.0) > 45  # of the 70 that are left


def test_backfill_has_no_more_in_flight_than_allowed_while_online_work_is_on_the_card(card: GatedCard) -> None:
    [_, backfill] = card.programs(
        {"share_class": ShareClass.ONLINE}, {"share_class": ShareClass.BACKFILL, "in_flight_us": 500}
    )
    assert backfill.program is not None
    keep_busy(backfill)
    card.until(lambda: backfill.region.usage().launches > 20)
    for _ in range(50):
        assert card.driver.pending_ns_of(backfill.program.pid) <= 2 * KERNEL_NS
        card.pass_time(0.002)


def test_streams_and_graphs_of_one_process_are_all_counted(card: GatedCard) -> None:
    [task] = card.programs({})
    assert task.program is not None
    streams = [task.program("stream")[1] for _ in range(3)]
    _, graph, _ = task.program("graph", 1_000_000, 10)
    for stream in streams:
        task.program.send("launch", 2_000_000, 10, stream)
    task.program.send("replay", graph, 4)
    card.until(lambda: task.region.usage().busy_ns >= 95_000_000)
    assert task.region.usage().busy_ns == pytest.approx(100_000_000, rel=0.1)


def test_work_in_flight_is_bounded_so_that_a_newcomer_need_not_wait_for_it(card: GatedCard) -> None:
    [task] = card.programs({})
    assert task.program is not None
    task.program("alloc", MIB)
    task.program.send("launch", KERNEL_NS, 300)
    card.until(lambda: task.region.usage().launches > 20)
    assert card.driver.pending_ns_of(task.program.pid) < 50_000_000
