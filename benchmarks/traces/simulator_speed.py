"""How fast the simulator replays: jobs, and pods, per CPU second.

Each row is replayed a few times in this process, on kernels that are compiled and loaded; time runs from the first
event to the last, user and system. The rate of a calibration loop, taken beside each row, tells how busy or how fast
the machine was; *scaled* is the rate on a machine whose loop makes 40 million additions a second, for which the target
is stated. The cost of a replay lies in its cycles, so their number and the time of one stand beside the rate. The last
rows are a log of two months, with the most memory that the process has taken. Garbage is searched for as seldom as in
``pond replay``.

Peers, on a shared two-core machine: Lucid's simulator 68 to 220 jobs per CPU second on the Philly case, Muri's 81 to
391 on its traces, the simulator of FGD 7 to 21 pods.

    python -m benchmarks.traces.simulator_speed --traces DIR [--runs 3] [--json FILE]
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.calibration import TARGET_RATE, calibration_rate
from benchmarks.reporting import Table, command_line, emit, note, program, verdict
from benchmarks.traces.cases import MURI, PHILLY, PHILLY_LOG, Case, Policy, arguments_of, find, scenario
from millpond.client.cli.main import ALLOCATIONS
from millpond.simulation import queueing
from millpond.simulation.scenario import read_packing, read_world

TARGET_JOBS_PER_CPU_S = 5_000
TARGET_MB = 400
"""The most memory that the replay of the log may take."""
PEERS = {"philly-log": "", "philly": "68-220 (Lucid)", "muri-4": "81-391 (Muri)", "openb": "7-21 (FGD)"}
POLICIES = (
    Policy("fifo", "none", False),
    Policy("default", "none", True),
    Policy("default", "none", False),
    Policy("default", "exact", True),
    Policy("default", "exact", False),
)
OF_THE_LOG = (Policy("default", "none", True), Policy("default", "none", False))


def jobs_line(case: Case, policy: Policy, traces: Path, runs: int) -> dict[str, Any]:
    """Replay a queueing case."""
    played = scenario(arguments_of(case, policy, find(traces, case.file)))
    world = read_world(played)
    note(f"{case.name}: {policy.label}")
    results = [queueing.replay(world, played.settings) for _ in range(runs)]
    found = results[0]
    return {
        "case": case.name,
        **asdict(policy),
        **_rates(found.metrics.jobs, [result.cpu_s for result in results]),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "cycles": found.cycles,
        "preemptions": found.metrics.preemptions,
    }


def pods_line(traces: Path, runs: int) -> dict[str, Any]:
    """Replay the default openb list, its mix known."""
    nodes, pods = (find(traces, name) for name in ("openb_node_list_gpu_node.csv", "openb_pod_list_default.csv"))
    played = scenario(["--format", "openb", "--nodes", str(nodes), "--jobs", str(pods), "--seed", "42"])
    packing = read_packing(played)
    note("openb: default placement")
    results = [packing.run(played.seeded()) for _ in range(runs)]
    rates = _rates(results[0].arrivals, [result.cpu_s for result in results])
    return {
        "case": "openb",
        "ordering": "one by one",
        "durations": "",
        "preempt": False,
        "placement": "default",
        **rates,
    }


def _rates(count: int, cpu_s: Sequence[float]) -> dict[str, Any]:
    rate, calibration = count / median(cpu_s), calibration_rate()
    scaled = rate * TARGET_RATE / calibration
    return {
        "jobs": count,
        "cpu_s": list(cpu_s),
        "jobs_per_cpu_s_least": count / max(cpu_s),
        "jobs_per_cpu_s": rate,
        "scaled": scaled,
        "met": scaled >= TARGET_JOBS_PER_CPU_S,
        "calibration_per_s": calibration,
    }


def _table(lines: Sequence[dict[str, Any]]) -> Table:
    table = Table(
        "case", "policy", "durations", "preempt", "jobs", "jobs/CPU s median", "least", "scaled", "met", "peers",
        "cycles", "us/cycle", "preempt.", "peak MB", "calibration/s", texts=4,
    )  # fmt: skip
    for line in lines:
        cycles = line.get("cycles", line["jobs"])
        table.add(
            line["case"], line["ordering"], line["durations"], "yes" if line["preempt"] else "no",
            f"{line['jobs']:,}", f"{line['jobs_per_cpu_s']:,.0f}", f"{line['jobs_per_cpu_s_least']:,.0f}",
            f"{line['scaled']:,.0f}", verdict(line["met"]), PEERS[line["case"]], f"{cycles:,}",
            f"{1e6 * median(line['cpu_s']) / cycles:,.0f}", f"{line.get('preemptions', 0):,}",
            f"{line['peak_mb']:,.0f}" if "peak_mb" in line else "", f"{line['calibration_per_s'] / 1e6:,.1f} M",
        )  # fmt: skip
    return table


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="folder with the traces, at any depth")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    gc.set_threshold(ALLOCATIONS)
    began = time.process_time()
    lines = [
        jobs_line(case, policy, options.traces, options.runs) for case in (PHILLY, MURI[-1]) for policy in POLICIES
    ]
    lines.append(pods_line(options.traces, options.runs))
    for policy in OF_THE_LOG:
        line = jobs_line(PHILLY_LOG, policy, options.traces, 1)
        lines.append(line | {"met": line["met"] and line["peak_mb"] < TARGET_MB})
    took = (
        f"target {TARGET_JOBS_PER_CPU_S:,} jobs per CPU second, scaled, and the log in less than {TARGET_MB} MB; "
        f"{time.process_time() - began:.0f} CPU s in all"
    )
    emit({"target_jobs_per_cpu_s": TARGET_JOBS_PER_CPU_S, "rows": lines}, options.json, [_table(lines), took])


if __name__ == "__main__":
    main()
