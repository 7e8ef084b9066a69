"""How near tasks on one card come to their shares of its time: on the pretended card, with kernels that take time.

Each task launches without end, in a slice with a guarantee of its own: kernels of 2 ms, graphs of 2 ms, or short
kernels whose launches take longer than they do. Each has been alone for a while, then all want the card at once. From
then on the card's own count of busy time by process is taken, over 100 ms and over a longer window. What each should
have of the card is the most that it can use, as far as all guarantees allow; the error is the largest difference from
that, in points of a hundred of the card's time. *Of native* is what all have together, as a part of what they would
have without a gate: the whole card, or what they launch if that is less. All this in time that the program itself lets
pass, so that what else the machine does makes no difference.

One case more, in real time: an online task that serves one request after the other and is limited to part of the card,
alone and with backfill beside it. Backfill should get what the limit leaves, and the online task no less than alone, no
later.

And in the program's own time again: an online task without a limit that answers the same requests of 10 ms, which come
at random moments and want a fifth of the card, alone and with backfill of kernels of several lengths beside it.

    python -m benchmarks.sharing.gate_shares [--seconds 10] [--json FILE]
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.calibration import calibration_rate
from benchmarks.reporting import Table, command_line, emit, note, program
from benchmarks.sharing.gated_cards import Cards, Program, Slice, pretended_cards
from millpond.model.sharing import ShareClass
from millpond.node.sharing.gate.region import GateSettings

ONLINE_LIMIT, SERVED_NS, BESIDE_NS = 300, 2_000_000, 500_000
KERNEL_NS = 2_000_000
LAUNCH_NS = 80_000
REQUEST_KERNELS, REQUEST_KERNEL_NS, REQUEST_EVERY_NS = 5, 2_000_000, 50_000_000
REQUESTS = 200
BACKFILL_KERNELS_NS = (50_000, 500_000, 5_000_000)
STEP_S = 0.05
ALONE_MS, FIRST_S = 200, 0.1
FIRST_TARGET_POINTS, TARGET_POINTS = 5.0, 3.0
LEAST_OF_NATIVE = 0.95
SETTLING_S = 0.5
FOR_EVER_MS = 3_600_000


@dataclass(frozen=True)
class Work:
    """What a task launches without end.

    Attributes:
        alone: of the card's time that it uses when nobody else wants it.
        kernel_ns: of the card's time, for each.
        is_graph: as a graph of four.
    """

    name: str
    alone: float
    kernel_ns: int
    is_graph: bool = False

    def prepared(self, task: Program) -> list[int]:
        """What is to be launched, as the task's ``busy`` wants it."""
        return [task("graph", self.kernel_ns // 4, 4)[1]] if self.is_graph else []


def _launch_bound(part: float) -> Work:
    return Work(f"{part:.0%}", part, round(part * LAUNCH_NS))


KERNELS = Work("kernels", 1, KERNEL_NS)
GRAPHS = Work("graphs", 1, KERNEL_NS, is_graph=True)
QUARTER, MORE = _launch_bound(0.25), _launch_bound(0.6)
FAIR = ((100, 900), (300, 700), (500, 500), (100, 200, 300, 400))
CASES: list[tuple[tuple[int, ...], tuple[Work, ...]]] = [
    *((guarantees, (work,) * len(guarantees)) for guarantees in FAIR for work in (KERNELS, GRAPHS)),
    *((guarantees, (QUARTER, QUARTER)) for guarantees in FAIR[:3]),
    *((guarantees, (MORE, MORE)) for guarantees in FAIR[:3]),
    *((guarantees, (QUARTER, KERNELS)) for guarantees in FAIR[:3]),
    *((guarantees, (MORE, KERNELS)) for guarantees in FAIR[:3]),
    *(((1000 // count,) * count, (QUARTER,) * count) for count in (1, 4, 8)),
    ((250,) * 4, (QUARTER, KERNELS, QUARTER, KERNELS)),
]


@program
def main(arguments: Sequence[str] | None = None) -> dict[str, object]:
    """Measure, print, and give back what ``--json`` gets."""
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    options = parser.parse_args(arguments)
    rows = []
    for guarantees, works in CASES:
        note(f"{guarantees}, {', '.join(work.name for work in works)}")
        with pretended_cards(timed=True) as cards:
            rows.append(_row(cards, guarantees, works, options.seconds))
    limited = []
    for beside in (False, True):
        note(f"online limited to {ONLINE_LIMIT}, {'backfill beside it' if beside else 'alone'}")
        with pretended_cards() as cards:
            limited.append(_limited(cards, beside, options.seconds))
    answered = []
    for kernel_ns in (0, *BACKFILL_KERNELS_NS):
        note(f"requests, {f'backfill with kernels of {kernel_ns / 1e6:g} ms beside them' if kernel_ns else 'alone'}")
        with pretended_cards(timed=True) as cards:
            answered.append(_answered(cards, kernel_ns, options.requests))
    result = {
        "rows": rows,
        "limited": limited,
        "answered": answered,
        "target_points": TARGET_POINTS,
        "first_target_points": FIRST_TARGET_POINTS,
        "calibration_rate": calibration_rate(),
    }
    table = Table("guarantees", "work", "should have", "have", "of native", "first 100 ms", "error", texts=4)
    for row in rows:
        wanted, found = ("/".join(f"{each:.0f}" for each in row[name]) for name in ("wanted", "shares"))
        guarantees = "/".join(map(str, row["guarantees"]))
        errors = [_judged(row["first_error_points"], FIRST_TARGET_POINTS), _judged(row["error_points"], TARGET_POINTS)]
        native = f"{row['of_native']:.3f}" + (" MISSED" if row["of_native"] < LEAST_OF_NATIVE else "")
        table.add(guarantees, row["work"], wanted, found, native, *errors)
    served = Table("online, limited", "online", "backfill", "answers in, median", "99th", texts=1)
    for row in limited:
        online, backfill = (f"{row[name]:.1%}" for name in ("online", "backfill"))
        median, late = (f"{row[name]:.2f} ms" for name in ("median_ms", "late_ms"))
        served.add("beside backfill" if row["beside"] else "alone", online, backfill, median, late)
    answers = Table("requests of 10 ms", "median", "99th", "median / alone", "99th / alone", texts=1)
    for row in answered:
        took = [row[name] for name in ("median_ms", "late_ms")]
        times = [row[name] / answered[0][name] for name in ("median_ms", "late_ms")]
        what = f"beside kernels of {row['beside_ns'] / 1e6:g} ms" if row["beside_ns"] else "alone"
        answers.add(what, *(f"{each:.2f} ms" for each in took), *(f"{each:.3f}" for each in times))
    emit(result, options.json, [table, served, answers])
    return result


def _judged(points: float, target: float) -> str:
    return f"{points:.1f}" if points <= target else f"{points:.1f} MISSED {target:g}"


def _row(cards: Cards, guarantees: Sequence[int], works: Sequence[Work], seconds: float) -> dict[str, Any]:
    slices = [cards.slice(GateSettings(cap_mib=64, guarantee_milli=each)) for each in guarantees]
    [card] = cards.driver.cards
    with cards.programs(slices) as programs:
        cards.driver.set("launch_ns", LAUNCH_NS)
        prepared = [work.prepared(task) for work, task in zip(works, programs, strict=True)]
        tasks = list(zip(programs, slices, works, prepared, strict=True))
        cards.driver.pass_time(0.001)
        for task, place, work, what in tasks:
            _begin(task, place, work, ALONE_MS, what)
            cards.driver.pass_time(2 * ALONE_MS / 1000)
            task.answer()
        for task, place, work, what in tasks:
            _begin(task, place, work, FOR_EVER_MS, what)
        shares = []
        for span in (FIRST_S, seconds):
            before = [cards.driver.busy_ns_of(each.pid, card) for each in programs]
            cards.driver.pass_time(span)
            after = [cards.driver.busy_ns_of(each.pid, card) for each in programs]
            shares.append([(now - then) / span / 1e7 for now, then in zip(after, before, strict=True)])
    wanted = [100 * each for each in _entitled(guarantees, [work.alone for work in works])]
    first, later = (max(abs(one - other) for one, other in zip(wanted, found, strict=True)) for found in shares)
    return {
        "guarantees": list(guarantees),
        "wanted": wanted,
        "work": ", ".join(dict.fromkeys(work.name for work in works)),
        "shares": shares[1],
        "of_native": sum(shares[1]) / sum(wanted),
        "first_error_points": first,
        "error_points": later,
        "turn_timeouts": sum(each.region.usage().turn_timeouts for each in slices),
    }


def _begin(task: Program, place: Slice, work: Work, lasts_ms: int, prepared: Sequence[int]) -> None:
    """Returns once the task is at it, before any of its time has passed."""
    before = _last_launch_ns(place)
    task.send("busy", work.kernel_ns, lasts_ms, *prepared)
    while _last_launch_ns(place) == before:
        time.sleep(0.0005)


def _last_launch_ns(place: Slice) -> int:
    return sum(process.last_launch_ns for process in place.region.usage().processes.values())


def _entitled(guarantees: Sequence[int], alone: Sequence[float]) -> list[float]:
    """Of the card: what each can use, and in proportion to the guarantees as far as that is more than there is."""
    wanted = dict(enumerate(alone))
    left, given = 1.0, dict.fromkeys(wanted, 0.0)
    while wanted:
        all_milli = sum(guarantees[number] for number in wanted)
        parts = {number: left * guarantees[number] / all_milli for number in wanted}
        content = [number for number in wanted if wanted[number] <= parts[number]] or list(wanted)
        for number in content:
            given[number] = min(wanted.pop(number), parts[number])
        left = 1 - sum(given.values())
    return list(given.values())


def _limited(cards: Cards, beside: bool, seconds: float) -> dict[str, Any]:
    """Parts of the card's time, and how soon the limited online task has each answer."""
    online = GateSettings(cap_mib=64, limit_milli=ONLINE_LIMIT, share_class=ShareClass.ONLINE)
    backfill = GateSettings(cap_mib=64, share_class=ShareClass.BACKFILL, in_flight_us=500)
    [card] = cards.driver.cards
    with cards.programs([cards.slice(online), cards.slice(backfill)]) as programs:
        if beside:
            programs[1].send("busy", BESIDE_NS, FOR_EVER_MS)
        programs[0]("serve", SERVED_NS, int(SETTLING_S * 1000))
        at, before = time.monotonic(), [cards.driver.busy_ns_of(each.pid, card) for each in programs]
        _, median_ns, late_ns = programs[0]("serve", SERVED_NS, int(seconds * 1000))
        spent = [cards.driver.busy_ns_of(each.pid, card) - past for each, past in zip(programs, before, strict=True)]
        lasted_ns = (time.monotonic() - at) * 1e9
    parts = {"online": spent[0] / lasted_ns, "backfill": spent[1] / lasted_ns}
    return {"beside": beside, "median_ms": median_ns / 1e6, "late_ms": late_ns / 1e6, **parts}


def _answered(cards: Cards, beside_ns: int, requests: int) -> dict[str, Any]:
    """How soon an online task answers requests, beside backfill whose kernels take so long; 0 for none."""
    online = cards.slice(GateSettings(cap_mib=64, share_class=ShareClass.ONLINE))
    backfill = cards.slice(GateSettings(cap_mib=64, share_class=ShareClass.BACKFILL, in_flight_us=500))
    with cards.programs([online, backfill]) as [answers, behind]:
        if beside_ns:
            _begin(behind, backfill, Work("backfill", 1, beside_ns), FOR_EVER_MS, ())
        cards.driver.pass_time(SETTLING_S)
        answers.send("answer_requests", REQUEST_KERNEL_NS, REQUEST_KERNELS, REQUEST_EVERY_NS, requests)
        while not answers.has_answered():
            cards.driver.pass_time(STEP_S)
        _, median_ns, late_ns = answers.answer()
    return {"beside_ns": beside_ns, "median_ms": median_ns / 1e6, "late_ms": late_ns / 1e6}


if __name__ == "__main__":
    main()
