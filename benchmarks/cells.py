"""Decisions in cells: 5,000 nodes of 8 cards, 10 virtual clusters, filled to 80 % with gangs of all sizes.

Prints how long the start takes (chains, guarantees, their check), and for gangs that come and go around the fill: how
many decisions a second, and the median and 99th percentile of one, in CPU time of this process. A decision is the
choice of the very cards, and their binding; a departure gives them back. With ``--lent`` the rest of each cluster's
cells is full of other work, so the quietest cells have to be found.

Published for HiveD (OSDI 2020 artefact, as measured by its authors' test harness): 106 decisions a second, 10.4 ms at
the 99th percentile, 60 s to start.
"""

from __future__ import annotations

import argparse
import json
import random
import time

from millpond.model.chains import ChainSpec, ClusterSpec
from millpond.scheduling.tenancy.cells.allocator import CellAllocator, CellPlan, CellRequest

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
    """Gangs on one allocator."""

    def __init__(self, cells: CellAllocator, count: int, seed: int) -> None:
        self.cells, self.draw, self.count = cells, random.Random(seed), count
        self.running: list[CellPlan] = []
        self.cards = 0
        self.number = 0
        self.times_s: list[float] = []
        self.refused = 0

    def start(self) -> None:
        """Choose a gang, decide, and bind."""
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


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument("--decisions", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lent", action="store_true", help="other work is on all cards of the clusters from the start")
    options = parser.parse_args()
    specs, owed = hardware(options.nodes), clusters(options.nodes, options.clusters)
    begin = time.process_time()
    cells = CellAllocator(specs, owed)
    start_s = time.process_time() - begin
    if options.lent:
        for chain in cells.chains.values():
            for leaf in range(len(chain.gone[0])):
                chain.visit((leaf,), 1)
    load = Load(cells, options.clusters, options.seed)
    begin = time.process_time()
    while load.cards < FILL * options.nodes * 8:
        load.start()
    fill_s = time.process_time() - begin
    load.times_s.clear()
    load.refused = 0
    begin = time.process_time()
    for _ in range(options.decisions):
        load.start()
        while load.cards > FILL * options.nodes * 8:
            load.end()
    around_s = time.process_time() - begin
    times = sorted(load.times_s)
    print(
        json.dumps(
            {
                "nodes": options.nodes,
                "clusters": options.clusters,
                "lent": options.lent,
                "start_s": round(start_s, 3),
                "fill_s": round(fill_s, 2),
                "gangs_running": len(load.running),
                "refused": load.refused,
                "decisions_per_s": round(len(times) / sum(times)),
                "with_departures_per_s": round(len(times) / around_s),
                "p50_ms": round(times[len(times) // 2] * 1e3, 3),
                "p99_ms": round(times[len(times) * 99 // 100] * 1e3, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
