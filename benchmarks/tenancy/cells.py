"""Decisions in cells: 5,000 nodes of 8 cards, 10 virtual clusters, filled to 80 % with gangs of all sizes.

Measured is how long the start takes (chains, guarantees, their check), and for gangs that come and go around the fill:
how many decisions a second, and the median and 99th percentile of one, in CPU time of this process. A decision is the
choice of the very cards, and their binding; a departure gives them back. With ``--lent`` the rest of each cluster's
cells is full of other work, so the quietest cells have to be found.

With ``--live`` it is not the allocator alone but whole cycles of a scheduler, from the submission of a gang to its
confirmed start; then lent cards have to be taken back, so a decision has a cycle that asks for them and one that starts
the gang. ``--together`` submits so many gangs at once, as a cycle of a busy cluster sees them. Garbage is looked for as
in a server that has started with the fill.

Published for HiveD (OSDI 2020 artefact, as measured by its authors' test harness): 106 decisions a second, 10.4 ms at
the 99th percentile, 60 s to start.
"""

from __future__ import annotations

import random
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence

from benchmarks.calibration import as_served
from benchmarks.reporting import Table, command_line, emit, program
from millpond.model.decisions import Decision, Start, Stop
from millpond.model.events import Confirmed, Ended, JobSubmitted, NodeJoined, QueueChanged, StopRequested
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.resources import SHARE_OF_CARD, Amount, SliceRequest, TaskRequest
from millpond.model.states import Outcome
from millpond.model.tenancy.cells import CellCount
from millpond.model.tenancy.chains import ChainSpec, ClusterSpec
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import Job, Role
from millpond.scheduling.placement.kernel_warmup import warm
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.tenancy.cells.allocator import CellAllocator
from millpond.scheduling.tenancy.cells.requests import CellPlan, CellRequest

CARDS = 8
FILL = 0.8
GANGS = ((1,), (1,), (1,), (2,), (4,), (8,), (8, 8), (8, 8, 8, 8))
"""Cards of each task; one of these is drawn for each gang."""


def hardware(nodes: int) -> list[ChainSpec]:
    """Half of the nodes in racks of 4, the others single."""
    levels, fans = ("card", "switch", "socket", "node"), (2, 2, 2)
    cards = [(f"n{node}", tuple(f"n{node}-{card}" for card in range(8))) for node in range(nodes)]
    half = nodes // 8 * 4
    racks = ChainSpec("racks", "A100", (*levels, "rack of 4 nodes"), (*fans, 4), 3, tuple(cards[:half]))
    return [racks, ChainSpec("nodes", "A100", levels, fans, 3, tuple(cards[half:]))]


