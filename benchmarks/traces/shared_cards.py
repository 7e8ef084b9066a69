"""Jobs that share cards where that was measured to pay: Gavel's continuous trace on 2 x 8 V100, no durations known.

How fast jobs are, alone and in pairs, says the table of Gavel's simulator (Narayanan et al., OSDI'20); the policy is
told what is measured. It has pairs of one card alone. As there a preemption costs nothing, or else what Millpond
expects of one. Beside the trace as it is, its submissions are shifted by up to two minutes, and the mean over such
traces is taken: a single play depends on chance by some percent.

Beside them stand the figures of Gavel's own simulator on this trace, of its Gandiva with two seeds, which packs too.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Final

from benchmarks.reporting import Row, Table, command_line, emit, note, program, verdict
from benchmarks.traces.cases import Case, find, scenario
from millpond.model.errors import InvalidInputError
from millpond.simulation.kernel import World
from millpond.simulation.queueing import replay
from millpond.simulation.scenario import read_world

TRACE: Final = Case("gavel", "gavel", "max_min_fairness.trace", "2x8:V100")
SPEEDS: Final = "throughputs_v100.json"
PEERS: Final = {
    "Gavel's simulator, FIFO": (38_852, 103_600),
    "Gavel's simulator, LAS": (35_304, 91_800),
    "Gavel's simulator, Gandiva, one seed": (25_864, 86_800),
    "Gavel's simulator, Gandiva, another": (27_445, 87_500),
}
"""Mean completion time and makespan, in seconds."""
MOST_JCT_S, MOST_MAKESPAN_S = 20_200.0, 86_800.0
SHIFT_S: Final = 120.0

ROWS: Final = {
    "cards for themselves": ("--preemption-cost", "0"),
    "shared cards": ("--preemption-cost", "0", "--packs"),
    "cards for themselves, preemptions cost": (),
    "shared cards, preemptions cost": ("--packs",),
}
"""By row: further arguments of ``pond replay``."""
JUDGED: Final = "shared cards"


@dataclass(frozen=True, slots=True)
class Played:
    """What a row came to, as the trace is, and on average with shifted submissions; in seconds."""

    mean_jct_s: float
    makespan_s: float
    shifted_jct_s: float
    shifted_makespan_s: float


def played(traces: Path, further: Sequence[str], seeds: int) -> Played:
    """One row."""
    trace, speeds = find(traces, TRACE.file), find(traces, SPEEDS)
    given = ("--format", TRACE.trace_format, "--jobs", str(trace), "--cluster", TRACE.cluster, "--speeds", str(speeds))
    plan = scenario([*given, *further])
    world = read_world(plan)
    found = [replay(each, plan.settings).metrics for each in (world, *(shifted(world, n) for n in range(seeds)))]
    jct_s, makespan_s = [each.jct_s.mean for each in found], [each.makespan_s for each in found]
    return Played(jct_s[0], makespan_s[0], fmean(jct_s[1:] or jct_s), fmean(makespan_s[1:] or makespan_s))


def shifted(world: World, seed: int) -> World:
    """The same jobs, each submitted up to ``SHIFT_S`` sooner or later."""
    draws = random.Random(seed)
    jobs = [
        replace(entry, submit_at=max(entry.submit_at + draws.uniform(-SHIFT_S, SHIFT_S), 0.0))
        for entry in world.workload.jobs
    ]
    jobs.sort(key=lambda entry: entry.submit_at)
    return replace(world, workload=replace(world.workload, jobs=tuple(jobs)))


def judged(row: Played) -> list[Row]:
    """The row that has targets, beside them."""
    return [
        Row("mean completion", row.mean_jct_s, "s", MOST_JCT_S),
        Row("makespan", row.makespan_s, "s", MOST_MAKESPAN_S),
    ]


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of the traces, or one above it")
    parser.add_argument("--seeds", type=int, default=6, help="so many times with shifted submissions")
    options = parser.parse_args(arguments)
    if options.seeds < 0:
        raise InvalidInputError(f"--seeds {options.seeds}", "use 0 or more")
    rows: dict[str, Played] = {}
    for name, further in ROWS.items():
        note(name)
        rows[name] = played(options.traces, further, options.seeds)
    table = Table("row", "mean completion s", "makespan s", "shifted: mean s", "makespan s", texts=1)
    for name, row in rows.items():
        table.add(name, *(f"{figure:,.0f}" for figure in asdict(row).values()))
    for name, figures in PEERS.items():
        table.add(name, *(f"{figure:,}" for figure in figures), "", "")
    targets = judged(rows[JUDGED])
    lines = [f"{JUDGED}: {row.what} <= {row.target:,.0f} s: {verdict(row.met)}" for row in targets]
    plain = {name: asdict(row) for name, row in rows.items()}
    emit({"rows": plain, "peers": PEERS, "targets": [row.plain for row in targets]}, options.json, [table, *lines])


if __name__ == "__main__":
    main()
