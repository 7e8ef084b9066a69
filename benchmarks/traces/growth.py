"""Elastic gangs that grow by what was measured: the first jobs of Sia's workload, on its 64 cards of three models.

Jobs keep the batch that their user chose; more cards split it, fewer accumulate it. A job is as fast as Sia's
measurements say for its model of cards, their number and its batch; each change of size costs it what the paper charges
(Jayaram Subramanya et al., "Sia", SOSP'23). Three rows: with the number of cards that the user chose; elastic, from one
card to sixteen, as without measuring; and with ``measured_growth``. Beside them the figures of two schedulers, measured
in Sia's simulator on the same jobs: Gavel with rigid jobs, and Sia, which tunes batches too.

The data has no stated licence, so it is read where it lies, and nothing of it is kept here.
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.reporting import Table, command_line, emit, program
from millpond.model.errors import InvalidInputError
from millpond.model.hardware.nodes import Node, Pool, SharingPolicy
from millpond.model.resources import TaskRequest
from millpond.model.workloads import GangRule, Job, Level, Role
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.kernel import World
from millpond.simulation.queueing import replay
from millpond.simulation.trace import TraceJob, Workload
from millpond.simulation.world.speeds import SpeedTable

CARDS = {"aws": "6x4", "dgx-ext": "2x8", "rtx": "3x8"}
EPOCHS = {"bert": 2, "cifar10": 100, "deepspeech2": 80, "imagenet": 90, "yolov3": 50}
RESIZE_S = {"bert": 120.0, "cifar10": 50.0, "deepspeech2": 25.0, "imagenet": 250.0, "yolov3": 80.0}
WIDEST = 16
MEASURED_JOBS = 48
PEERS = {
    "Gavel, rigid": {"mean_jct_s": 2_459, "gpu_hours": 228},
    "Sia, tunes batches": {"mean_jct_s": 1_682, "gpu_hours": 152},
}


class StepTimes:
    """Seconds of a step of one application on one model of cards."""

    def __init__(self, path: Path) -> None:
        by_width: dict[int, dict[int, dict[int, tuple[float, float]]]] = defaultdict(lambda: defaultdict(dict))
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                place, batch = row["placement"], int(float(row["local_bsz"]))
                width = sum(map(int, place))
                by_width[width][len(place)][batch] = float(row["step_time"]), float(row["sync_time"])
        self._by_width = {width: dict(sorted(by_nodes[min(by_nodes)].items())) for width, by_nodes in by_width.items()}
        self.widths = sorted(width for width in self._by_width if width <= WIDEST)

    def of(self, width: int, batch: int) -> float:
        """With a batch split over so many cards; what does not fit into their memory is accumulated."""
        times = self._by_width[width]
        local = -(-batch // width)
        rounds = -(-local // max(times))
        step_s, sync_s = _between(times, local / rounds)
        return rounds * (step_s - sync_s) + sync_s


def _between(times: Mapping[int, tuple[float, float]], batch: float) -> tuple[float, float]:
    """On the line between the two nearest batches."""
    known = list(times)
    index = bisect_left(known, batch)
    if index == 0 or index == len(known):
        return times[known[min(index, len(known) - 1)]]
    below, above = known[index - 1], known[index]
    part = (batch - below) / (above - below)
    first, second = times[below], times[above]
    return first[0] + part * (second[0] - first[0]), first[1] + part * (second[1] - first[1])


def read_rows(folder: Path, most: int) -> list[dict[str, str]]:
    """The first jobs of the workload."""
    with (folder / "philly-workload-1.csv").open(newline="") as file:
        return list(csv.DictReader(file))[:most]


def speeds_of(folder: Path, rows: list[dict[str, str]]) -> SpeedTable:
    """Steps a second of each application with each batch, by cards and their number."""
    alone = {}
    kinds = {(row["application"], int(row["batch_size"])) for row in rows}
    for application in {application for application, _ in kinds}:
        for card in CARDS:
            times = StepTimes(folder / application / f"placements-{card}.csv")
            for batch in (batch for known, batch in kinds if known == application):
                known = tuple((width, 1.0 / times.of(width, batch)) for width in times.widths)
                alone[_family(card), _kind(application, batch)] = known
    return SpeedTable(alone, {}, {_kind(name, batch): RESIZE_S[name] for name, batch in kinds})


def steps_of(folder: Path, application: str, batch: int) -> float:
    """Steps until the epochs of the paper are done, with this batch."""
    with (folder / application / f"validation-{batch}.csv").open(newline="") as file:
        epochs = [float(row["iteration"]) for row in csv.DictReader(file)]
    return epochs[min(EPOCHS[application], len(epochs)) - 1]


def jobs_of(folder: Path, rows: list[dict[str, str]], speeds: SpeedTable, *, elastic: bool) -> Workload:
    """The jobs, each within one model of cards."""
    found = []
    for row in rows:
        application, batch, chosen = row["application"], int(row["batch_size"]), int(row["num_replicas"])
        kind, request = _kind(application, batch), TaskRequest(0, 0, 1)
        least, wanted = (1, WIDEST) if elastic else (chosen, chosen)
        job = Job(
            row["name"],
            (Role(request, wanted, least, wanted),),
            name=kind,
            together=Level.RACK,
            together_required=True,
            gang_rule=GangRule.SHRINK,
        )
        length_s = steps_of(folder, application, batch) / speeds.full(kind, wanted)
        found.append(TraceJob(job, float(row["time"]), length_s, row["name"]))
    return Workload(tuple(found), str(folder))


def nodes() -> tuple[Node, ...]:
    """Sia's default cluster, the cards of each model in a rack of their own."""
    return tuple(
        replace(
            node,
            name=f"{card}-{node.name}",
            rack_name=card,
            devices=tuple(replace(device, uuid=f"{card}-{device.uuid}") for device in node.devices),
        )
        for card, shape in CARDS.items()
        for node in uniform_cluster(f"{shape}:{card}")
    )


