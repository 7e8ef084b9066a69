"""Whatever a slice did while others were idle, it has its share from the moment on at which they want the card too."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from gated import FOR_EVER_MS, KERNEL_NS, GatedCard, Task, begin_at_once

from seeds import few_then_many

FIRST_S = 0.1
FOUND_OUT_S = 0.4
FIRST_POINTS = 5.0
FIRST_POINTS_OF_FOUR = 9.0
"""A turn is five points of the first tenth of a second, and each has to begin somewhere."""
LATER_S, POINTS = 0.5, 3.0
FOR_EVER_S = 1e6

HISTORIES: dict[str, list[tuple[str, float]]] = {
    "one ran alone, both were idle, the other is back a little earlier": [("a", 1), ("", 0.2), ("b", 0.005)],
    "one ran alone, both were idle, and is back a little earlier": [("a", 1), ("", 0.2), ("a", 0.005)],
    "one runs alone and the other joins": [("a", 1)],
    "each ran alone for a time of its own": [("a", 0.3), ("", 0.1), ("b", 1), ("", 0.03), ("a", 0.005)],
    "both wanted the card, and one went on alone": [("ab", 0.5), ("b", 1)],
    "both wanted the card, then neither": [("ab", 0.5), ("", 0.2), ("b", 0.005)],
    "one rests for less than it takes to be idle": [("ab", 0.5), ("b", 0.01)],
}
"""Who is busy, and for how many seconds, until both are."""


def two_of_them(cases: Mapping[str, tuple[Any, ...]]) -> list[Any]:
    """For every run of the tests; the others are for the long ones."""
    first, second, *others = cases.values()
    return few_then_many([first, second], others)


@pytest.mark.long
@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_use_while_alone_is_no_debt(timed_card: GatedCard, history: list[tuple[str, float]]) -> None:
    check(timed_card, history, (500, 500), LATER_S)


@pytest.mark.long
@pytest.mark.parametrize("guarantees", [(500, 500), (100, 900), (200, 800), (300, 700)], ids=str)
@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_shares_after_idleness_over_ten_seconds(
    timed_card: GatedCard, history: list[tuple[str, float]], guarantees: tuple[int, int]
) -> None:
    check(timed_card, history, guarantees, 10)


def random_history(seed: int) -> tuple[list[tuple[str, float]], tuple[int, ...]]:
    """What four tasks did until all want the card, and their guarantees in steps of 50."""
    drawn = random.Random(seed)
    cuts = sorted(drawn.sample(range(1, 20), 3))
    guarantees = tuple(50 * (end - start) for start, end in itertools.pairwise((0, *cuts, 20)))
    history = []
    for _ in range(drawn.randint(2, 5)):
        busy = "".join(name for name in "abcd" if drawn.random() < 0.5)
        history.append((busy, drawn.choice([0.005, 0.03, 0.1, 0.3, 1, 2.5])))
    return history, guarantees


@pytest.mark.parametrize("seed", few_then_many([126], [110, 131, *range(12)], range(12, 40)))
def test_four_have_their_shares_whatever_they_did_before(timed_card: GatedCard, seed: int) -> None:
    history, guarantees = random_history(seed)
    check(timed_card, history, guarantees, 1, first_points=FIRST_POINTS_OF_FOUR)


def check(
    card: GatedCard,
    history: list[tuple[str, float]],
    guarantees: tuple[int, ...],
    seconds: float,
    first_points: float = FIRST_POINTS,
) -> None:
    names = "abcd"[: len(guarantees)]
    tasks = dict(zip(names, card.programs(*[{"guarantee_milli": each} for each in guarantees]), strict=True))
    phases = [*history, (names, FOR_EVER_S)]
    asked: set[str] = set()
    for number, (wanted, lasts_s) in enumerate(phases):
        before = phases[number - 1][0] if number else ""
        come = sorted(set(wanted) - set(before))
        for name in asked.intersection(come):
            await_rest(card, tasks[name])
        for name in come:
            begin_at_once(tasks[name], "busy", KERNEL_NS, round(stretch_s(name, phases[number:]) * 1000))
        asked.update(come)
        if lasts_s < FOR_EVER_S:
            card.pass_time(lasts_s)
    shares = [each / 10 for each in guarantees]
    assert card.busy_shares(list(tasks.values()), FIRST_S) == pytest.approx(shares, abs=first_points)
    assert card.busy_shares(list(tasks.values()), seconds) == pytest.approx(shares, abs=POINTS)
    assert all(task.region.usage().turn_timeouts == 0 for task in tasks.values())


LAUNCH_NS = 80_000
QUARTER, MORE = LAUNCH_NS // 4, round(0.6 * LAUNCH_NS)
KINDS: dict[str, tuple[list[int], list[int], list[float]]] = {
    "four of long kernels": ([100, 200, 300, 400], [KERNEL_NS] * 4, [10, 20, 30, 40]),
    "two that want a quarter": ([100, 900], [QUARTER, QUARTER], [25, 25]),
    "two that want more than half": ([300, 700], [MORE, MORE], [40, 60]),
    "one that wants a quarter, and long kernels": ([500, 500], [QUARTER, KERNEL_NS], [25, 75]),
    "one that wants more than half, and long kernels": ([500, 500], [MORE, KERNEL_NS], [50, 50]),
    "two of each kind": ([250] * 4, [QUARTER, KERNEL_NS, QUARTER, KERNEL_NS], [25] * 4),
}
"""Guarantees, what each launches, and what each should have of the card in points of 100."""


@pytest.mark.long
@pytest.mark.parametrize(("guarantees", "kernels_ns", "wanted"), two_of_them(KINDS), ids=KINDS)
def test_what_a_program_wants_is_known_when_it_comes_back(
    timed_card: GatedCard, guarantees: list[int], kernels_ns: list[int], wanted: list[float]
) -> None:
    tasks = come_back(timed_card, guarantees, kernels_ns, kernels_ns)
    assert timed_card.busy_points(tasks, FIRST_S) == pytest.approx(wanted, abs=FIRST_POINTS)
    assert timed_card.busy_points(tasks, LATER_S) == pytest.approx(wanted, abs=POINTS)


@pytest.mark.long
def test_those_that_have_all_they_can_use_do_not_drive_each_other_on(timed_card: GatedCard) -> None:
    kernels_ns = [QUARTER, QUARTER, QUARTER, KERNEL_NS]
    tasks = come_back(timed_card, [200, 200, 450, 150], kernels_ns, kernels_ns)
    assert timed_card.busy_points(tasks, 3) == pytest.approx([25] * 4, abs=POINTS)


OTHERS: dict[str, tuple[list[int], list[int], list[int], list[float]]] = {
    "short kernels, then long ones": ([100, 900], [QUARTER, QUARTER], [KERNEL_NS, KERNEL_NS], [10, 90]),
    "short kernels, then not so short ones": ([300, 700], [QUARTER, QUARTER], [MORE, MORE], [40, 60]),
    "short kernels, then all that there is": ([100, 900], [QUARTER, QUARTER], [MORE, KERNEL_NS], [10, 90]),
    "long kernels, then short ones": ([500, 500], [KERNEL_NS, KERNEL_NS], [QUARTER, KERNEL_NS], [25, 75]),
    "not so short kernels, then shorter ones": ([300, 700], [MORE, KERNEL_NS], [QUARTER, KERNEL_NS], [25, 75]),
    "short and long kernels, then only long ones": ([100, 900], [QUARTER, KERNEL_NS], [KERNEL_NS, KERNEL_NS], [10, 90]),
    "short and long kernels, the other way round": ([300, 700], [QUARTER, KERNEL_NS], [KERNEL_NS, MORE], [40, 60]),
    "next to nothing, then half": ([100, 900], [LAUNCH_NS // 10, KERNEL_NS], [LAUNCH_NS // 2, KERNEL_NS], [10, 90]),
}


@pytest.mark.long
@pytest.mark.parametrize(("guarantees", "before_ns", "after_ns", "wanted"), two_of_them(OTHERS), ids=OTHERS)
def test_a_program_that_does_something_else_when_it_comes_back_is_found_out(
    timed_card: GatedCard, guarantees: list[int], before_ns: list[int], after_ns: list[int], wanted: list[float]
) -> None:
    tasks = come_back(timed_card, guarantees, before_ns, after_ns)
    timed_card.pass_time(FOUND_OUT_S)
    assert timed_card.busy_points(tasks, LATER_S) == pytest.approx(wanted, abs=POINTS)
    assert all(task.region.usage().turn_timeouts == 0 for task in tasks)


def come_back(
    card: GatedCard, guarantees: Sequence[int], before_ns: Sequence[int], after_ns: Sequence[int]
) -> list[Task]:
    """Each has launched kernels of one length alone for a while; now all launch without end, maybe others."""
    card.driver.set("launch_ns", LAUNCH_NS)
    tasks = card.programs(*[{"guarantee_milli": each} for each in guarantees])
    for task, kernel_ns in zip(tasks, before_ns, strict=True):
        begin_at_once(task, "busy", kernel_ns, 100)
        rest_after(card, task)
    for task, kernel_ns in zip(tasks, after_ns, strict=True):
        begin_at_once(task, "busy", kernel_ns, FOR_EVER_MS)
    return tasks


@pytest.mark.long
def test_a_few_short_launches_do_not_pass_for_what_a_program_wants(timed_card: GatedCard) -> None:
    timed_card.driver.set("launch_ns", LAUNCH_NS)
    tasks = timed_card.programs({"guarantee_milli": 100}, {"guarantee_milli": 900})
    for task in tasks:
        begin_at_once(task, "launch", QUARTER, 100)
        rest_after(timed_card, task)
    for task in tasks:
        begin_at_once(task, "busy", MORE, FOR_EVER_MS)
    timed_card.pass_time(FOUND_OUT_S)
    assert timed_card.busy_points(tasks, LATER_S) == pytest.approx([40, 60], abs=POINTS)


def rest_after(card: GatedCard, task: Task) -> None:
    """Until what it was asked for is done, and it counts as idle."""
    assert task.program is not None
    card.pass_time(0.2)
    task.program.answer()


def stretch_s(name: str, phases: Sequence[tuple[str, float]]) -> float:
    return sum(lasts_s for _, lasts_s in itertools.takewhile(lambda phase: name in phase[0], phases))


def await_rest(card: GatedCard, task: Task) -> None:
    """Until it has done what it was asked for, and could begin anew in the same instant as others do."""
    assert task.program is not None
    card.until(task.program.has_answered)
    task.program.answer()
