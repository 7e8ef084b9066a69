"""How evenly cards are used that services share: the duty cycles of the GenAI trace on 24 cards, one day.

Each pod of the trace is a job with a twentieth of a card, which comes with the first of its samples and goes with the
last; a sample that is missing counts as no demand. What pods demand is the truth of the world. The scheduler learns of
it by samples of cards alone, which end at 100 %, as a server tells them (`server/monitoring/load_watch.py`). Demand
beyond 100 % of a card is lost: that is judged, as a part of all demand, mean over seeds. Pods that come at once come in
an order that the seed draws.

- *random*: any card.
- *by count*: `spread`, of which nothing is measured: a card counts as used to what is held of it.
- *by load*: `spread`, measured.
- *by load, with moves*: and the pool balances. A move is an end and a start at the same instant.

The bounds of moves were chosen on the first six hours; the rest is shown by itself.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.forecasting.load_series import rows_of
from benchmarks.reporting import Row, Table, command_line, emit, note, program, table_of
from benchmarks.traces.cases import find
from millpond.model.decisions import Decision, Migrate, Start, Stop
from millpond.model.events import (
    Confirmed,
    Ended,
    Event,
    JobSubmitted,
    LoadSampled,
    NodeJoined,
    PoolChanged,
    QueueChanged,
)
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node, Pool
from millpond.model.reasons import Cause
from millpond.model.resources import CARD_MILLI, SliceRequest, TaskRequest
from millpond.model.states import Outcome
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import Checkpoint, CheckpointMode, Job, Role
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.server.monitoring.load_watch import LoadMeter

FILE: Final = "pod_gpu_duty_cycle_anon.csv.gz"
CARDS: Final = 24
STEP_S: Final = 57.0
LOOKS: Final = 6
"""So often the server looks at each card in a step."""
CHOSEN_ON: Final = 380
"""Steps, six hours, on which the bounds of moves were chosen."""
HELD_MILLI: Final = 50
DAY_S: Final = 86_400.0
ROWS: Final = {
    "random": ("random", False, False),
    "by count": ("spread", False, False),
    "by load": ("spread", True, False),
    "by load, with moves": ("spread", True, True),
}
"""By row: the placement, whether cards are measured, and whether work is moved."""
MOST_LOST: Final = 6.6
MOST_MOVES: Final = 120


@dataclass(frozen=True, slots=True)
class LostDemand:
    """What a row came to.

    Attributes:
        lost, lost_later: percent of the demand of all steps, and of those behind ``CHOSEN_ON``.
        events_an_hour: that told the load of cards.
    """

    lost: float
    lost_later: float
    moves_a_day: float
    events_an_hour: float


class SharedCardsWorld:
    """Cards, pods whose demand is the truth, and a scheduler that sees samples.

    Args:
        demand: (pods, steps) in percent of a card; NaN where nothing is known.
        cards: each in a node of its own.
    """

    def __init__(self, demand: np.ndarray, cards: int, row: tuple[str, bool, bool], seed: int) -> None:
        placement, self._is_measured, balances = row
        self.demand = np.nan_to_num(demand)
        self._known = ~np.isnan(demand)
        self._draw = random.Random(seed)
        self.core = Scheduler(Settings(placement=placement, seed=seed))
        self.now = 0.0
        self.decisions: list[Decision] = []
        self.told: list[LoadSampled] = []
        self.card_of: dict[int, int] = {}
        self._meter = LoadMeter()
        self._tell(PoolChanged(0.0, Pool(balances=balances)), QueueChanged(0.0, Queue("default")))
        for card in range(cards):
            device = Device(f"card-{card}", 0, "nvidia", "A100", 81_920)
            self._tell(NodeJoined(0.0, Node(f"n{card}", 64_000, 256_000, (device,))))
        self.used = np.zeros((cards, demand.shape[1]))
        """(cards, steps) what is demanded of each card."""

    def play(self, steps: int | None = None) -> None:
        """Let so many steps pass; all unless given."""
        present = [np.flatnonzero(known) for known in self._known]
        for step in range(self.demand.shape[1] if steps is None else steps):
            come = [pod for pod, at in enumerate(present) if at[0] == step]
            self._draw.shuffle(come)
            self._tell(*(JobSubmitted(self.now, _job_of(pod)) for pod in come))
            gone = [pod for pod, at in enumerate(present) if at[-1] + 1 == step]
            self._tell(*(self._end_of(pod, Outcome.SUCCESS) for pod in gone))
            for _ in range(LOOKS):
                self._settle()
                self._look(step)
                self.now += STEP_S / LOOKS
            for pod, card in self.card_of.items():
                self.used[card, step] += self.demand[pod, step]

    def _look(self, step: int) -> None:
        if not self._is_measured:
            return
        uses = np.zeros(len(self.used))
        for pod, card in self.card_of.items():
            uses[card] += self.demand[pod, step]
        milli = {f"card-{card}": min(10.0 * use, CARD_MILLI) for card, use in enumerate(uses.tolist())}
        told = self._meter.look(self.core.held_cards(), milli, {}, self.now)
        self.told += told
        self._tell(*told)

    def _tell(self, *events: Event) -> None:
        for event in events:
            self.core.handle(event)

    def _settle(self) -> None:
        while decided := self.core.decide(self.now):
            self.decisions += decided
            for decision in decided:
                self._tell(Confirmed(self.now, decision.id))
                pod = int(decision.job)
                if isinstance(decision, Start):
                    (place,) = decision.placements
                    self.card_of[pod] = int(place.node[1:])
                elif isinstance(decision, Stop):
                    self._tell(self._end_of(pod, Outcome.STOPPED))
                assert not isinstance(decision, Migrate)

    def _end_of(self, pod: int, outcome: Outcome) -> Ended:
        self.card_of.pop(pod)
        return Ended(self.now, str(pod), self.core.jobs[str(pod)].attempt, outcome)

    def result(self) -> LostDemand:
        """What was lost."""
        moves = [each for each in self.decisions if isinstance(each, Stop) and each.cause is Cause.BALANCED]
        return LostDemand(
            lost_of(self.used),
            lost_of(self.used[:, CHOSEN_ON:]),
            len(moves) * DAY_S / max(self.now, 1.0),
            len(self.told) * 3_600.0 / max(self.now, 1.0),
        )


def _job_of(pod: int) -> Job:
    request = TaskRequest(100, 100, 1, SliceRequest(HELD_MILLI, limit_milli=HELD_MILLI))
    return Job(str(pod), (Role(request),), checkpoint=Checkpoint(CheckpointMode.SIGNAL))


def lost_of(used: np.ndarray) -> float:
    """Percent of the demand that lies beyond 100 % of its card."""
    total = used.sum()
    return float(100.0 * np.maximum(used - 100.0, 0.0).sum() / total) if total else 0.0


def duty_cycles(folder: Path) -> np.ndarray:
    """(pods, steps) the demand of each pod of the trace in percent of a card; NaN where it has no sample."""
    samples: dict[str, dict[int, float]] = {}
    for row in rows_of(folder, FILE):
        samples.setdefault(row["container_ip"], {})[round(float(row["timestamp_anon"]) / STEP_S)] = float(row["value"])
    begin = min(min(each) for each in samples.values())
    demand = np.full((len(samples), max(max(each) for each in samples.values()) - begin + 1), np.nan)
    for pod, each in enumerate(samples.values()):
        demand[pod, np.array(list(each)) - begin] = list(each.values())
    return demand


def played(demand: np.ndarray, row: tuple[str, bool, bool], seed: int) -> LostDemand:
    """One row with one seed."""
    world = SharedCardsWorld(demand, CARDS, row, seed)
    world.play()
    return world.result()


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of the traces, or one above it")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args(arguments)
    demand = duty_cycles(find(options.traces, FILE).parent)
    rows: dict[str, LostDemand] = {}
    for name, row in ROWS.items():
        note(name)
        found = [asdict(played(demand, row, seed)) for seed in range(options.seeds)]
        rows[name] = LostDemand(**{key: float(np.mean([each[key] for each in found])) for key in found[0]})
    moved = rows["by load, with moves"]
    judged = [
        Row("demand beyond 100 %, by load with moves", moved.lost, "%", MOST_LOST),
        Row("moves a day", moved.moves_a_day, "", MOST_MOVES),
    ]
    result: dict[str, Any] = {
        "rows": {name: asdict(row) for name, row in rows.items()},
        "judged": [row.plain for row in judged],
    }
    emit(result, options.json, [_table(rows), table_of(judged)])


def _table(rows: dict[str, LostDemand]) -> Table:
    table = Table("row", "beyond 100 % of a card", "behind six hours", "moves a day", "events an hour", texts=1)
    for name, row in rows.items():
        cells = (f"{row.lost:.2f} %", f"{row.lost_later:.2f} %", f"{row.moves_a_day:.0f}", f"{row.events_an_hour:.0f}")
        table.add(name, *cells)
    return table


if __name__ == "__main__":
    main()
