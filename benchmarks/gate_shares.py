"""How near tasks on one card come to their shares of its time: on the pretended card, with kernels that take time.

Each task launches kernels of 2 ms, or graphs of 2 ms, back to back, in a slice with a guarantee of its own. Over a
window the card's own count of busy time by process is taken: the error is the largest difference between a task's part
of it and its guarantee, in points of a hundred. The pretended card executes contexts by turns in real time, as the
driver does, so whatever works without turns of the gate's own comes out even.

One case more: an online task that serves one request after the other and is limited to part of the card, alone and with
backfill beside it. Backfill should get what the limit leaves, and the online task no less than alone, no later.

    python benchmarks/gate_shares.py [--seconds 10] [--json FILE]
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from calibration import calibration_rate
from gated_cards import Cards, pretended_cards
from millpond.model.sharing import ShareClass
from millpond.node.sharing.gate.region import GateSettings
from reporting import Table, command_line, emit, note, program

ONLINE_LIMIT, SERVED_NS, BESIDE_NS = 300, 2_000_000, 500_000
CASES = ((100, 900), (300, 700), (500, 500), (100, 200, 300, 400))
KERNEL_NS = 2_000_000
TARGET_POINTS = 3.0
SETTLING_S = 0.5
FOR_EVER_MS = 3_600_000


@program
def main(arguments: Sequence[str] | None = None) -> dict[str, object]:
    """Measure, print, and give back what ``--json`` gets."""
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args(arguments)
    rows = []
    for guarantees in CASES:
        for graphs in (False, True):
            note(f"{guarantees}, {'graphs' if graphs else 'kernels'}")
            with pretended_cards() as cards:
                rows.append(_row(cards, guarantees, graphs, options.seconds))
    limited = []
    for beside in (False, True):
        note(f"online limited to {ONLINE_LIMIT}, {'backfill beside it' if beside else 'alone'}")
        with pretended_cards() as cards:
            limited.append(_limited(cards, beside, options.seconds))
    result = {
        "rows": rows,
        "limited": limited,
        "target_points": TARGET_POINTS,
        "calibration_rate": calibration_rate(),
    }
    table = Table("guarantees", "work", "shares", "card busy", "error", "target", texts=3)
    for row in rows:
        wanted, found = ("/".join(f"{each:.1f}" for each in row[name]) for name in ("wanted", "shares"))
        met = "met" if row["error_points"] <= TARGET_POINTS else "MISSED"
        error = f"{row['error_points']:.2f} points"
        table.add(wanted, row["work"], found, f"{row['busy']:.0%}", error, f"<= {TARGET_POINTS:g}, {met}")
    served = Table("online, limited", "online", "backfill", "answers in, median", "99th", texts=1)
    for row in limited:
        online, backfill = (f"{row[name]:.1%}" for name in ("online", "backfill"))
        median, late = (f"{row[name]:.2f} ms" for name in ("median_ms", "late_ms"))
        served.add("beside backfill" if row["beside"] else "alone", online, backfill, median, late)
    emit(result, options.json, [table, served])
    return result


def _row(cards: Cards, guarantees: Sequence[int], graphs: bool, seconds: float) -> dict[str, Any]:
    slices = [cards.slice(GateSettings(cap_mib=64, guarantee_milli=each)) for each in guarantees]
    [card] = cards.driver.cards
    with cards.programs(slices) as programs:
        for each in programs:
            number = each("graph", KERNEL_NS // 4, 4)[1] if graphs else -1
            each.send("busy", KERNEL_NS, FOR_EVER_MS, number)
        time.sleep(SETTLING_S)
        at, before = time.monotonic(), [cards.driver.busy_ns_of(each.pid, card) for each in programs]
        time.sleep(seconds)
        spent = [cards.driver.busy_ns_of(each.pid, card) - past for each, past in zip(programs, before, strict=True)]
        lasted = time.monotonic() - at
    wanted = [100 * each / sum(guarantees) for each in guarantees]
    shares = [100 * each / sum(spent) for each in spent]
    return {
        "wanted": wanted,
        "work": "graphs" if graphs else "kernels",
        "shares": shares,
        "busy": sum(spent) / lasted / 1e9,
        "error_points": max(abs(one - other) for one, other in zip(wanted, shares, strict=True)),
        "turn_timeouts": sum(each.region.usage().turn_timeouts for each in slices),
    }


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


if __name__ == "__main__":
    main()
