"""Random interleavings of everything that befalls tasks on shared devices, and what must hold after each of them.

    python -m benchmarks.sharing.sharing_walk --walks 10000

Each walk takes the node's own code (residency manager, arbiter, ledger, reconciler, checkpoint mover) through some
dozen steps on a pretended node (``fake_device``): tasks of all classes start, are frozen, swapped, resumed and
migrated to other devices, use more and less memory, start processes, end, are killed while they are moved; strangers
take memory; the driver hangs, fails, refuses maps and has no room; the agent is killed in the middle of a call and its
successor takes over. After each step

- the node's books say of every task what the devices and its processes say, and on which devices it is,
- nobody who ended is in the books, and nobody is halted or on the host whom nobody wants there,
- what was granted of a device fits into it, and so does what is used of it,
- whoever wanted room has it, or was refused with a reason, by the deadline.

At the end everything is released, and nobody may be left halted or on the host.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from benchmarks.reporting import Table, command_line, emit, program
from benchmarks.sharing.fake_device import CONTEXT_MIB, AgentKilledError, FakeNode, FakeProcess
from millpond.model.decisions import Grant
from millpond.model.sharing import ShareClass
from millpond.node.sharing.arbiter import Arbiter, NodeContext
from millpond.node.sharing.backend import MoveOutcome, MoveResult
from millpond.node.sharing.checkpoint import CheckpointMover
from millpond.node.sharing.desired_state import DesiredState
from millpond.node.sharing.helper import ProcessState
from millpond.node.sharing.ledger import Ledger, LedgerEntry, Residence
from millpond.node.sharing.movers import VendorMover
from millpond.node.sharing.residency import ResidencyManager
from millpond.node.task.records import TaskId

FAULTS = {
    "agent killed": 0.01,
    "helper hangs before": 0.01,
    "helper hangs after": 0.01,
    "target ends": 0.01,
    "checkpoint fails": 0.01,
    "work does not end": 0.02,
    "cannot be halted": 0.01,
    "map refused": 0.05,
}
STEPS = 25
DEADLINE_S = 30.0
UNDOING_S = 45.0
"""What undoing may take beyond a deadline: a quarter of a minute for each move that has to be taken back."""

_CARD_MIB = 80_000
_NODE = "node"
_MOST_LIVES = 200


@dataclass(slots=True)
class FakeDesiredStates:
    """What survives the agent: the desired states, as files would (``desired_state.DesiredStates``)."""

    node: FakeNode

    def of(self, task: TaskId) -> DesiredState:
        """See ``DesiredStates``."""
        return self.node.desired_states.get(task, DesiredState.RUNNING)

    def want(self, task: TaskId, desired: DesiredState) -> None:
        """See ``DesiredStates``."""
        self.node.desired_states[task] = desired


@dataclass(slots=True)
class FakeAssignments:
    """The same for where tasks belong (``residency.DeviceAssignments``)."""

    node: FakeNode

    def of(self, task: TaskId) -> tuple[Grant, ...]:
        """See ``DeviceAssignments``."""
        return self.node.assignments.get(task, ((), ()))[0]

    def move(self, task: TaskId, grants: Sequence[Grant], left: Sequence[str]) -> None:
        """See ``DeviceAssignments``."""
        self.node.assignments[task] = tuple(grants), tuple(left)

    def arrived(self, task: TaskId) -> None:
        """See ``DeviceAssignments``."""
        self.node.assignments[task] = self.of(task), ()


@dataclass(slots=True)
class Walk:
    """One node, its agent of the moment, and the core's view of its tasks."""

    random: Random
    faults: dict[str, float]
    node: FakeNode = field(init=False)
    residency: ResidencyManager = field(init=False)
    entries: dict[TaskId, LedgerEntry] = field(default_factory=dict)
    expected: dict[TaskId, DesiredState] = field(default_factory=dict)
    lost: set[TaskId] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    host_mib: int = 0

    def __post_init__(self) -> None:
        devices = {f"gpu-{number}": _CARD_MIB for number in range(self.random.randint(1, 3))}
        self.node = FakeNode(devices, self.random, self.faults)
        self.host_mib = self.random.choice([0, _CARD_MIB, 4 * _CARD_MIB])
        self.residency = self._new_residency()

    def step(self) -> None:
        """Something happens; then everything must be in order."""
        happening = self.random.choice(_HAPPENINGS)
        self.counts[happening.__name__] += 1
        happening(self)
        self._notice_ends()
        self.check()

    def release_all(self) -> None:
        """Nothing goes wrong any more, and everybody is let go."""
        self.node.faults = {}
        for pid in [pid for pid, process in self.node.processes.items() if process.task is None]:
            del self.node.processes[pid]
        for task in sorted(self.expected, key=lambda each: each.job):
            if self.expected[task] is not DesiredState.RUNNING and task in self.expected:
                self._resume(task)
                self._notice_ends()
        while self.expected:
            self.residency.arbiter.bring_back(self.node.now + DEADLINE_S)
            self._notice_ends()
            self.check()
            waiting = [entry for entry in self.residency.ledger if entry.residence is Residence.SWAPPED]
            present = [task for task in self.expected if task not in {entry.task for entry in waiting}]
            for process in (process for task in present for process in self.node.of(task)):
                assert not process.halted
                assert process.state is ProcessState.RUNNING
            assert present or not waiting, "nobody could return to an empty device"
            for task in present:
                self.node.kill(task)
            self._notice_ends()

    # ---- what happens -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Somebody arrives."""
        task = TaskId(f"job-{len(self.entries)}", 1, 0)
        cards = self.random.sample(
            sorted(self.node.capacity_mib), self.random.choice([1, 1, 1, len(self.node.capacity_mib)])
        )
        mib = self.random.choice([4_000, 20_000, 40_000, 70_000, _CARD_MIB])
        entry = LedgerEntry(task, _NODE, dict.fromkeys(cards, mib), self.random.choice(list(ShareClass)))
        answer = self._insist(lambda: self._arrive(entry))
        assert answer.ok or answer.reason, "a refusal without a reason"
        self.counts["admitted" if answer.ok else "refused"] += 1
        if answer.ok:
            self.entries[task], self.expected[task] = entry, DesiredState.RUNNING
            self.node.assignments[task] = _grants(entry.memory_mib), ()
            self._settle_in(task, entry)

    def _arrive(self, entry: LedgerEntry) -> MoveResult:
        asked_at = self.node.now
        answer = self.residency.arbiter.arrive(entry, asked_at + DEADLINE_S)
        assert self.node.now <= asked_at + DEADLINE_S + UNDOING_S, "an arrival waited beyond its deadline"
        return answer

    def _settle_in(self, task: TaskId, entry: LedgerEntry) -> None:
        odd = self.random.random()
        traits = {"moves": odd > 0.1, "drawing": odd < 0.02, "secret": 0.02 < odd < 0.04}
        self.node.begin(FakeProcess(task))
        for card, granted in entry.memory_mib.items():
            share = granted // 2
            for _ in range(self.random.randint(1, 2)):
                room = _CARD_MIB - self.node.used_mib(card)
                used = min(CONTEXT_MIB + self.random.randrange(share - CONTEXT_MIB), room)
                shown = traits | {"drawing": traits["drawing"] and used > 0}  # who draws has memory there
                self.node.begin(FakeProcess(task, card, used, self.random.choice([0.0, 0.1, 100.0]), **shown))

    def freeze(self) -> None:
        """The core wants somebody halted."""
        task = self._some(DesiredState.RUNNING)
        if task is not None:
            answer = self._insist(lambda: self.residency.freeze(task, DEADLINE_S))
            self._answered(task, answer, DesiredState.FROZEN)

    def swap(self) -> None:
        """The core wants somebody off the device."""
        task = self._some(DesiredState.RUNNING)
        if task is not None:
            answer = self._insist(lambda: self.residency.swap_out(task, DEADLINE_S), task)
            self._answered(task, answer, DesiredState.SWAPPED)

    def migrate(self) -> None:
        """The core wants somebody on other devices, as it runs."""
        task = self._some(DesiredState.RUNNING)
        grants = () if task is None else self._elsewhere(task)
        if task is not None and grants:
            home = self.node.assignments[task][0]
            answer = self._insist(lambda: self.residency.migrate(task, DEADLINE_S, grants), task)
            self._answered(task, answer, DesiredState.RUNNING, "migrated")
            if answer.outcome is not MoveOutcome.LOST:
                assert self.node.assignments[task] == (grants if answer.ok else home, ())

    def _elsewhere(self, task: TaskId) -> tuple[Grant, ...]:
        """The same amounts of other devices, if there are enough."""
        own = self.residency.ledger.get(task)
        assert own is not None
        others = sorted(set(self.node.capacity_mib) - set(own.memory_mib))
        if len(others) < len(own.memory_mib):
            return ()
        chosen = self.random.sample(others, len(own.memory_mib))
        return _grants(dict(zip(chosen, own.memory_mib.values(), strict=True)))

    def resume(self) -> None:
        """The core wants somebody to go on, where it was or on other devices; it counts the room as free."""
        task = self._some(DesiredState.FROZEN, DesiredState.SWAPPED)
        if task is not None:
            moves = self.expected[task] is DesiredState.SWAPPED and self.random.random() < 0.3
            self._resume(task, self._elsewhere(task) if moves else ())

    def _resume(self, task: TaskId, grants: tuple[Grant, ...] = ()) -> None:
        answer = self._insist(lambda: self.residency.resume(task, DEADLINE_S, grants), task)
        if answer.ok:
            self.expected[task] = DesiredState.RUNNING
        else:
            self.counts["not resumed"] += 1
            self.node.kill(task)  # the core ends what cannot go on

    def end(self) -> None:
        """A task ends, or is killed."""
        task = self._some(*DesiredState)
        if task is not None:
            self.node.kill(task)

    def change(self) -> None:
        """A task that runs uses more or less, within what it was granted, or starts another process."""
        task = self._some(DesiredState.RUNNING)
        for process in self.node.of(task) if task is not None else ():
            if process.device and process.state is ProcessState.RUNNING and not process.halted:
                process.used_mib = self.random.randint(min(CONTEXT_MIB, process.used_mib), process.used_mib)
                process.kernel_s = self.random.choice([0.0, 0.5])
                self.node.begin(FakeProcess(task))
                return

    def strangers(self) -> None:
        """Somebody who is not ours takes memory, or gives it back."""
        there = [pid for pid, process in self.node.processes.items() if process.task is None]
        if there:
            del self.node.processes[there[0]]
            return
        card = self.random.choice(sorted(self.node.capacity_mib))
        free = _CARD_MIB - self.node.used_mib(card)
        self.node.begin(FakeProcess(None, card, self.random.randint(0, free)))

    def return_some(self) -> None:
        """The agent looks whether somebody can return."""
        self._insist(lambda: self.residency.arbiter.bring_back(self.node.now + DEADLINE_S))

    def agent_restarts(self) -> None:
        """Between two steps."""
        self._take_over(None)

    # ---- the agent and the core -------------------------------------------------------------------------------------

    def _new_residency(self) -> ResidencyManager:
        ledger = Ledger(self.node.capacity_mib, {_NODE: self.host_mib})
        checkpoints = CheckpointMover(
            self.node, self.node, lambda task: 0, self.node.resident_mib, self.node.clock, self.node.sleep
        )
        mover = VendorMover(self.node, checkpoints, lambda task: "nvidia")
        context = NodeContext(self.node.clock, lambda task, reason: self.lost.add(task))
        arbiter = Arbiter(ledger, mover, context)
        return ResidencyManager(arbiter, self.node, FakeDesiredStates(self.node), FakeAssignments(self.node))

    def _insist(self, act: Callable[[], Any], about: TaskId | None = None) -> Any:
        """Do something; when the agent is killed meanwhile, its successor takes over and does it again."""
        for _ in range(_MOST_LIVES):
            try:
                return act()
            except AgentKilledError:
                self._take_over(about)
                if about is not None and not self.node.pids(about):
                    return MoveResult(MoveOutcome.LOST, "it has ended")
        raise AssertionError("the agent never survived")

    def _take_over(self, about: TaskId | None) -> None:
        for _ in range(_MOST_LIVES):
            self.counts["lives"] += 1
            self.residency = self._new_residency()
            living = [self._as_recorded(task) for task in self.expected]
            try:
                self.residency.recover(living, lambda task: task == about, DEADLINE_S)
            except AgentKilledError:
                continue
            return
        raise AssertionError("no successor survived")

    def _as_recorded(self, task: TaskId) -> LedgerEntry:
        grants, left = self.node.assignments[task]
        return replace(self.entries[task], memory_mib={each.device: each.memory_mib for each in grants}, left=left)

    def _answered(self, task: TaskId, answer: MoveResult, desired: DesiredState, what: str = "") -> None:
        self.counts[f"{what or desired.value} {answer.outcome.value}"] += 1
        assert answer.ok or answer.reason
        if answer.ok:
            self.expected[task] = desired
        elif answer.outcome is MoveOutcome.LOST:
            self.lost.add(task)

    def _notice_ends(self) -> None:
        """What is lost is ended, and who has ended is released."""
        for task in self.lost:
            self.node.kill(task)
        self.counts["lost"] += len(self.lost)
        self.lost.clear()
        for task in [task for task in self.expected if not self.node.pids(task)]:
            del self.expected[task]
            self.residency.release(task)

    def _some(self, *desired_states: DesiredState) -> TaskId | None:
        tasks = sorted(
            (task for task, desired in self.expected.items() if desired in desired_states), key=lambda task: task.job
        )
        return self.random.choice(tasks) if tasks else None

    # ---- what must hold ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """The books, the device, the processes and the core agree."""
        ledger = self.residency.ledger
        assert {entry.task for entry in ledger} == set(self.expected)
        for entry in ledger:
            self._check_task(entry, self.expected[entry.task])
        for card, capacity in self.node.capacity_mib.items():
            account = ledger.account(card)
            assert account.resident_mib <= capacity, "more was granted than there is"
            assert self.node.used_mib(card) <= capacity, "more is used than there is"
        assert ledger.host_free_mib(_NODE) >= 0 or not self.host_mib

    def _check_task(self, entry: LedgerEntry, desired: DesiredState) -> None:
        processes = self.node.of(entry.task)
        on_device = [process for process in processes if process.device]
        assert entry.residence in (Residence.RESIDENT, Residence.SWAPPED), "something is still on its way"
        if entry.residence is Residence.SWAPPED:
            assert desired is DesiredState.SWAPPED or entry.displaced
            assert all(process.state is ProcessState.CHECKPOINTED for process in on_device)
            assert all(process.halted for process in processes)
        else:
            assert desired is not DesiredState.SWAPPED
            assert {process.device for process in on_device} <= set(entry.memory_mib), "it is where it does not belong"
            assert all(process.state is ProcessState.RUNNING for process in on_device)
            assert all(process.halted is (desired is DesiredState.FROZEN) for process in processes)
            assert (entry.task in self.node.held) is (desired is DesiredState.FROZEN), "its launches are held"


