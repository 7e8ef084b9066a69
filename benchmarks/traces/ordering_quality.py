"""How long jobs take under each ordering, on published traces, beside the figures of the systems they come from.

Each row is one ``pond replay`` (its arguments are in the JSON). The baselines (fifo, sjf, srtf, srsf, tiresias, with
best-fit placement) should come out within 3 % of the peers' own figures; ``default`` is held against the targets below.
What a row's policy knows of durations is in its name: none, predicted from jobs that ended before, or exact.

With ``--robust K`` follow K copies of each trace from each of which 3 % of the jobs were dropped at random: mean
completion time of ``default`` over that of the peer's policy, both replayed here on the same copy.

    python -m benchmarks.traces.ordering_quality --traces DIR [--only muri|philly] [--quick] [--robust 3] [--json FILE]
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from benchmarks.reporting import Table, command_line, emit, note, program, verdict
from benchmarks.traces.cases import CASES, MURI, PHILLY, Case, Policy, arguments_of, find, scenario
from millpond.simulation import queueing
from millpond.simulation.kernel import World
from millpond.simulation.results.summaries import queueing_summary
from millpond.simulation.scenario import read_world

PEERS = {
    "muri-1": {"srtf": 1_370_603.198, "srsf": 980_140.570, "tiresias": 3_330_371.317},
    "muri-3": {"srtf": 193_081.796, "srsf": 185_021.880, "tiresias": 347_213.248},
    "muri-4": {"srtf": 581_982.900, "srsf": 487_168.0, "tiresias": 1_319_382.936},
    "philly": {"fifo": 37_814.5, "sjf": 11_927.5, "srtf": 6_395.0, "tiresias": 6_932.0},
}
"""Mean completion time in seconds. Muri: published with the simulator of Muri (SIGCOMM'22), github pkusys/Muri,
simulator/draw_fig9-10.py; running it gives the same digits. Philly: measured with Lucid's simulator (ASPLOS'23), github
S-Lab-System-Group/Lucid at 63685a3, its own policies and consolidated placement on this file."""

REPRODUCED_WITHIN = 0.03
KNOWING_DURATIONS = frozenset({"sjf", "srtf", "srsf"})
MURI_MEAN_RATIO = 0.85
"""Target of the geometric mean over the Muri traces, durations none, relative to Tiresias."""
SLOW = frozenset({("muri-1", "tiresias"), ("muri-4", "tiresias")})
"""Baselines that take more than ten seconds; ``--quick`` leaves them out."""
DROPPED = 0.03


@dataclass(frozen=True, slots=True)
class Row:
    """A policy on a case, and what it is held against.

    Attributes:
        rival: the peer's policy.
        target_s: mean completion time to reach; None where none was set.
    """

    case: Case
    policy: Policy
    rival: str
    target_s: float | None = None

    @property
    def peer_s(self) -> float:
        """The peer's figure."""
        return PEERS[self.case.name][self.rival]

    @property
    def is_baseline(self) -> bool:
        """Whether the policy is the peer's own, to be reproduced."""
        return self.policy.ordering == self.rival

    def is_met(self, avg_jct_s: float) -> bool | None:
        """Whether the target was reached; for a baseline, whether it reproduces the peer's figure."""
        if self.is_baseline:
            return abs(avg_jct_s / self.peer_s - 1) <= REPRODUCED_WITHIN
        return None if self.target_s is None else avg_jct_s <= self.target_s


def rows_of(case: Case) -> Iterator[Row]:
    """Everything that is tried on a case: baselines first."""
    for ordering in PEERS[case.name]:
        known = "exact" if ordering in KNOWING_DURATIONS else "none"
        preempt = ordering not in ("fifo", "sjf")
        yield Row(case, Policy(ordering, known, preempt, "best-fit"), ordering)
    for placement in ("default", "best-fit"):
        for policy, rival, target_s in _own(case, placement):
            yield Row(case, policy, rival, target_s)


def _own(case: Case, placement: str) -> list[tuple[Policy, str, float | None]]:
    """``default`` at each level of knowledge, the peer's policy it is held against, and the target."""
    none, predicted, exact = (Policy("default", known, True, placement) for known in ("none", "predicted", "exact"))
    if case is PHILLY:
        return [
            (none, "tiresias", 6_800.0),
            (predicted, "tiresias", None),
            (exact, "srtf", 6_300.0),
            (replace(exact, preempt=False), "sjf", 11_500.0),
        ]
    peers = PEERS[case.name]
    return [(none, "tiresias", 0.9 * peers["tiresias"]), (predicted, "tiresias", None), (exact, "srsf", peers["srsf"])]


def measured(row: Row, traces: Path) -> dict[str, Any]:
    """Replay a row."""
    arguments = arguments_of(row.case, row.policy, find(traces, row.case.file))
    note(f"{row.case.name}: {row.policy.label}, {row.policy.placement}")
    played = scenario(arguments)
    world = read_world(played)
    result = queueing.replay(world, played.settings)
    summary = queueing_summary(played, world, result, time.process_time())
    shown = (
        "jobs", "unfinished", "avg_jct_s", "p99_jct_s", "avg_wait_s", "p99_wait_s", "makespan_s", "preemptions",
        "cpu_s",
    )  # fmt: skip
    return {
        "case": row.case.name,
        **asdict(row.policy),
        **{name: summary[name] for name in shown},
        "peer": row.rival,
        "peer_avg_jct_s": row.peer_s,
        "difference_percent": 100 * (summary["avg_jct_s"] / row.peer_s - 1),
        "target_s": row.target_s,
        "met": row.is_met(summary["avg_jct_s"]),
        "command": " ".join(["pond", "replay", *arguments]),
    }