def played(folder: Path, most: int, *, elastic: bool, measured: bool) -> dict[str, Any]:
    """One row."""
    rows = read_rows(folder, most)
    speeds = speeds_of(folder, rows)
    pool = Pool(sharing=SharingPolicy.EXCLUSIVE, measured_growth=measured)
    workload = jobs_of(folder, rows, speeds, elastic=elastic)
    world = World(nodes(), workload, "predicted", pools=(pool,), speeds=speeds)
    result = replay(world, Settings())
    busy_s = sum((run.end_at - run.start_at) * len(run.placements) for run in result.history.runs)
    return {
        "mean_jct_s": round(result.metrics.jct_s.mean),
        "p99_jct_s": round(result.metrics.jct_s.p99),
        "makespan_s": round(result.metrics.makespan_s),
        "gpu_hours": round(busy_s / 3_600, 1),
        "unfinished": result.metrics.unfinished,
    }


def _kind(application: str, batch: int) -> str:
    return f"{application}/{batch}"


def _family(card: str) -> str:
    return card.partition("-")[0]


def _table(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table("row", "mean completion s", "p99 s", "makespan s", "GPU hours", texts=1)
    for name, row in rows.items():
        figures = (row.get(figure) for figure in ("mean_jct_s", "p99_jct_s", "makespan_s", "gpu_hours"))
        table.add(name, *("" if figure is None else f"{figure:,}" for figure in figures))
    return table


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="the folder that has sia-2023")
    parser.add_argument("--jobs", type=int, default=MEASURED_JOBS, help="so many of the first jobs")
    options = parser.parse_args(arguments)
    folder = options.traces / "sia-2023"
    if not folder.is_dir():
        raise InvalidInputError(f"there is no folder {folder}", "name the folder of the traces: --traces FOLDER")
    rows = {
        "as users chose": played(folder, options.jobs, elastic=False, measured=False),
        "elastic": played(folder, options.jobs, elastic=True, measured=False),
        "measured growth": played(folder, options.jobs, elastic=True, measured=True),
        **(PEERS if options.jobs == MEASURED_JOBS else {}),
    }
    emit({"jobs": options.jobs, "rows": rows}, options.json, [_table(rows)])


if __name__ == "__main__":
    main()
