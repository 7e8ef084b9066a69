"""Whether a scheduler that is restored, or forked, at random points of bursty logs decides as one that never was.

The logs are those of `tests/scheduling/bursts.py`, of each kind in turn. The same logs are played again in processes
of their own under other seeds of Python's hashes, there on compiled kernels, and on the compiled scheduler where
``pond compile`` has been run, and have to come to the same decisions.

    python -m benchmarks.cycles.restoring [--points 1000] [--json FILE]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "scheduling"))

from bursts import KINDS
from restored import play

from benchmarks.reporting import Table, command_line, emit, note, program
from millpond.compilation.finder import CHOICE, is_used
from millpond.scheduling.placement.kernels import compiled

REPOSITORY = Path(__file__).resolve().parents[2]
JOBS, SHARE = 60, 0.2
HASH_SEEDS = ("0", "1", "4711")


def played(points: int) -> dict[str, Any]:
    """Logs of all kinds until the twin was restored so often: what went apart, and a digest of each log."""
    kernels = compiled() if os.environ.get("PYTHONHASHSEED") != HASH_SEEDS[0] else None
    digests: dict[str, str] = {}
    apart: list[str] = []
    restored = 0
    for seed in count(1):
        for kind in KINDS:
            if restored >= points:
                return {"restored": restored, "digests": digests, "apart": apart, "compiled": is_used()}
            try:
                both = play(kind, seed, JOBS, SHARE, kernels)
            except AssertionError as error:
                apart.append(f"{kind}, seed {seed}: {error}")
            else:
                restored += both.restored
                digests[f"{kind}, seed {seed}"] = both.digest.hexdigest()
    raise AssertionError("there is always another seed")


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--alone", action="store_true", help="play the logs in this process, and print what came of it")
    options = parser.parse_args(arguments)
    if options.alone:
        sys.stdout.write(json.dumps(played(options.points)))
        return
    runs: dict[str, dict[str, Any]] = {}
    for seed in HASH_SEEDS:
        note(f"hash seed {seed}")
        command = [sys.executable, "-m", "benchmarks.cycles.restoring", "--alone", "--points", str(options.points)]
        environment = os.environ | {"PYTHONHASHSEED": seed}
        if seed == HASH_SEEDS[0]:
            environment[CHOICE] = "interpreted"
        answer = subprocess.run(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, check=True)
        runs[seed] = json.loads(answer.stdout)
    first = runs[HASH_SEEDS[0]]["digests"]
    table = Table("hash seed", "scheduler", "logs", "restored or forked", "apart from its twin",
                  "apart from the first run", texts=2)  # fmt: skip
    divergences = 0
    for seed, run in runs.items():
        others = sum(first.get(log) != digest for log, digest in run["digests"].items())
        divergences += len(run["apart"]) + others
        scheduler = "compiled" if run["compiled"] else "from sources"
        table.add(
            seed,
            scheduler,
            *(f"{each:,}" for each in (len(run["digests"]), run["restored"], len(run["apart"]), others)),
        )
    emit({"runs": runs, "divergences": divergences}, options.json, [table])
    if divergences:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