def muri_mean(lines: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The geometric mean that a target was set for; None when not all Muri traces were replayed."""
    wanted = [
        line["avg_jct_s"] / line["peer_avg_jct_s"]
        for line in lines
        if (line["ordering"], line["durations"], line["placement"]) == ("default", "none", "default")
        and line["case"] != PHILLY.name
    ]
    if len(wanted) != len(MURI):
        return None
    mean = prod(wanted) ** (1 / len(wanted))
    return {"ratio": mean, "target": MURI_MEAN_RATIO, "met": mean <= MURI_MEAN_RATIO}


def robust(case: Case, traces: Path, copies: int, *, quick: bool) -> Iterator[dict[str, Any]]:
    """``default`` over the peer's policy on the trace and on copies of it that lack some jobs."""
    own = [row for row in rows_of(case) if row.policy.placement == "default" and row.target_s is not None]
    for row in own:
        if quick and (case.name, row.rival) in SLOW:
            continue
        baseline = next(other for other in rows_of(case) if other.policy.ordering == row.rival)
        ratios = []
        for copy in range(copies + 1):
            note(f"{case.name}: {row.policy.label} against {row.rival}, copy {copy}")
            mine, theirs = (_mean_completion(case, policy, traces, copy) for policy in (row.policy, baseline.policy))
            ratios.append(mine / theirs)
        yield {"case": case.name, "policy": row.policy.label, "peer": row.rival, "ratios": ratios}


def _mean_completion(case: Case, policy: Policy, traces: Path, copy: int) -> float:
    played = scenario(arguments_of(case, policy, find(traces, case.file)))
    world = _thinned(read_world(played), copy)
    return queueing.replay(world, played.settings).metrics.jct_s.mean


def _thinned(world: World, copy: int) -> World:
    """The world without a few jobs, drawn by the number of the copy; number 0 is the world itself."""
    if copy == 0:
        return world
    draw = random.Random(copy)
    kept = tuple(entry for entry in world.workload.jobs if draw.random() >= DROPPED)
    return replace(world, workload=replace(world.workload, jobs=kept))


def _table(lines: Sequence[dict[str, Any]]) -> Table:
    table = Table(
        "case", "ordering", "durations", "preempt", "placement", "against", "avg JCT", "peer", "%", "target", "met",
        "p99 JCT", "avg wait", "p99 wait", "makespan", "preempt.", "CPU s", texts=6,
    )  # fmt: skip
    for line in lines:
        target = f"{line['target_s']:,.0f}" if line["target_s"] else ""
        if line["ordering"] == line["peer"]:
            target = f"within {100 * REPRODUCED_WITHIN:.0f} %"
        table.add(
            line["case"], line["ordering"], line["durations"], "yes" if line["preempt"] else "no", line["placement"],
            line["peer"], f"{line['avg_jct_s']:,.0f}", f"{line['peer_avg_jct_s']:,.0f}",
            f"{line['difference_percent']:+.1f}", target, verdict(line["met"]), f"{line['p99_jct_s']:,.0f}",
            f"{line['avg_wait_s']:,.0f}", f"{line['p99_wait_s']:,.0f}", f"{line['makespan_s']:,.0f}",
            f"{line['preemptions']:,}", f"{line['cpu_s']:.1f}",
        )  # fmt: skip
    return table


def _robust_table(found: Sequence[dict[str, Any]]) -> Table:
    table = Table("case", "policy", "against", "as it is", "copies: least", "most", texts=3)
    for line in found:
        whole, *copies = line["ratios"]
        table.add(
            line["case"], line["policy"], line["peer"], f"{whole:.3f}", f"{min(copies):.3f}", f"{max(copies):.3f}"
        )
    return table


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="folder with the traces, at any depth")
    parser.add_argument("--only", choices=["muri", "philly"], help="the traces of one source")
    parser.add_argument("--quick", action="store_true", help="leave slow baselines out")
    parser.add_argument("--robust", type=int, default=0, metavar="K", help="also K copies of each trace")
    options = parser.parse_args(arguments)
    cases = [case for case in CASES if options.only in (None, case.trace_format)]
    lines = [
        measured(row, options.traces)
        for case in cases
        for row in rows_of(case)
        if not (options.quick and row.is_baseline and (case.name, row.rival) in SLOW)
    ]
    mean = muri_mean(lines)
    report: list[Table | str] = [_table(lines)]
    if mean:
        report.append(
            f"Muri, durations none: geometric mean of the ratios to Tiresias {mean['ratio']:.3f}, "
            f"target {mean['target']:.2f}, met: {verdict(mean['met'])}"
        )
    copies = []
    if options.robust:
        copies = [line for case in cases for line in robust(case, options.traces, options.robust, quick=options.quick)]
        report += ["", f"ratio of mean completion times, {options.robust} copies each", _robust_table(copies)]
    emit({"rows": lines, "muri_mean": mean, "robust": copies}, options.json, report)


if __name__ == "__main__":
    main()
