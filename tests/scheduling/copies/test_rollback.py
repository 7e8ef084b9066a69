"""Whatever is tried and rolled back leaves no trace, not in one byte of the ledger; what could leave one raises."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scripts import Setting, jobs, worlds
from worlds import World

from ledgers import check_everything
from millpond.model.errors import InconsistentStateError
from millpond.model.events import JobSubmitted, LimitChanged, LoadSampled, NodeContents
from millpond.model.hardware.nodes import Pool
from millpond.model.reasons import Cause
from millpond.model.states import TaskState
from millpond.model.tenancy.tenants import Limit, Queue
from millpond.model.workloads import Job
from millpond.scheduling import runs
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.ordering.queueing import enqueue, submit
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.tenancy.queue_changes import set_limit
from seeds import few_then_many


def fingerprint(core: Scheduler) -> dict[str, Any]:
    """All that a trial can touch."""
    cluster = core._state.cluster
    queues, limits = core._state.queues.by_name.items(), core._state.limits
    # Lots that the random placement drew stay drawn.
    snapshot = {name: value for name, value in core.snapshot().items() if name != "rounds"}
    return {
        "node table": cluster.arrays.node_table.tobytes(),
        "device table": cluster.arrays.device_table.tobytes(),
        "free": cluster.free_gpu_milli,
        "releases": cluster.releases,
        "counted": sorted(limits.counted),
        "limit usage": {
            who: (held.jobs, held.gpu_milli, held.cpu_milli) for who, held in limits.held.items() if held.jobs
        },
        "queue usage": [(name, node.gpu_milli, node.cpu_milli, node.memory_mib) for name, node in queues],
        **snapshot,
    }


derandomized = settings(
    max_examples=40,
    phases=(Phase.explicit, Phase.generate),
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("examples", few_then_many([8], [40]))
def test_a_trial_that_is_rolled_back_leaves_no_trace(examples: int) -> None:
    @settings(derandomized, max_examples=examples)
    @given(setting=worlds(orderings=("default", "edf")), data=st.data(), seed=st.integers(0, 999))
    def rolled_back(setting: Setting, data: Any, seed: int) -> None:
        world = World(*setting.nodes, settings=setting.settings, pools=setting.pools, queues=setting.queues)
        world.submit(*(data.draw(jobs(f"r{number}")) for number in range(4)))
        for number in range(3):
            world.tell(JobSubmitted(world.now, data.draw(jobs(f"w{number}"))))
        world.tell(LimitChanged(world.now, Limit("ann", "", 100)))
        before = fingerprint(world.core)
        _try(world.core, random.Random(seed))
        assert fingerprint(world.core) == before
        check_everything(world.core)

    rolled_back()


@pytest.mark.long
@derandomized
@given(setting=worlds(orderings=("default", "edf")), data=st.data(), which=st.integers(0, 99))
def test_what_a_trial_cannot_undo_raises_and_changes_nothing(setting: Setting, data: Any, which: int) -> None:
    world = World(*setting.nodes, settings=setting.settings, pools=setting.pools, queues=setting.queues)
    world.submit(*(data.draw(jobs(f"r{number}")) for number in range(3)))
    before = fingerprint(world.core)
    changes = _irreversible(world.core, data.draw(jobs("new")))
    mark = world.core._state.journal.begin()
    with pytest.raises(InconsistentStateError, match="cannot undo"):
        changes[which % len(changes)]()
    world.core._state.journal.rollback(mark)
    assert fingerprint(world.core) == before


def _irreversible(core: Scheduler, job: Job) -> list[Callable[[], object]]:
    """Changes of every kind that have no inverse."""
    state, cluster = core._state, core._state.cluster
    node, queue, limit = next(node for node in cluster.nodes if node), Queue("fresh"), Limit("ann", "", 1)
    record = next(iter(core.jobs.values()))
    task = record.tasks[0]
    return [
        lambda: core.decide(state.now + 1.0),
        lambda: core.handle(JobSubmitted(state.now, job)),
        lambda: cluster.set_pool(Pool("fresh")),
        lambda: cluster.add_node(replace(node, name="fresh", devices=())),
        lambda: cluster.update_node(replace(node, cpu_milli=1)),
        lambda: cluster.remove_node(node.name),
        lambda: core.handle(LoadSampled(state.now, node.name, 7)),
        lambda: core.handle(NodeContents(state.now, node.name, (), 1)),
        lambda: state.queues.set_queue(queue),
        lambda: set_limit(state, limit),
        lambda: submit(state, job),
        lambda: enqueue(state, record),
        lambda: runs.start(state, record, [], Cause.FITS),
        lambda: runs.stop(state, record, Trigger.ENDED_BADLY, Cause.STOP_REQUESTED),
        lambda: runs.release(state, record, task),
        lambda: runs.close(state, record),
    ]


def _try(core: Scheduler, rng: random.Random) -> None:
    """Let some work leave, close nodes, place waiting jobs, and take half of that back within the trial."""
    state, journal = core._state, core._state.journal
    mark = journal.begin()
    for record in list(state.running.values()):
        for task in record.tasks:
            if task.holding is not None and task.state is TaskState.RUNNING and rng.random() < 0.5:
                state.cluster.change(task.holding, rng.choice(list(type(task.holding.hold))))
                state.charge(record, state.amounts.asked(record, [task]), -1)
                state.limits.count(record, -1)
    for name in state.cluster.node_index:
        state.cluster.set_closed(name, rng.random() < 0.5)
    for record in list(state.waiting):
        inner = journal.begin()
        placed = core._placer.place(record)
        if placed is not None:
            state.charge(record, state.amounts.of_placed(record, placed), 1)
            state.limits.count(record, 1)
        if rng.random() < 0.5:
            journal.rollback(inner)
        else:
            journal.commit()
    journal.rollback(mark)
