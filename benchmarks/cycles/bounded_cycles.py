"""How long single cycles and forks take where much changes at once or is looked at in vain, in CPU time.

Each scene of ``cycle_scenes.py`` lets something large happen to a full cluster. Targets are stated for a machine whose
calibration loop makes 40 million additions a second; the last column is the figure scaled to that machine.

    python -m benchmarks.cycles.bounded_cycles [--only swap --only fork] [--json FILE]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.calibration import TARGET_RATE, calibration_rate
from benchmarks.cycles.cycle_scenes import SCENES, plans
from benchmarks.reporting import Table, command_line, emit, note, program, verdict


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--only", action="append", choices=SCENES, help="a scene; may be given again")
    options = parser.parse_args(arguments)
    list(plans(64, 16, 0.0))  # compiles, or loads from the cache, what the measurement uses
    rows = []
    for name in options.only or SCENES:
        note(name)
        before = calibration_rate()
        found = list(SCENES[name]())
        rate = (before + calibration_rate()) / 2
        for row in found:
            scaled = row.seconds * rate / TARGET_RATE
            rows.append(asdict(row) | {"scene": name, "calibration_per_s": rate, "scaled_s": scaled})
    table = Table("scene", "what", "ms", "scaled ms", "target ms", "met", texts=2)
    for row in rows:
        met = verdict(row["scaled_s"] < row["target_s"])
        times = (f"{1e3 * row[key]:,.1f}" for key in ("seconds", "scaled_s", "target_s"))
        table.add(row["scene"], row["what"], *times, met)
    emit({"rows": rows}, options.json, [table])


if __name__ == "__main__":
    main()
