"""What the server's own history costs: the time of a look at 5,000 nodes of eight cards, the room it takes in the
database, and how long the history of one node takes to be read.

Cards draw, heat and compute at random, so their figures compress as badly as they can. The table is filled for 30 days
with rows of the size that looks leave, of which one in each length is written by the recorder itself.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa

from benchmarks.reporting import Row, command_line, emit, program, table_of
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.host.machine import Machine
from millpond.scheduling.nodes.views import DeviceUse, NodeFree, NodeView
from millpond.server.monitoring.telemetry.sampling import Telemetry
from millpond.server.monitoring.time_series.figures import PARTS_OF_NODES, Subject
from millpond.server.monitoring.time_series.reader import TimeSeriesReader, TimeSpan
from millpond.server.monitoring.time_series.recorder import RESOLUTIONS_OF_PARTS, TimeSeriesRecorder
from millpond.server.store.connection.database import sqlite_url
from millpond.server.store.schema import time_series
from millpond.server.store.statistics.time_series import SeriesRow
from millpond.server.store.store import Store

NOW = 1_764_000_000.0
DAY_S = 86_400.0
POINTS = 240


class Pool(Telemetry):
    """Machines whose cards do something else at each look."""

    def __init__(self, nodes: int, cards: int, seed: int) -> None:
        super().__init__(Machine((), {}), time.time)
        self._random = random.Random(seed)
        self.views = [self._view(f"node-{index:04}", cards) for index in range(nodes)]
        self.now = NOW

    def recent(self, device: str) -> tuple[tuple[float, DeviceSample], ...]:
        """One sample of the last minute."""
        pick = self._random.random
        sample = DeviceSample(
            device, int(1_000 * pick()), power_w=100 + 600 * pick(), temperature_c=int(30 + 60 * pick())
        )
        return ((self.now, sample),)

    def _view(self, name: str, cards: int) -> NodeView:
        devices = [Device(f"{name}-{index}", index, "nvidia", "H100", 81_920) for index in range(cards)]
        uses = tuple(DeviceUse(each, self._random.choice((0, 0, 500, 1_000)), 0, (), None, None) for each in devices)
        return NodeView(Node(name, 1, 1, tuple(devices)), NodeFree(0, 0, 0), uses, (), None, False, (), 0, None)


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    parser = command_line(__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), Pool(options.nodes, options.cards, options.seed))
    result = {"nodes": options.nodes, "cards": options.cards, "rows": [row.plain for row in rows]}
    emit(result, options.json, [table_of(rows)])


def measure(folder: Path, pool: Pool) -> list[Row]:
    """An hour of looks, a full table, and reads of one node."""
    store = Store(sqlite_url(folder / "millpond.db"))
    recorder = TimeSeriesRecorder(lambda: (pool.views, []), pool, store.time_series, lambda: pool.now)
    looks = []
    for _ in range(61):
        begun = time.thread_time()
        recorder.look()
        looks.append(time.thread_time() - begun)
        pool.now += 60.0
    _fill(store, pool.now)
    with store.database.connect() as connection:
        length = sa.func.sum(sa.func.length(time_series.c.data))
        parts = connection.execute(sa.select(length).where(time_series.c.subject.in_(PARTS_OF_NODES))).scalar_one()
        connection.execute(sa.text("PRAGMA wal_checkpoint(TRUNCATE)"))
    reader = TimeSeriesReader(store.time_series, lambda: pool.now)
    name = pool.views[len(pool.views) // 2].node.name
    reads = []
    for span, back_s in (("an hour", 3_600.0), ("a day", DAY_S), ("30 days", 30 * DAY_S)):
        begun = time.perf_counter()
        reader.of(Subject.NODES, TimeSpan(pool.now - back_s, pool.now, back_s / POINTS), [name])
        reads.append(Row(f"one node over {span}", 1e3 * (time.perf_counter() - begun), "ms"))
    store.close()
    return [
        Row("a look, median", statistics.median(looks), "CPU s"),
        Row("a look, mean over an hour", statistics.mean(looks[1:]), "CPU s"),
        Row("a look, the longest", max(looks), "CPU s"),
        Row("rows of single nodes, 30 days", parts / 1e6, "MB"),
        Row("the database", (folder / "millpond.db").stat().st_size / 1e6, "MB"),
        *reads,
    ]


def _fill(store: Store, now: float) -> None:
    """Copies of the last row that the recorder wrote of each length, as far back as such rows are kept."""
    for level in RESOLUTIONS_OF_PARTS:
        latest = store.time_series.latest(PARTS_OF_NODES[0], level.step_s, now)
        assert latest is not None
        rows = [
            row for part in PARTS_OF_NODES for row in store.time_series.between(part, level.step_s, latest, latest + 1)
        ]
        for at in range(latest - level.step_s, int(now) - level.kept_s, -level.step_s):
            store.time_series.write([SeriesRow(row.subject, row.step_s, at, row.samples, row.look) for row in rows])


if __name__ == "__main__":
    main()
