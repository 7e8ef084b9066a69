"""The twin: what a live server did is what the simulator says, from its log exactly, from the list of jobs nearly.

A server with eight pretended cards runs 200 short jobs as real processes, gangs among them. Then

- the log that it stored, replayed by a fresh scheduler, gives the decisions that it stored, one by one; and
- a simulation that is told only which jobs came when, and how long their commands sleep, ends within 10 % of the live
  makespan.

The cards bound the live makespan, not the rate of submission. For how long a live job holds its cards beyond its
command's own length (the supervisor's start, the report of the end, on a busy machine the wait for a core) is not the
scheduler's doing: it is measured on this very run, as the mean over all jobs, and given to the simulator as its start
cost. Whatever else differed, an order, an idle card, a gang that waits for two, would show in the makespan.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, TypeVar

import pytest
from real_pond import Pond, until

from millpond.client.sdk import Client
from millpond.client.sdk.client import ENDED
from millpond.model.decisions import Decision
from millpond.model.events import Ended, Event, JobSubmitted, NodeJoined
from millpond.scheduling.scheduler import Scheduler
from millpond.server.store.connecting import sqlite_url
from millpond.server.store.store import Store
from millpond.simulation.costs import Costs
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.log import replay_log
from millpond.simulation.trace import TraceJob, Workload

JOBS = 200
MAKESPANS_AGREE_WITHIN = 0.1

E = TypeVar("E", bound=Event)


def length_s(number: int) -> float:
    """How long a job's command sleeps: 0.4 to 0.9 s, in an order without a pattern that matters."""
    return 0.4 + 0.05 * (number * 7 % 11)


def document(number: int) -> dict[str, Any]:
    """A job file: mostly one card, sometimes two, sometimes a gang of two tasks with a card each."""
    shape = {5: {"gpus": 2}, 8: {"gpus": 1, "tasks": 2}}.get(number % 10, {"gpus": 1})
    return {"command": ["sleep", f"{length_s(number):.2f}"], "cpus": 0.1, "memory": "16MiB", **shape}


@dataclass(frozen=True)
class Run:
    """What a server left in its store.

    Attributes:
        started_at: when it was decided to start each job, by job id.
        lengths: how long each job's command slept, by job id.
    """

    events: list[Event]
    decisions: list[Decision]
    started_at: dict[str, float]
    lengths: dict[str, float]

    def of(self, kind: type[E]) -> list[E]:
        """All events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def makespan_s(self) -> float:
        """From the first submission to the last end."""
        return max(end.at for end in self.of(Ended)) - min(job.at for job in self.of(JobSubmitted))

    @property
    def start_cost_s(self) -> float:
        """Mean time for which a job held its cards beyond the length of its command."""
        ended_at = {end.job: end.at for end in self.of(Ended)}
        return mean(ended_at[job] - self.started_at[job] - length for job, length in self.lengths.items())


def live_run(pond: Pond) -> Run:
    """Two hundred jobs from submission to end on a real server, which is down afterwards."""
    pond.up()
    with Client(state_dir=pond.state_dir) as client:
        lengths = {client.submit(document(number)).id: length_s(number) for number in range(JOBS)}
        until(lambda: set(client.server().jobs) <= ENDED, within_s=90.0)
    done = pond("down")
    assert done.returncode == 0, done.stderr
    return stored_run(pond.state_dir, lengths)


def stored_run(state_dir: Path, lengths: dict[str, float]) -> Run:
    """Read what a server that is down has left."""
    store = Store(sqlite_url(state_dir / "millpond.db"))
    try:
        events = [entry.event for entry in store.events_after(0)]
        decisions = list(store.decisions_after(0).values())
        started_at = {job: store.history(job)[1][0].at for job in lengths}
    finally:
        store.close()
    return Run(events, decisions, started_at, lengths)


def simulated_makespan_s(live: Run) -> float:
    """What the simulator makes of the jobs that were submitted."""
    entries = [TraceJob(event.job, event.at, live.lengths[event.job.id]) for event in live.of(JobSubmitted)]
    nodes = tuple(event.node for event in live.of(NodeJoined))
    costs = Costs(start_s=live.start_cost_s)
    simulation = Simulation(World(nodes, Workload(tuple(entries), "the live run"), costs=costs), Scheduler())
    simulation.run()
    return max(work.ended_at for work in simulation.works) - entries[0].submit_at


def test_a_live_run_and_its_simulation_agree(pond: Pond):
    live = live_run(pond)
    ends = live.of(Ended)
    assert {end.job for end in ends} == set(live.lengths)
    assert {end.exit_code for end in ends} == {0}
    assert replay_log(live.events, Scheduler()) == live.decisions
    assert simulated_makespan_s(live) == pytest.approx(live.makespan_s, rel=MAKESPANS_AGREE_WITHIN)
