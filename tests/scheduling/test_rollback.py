"""Whatever is tried within a transaction and rolled back leaves no trace: not in one byte of the ledger."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from ledgers import check_everything
from scripts import Setting, jobs, worlds
from worlds import World

from millpond.model.events import JobSubmitted
from millpond.model.states import TaskState
from millpond.scheduling.scheduler import Scheduler


def fingerprint(core: Scheduler) -> dict[str, Any]:
    """All that a trial can touch."""
    cluster = core._state.cluster
    queues = core._state.queues.by_name.items()
    # Lots that the random placement drew stay drawn.
    snapshot = {name: value for name, value in core.snapshot().items() if name != "rounds"}
    return {
        "node table": cluster.arrays.node_table.tobytes(),
        "device table": cluster.arrays.device_table.tobytes(),
        "free": cluster.free_gpu_milli,
        "queue usage": [(name, node.gpu_milli, node.cpu_milli, node.memory_mib) for name, node in queues],
        **snapshot,
    }


@settings(
    max_examples=40,
    phases=(Phase.explicit, Phase.generate),
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(setting=worlds(orderings=("default", "edf")), data=st.data(), seed=st.integers(0, 999))
def test_a_trial_that_is_rolled_back_leaves_no_trace(setting: Setting, data: Any, seed: int) -> None:
    world = World(*setting.nodes, settings=setting.settings, pools=setting.pools, queues=setting.queues)
    world.submit(*(data.draw(jobs(f"r{number}")) for number in range(4)))
    for number in range(3):
        world.tell(JobSubmitted(world.now, data.draw(jobs(f"w{number}"))))
    before = fingerprint(world.core)
    _try(world.core, random.Random(seed))
    assert fingerprint(world.core) == before
    check_everything(world.core)


def _try(core: Scheduler, rng: random.Random) -> None:
    """Let some work leave, place whoever waits, and take half of it back within the trial."""
    state, journal = core._state, core._state.journal
    mark = journal.begin()
    for record in list(state.running.values()):
        for task in record.tasks:
            if task.holding is not None and task.state is TaskState.RUNNING and rng.random() < 0.5:
                state.cluster.change(task.holding, rng.choice(list(type(task.holding.hold))))
                state.queues.charge(record.queue, record.amount_of([task]), -1)
    for record in list(state.waiting):
        inner = journal.begin()
        placed = core._placer.place(record)
        if placed is not None:
            state.queues.charge(record.queue, record.amount_of([task for task, _ in placed]), 1)
        if rng.random() < 0.5:
            journal.rollback(inner)
        else:
            journal.commit()
    journal.rollback(mark)
