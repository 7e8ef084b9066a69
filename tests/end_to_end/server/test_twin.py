"""The twin: what a live server did is what the simulator says, from its log exactly, from the list of jobs nearly.

A server with eight pretended cards runs 200 short jobs as real processes, gangs among them. Then

- the log that it stored, replayed by a fresh scheduler, gives the decisions that it stored, one by one; and
- a simulation that is told only which jobs came when, and how long their commands sleep, ends within 10 % of the live
  makespan.

The cards bound the live makespan, not the rate of submission. For how long a live job holds its cards beyond its
command's own length (the supervisor's start, the report of the end, on a busy machine the wait for a core) is not the
scheduler's doing: it is measured on this very run, as the mean over all jobs, and given to the simulator as its start
cost. Whatever else differed, an order, an idle card, a gang that waits for two, would show in the makespan.
`benchmarks/server/twin.py` goes further: more jobs, the overhead measured beforehand, and starts and waits compared.
"""

from __future__ import annotations

from typing import Any

import pytest
from real_pond import Pond, until

from benchmarks.server.twin import Run, live_course, simulated_course, stored_run
from event_logs import replay_log
from millpond.client.sdk import Client
from millpond.client.sdk.resources.jobs import ENDED
from millpond.model.events import Ended
from millpond.scheduling.scheduler import Scheduler

pytestmark = pytest.mark.long

JOBS = 200
MAKESPANS_AGREE_WITHIN = 0.1


def length_s(number: int) -> float:
    """How long a job's command sleeps: 0.4 to 0.9 s, in an order without a pattern that matters."""
    return 0.4 + 0.05 * (number * 7 % 11)


def document(number: int) -> dict[str, Any]:
    """A job file: mostly one card, sometimes two, sometimes a gang of two tasks with a card each."""
    shape = {5: {"gpus": 2}, 8: {"gpus": 1, "tasks": 2}}.get(number % 10, {"gpus": 1})
    return {"command": ["sleep", f"{length_s(number):.2f}"], "cpus": 0.1, "memory": "16MiB", **shape}


def live_run(pond: Pond) -> Run:
    """Two hundred jobs from submission to end on a real server, which is down afterwards."""
    pond.up()
    with Client(state_dir=pond.state_dir) as client:
        lengths = {client.submit(document(number)).id: length_s(number) for number in range(JOBS)}
        until(lambda: set(client.server().jobs) <= ENDED, within_s=600.0)
    done = pond("down")
    assert done.returncode == 0, done.stderr
    return stored_run(pond.state_dir, lengths)


def test_a_live_run_and_its_simulation_agree(pond: Pond):
    live = live_run(pond)
    ends = live.of(Ended)
    assert {end.job for end in ends} == set(live.lengths)
    assert {end.exit_code for end in ends} == {0}
    assert replay_log(live.events, Scheduler()) == live.decisions
    simulated = simulated_course(live, live.lengths, live.overhead_s(live.lengths))
    assert simulated.makespan_s == pytest.approx(live_course(live, live.lengths).makespan_s, rel=MAKESPANS_AGREE_WITHIN)
