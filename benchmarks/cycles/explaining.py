"""How long it takes to say why a job waits, over the jobs that wait in a full cluster, and what a change would do.

The cluster and its jobs are those of ``busy_cycles.py``: 10,000 jobs of 500 users in 50 queues wait. *Brief* is the
reason alone, as lists show it; *why* has the remedy, the position and the estimated start too, as ``pond why`` shows
them. One in so many jobs is asked about (``--every``), all in the same state, whose order and futures answers have in
common; *beyond* are the answers that took longer than the target. *First* is the longest of those that are the first
behind a cycle. Times are CPU milliseconds.

*What-if* plays all of them forward, once, as each of the two plays of ``pond what-if`` does, for so many seconds, and
says how many of the waiting jobs had started by then.

Garbage is looked for as in a server that has started with these jobs.

    python -m benchmarks.cycles.explaining --pods openb_pod_list_default.csv [--nodes 5000] [--waiting 10000]
        [--every 25]
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.calibration import as_served, calibration_rate
from benchmarks.cycles.busy_cycles import SCENES, BusyCluster, Scene
from benchmarks.cycles.core_speed import requests_of
from benchmarks.reporting import Table, command_line, emit, note, program
from millpond.simulation.what_if.plays import LiveCopy

TARGET_MS = 50.0
FIRSTS = 10
"""So many answers are the first of a state."""


def cpu_ms(work: Callable[[], object]) -> float:
    """CPU milliseconds of a question."""
    began = time.thread_time()
    work()
    return 1e3 * (time.thread_time() - began)


def measure(busy: BusyCluster, every: int) -> dict[str, float | str]:
    """Percentiles over every so many-th of the jobs that wait."""
    scheduler, now = busy.scheduler, busy.now
    jobs = [record.id for record in busy.waiting()][::every]
    brief = np.array([cpu_ms(lambda job=job: scheduler.cause(job, now)) for job in jobs])  # type: ignore[misc]
    firsts = []
    for job in jobs[:: max(len(jobs) // FIRSTS, 1)][:FIRSTS]:
        scheduler.decide(now)
        firsts.append(cpu_ms(lambda job=job: scheduler.explain(job, now)))  # type: ignore[misc]
    whole = np.array([cpu_ms(lambda job=job: scheduler.explain(job, now)) for job in jobs])  # type: ignore[misc]
    return {
        "scene": busy.scene.name,
        "nodes": busy.scene.nodes,
        "waiting": len(busy.waiting()),
        "asked": len(jobs),
        "brief_p50_ms": float(np.percentile(brief, 50)),
        "brief_p99_ms": float(np.percentile(brief, 99)),
        "why_p50_ms": float(np.percentile(whole, 50)),
        "why_p99_ms": float(np.percentile(whole, 99)),
        "why_max_ms": float(whole.max()),
        "why_beyond": int((whole > TARGET_MS).sum()),
        "first_ms": max(firsts),
    }


def play(busy: BusyCluster, within_s: float) -> dict[str, float]:
    """One play of a copy: how long the copy takes, and how far the play comes."""
    began = time.monotonic()
    snapshot = json.loads(json.dumps(busy.scheduler.snapshot()))
    copy = LiveCopy(snapshot, busy.now)
    copied = time.monotonic()
    played = copy.play((), busy.now + 7 * 86_400.0, lambda: time.monotonic() < copied + within_s)
    started = sum(job.started_at is not None and not job.ran for job in played.jobs.values())
    return {"copy_s": copied - began, "play_s": time.monotonic() - copied, "started": started}


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--pods", type=Path, required=True, help="an openb pod list")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=25, help="ask of one in so many jobs")
    parser.add_argument("--play", type=float, default=15.0, metavar="S", help="seconds of one play; 0: none")
    parser.add_argument("--scenes", nargs="+", choices=SCENES, default=list(SCENES))
    options = parser.parse_args(arguments)
    requests = requests_of(options.pods)
    table = Table("scene", "nodes", "waiting", "asked", "brief p50 ms", "p99", "why p50 ms", "p99", "max", "beyond",
                  "first", texts=1)  # fmt: skip
    plays = Table("what-if", "copy s", "play s", "started", texts=1)
    rows = []
    for name in options.scenes:
        busy = BusyCluster(Scene(name, options.nodes, options.waiting, preempt=False), requests)
        busy.fill()
        as_served()
        row = measure(busy, options.every)
        note(f"{name}: why p99 {row['why_p99_ms']:.1f} ms")
        figures = ("brief_p50_ms", "brief_p99_ms", "why_p50_ms", "why_p99_ms", "why_max_ms")
        counts = (f"{row[key]:,}" for key in ("nodes", "waiting", "asked"))
        spans = (f"{row[key]:.2f}" for key in figures)
        table.add(name, *counts, *spans, f"{row['why_beyond']:,}", f"{row['first_ms']:.2f}")
        if options.play:
            played = play(busy, options.play)
            plays.add(name, f"{played['copy_s']:.1f}", f"{played['play_s']:.1f}", f"{played['started']:,}")
            row |= played
        rows.append(row)
    met = all(float(row["why_p99_ms"]) < TARGET_MS for row in rows)
    words = f"why: p99 below {TARGET_MS:g} ms in every scene: {'yes' if met else 'no'}"
    emit({"rows": rows, "calibration_per_s": calibration_rate()}, options.json, [table, plays, words])


if __name__ == "__main__":
    main()