_HAPPENINGS: tuple[Callable[[Walk], None], ...] = (
    *[Walk.start] * 4,
    *[Walk.swap] * 3,
    *[Walk.resume] * 3,
    *[Walk.freeze] * 2,
    *[Walk.migrate] * 2,
    Walk.end,
    Walk.change,
    Walk.strangers,
    Walk.return_some,
    Walk.agent_restarts,
)


def _grants(memory_mib: Mapping[str, int]) -> tuple[Grant, ...]:
    return tuple(Grant(device, 100, 100, mib) for device, mib in memory_mib.items())


def walk(seed: int, faults: dict[str, float] = FAULTS) -> Counter[str]:
    """One walk from its beginning to the release of everybody; what happened in it, counted.

    Raises:
        AssertionError: something did not hold.
    """
    here = Walk(Random(seed), dict(faults))
    for _ in range(STEPS):
        here.step()
    here.release_all()
    return here.counts + Counter({f"fault: {name}": count for name, count in here.node.fault_count.items()})


@program
def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Walk, and say what happened."""
    parser = command_line(__doc__)
    parser.add_argument("--walks", type=int, default=10_000)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args(arguments)
    begun, counts = time.perf_counter(), Counter[str]()
    for seed in range(options.first_seed, options.first_seed + options.walks):
        try:
            counts += walk(seed)
        except AssertionError as error:
            raise SystemExit(f"walk {seed}: {error}") from error
    result = {
        "walks": options.walks,
        "steps": options.walks * STEPS,
        "seconds": round(time.perf_counter() - begun, 1),
        "happened": dict(sorted(counts.items())),
    }
    table = Table("what happened", "times", texts=1)
    for name, count in sorted(counts.items()):
        table.add(name, f"{count:,}")
    emit(result, options.json, [table, f"{options.walks:,} walks held, in {result['seconds']} s"])
    return result


if __name__ == "__main__":
    main()
