"""What power caps save where recurring jobs may take 5 % longer: Zeus' measurements of jobs on a V100 and an RTX 6000.

Each configuration (data set, network, batch size, optimizer) is a job that is run again and again on a card of its own,
and a step is an epoch. The policy knows nothing of the table: it hears each run's speed and power, as a server measures
them, at the cap that it chose, and the first run of each job has none. Between two caps of the table the time of an
epoch and the power lie on a line. The oracle runs each job at the best cap of the table from its first run on.

Saved is the mean over configurations of what a run saves of the energy of one without a cap, by the log; a slow-down is
that of a whole run, its trials included. How caps are tried (``scheduling.capping``) was chosen on both tables: there
is no third one here.

Data: ml-energy/zeus, ``examples/research_reproducibility/zeus_nsdi23/trace`` (You et al., "Zeus", NSDI 2023).
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.reporting import Table, command_line, emit, program, verdict
from benchmarks.traces.cases import find
from millpond.model.energy import DeclaredPower, EnergyRates
from millpond.model.errors import InvalidInputError
from millpond.model.resources import TaskRequest
from millpond.model.workloads import Job, Role
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.results.energy_meter import EnergyMeter
from millpond.simulation.trace import TraceJob, Workload
from millpond.simulation.world.power_curves import PowerCurve

FILES: Final = {"V100": "summary_power_v100.csv", "RTX6000": "summary_power_rtx6000.csv"}
MAX_SLOWDOWN: Final = 0.05
LEAST_OF_ORACLE: Final = 80.0
"""Percent of what the oracle saves, over all runs."""
MOST_SLOWDOWN: Final = 0.07
"""Of any run."""

Curves = Mapping[str, PowerCurve]


@dataclass(frozen=True, slots=True)
class Played:
    """What became of all runs: by configuration, in their order.

    Attributes:
        energy_j: what each drew.
        slowdown: by which part each took longer than without a cap.
    """

    energy_j: Mapping[str, tuple[float, ...]]
    slowdown: Mapping[str, tuple[float, ...]]

    def saved(self, before: Played, runs: slice = slice(None)) -> float:
        """By which part runs draw less than before, the mean over configurations."""
        parts = [1.0 - sum(mine[runs]) / sum(before.energy_j[name][runs]) for name, mine in self.energy_j.items()]
        return sum(parts) / len(parts)

    @property
    def slowest(self) -> float:
        """The slow-down of the slowest run."""
        return max(map(max, self.slowdown.values()))


def read_curves(file: Path) -> dict[str, PowerCurve]:
    """By configuration, the table of a card."""
    rows: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    try:
        with file.open(newline="", encoding="utf-8") as text:
            for row in csv.DictReader(text):
                name = "/".join(row[each] for each in ("dataset", "network", "batch_size", "optimizer"))
                figures = (row["power_limit"], row["time_per_epoch"], row["average_power"])
                cap_w, epoch_s, power_w = map(float, figures)
                rows[name].append((cap_w, epoch_s, power_w))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"{file} is no table of Zeus ({error!r:.120})", "give the folder zeus-2023") from error
    return {name: PowerCurve.of(measured) for name, measured in rows.items()}


def world_of(card: str, curves: Curves, runs: int, hours: float, max_slowdown: float) -> World:
    """All configurations, each run so often, for so long each where it has no cap."""
    length_s = 3_600.0 * hours
    jobs = [
        TraceJob(
            Job(f"{name}#{run}", (Role.rigid(TaskRequest(0, 0, 1), 1),), name=name, max_slowdown=max_slowdown),
            run * 2.0 * length_s,
            length_s,
        )
        for run in range(runs)
        for name in curves
    ]
    caps_w = [cap for curve in curves.values() for cap in curve.caps_w]
    nodes = tuple(
        replace(node, devices=tuple(replace(each, cap_range_w=(min(caps_w), max(caps_w))) for each in node.devices))
        for node in uniform_cluster(f"{len(curves)}x1:{card}")
    )
    rates = EnergyRates(cards={device.model: DeclaredPower(0.0, 0.0) for node in nodes for device in node.devices})
    return World(nodes, Workload(tuple(jobs), card), "exact", rates=rates, curves=curves)


def played(world: World) -> Played:
    """One row."""
    jobs = [entry.job for entry in world.workload.jobs]
    meter = EnergyMeter(world.rates, curves={job.id: world.curves[job.name] for job in jobs})
    simulation = Simulation(world, make_scheduler(Settings()), observer=meter)
    simulation.run()
    drawn = meter.close(simulation.engine.now).by_job
    energy_j, slowdown = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for entry, work in zip(world.workload.jobs, simulation.works, strict=True):
        energy_j[entry.job.name].append(drawn[entry.job.id].energy_j)
        slowdown[entry.job.name].append((work.ended_at - work.first_start_at) / entry.duration_s - 1.0)
    return Played(
        {name: tuple(each) for name, each in energy_j.items()}, {name: tuple(each) for name, each in slowdown.items()}
    )


def oracle(curves: Curves, before: Played, max_slowdown: float) -> Played:
    """Every run at the cap of the table that is fast enough and needs least energy."""
    energy_j, slowdown = {}, {}
    for name, curve in curves.items():
        usual = curve.step_s[-1], curve.step_s[-1] * curve.power_w[-1]
        parts = [
            (time / usual[0], time * power / usual[1]) for time, power in zip(curve.step_s, curve.power_w, strict=True)
        ]
        energy, slowed = min((energy, time) for time, energy in parts if time <= 1.0 + max_slowdown)
        energy_j[name] = tuple(energy * each for each in before.energy_j[name])
        slowdown[name] = tuple(slowed - 1.0 for _ in before.energy_j[name])
    return Played(energy_j, slowdown)


def compared(card: str, curves: Curves, runs: int, hours: float) -> dict[str, Any]:
    """All rows of a card."""
    before = played(world_of(card, curves, runs, hours, 0.0))
    rows = {
        "no caps": before,
        "by measuring": played(world_of(card, curves, runs, hours, MAX_SLOWDOWN)),
        "oracle": oracle(curves, before, MAX_SLOWDOWN),
    }
    found = {
        name: {
            "saved_percent": 100.0 * row.saved(before),
            "saved_by_last_runs_percent": 100.0 * row.saved(before, slice(-1, None)),
            "slowest_run": row.slowest,
        }
        for name, row in rows.items()
    }
    return {"configurations": len(curves), "rows": found, "met": is_met(found)}


def is_met(rows: Mapping[str, Mapping[str, float]]) -> bool:
    """Whether the targets were met."""
    ours, best = rows["by measuring"], rows["oracle"]
    enough = ours["saved_percent"] >= LEAST_OF_ORACLE / 100.0 * best["saved_percent"]
    return enough and ours["slowest_run"] <= MOST_SLOWDOWN


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of the traces, or one above it")
    parser.add_argument("--cards", nargs="*", default=list(FILES), choices=list(FILES))
    parser.add_argument("--runs", type=int, default=20, help="so often each configuration is run")
    parser.add_argument("--hours", type=float, default=2.0, help="how long a run takes without a cap")
    options = parser.parse_args(arguments)
    if options.runs < 2 or options.hours <= 0:
        raise InvalidInputError("nothing recurs", "give --runs of 2 or more, and --hours above 0")
    table = Table("card", "row", "saved %", "of the oracle %", "by last runs %", "slowest run %", "met", texts=2)
    result: dict[str, Any] = {"runs": options.runs, "hours": options.hours}
    for card in options.cards:
        found = result[card] = compared(
            card, read_curves(find(options.traces, FILES[card])), options.runs, options.hours
        )
        best = found["rows"]["oracle"]["saved_percent"]
        for name, row in found["rows"].items():
            saved, last, slowest = row["saved_percent"], row["saved_by_last_runs_percent"], 100.0 * row["slowest_run"]
            met = verdict(found["met"]) if name == "by measuring" else ""
            table.add(card, name, f"{saved:.2f}", f"{100.0 * saved / best:.1f}", f"{last:.2f}", f"{slowest:.2f}", met)
    emit(result, options.json, [table])


if __name__ == "__main__":
    main()
