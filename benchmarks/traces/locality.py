"""How often a model lies where a request goes, and how long requests take: the GenAI trace on eight nodes.

A node serves one request at a time and keeps two models; to load another takes 22 s. With demand 3 each request comes
twice more, up to ten minutes later, drawn by a seed. Each request is a job that needs its model, played in the
simulator, whose nodes keep what is worth most (`model.contents`) and where the policy knows how long requests take
(`--durations exact`) or predicts it. The peers keep what was used last.

- *least loaded*: each request goes to the node with the fewest, when it comes.
- *Fluid's rule*: the first in line goes to an idle node that holds its model, by preference, else to any idle one.
- *placed*: by Millpond, whose requests never wait for a node (ordering `fifo`).
- *placed, may wait*: by Millpond's default ordering.
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.forecasting.load_series import instant, rows_of
from benchmarks.reporting import Row, Table, command_line, emit, note, program, table_of
from millpond.model.contents import Content
from millpond.model.resources import TaskRequest
from millpond.model.workloads import Job, Role
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.trace import TraceJob, Workload
from millpond.simulation.world.node_caches import CacheSize

FILE: Final = "lora_request_trace_first16d.csv.gz"
NODES: Final = 8
MODELS: Final = 2
LOAD_S: Final = 22.0
LATER_S: Final = 600.0
SEED: Final = 0
FETCH_RATE: Final = 100_000_000
MODEL_BYTES: Final = round(LOAD_S * FETCH_RATE)
LEAST_S: Final = 0.001
"""A request that was never served takes no time; a job has to."""
TARGETS: Final = {1: (85.0, 33.5), 3: (70.0, 200.0)}
"""By demand: the least hits in percent, the longest mean latency in seconds."""

Request = tuple[float, float, str]
"""When it comes, how long it is served, by which model."""


@dataclass(frozen=True, slots=True)
class Served:
    """What became of the requests.

    Attributes:
        hits: those that found their model loaded, in percent.
        latency_s: the mean from when they came to their end.
    """

    hits: float
    latency_s: float


def requests_of(folder: Path, demand: int, most: int) -> list[Request]:
    """The first requests of the trace that name a model, each ``demand`` times."""
    draw = random.Random(SEED)
    rows = [row for row in rows_of(folder, FILE) if row["checkpoint_model_version_id"]][:most]
    found = [
        (instant(row["gmt_create"]), float(row["exec_time_seconds"] or 0.0), row["checkpoint_model_version_id"])
        for row in rows
    ]
    copies = [
        (at + draw.uniform(0.0, LATER_S), length_s, model) for at, length_s, model in found for _ in range(demand - 1)
    ]
    return sorted(found + copies)


class ModelCache:
    """The models that a node of a peer has loaded."""

    def __init__(self) -> None:
        self.loaded: OrderedDict[str, None] = OrderedDict()
        self.hits = 0

    def load(self, model: str) -> float:
        """Have a model; returns the seconds that it takes."""
        is_there = model in self.loaded
        self.loaded[model] = None
        self.loaded.move_to_end(model)
        self.hits += is_there
        if len(self.loaded) > MODELS:
            self.loaded.popitem(last=False)
        return 0.0 if is_there else LOAD_S


def least_loaded(requests: Sequence[Request]) -> Served:
    """Each to the node with the fewest requests, when it comes."""
    caches = [ModelCache() for _ in range(NODES)]
    ends: list[list[float]] = [[] for _ in range(NODES)]
    free_at = [0.0] * NODES
    latency_s = 0.0
    for at, length_s, model in requests:
        open_ends = [[end for end in each if end > at] for each in ends]
        node = min(range(NODES), key=lambda index: (len(open_ends[index]), index))
        free_at[node] = max(free_at[node], at) + caches[node].load(model) + length_s
        ends = open_ends
        ends[node].append(free_at[node])
        latency_s += free_at[node] - at
    return _served(caches, latency_s, len(requests))


def by_preference(requests: Sequence[Request]) -> Served:
    """The first in line to an idle node that holds its model, else to any idle one."""
    caches = [ModelCache() for _ in range(NODES)]
    busy: list[tuple[float, int]] = []
    idle = set(range(NODES))
    latency_s = now = 0.0
    for at, length_s, model in requests:
        now = max(now, at)
        while busy and (busy[0][0] <= now or not idle):
            end, node = heapq.heappop(busy)
            now = max(now, end)
            idle.add(node)
        node = min(idle, key=lambda index: (model not in caches[index].loaded, index))
        idle.remove(node)
        end = now + caches[node].load(model) + length_s
        heapq.heappush(busy, (end, node))
        latency_s += end - at
    return _served(caches, latency_s, len(requests))


def _served(caches: Sequence[ModelCache], latency_s: float, count: int) -> Served:
    return Served(100.0 * sum(cache.hits for cache in caches) / count, latency_s / count)


def placed(requests: Sequence[Request], ordering: str, durations: str) -> Served:
    """By Millpond's scheduler in the simulator."""
    roles = (Role.rigid(TaskRequest(devices=1), 1),)
    entries = tuple(
        TraceJob(
            Job(f"r{number}", roles, contents=(Content(f"model:{model}", MODEL_BYTES),)), at, max(length_s, LEAST_S)
        )
        for number, (at, length_s, model) in enumerate(requests)
    )
    cache = CacheSize(MODELS * MODEL_BYTES, FETCH_RATE)
    world = World(uniform_cluster(f"{NODES}x1"), Workload(entries, FILE), durations, cache=cache)
    simulation = Simulation(world, Scheduler(Settings(ordering=ordering, preempt=False)))
    simulation.run()
    assert simulation.caches is not None
    latency_s = sum(work.ended_at - entry.submit_at for work, entry in zip(simulation.works, entries, strict=True))
    return Served(100.0 * simulation.caches.hits / simulation.caches.starts, latency_s / len(entries))


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of the traces, or one above it")
    parser.add_argument("--demand", type=int, choices=sorted(TARGETS), nargs="+", default=sorted(TARGETS))
    parser.add_argument("--requests", type=int, default=1_000_000, help="so many of the trace at the most")
    parser.add_argument("--durations", choices=("predicted", "exact"), default="exact")
    options = parser.parse_args(arguments)
    rows: dict[str, dict[str, Served]] = {}
    judged: list[Row] = []
    for demand in options.demand:
        note(f"demand {demand}")
        requests = requests_of(options.traces, demand, options.requests)
        waiting = placed(requests, "default", options.durations)
        rows[f"{demand} x"] = {
            "least loaded": least_loaded(requests),
            "Fluid's rule": by_preference(requests),
            "placed": placed(requests, "fifo", options.durations),
            "placed, may wait": waiting,
        }
        least, longest_s = TARGETS[demand]
        judged.append(Row(f"hits at demand {demand}, may wait", waiting.hits, "%", least, least=True))
        judged.append(Row(f"mean latency at demand {demand}, may wait", waiting.latency_s, "s", longest_s))
    result: dict[str, Any] = {
        "rows": {demand: {name: asdict(row) for name, row in found.items()} for demand, found in rows.items()},
        "judged": [row.plain for row in judged],
    }
    table = Table("demand", "row", "hits", "mean latency", texts=2)
    for name, found in rows.items():
        for row, served in found.items():
            table.add(name, row, f"{served.hits:.1f} %", f"{served.latency_s:.1f} s")
    emit(result, options.json, [table, table_of(judged)])


if __name__ == "__main__":
    main()
