"""Whether evictions end: random worlds of fixed work, and who is asked to leave for whom between two outside events.

Each world draws a tree of queues with guarantees, an ordering, whether it preempts, whether its pool suspends and lets
equals take turns. In every other one the tree has a floor more, CPUs are scarce, and queues are guaranteed some of
them. In every third one the tree has any shape, up to four floors, with limits, weights, queues that may not borrow,
guarantees of CPUs and memory, and work that is not preemptible, or not for some time; in every second of these,
guarantees and limits are of single models of cards. In every fifth, some of the work
is background work. A step is one outside event: jobs come that run until they are ended, or one ends; then time passes.
Between two of them

- every instant comes to rest,
- no job is evicted for one that was evicted for it, never at one instant, and else only by time,
- evictions end: in the last part of a long wait there are none, but for those by time.

*By time*: where the ordering preempts, a job may take the place of an equal at a later instant than the event, because
the keys of both have changed with the service they attain; and one that has become overdue, or that goes before an
overdue one by now because less counts of what its queue had, has other nodes open to it.
That is an event of the clock, so what follows from it at the same instant counts with it: others find their place in
what it has left. These evictions are counted apart, and so are turns; no pair may change places by time more than a few
times. Also counted is who leaves at the instant at which it has started: it started in vain.

    python -m benchmarks.tenancy.evictions [--steps 100000] [--first SEED] [--json FILE]
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "scheduling"))

from worlds import World, asks, elastic, gang, machine, queue

from benchmarks.reporting import Table, command_line, emit, note, program
from benchmarks.tenancy.random_trees import MODELS, leaves_of, of_model, of_some_models, random_tree_on
from millpond.model.decisions import Decision, Start, Stop, Suspend
from millpond.model.hardware.nodes import Pool
from millpond.model.reasons import Cause
from millpond.model.resources import TaskRequest
from millpond.model.tenancy.tenants import DEFAULT_QUEUE, Queue
from millpond.model.workloads import Checkpoint, CheckpointMode, Job, Priority, Suspendable
from millpond.scheduling.placement.kernels import fastest
from millpond.scheduling.settings import PreemptionCost, Settings

LEAVES = ("red", "blue", "guest", "free", "default")
CLASSES = (Priority.LOW, Priority.NORMAL, Priority.NORMAL, Priority.HIGH)
WITH_BACKGROUND = (Priority.BACKGROUND, *CLASSES)
LATE_S = 10 * 86_400.0
"""After so long a wait nothing is evicted any more."""
WAITS_S = (1.0, 60.0, 3_600.0, 86_400.0, 2 * LATE_S)
LONGEST_WITH_TURNS_S = 600.0
"""Turns go on for ever."""
MOST_CHANGES = 10
"""As many changes of place by time are few, for each job, in one wait."""


class Walk:
    """One world, and what happens in it.

    Attributes:
        found: how often each thing was seen.
        wrong: what should not be, in words.
    """

    def __init__(self, seed: int, *, any_tree: bool = False, with_models: bool = False) -> None:
        self.draws = random.Random(seed)
        self.found: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._jobs = 0
        self._event_at = 0.0
        self.is_deep, self._any_tree, self._with_models = seed % 2 == 1, any_tree, with_models
        self._classes = WITH_BACKGROUND if seed % 5 == 4 else CLASSES
        draws = self.draws
        self.preempts, self.turns = draws.random() < 0.5, draws.random() < 0.2
        settings = Settings(
            ordering=draws.choice(("default", "default", "fair", "fifo")),
            preempt=self.preempts,
            preemption_cost=draws.choice((PreemptionCost(), PreemptionCost(0.0, 0.0))),
        )
        pool = Pool(suspends=draws.random() < 0.5, turn_s=60.0 if self.turns else 0.0)
        nodes = [
            machine(f"n{number}", draws.choice((1, 2, 4, 8)), swap_mib=draws.choice((0, 64_000)))
            for number in range(draws.randint(1, 4))
        ]
        if with_models:
            nodes = [of_model(node, MODELS[number % 2]) for number, node in enumerate(nodes)]
        if self.is_deep:
            nodes = [replace(node, cpu_milli=draws.choice((4_000, 8_000, 64_000))) for node in nodes]
        queues = random_tree_on(draws, nodes, with_models=with_models) if any_tree else self._tree()
        self._queues = (*leaves_of(queues), DEFAULT_QUEUE) if any_tree else LEAVES
        self.world = World(*nodes, settings=settings, queues=queues, pools=(pool,))
        self.world.core.use_kernels(fastest())

    def _tree(self) -> tuple[Queue, ...]:
        size = self.draws.choice
        if self.is_deep:
            deep = (
                queue("team", guarantee=size((0, 2, 4, 6))),
                queue("wing", parent="team", guarantee=size((0, 1, 3, 4))),
                queue("red", parent="wing", guarantee=size((0, 1, 2))),
                queue("blue", parent=size(("wing", "team")), guarantee=size((0, 1))),
                queue("guest", guarantee=size((0, 1, 3))),
                queue("free"),
            )
            cpus = (0, 0, 2_000, 4_000, 8_000)
            return tuple(replace(each, guarantee=replace(each.guarantee, cpu_milli=size(cpus))) for each in deep)
        return (
            queue("team", guarantee=size((0, 0, 1, 2, 3, 4))),
            queue("red", parent="team", guarantee=size((0, 1, 2))),
            queue("blue", parent="team", guarantee=size((0, 1))),
            queue("guest", guarantee=size((0, 0, 1, 2, 3, 4))),
            queue("free", guarantee=size((0, 0, 1, 2))),
        )

    def _job(self) -> Job:
        draws, name = self.draws, f"j{self._jobs}"
        self._jobs += 1
        fields = {
            "queue": draws.choice(self._queues),
            "priority": draws.choice(self._classes),
            "user": draws.choice("xyz"),
            "checkpoint": draws.choice((Checkpoint(), Checkpoint(CheckpointMode.SIGNAL))),
            "suspendable": draws.choice((Suspendable.SWAP, Suspendable.FREEZE)),
        }
        if self._any_tree and fields["priority"] is not Priority.BACKGROUND:
            fields |= {"preemptible": draws.random() < 0.9, "minimum_run_s": draws.choice((0.0, 0.0, 0.0, 600.0))}
        match draws.choice(("single", "single", "single", "gang", "elastic")):
            case "single":
                gpus = draws.choice((0, 0.5, 1, 1, 2, 4))
                request = asks(gpus, cpus=draws.choice((1, 2, 4)) if self.is_deep else 1)
                return gang(name, 1, self._of_some_models(request), **fields)
            case "gang":
                return gang(name, draws.choice((2, 3)), self._of_some_models(asks(draws.choice((1, 2)))), **fields)
            case _:
                least = draws.choice((1, 2))
                sizes = (least, least + draws.choice((0, 1, 2)), least + 3)
                return elastic(name, sizes, self._of_some_models(asks(1)), **fields)

    def _of_some_models(self, request: TaskRequest) -> TaskRequest:
        return of_some_models(self.draws, request) if self._with_models else request

    def step(self) -> None:
        """One outside event, and the wait behind it."""
        world, mark = self.world, len(self.world.decisions)
        self._event_at = world.now
        if self.draws.random() < 0.75 or not world.running():
            world.submit(*(self._job() for _ in range(self.draws.randint(1, 3))))
        else:
            world.end(self.draws.choice(sorted(world.running())))
        wait = min(self.draws.choice(WAITS_S), LONGEST_WITH_TURNS_S if self.turns else max(WAITS_S))
        first = [(world.now, each) for each in world.decisions[mark:]]
        later = self._wait(world.now + min(wait, LATE_S))
        self._judge([*first, *later], late=False)
        if wait > LATE_S:
            self._judge(self._wait(world.now + wait - LATE_S), late=True)

    def _wait(self, until: float) -> list[tuple[float, Decision]]:
        """Let time pass; decisions with their instants."""
        world, found = self.world, []
        while world.now < until:
            mark = len(world.decisions)
            wake = world.core.next_wakeup(world.now)
            world.go_to(until if wake is None else min(until, max(wake, world.now + 0.001)))
            found += [(world.now, each) for each in world.decisions[mark:]]
        return found

    def _judge(self, decided: Sequence[tuple[float, Decision]], *, late: bool) -> None:
        changes, seen = 0, {}
        started = {(at, each.job): place for place, (at, each) in enumerate(decided) if isinstance(each, Start)}
        asked = [
            (place, at, each)
            for place, (at, each) in enumerate(decided)
            if isinstance(each, Stop | Suspend) and self._leaves(each)
        ]
        turned_at = {at for _, at, each in asked if at > self._event_at and self._is_by_clock(each)}
        for place, at, each in asked:
            if each.cause is Cause.TURN_TAKEN:
                self.found["turns"] += 1
                continue
            self.found["evictions"] += 1
            self.found["in vain"] += started.get((at, each.job), place) < place
            by_time = at in turned_at
            self.found["by time"] += by_time
            before = seen.get((each.for_job, each.job))
            seen[each.job, each.for_job] = at
            if before is not None and by_time and before < at:
                changes += 1
            elif before is not None:
                self.wrong.append(f"{each.job} left for {each.for_job}, which had left for it")
            elif late and not by_time:
                self.wrong.append(f"{each.job} left for {each.for_job} after {LATE_S:.0f} s without an event")
        if changes > MOST_CHANGES * self._jobs:
            self.wrong.append(f"{changes} changes of place by time among {self._jobs} jobs")

    def _leaves(self, decision: Stop | Suspend) -> bool:
        """Whether a job leaves for another, and does not only give up tasks that it can do without."""
        return bool(decision.for_job) and decision.cause is not Cause.SHRUNK

    def _is_by_clock(self, decision: Stop | Suspend) -> bool:
        """Whether a job left for an equal, by what the ordering makes of them, or beside one that is overdue."""
        jobs = self.world.core.jobs
        victim, successor = jobs[decision.job].job, jobs[decision.for_job]
        is_equal = self.preempts and victim.priority == successor.job.priority
        keeps_room = any(record.overdue and record.line for record in jobs.values())
        return decision.cause is Cause.PREEMPTED and (is_equal or successor.overdue or keeps_room)


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    options = parser.parse_args(arguments)
    found: Counter[str] = Counter()
    wrong: list[dict[str, object]] = []
    seed = options.first
    while found["steps"] < options.steps:
        walk = Walk(seed, any_tree=seed % 3 == 0, with_models=seed % 6 == 0)
        for _ in range(walk.draws.randint(3, 14)):
            found["steps"] += 1
            try:
                walk.step()
            except AssertionError as error:  # an instant that does not come to rest
                walk.wrong.append(str(error))
            if walk.wrong:
                wrong.append({"seed": seed, "what": walk.wrong[0]})
                note(f"seed {seed}: {walk.wrong[0]}")
                break
        found.update(walk.found)
        found["worlds"] += 1
        seed += 1
    table = Table("worlds", "steps", "evictions", "in vain", "by time", "turns", "wrong")
    columns = ("worlds", "steps", "evictions", "in vain", "by time", "turns")
    table.add(*(f"{found[key]:,}" for key in columns), f"{len(wrong):,}")
    emit({**found, "wrong": wrong}, options.json, [table, *(f"seed {each['seed']}: {each['what']}" for each in wrong)])
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
