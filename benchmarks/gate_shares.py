"""How near tasks on one card come to their shares of its time: on the pretended card, with kernels that take time.

Each task launches without end, in a slice with a guarantee of its own: kernels of 2 ms, graphs of 2 ms, short kernels
whose launches take longer than they do, or kernels of 0.2 ms that it waits for one by one. Each has been alone for a
while, then all want the card at once. From then on the card's own count of busy time by process is taken, over 100 ms
and over a longer window. What each should have of the card is the most that it can use, as far as all guarantees allow;
of a task that waits for each launch, beside others whose kernels are longer than its pauses, that is the part of its
own speed that its guarantee is of the card. The error is the largest difference from that, in points of a hundred of
the card's time. All this in time that the program itself lets pass, so that what else the machine does makes no
difference. Four tasks are measured after other histories, too, and the worst is printed.

One case more, in real time: an online task that serves one request after the other and is limited to part of the card,
alone and with backfill beside it. Backfill should get what the limit leaves, and the online task no less than alone, no
later.

    python benchmarks/gate_shares.py [--seconds 10] [--json FILE]
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calibration import calibration_rate
from gated_cards import Cards, Program, Slice, pretended_cards
from millpond.model.sharing import ShareClass
from millpond.node.sharing.gate.region import GateSettings
from reporting import Table, command_line, emit, note, program

ONLINE_LIMIT, SERVED_NS, BESIDE_NS = 300, 2_000_000, 500_000
KERNEL_NS = 2_000_000
LAUNCH_NS = 80_000
ALONE_S, FIRST_S = 0.2, 0.1
FIRST_TARGET_POINTS, TARGET_POINTS = 5.0, 3.0
SETTLING_S = 0.5
FOR_EVER_S = 3600.0
NAMES = "abcd"


@dataclass(frozen=True)
class Work:
    """What a task launches without end.

    Attributes:
        alone: of the card's time that it uses when nobody else wants it.
        kernel_ns: of the card's time, for each.
        is_graph: as a graph of four.
        waits: for each launch before the next, so that nobody else can use the card meanwhile.
    """

    name: str
    alone: float
    kernel_ns: int
    is_graph: bool = False
    waits: bool = False

    @property
    def keeps(self) -> float:
        """Of the card's time that others cannot use when it is alone."""
        return 1 if self.waits else self.alone

    def order(self, program: Program) -> tuple[str, list[int]]:
        """The program's command, and what it wants to know beyond how long a kernel takes and for how long to go on."""
        if self.waits:
            return "serve", []
        return "busy", [program("graph", self.kernel_ns // 4, 4)[1]] if self.is_graph else []


def _launch_bound(part: float) -> Work:
    return Work(f"{part:.0%}", part, round(part * LAUNCH_NS))


KERNELS = Work("kernels", 1, KERNEL_NS)
GRAPHS = Work("graphs", 1, KERNEL_NS, is_graph=True)
QUARTER, MORE = _launch_bound(0.25), _launch_bound(0.6)
WAITED_NS, WAKING_NS = 200_000, 50_000
WAITS = Work("waits", WAITED_NS / (LAUNCH_NS + WAITED_NS + WAKING_NS), WAITED_NS, waits=True)
FAIR = ((100, 900), (300, 700), (500, 500), (100, 200, 300, 400))
CASES: list[tuple[tuple[int, ...], tuple[Work, ...]]] = [
    *((guarantees, (work,) * len(guarantees)) for guarantees in FAIR for work in (KERNELS, GRAPHS)),
    *((guarantees, (QUARTER, QUARTER)) for guarantees in FAIR[:3]),
    *((guarantees, (MORE, MORE)) for guarantees in FAIR[:3]),
    *((guarantees, (QUARTER, KERNELS)) for guarantees in FAIR[:3]),
    *((guarantees, (MORE, KERNELS)) for guarantees in FAIR[:3]),
    ((250,) * 4, (QUARTER, KERNELS, QUARTER, KERNELS)),
    *((guarantees, (WAITS, KERNELS)) for guarantees in FAIR[1:3]),
]

History = Sequence[tuple[str, float]]
"""Which tasks are at it, by letters, and for how many seconds, until all are."""
FOUR: dict[str, History] = {
    "one after the other": [("a", 0.2), ("b", 0.2), ("c", 0.2), ("d", 0.2)],
    "two alone, then none": [("ab", 0.3), ("", 0.2)],
    "all, then none, back one by one": [("abcd", 0.3), ("", 0.2), ("a", 0.005), ("ab", 0.005), ("abc", 0.005)],
    "all, then one rests": [("abcd", 0.3), ("abc", 1)],
}
FOUR_CASES = [
    (guarantees, works)
    for guarantees in (FAIR[3], (250,) * 4)
    for works in ((KERNELS,) * 4, (GRAPHS,) * 4, (QUARTER,) * 4, (MORE,) * 4, (QUARTER, KERNELS, MORE, GRAPHS))
]
FOUR_SECONDS = 1.0


class Task:
    """A program in its slice, and what it does there."""

    def __init__(self, name: str, program: Program, place: Slice, work: Work) -> None:
        self.name = name
        self._program, self._place, self._work = program, place, work
        self._command, self._prepared = work.order(program)

    def begin(self, seconds: float) -> None:
        """Returns once the task is at it, before any of its time has passed."""
        before = self._last_launch_ns()
        self._program.send(self._command, self._work.kernel_ns, round(seconds * 1000), *self._prepared)
        while self._last_launch_ns() == before:
            time.sleep(0.0005)

    def _last_launch_ns(self) -> int:
        return sum(process.last_launch_ns for process in self._place.region.usage().processes.values())


@program
def main(arguments: Sequence[str] | None = None) -> dict[str, object]:
    """Measure, print, and give back what ``--json`` gets."""
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args(arguments)
    rows = []
    for guarantees, works in CASES:
        note(f"{guarantees}, {', '.join(work.name for work in works)}")
        rows.append(_row(guarantees, works, _by_turns(len(works)), options.seconds))
    four = []
    for guarantees, works in FOUR_CASES:
        for name, history in FOUR.items():
            note(f"{guarantees}, {', '.join(work.name for work in works)}, {name}")
            four.append({"history": name, **_row(guarantees, works, history, FOUR_SECONDS)})
    limited = []
    for beside in (False, True):
        note(f"online limited to {ONLINE_LIMIT}, {'backfill beside it' if beside else 'alone'}")
        with pretended_cards() as cards:
            limited.append(_limited(cards, beside, options.seconds))
    result = {
        "rows": rows,
        "four": four,
        "limited": limited,
        "target_points": TARGET_POINTS,
        "first_target_points": FIRST_TARGET_POINTS,
        "calibration_rate": calibration_rate(),
    }
    table = Table("guarantees", "work", "should have", "have", "card busy", "first 100 ms", "error", texts=4)
    for row in rows:
        table.add(*_case(row), *_errors(row["first_error_points"], row["error_points"]))
    after = Table(
        "four tasks", "work", "should have", "have", "card busy", "first 100 ms", "error", "worst after", texts=8
    )
    for case in (four[at : at + len(FOUR)] for at in range(0, len(four), len(FOUR))):
        worst = max(case, key=_missing)
        errors = (max(row[name] for row in case) for name in ("first_error_points", "error_points"))
        after.add(*_case(worst), *_errors(*errors), worst["history"])
    served = Table("online, limited", "online", "backfill", "answers in, median", "99th", texts=1)
    for row in limited:
        online, backfill = (f"{row[name]:.1%}" for name in ("online", "backfill"))
        median, late = (f"{row[name]:.2f} ms" for name in ("median_ms", "late_ms"))
        served.add("beside backfill" if row["beside"] else "alone", online, backfill, median, late)
    emit(result, options.json, [table, after, served])
    return result


def _case(row: dict[str, Any]) -> list[str]:
    wanted, found = ("/".join(f"{each:.0f}" for each in row[name]) for name in ("wanted", "shares"))
    return ["/".join(map(str, row["guarantees"])), row["work"], wanted, found, f"{row['busy']:.0%}"]


def _missing(row: dict[str, Any]) -> float:
    """By how much, next to the targets."""
    return max(row["first_error_points"] / FIRST_TARGET_POINTS, row["error_points"] / TARGET_POINTS)


def _errors(first_points: float, points: float) -> list[str]:
    return [_judged(first_points, FIRST_TARGET_POINTS), _judged(points, TARGET_POINTS)]


def _judged(points: float, target: float) -> str:
    return f"{points:.1f}" if points <= target else f"{points:.1f} MISSED {target:g}"


def _by_turns(tasks: int) -> History:
    """Each alone, and then nobody."""
    return [phase for name in NAMES[:tasks] for phase in ((name, ALONE_S), ("", ALONE_S))]


def _row(guarantees: Sequence[int], works: Sequence[Work], history: History, seconds: float) -> dict[str, Any]:
    with pretended_cards(timed=True) as cards:
        slices = [cards.slice(GateSettings(cap_mib=64, guarantee_milli=each)) for each in guarantees]
        with cards.programs(slices) as programs:
            cards.driver.set("launch_ns", LAUNCH_NS)
            tasks = list(map(Task, NAMES, programs, slices, works))
            _go_through(cards, tasks, [*history, (NAMES[: len(tasks)], FOR_EVER_S)])
            shares = [_shares(cards, programs, span) for span in (FIRST_S, seconds)]
    kept = _entitled(guarantees, [work.keeps for work in works])
    wanted = [100 * part * work.alone / work.keeps for part, work in zip(kept, works, strict=True)]
    first, later = (max(abs(one - other) for one, other in zip(wanted, found, strict=True)) for found in shares)
    return {
        "guarantees": list(guarantees),
        "wanted": wanted,
        "work": ", ".join(dict.fromkeys(work.name for work in works)),
        "first": shares[0],
        "shares": shares[1],
        "busy": sum(shares[1]) / 100,
        "first_error_points": first,
        "error_points": later,
        "turn_timeouts": sum(each.region.usage().turn_timeouts for each in slices),
    }


def _go_through(cards: Cards, tasks: Sequence[Task], phases: History) -> None:
    """Returns at the beginning of the last phase."""
    cards.driver.pass_time(0.001)
    before = ""
    for number, (names, lasts_s) in enumerate(phases):
        for task in tasks:
            if task.name in names and task.name not in before:
                task.begin(_stretch_s(task.name, phases[number:]))
        before = names
        if lasts_s < FOR_EVER_S:
            cards.driver.pass_time(lasts_s)


def _stretch_s(name: str, phases: History) -> float:
    return sum(lasts_s for _, lasts_s in itertools.takewhile(lambda phase: name in phase[0], phases))


def _shares(cards: Cards, programs: Sequence[Program], seconds: float) -> list[float]:
    """Of the card, in points of 100, from now on."""
    [card] = cards.driver.cards
    before = [cards.driver.busy_ns_of(each.pid, card) for each in programs]
    cards.driver.pass_time(seconds)
    after = [cards.driver.busy_ns_of(each.pid, card) for each in programs]
    return [(now - then) / seconds / 1e7 for now, then in zip(after, before, strict=True)]


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
            programs[1].send("busy", BESIDE_NS, round(FOR_EVER_S * 1000))
        programs[0]("serve", SERVED_NS, int(SETTLING_S * 1000))
        at, before = time.monotonic(), [cards.driver.busy_ns_of(each.pid, card) for each in programs]
        _, median_ns, late_ns = programs[0]("serve", SERVED_NS, int(seconds * 1000))
        spent = [cards.driver.busy_ns_of(each.pid, card) - past for each, past in zip(programs, before, strict=True)]
        lasted_ns = (time.monotonic() - at) * 1e9
    parts = {"online": spent[0] / lasted_ns, "backfill": spent[1] / lasted_ns}
    return {"beside": beside, "median_ms": median_ns / 1e6, "late_ms": late_ns / 1e6, **parts}


if __name__ == "__main__":
    main()