def clusters(nodes: int, count: int) -> list[ClusterSpec]:
    """All that there is, in equal parts."""
    racks, singles = nodes // 8, nodes - nodes // 8 * 4
    owed = {"racks": {"rack of 4 nodes": racks // count}, "nodes": {"node": singles // count}}
    return [ClusterSpec(f"c{number}", owed) for number in range(count)]


class Load:
    """Gangs on one allocator.

    Attributes:
        most: how many cards there are.
        start_s: CPU time that the allocator took to be made.
        times_s: the same of each decision.
    """

    def __init__(self, nodes: int, count: int, seed: int) -> None:
        self.draw, self.count, self.most = random.Random(seed), count, nodes * CARDS
        specs, owed = hardware(nodes), clusters(nodes, count)
        begin = time.process_time()
        self.cells = CellAllocator(specs, owed)
        self.start_s = time.process_time() - begin
        self.running: list[CellPlan] = []
        self.cards = self.number = self.refused = 0
        self.times_s: list[float] = []

    def lend(self) -> None:
        """Other work takes all cards."""
        for chain in self.cells.chains.values():
            for leaf in range(len(chain.gone[0])):
                chain.visit((leaf,), 1)

    def start(self, _gangs: int) -> None:
        """Choose a gang, decide, and bind: one at a time."""
        self.number += 1
        gang = self.draw.choice(GANGS)
        request = CellRequest(f"g{self.number}", (f"c{self.draw.randrange(self.count)}",), gang)
        begin = time.process_time()
        plan = self.cells.plan(request)
        for place in () if plan is None else plan.places:
            self.cells.hold(place.chain, place.leaves, place.use)
        self.times_s.append(time.process_time() - begin)
        if plan is None:
            self.refused += 1
        else:
            self.running.append(plan)
            self.cards += sum(gang)

    def end(self) -> None:
        """Any of the gangs leaves."""
        plan = self.running.pop(self.draw.randrange(len(self.running)))
        for place in plan.places:
            self.cells.release(place.chain, place.leaves, place.use.owner)
            self.cards -= len(place.leaves)


class LiveLoad:
    """The same gangs as jobs of a scheduler, whose every cycle is carried out at once.

    Attributes:
        times_s: CPU time of each cycle that a new gang leads to, from its submission to the confirmed start.
    """

    def __init__(self, nodes: int, count: int, seed: int) -> None:
        self.draw, self.count, self.most = random.Random(seed), count, nodes * CARDS
        self.core = Scheduler()
        self.core.use_kernels(warm())
        self.running: list[str] = []
        self.cards = self.number = self.refused = 0
        self.now = 1.0
        self.times_s: list[float] = []
        begin = time.process_time()
        for node in machines(nodes):
            self.core.handle(NodeJoined(0.0, node))
        for number in range(count):
            self.core.handle(QueueChanged(0.0, owed_queue(f"c{number}", nodes, count)))
        self.core.handle(QueueChanged(0.0, Queue("others")))
        self.core.decide(self.now)
        self.start_s = time.process_time() - begin

    def lend(self) -> None:
        """Work of a queue without cells takes all cards that are free."""
        for node in range(self.most // CARDS):
            self._submit(f"lent{node}", (1,) * CARDS, "others")
        while decisions := self.core.decide(self.now):
            self._obey(decisions)

    def start(self, gangs: int) -> None:
        """Gangs are submitted together, and all cycles run that this leads to."""
        made = [(f"g{self.number + each}", self.draw.choice(GANGS)) for each in range(gangs)]
        self.number += gangs
        self.now += 1.0
        begin = time.process_time()
        for job, cards in made:
            self._submit(job, cards, f"c{self.draw.randrange(self.count)}")
        while decisions := self.core.decide(self.now):
            self._obey(decisions)
        self.times_s.append(time.process_time() - begin)
        for job, cards in made:
            if self.core.jobs[job].started_at is None:
                self.refused += 1
                self.core.handle(StopRequested(self.now, job))
            else:
                self.running.append(job)
                self.cards += sum(cards)

    def end(self) -> None:
        """Any of the gangs ends."""
        position = self.draw.randrange(len(self.running))
        self.running[position], self.running[-1] = self.running[-1], self.running[position]
        record = self.core.jobs[self.running.pop()]
        self.cards -= record.gpu_milli // 1000
        self.core.handle(Ended(self.now, record.id, record.attempt, Outcome.SUCCESS))
        self.core.forget(record.id)

    def _submit(self, job: str, cards: Sequence[int], queue: str) -> None:
        request = TaskRequest(1000, 1000, cards[0], SliceRequest(1000, SHARE_OF_CARD, 1000))
        self.core.handle(JobSubmitted(self.now, Job(job, (Role.rigid(request, len(cards)),), queue=queue)))

    def _obey(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Start | Stop):
                self.core.handle(Confirmed(self.now, decision.id))
            if isinstance(decision, Stop):
                self.core.handle(Ended(self.now, decision.job, decision.attempt, Outcome.STOPPED))


def machines(nodes: int) -> Iterator[Node]:
    """The same hardware as ``hardware`` has."""
    half = nodes // 8 * 4
    for number in range(nodes):
        devices = tuple(
            Device(f"n{number}-{card}", card, "nvidia", "A100", 80_000, switch=card // 2, socket=card // 4)
            for card in range(CARDS)
        )
        yield Node(f"n{number}", 128_000, 1_024_000, devices, rack_name=f"r{number // 4}" if number < half else "")


def owed_queue(name: str, nodes: int, count: int) -> Queue:
    """A queue that is owed what a cluster of ``clusters`` is."""
    owed = (CellCount("rack of 4 nodes", nodes // 8 // count), CellCount("node", (nodes - nodes // 8 * 4) // count))
    cards = sum(cell.count * CARDS * max(cell.rack_nodes, 1) for cell in owed)
    return Queue(name, guarantee=Amount(1000 * cards), cells=tuple(cell for cell in owed if cell.count))


def measured(load: Load | LiveLoad, options: Namespace) -> dict[str, object]:
    """How long start and fill take, how many decisions a second are made then, and how long one step takes."""
    together = options.together if options.live else 1
    if options.lent:
        load.lend()
    begin = time.process_time()
    while load.cards < FILL * load.most:
        load.start(together)
    fill_s = time.process_time() - begin
    as_served()
    load.times_s.clear()
    load.refused = 0
    begin = time.process_time()
    for _ in range(options.decisions // together):
        load.start(together)
        while load.cards > FILL * load.most:
            load.end()
    around_s, times = time.process_time() - begin, sorted(load.times_s)
    return {
        "live": options.live,
        **({"gangs_submitted_together": together} if options.live else {}),
        "nodes": options.nodes,
        "clusters": options.clusters,
        "lent": options.lent,
        "start_s": round(load.start_s, 3),
        "fill_s": round(fill_s, 2),
        "gangs_running": len(load.running),
        "refused": load.refused,
        "decisions_per_s": round(together * len(times) / sum(times)),
        "with_departures_per_s": round(together * len(times) / around_s),
        "p50_ms": round(times[len(times) // 2] * 1e3, 3),
        "p99_ms": round(times[len(times) * 99 // 100] * 1e3, 3),
    }


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table of one row."""
    parser = command_line(__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument("--decisions", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lent", action="store_true", help="other work is on all cards of the clusters from the start")
    parser.add_argument("--live", action="store_true", help="whole cycles of a scheduler")
    parser.add_argument("--together", type=int, default=1, help="with --live, so many gangs are submitted at once")
    options = parser.parse_args(arguments)
    load = (LiveLoad if options.live else Load)(options.nodes, options.clusters, options.seed)
    row = measured(load, options)
    table = Table(*row)
    table.add(*map(str, row.values()))
    emit(row, options.json, [table])


if __name__ == "__main__":
    main()
