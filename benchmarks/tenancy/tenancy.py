"""Whether queues get what they are guaranteed, and how long that takes.

- *guarantee*: random worlds (``guarantee_walk.py``), one step for each thing that happens: how many jobs waited that a
  guarantee covers and were judged, how many started on room that was taken back, and what was found wrong. In every
  third one guarantees are of single models of cards.
- *reclaim*: a cluster of eight cards a node is full of jobs of one card, some of them borrowed; then the owner asks for
  its part. CPU time of the submission and of the cycle that finds and asks those who leave, with one lender beside
  the owner and with 49 on three floors, all at their guarantees but for what they have borrowed; and the most memory
  that the whole process ever had.
- *never*: how long the core takes to say at submission of a job that it can never run: by the shape of the machines, a
  card model, a limit, a guarantee that it may not exceed.

    python -m benchmarks.tenancy.tenancy [--only guarantee] [--steps 100000] [--json FILE]
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import cycle, islice
from multiprocessing import get_context
from typing import Any

from benchmarks.cycles.core_speed import queue_tree
from benchmarks.cycles.cycle_scenes import ONE_CARD, Measured
from benchmarks.reporting import Table, command_line, emit, note, program, verdict
from benchmarks.tenancy.guarantee_walk import GuaranteeWalk
from millpond.model.events import QueueChanged
from millpond.model.resources import CARD_MILLI, Amount, TaskRequest
from millpond.model.tenancy.tenants import ROOT_QUEUE, Queue
from millpond.model.workloads import Job, Role

CARDS = 8
FEWEST_STEPS, MOST_STEPS = 20, 60
"""Of one random world."""

RECLAIMS = (
    ("one job of one card, 500 nodes, 4,000 jobs", 500, 1, 1, 0.05),
    ("one job of a whole node, 500 nodes, 4,000 jobs", 500, 1, CARDS, 0.05),
    ("a gang of 512 cards, 1,000 nodes, 8,000 jobs", 1000, 64, CARDS, 1.0),
)
"""What the owner asks for, of how many nodes: tasks and cards of each, and the seconds it should take less than."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Something measured, and what it should stay below; None: nothing."""

    part: str
    what: str
    value: float
    unit: str
    below: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether it does."""
        return None if self.below is None else self.value < self.below


# ---- the guarantee --------------------------------------------------------------------------------------------------


def guarantees(steps: int, first: int, wrong: list[str]) -> Iterator[Figure]:
    """Random worlds from a seed on, so many steps in all; what is wrong is added to the list."""
    found: Counter[str] = Counter()
    seed = first
    while found["steps"] < steps:
        walk = GuaranteeWalk(seed, with_models=seed % 3 == 0)
        for _ in range(walk.draws.randint(FEWEST_STEPS, MOST_STEPS)):
            try:
                walk.step()
            except AssertionError as error:  # an instant that does not come to rest
                walk.wrong.append(str(error))
            if walk.wrong:
                wrong.append(f"seed {seed}: {walk.wrong[0]}")
                note(wrong[-1])
                break
        found.update(walk.found)
        found["worlds"] += 1
        seed += 1
    for what in ("worlds", "steps", "guaranteed and waiting", "kept for others", "taken back", "not preemptible"):
        yield Figure("guarantee", what, found[what], "")
    yield Figure("guarantee", "wrong", len(wrong), "", 1)


# ---- taking back ----------------------------------------------------------------------------------------------------


def lenders_and_owner(cards: int, owned: int, *, floors: bool) -> tuple[list[Queue], str]:
    """Queues that are guaranteed all cards together, and the name of the one that is guaranteed ``owned`` of them."""
    if not floors:
        return [_guaranteed("lender", cards - owned), _guaranteed("owner", owned)], "owner"
    queues = {queue.name: replace(queue, guarantee=Amount()) for queue in queue_tree(cards)}
    parents = {queue.parent for queue in queues.values()}
    leaves = [name for name in queues if name not in parents]
    owner = max(leaves)
    for leaf in leaves:
        given, name = Amount(CARD_MILLI * (owned if leaf == owner else (cards - owned) // (len(leaves) - 1))), leaf
        while name != ROOT_QUEUE:
            queues[name] = replace(queues[name], guarantee=queues[name].guarantee + given)
            name = queues[name].parent
    return list(queues.values()), owner


def _guaranteed(name: str, cards: int) -> Queue:
    return Queue(name, guarantee=Amount(cards * CARD_MILLI))


def full_cluster(nodes: int, owned: int, *, floors: bool) -> tuple[Measured, str]:
    """All cards held by the lenders: first what each is guaranteed, then what they borrow; and the owner's name."""
    world = Measured(nodes)
    queues, owner = lenders_and_owner(world.cards, owned, floors=floors)
    world.tell(*(QueueChanged(0.0, queue) for queue in queues))
    parents = {queue.parent for queue in queues}
    lenders = [queue for queue in queues if queue.name not in parents and queue.name != owner]
    own = [queue.name for queue in lenders for _ in range(queue.guarantee.gpu_milli // CARD_MILLI)]
    lent = islice(cycle(queue.name for queue in lenders), world.cards - len(own))
    for part, names in (("own", own), ("lent", list(lent))):
        world.submit(Job(f"{part}{number}", ONE_CARD, queue=name) for number, name in enumerate(names))
        world.settle()
    world.require("running", world.cards)
    return world, owner


def reclaim(nodes: int, tasks: int, cards: int, *, floors: bool) -> tuple[float, float]:
    """The owner takes its part back for one job of so many tasks with so many cards each: CPU seconds, most MiB."""
    world, owner = full_cluster(nodes, max(tasks * cards, CARDS), floors=floors)
    world.begin()
    world.submit([Job("owned", (Role.rigid(TaskRequest(1000 * cards, 1024, cards), tasks),), queue=owner)])
    world.cycle()
    took = world.total_s
    world.require("stopping", tasks * cards)
    world.settle()
    world.require("queued", tasks * cards)
    return took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def reclaims(scale: float) -> Iterator[Figure]:
    """Each case in a process of its own, in which a small one has compiled what it needs."""
    for what, nodes, tasks, cards, below_s in RECLAIMS:
        for floors in (False, True):
            case = f"{what}; {'50 queues on three floors' if floors else 'two queues'}"
            note(case)
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                process.submit(reclaim, 16, 2, CARDS, floors=floors).result()
                counts = (max(int(nodes * scale), 16), max(int(tasks * scale), 1))
                took, mib = process.submit(reclaim, *counts, cards, floors=floors).result()
            yield Figure("reclaim", case, 1000 * took, "ms", 1000 * below_s)
            yield Figure("reclaim", "... memory of the process", mib, "MiB", 500)


# ---- what can never run ---------------------------------------------------------------------------------------------


def never(nodes: int) -> Iterator[Figure]:
    """Verdicts on jobs that can never run, on a full cluster with 50 queues on three floors."""
    world, owner = full_cluster(nodes, CARDS, floors=True)
    limited = Queue("limited", limit=Amount(4 * CARD_MILLI))
    alone = Queue("alone", guarantee=Amount(4 * CARD_MILLI), borrows=False)
    world.tell(QueueChanged(world.now, limited), QueueChanged(world.now, alone))
    for what, request, tasks, queue, preemptible in (
        ("more cards than any node has", TaskRequest(1000, 1024, 16), 1, owner, True),
        ("a card model that no node has", TaskRequest(1000, 1024, 1, models=("H100",)), 1, owner, True),
        ("a gang of more nodes than there are", TaskRequest(1000, 1024, CARDS), nodes + 1, owner, True),
        ("more than the limit of its queue", TaskRequest(1000, 1024, CARDS), 1, "limited", True),
        ("more than its queue, which may not borrow, is guaranteed", TaskRequest(1000, 1024, CARDS), 1, "alone", True),
        ("not preemptible, and more than any guarantee", TaskRequest(1000, 1024, 1), world.cards, owner, False),
    ):
        job = Job("never", (Role.rigid(request, tasks),), queue=queue, preemptible=preemptible)
        world.begin()
        world.timed(lambda job=job: _require_refused(world, job))  # type: ignore[misc]
        yield Figure("never", what, 1000 * world.total_s, "ms", 1000)


def _require_refused(world: Measured, job: Job) -> None:
    if world.scheduler.check(job) is None:
        raise SystemExit(f"the core says that {job.roles[0]} in {job.queue} could run")


# ---- the program ----------------------------------------------------------------------------------------------------


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--only", action="append", choices=("guarantee", "reclaim", "never"))
    parser.add_argument("--steps", type=int, default=100_000, help="of random worlds")
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--scale", type=float, default=1.0, help="of the clusters in reclaim and never")
    options = parser.parse_args(arguments)
    wrong: list[str] = []
    parts: dict[str, Callable[[], Iterator[Figure]]] = {
        "guarantee": partial(guarantees, options.steps, options.first, wrong),
        "reclaim": partial(reclaims, options.scale),
        "never": partial(never, max(int(5_000 * options.scale), 16)),
    }
    figures = [figure for part in options.only or parts for figure in parts[part]()]
    table = Table("part", "what", "value", "", "below", "met", texts=2)
    for figure in figures:
        digits = 1 if figure.unit else 0
        below = "" if figure.below is None else f"{figure.below:,.0f}"
        table.add(figure.part, figure.what, f"{figure.value:,.{digits}f}", figure.unit, below, verdict(figure.met))
    rows: list[dict[str, Any]] = [asdict(figure) | {"met": figure.met} for figure in figures]
    emit({"rows": rows, "wrong": wrong}, options.json, [table, *wrong])
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
