"""What switching idle nodes off saves: the log of Philly, September and October 2017, on two sizes of cluster.

A node draws 800 W and a card that computes 160 W more, as in the notes that the targets come from; an idle card draws
what its node does. All is taken from the first submission to the last, per card-hour of work that was done then, so
that rows are compared at equal work. The policy learns nothing of lengths beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.reporting import Table, command_line, emit, note, program, verdict
from benchmarks.traces.cases import PHILLY_LOG, Policy, arguments_of, find, scenario
from millpond.model.decisions import Decision
from millpond.model.energy import J_PER_KWH, DeclaredPower, EnergyRates
from millpond.model.events import Event
from millpond.model.hardware.node_power import PowerSavingRule
from millpond.model.hardware.nodes import DEFAULT_POOL
from millpond.model.resources import CARD_MILLI
from millpond.scheduling.scheduler import Scheduler
from millpond.simulation.clusters import capacity_milli
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.results.card_use import TRAINING_BUSY
from millpond.simulation.results.energy_meter import EnergyMeter
from millpond.simulation.results.history import history_of
from millpond.simulation.scenario import read_world

LEAST_SAVED: Final = {100: 22.0, 80: 15.0}
"""By nodes, in percent."""
MOST_JCT: Final = 1.05
"""Of the mean completion with all nodes on."""
MOST_WAIT_S: Final = 300.0
"""By so much longer one job in twenty may wait."""
CARDS_PER_NODE: Final = 8
NODE_W: Final = 800.0
CARD_W: Final = 160.0
RULE: Final = PowerSavingRule(idle_s=1_800.0, spare=2, least_on_s=3_600.0, boot_s=300.0, cover=0.98)

ROWS: Final = {"all on": (None, False), "switched": (RULE, False), "switched, with moves": (RULE, True)}
"""By row: when nodes are switched, and whether work is moved so that nodes come free."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a row came to.

    Attributes:
        kwh_per_card_hour: of work done.
        on: part of the nodes that drew power, in percent.
        p95_wait_s: from submission to the first start.
    """

    kwh_per_card_hour: float
    on: float
    mean_jct_s: float
    p95_wait_s: float


def played(trace: Path, nodes: int, rule: PowerSavingRule | None, *, moves: bool) -> Drawn:
    """One row."""
    arguments = arguments_of(PHILLY_LOG, Policy("default", "none", preempt=False), trace)
    arguments += ["--consolidates"] if moves else []
    arguments[arguments.index("--cluster") + 1] = f"{nodes}x{CARDS_PER_NODE}"
    plan = scenario(arguments)
    world = read_world(plan)
    return measured(replace(world, power={} if rule is None else {DEFAULT_POOL: rule}), make_scheduler(plan.seeded()))


def measured(world: World, scheduler: Scheduler) -> Drawn:
    """Play a world to the end of its jobs, and measure it up to its last submission."""
    begin, end = world.workload.jobs[0].submit_at, world.workload.jobs[-1].submit_at
    meter = MeterUntil(end)
    simulation = Simulation(world, scheduler, observer=meter)
    simulation.run()
    drawn = meter.close(end)
    history = history_of(simulation)
    work_s = sum(
        run.done_s * (min(run.end_at, end) - run.start_at) / (run.end_at - run.start_at) * history.gpu_milli[run.job]
        for run in history.runs
        if run.start_at < end
    )
    return Drawn(
        drawn.total.energy_j / J_PER_KWH / (work_s / CARD_MILLI / 3600),
        100 * drawn.powered_gpu_s / (end - begin) * CARD_MILLI / capacity_milli(world.nodes),
        float(history.jct_s[history.finished].mean()),
        float(np.percentile(history.first_start_at - history.submit_at, 95)),
    )


class MeterUntil(EnergyMeter):
    """A meter that hears of nothing after an instant."""

    def __init__(self, end: float) -> None:
        super().__init__(EnergyRates(cards={"GPU": DeclaredPower(0.0, CARD_W / TRAINING_BUSY)}), NODE_W)
        self._end = end

    def happened(self, event: Event) -> None:
        """The next event of the log."""
        if event.at <= self._end:
            super().happened(event)

    def decided(self, at: float, decisions: Iterable[Decision]) -> None:
        """What the cycle behind these events came to."""
        if at <= self._end:
            super().decided(at, decisions)


def is_met(on: Drawn, switched: Drawn, nodes: int) -> bool | None:
    """Whether the targets for so many nodes were met; None where there is none."""
    if nodes not in LEAST_SAVED:
        return None
    return bool(
        saved_percent(on, switched) >= LEAST_SAVED[nodes]
        and switched.mean_jct_s <= MOST_JCT * on.mean_jct_s
        and switched.p95_wait_s <= on.p95_wait_s + MOST_WAIT_S
    )


def saved_percent(on: Drawn, switched: Drawn) -> float:
    """What part of the energy for the same work is saved."""
    return 100 * (1 - switched.kwh_per_card_hour / on.kwh_per_card_hour)


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of the traces, or one above it")
    parser.add_argument("--nodes", type=int, nargs="*", default=list(LEAST_SAVED), help="so many nodes of eight cards")
    options = parser.parse_args(arguments)
    trace = find(options.traces, PHILLY_LOG.file)
    headings = ("kWh a card-hour", "saved %", "on %", "mean completion s", "p95 wait s", "met")
    table = Table("nodes", "row", *headings, texts=2)
    result: dict[str, Any] = {}
    for nodes in options.nodes:
        rows: dict[str, Drawn] = {}
        for name, (rule, moves) in ROWS.items():
            note(f"{nodes} nodes, {name}")
            rows[name] = played(trace, nodes, rule, moves=moves)
        on = rows["all on"]
        mets = {name: is_met(on, row, nodes) for name, row in rows.items() if row is not on}
        result[str(nodes)] = {"rows": {name: asdict(row) for name, row in rows.items()}, "met": mets}
        for name, row in rows.items():
            table.add(
                str(nodes), name, f"{row.kwh_per_card_hour:.3f}", f"{saved_percent(on, row):.1f}", f"{row.on:.1f}",
                f"{row.mean_jct_s:,.0f}", f"{row.p95_wait_s:,.0f}", verdict(mets[name]) if name in mets else "",
            )  # fmt: skip
    emit(result, options.json, [table])


if __name__ == "__main__":
    main()
